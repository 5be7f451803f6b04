"""A region of `shiplap lab dev` that stays up after its scenario: for kubectl, `shiplap top` and a browser.

Schedules are not emulated: each minute the functions of the minute are invoked here, and a watch when the last one has
ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Protocol

import msgspec

from shiplap.errors import ShiplapError

MINUTE_S = 60.0
WATCH_S = 14 * MINUTE_S
"""A watch lasts so long, as with the schedule of the stack."""

_PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<meta http-equiv="refresh" content="10"><link rel="icon" href="data:,"><title>shiplap lab dev</title></head>'
    '<body style="margin:16px;font-family:sans-serif">{}</body></html>'
)


class KeptRegion(Protocol):
    """A region that goes on: `endpoints` are those of the clusters' API servers, by name."""

    @property
    def endpoints(self) -> dict[str, str]: ...

    def now(self) -> float: ...

    def let_time_pass(self) -> None: ...

    def disrupt(self, cluster: str) -> None: ...

    def watch(self, cluster: str) -> None: ...

    def widget(self) -> str: ...


def keep_going(region: KeptRegion) -> None:
    """Invoke the functions of each minute until KeyboardInterrupt, which ends it and goes no further."""
    minute_at = watch_at = region.now()
    watch_at += WATCH_S
    try:
        while True:
            if region.now() >= minute_at:
                minute_at += MINUTE_S
                for cluster in region.endpoints:
                    region.disrupt(cluster)
            if region.now() >= watch_at:
                watch_at += WATCH_S
                for cluster in region.endpoints:
                    region.watch(cluster)
            region.let_time_pass()
    except KeyboardInterrupt:
        return


def write_kubeconfig(folder: Path, endpoints: dict[str, str]) -> Path:
    """A kubeconfig with a context for each cluster, the first one by name as the current one."""
    names = sorted(endpoints)
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": endpoints[name]}} for name in names],
        "users": [{"name": "anybody", "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "anybody"}} for name in names],
        "current-context": names[0],
    }
    path = folder / "kubeconfig"
    path.write_bytes(msgspec.yaml.encode(document))
    return path


@contextmanager
def widget_page(draw: Callable[[], str]) -> Iterator[str]:
    """Serve the dashboard's widget as a page on loopback, drawn anew for each visit; yields its address."""

    class _Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                status, body = 200, _PAGE.format(draw())
            except ShiplapError as error:
                status, body = 502, f"the widget cannot be drawn: {error}"
            encoded = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"text/{'html' if status == 200 else 'plain'}; charset=utf-8")
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            """Visits are not logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = Thread(target=server.serve_forever, name="widget-page", args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def instructions(kubeconfig: Path, page: str, contexts: Sequence[str]) -> str:
    """Return instructions that show people what to do in a playground."""
    others = f"   # or --context {', '.join(contexts[1:])}" if len(contexts) > 1 else ""
    return "\n".join(
        (
            "The region stays up until Ctrl-C. In another terminal:",
            f"  export KUBECONFIG={kubeconfig}",
            f"  kubectl get pods,nodes -A{others}",
            "  kubectl apply -f POD.yaml   # a pod that fits nowhere gets a node",
            "  shiplap top --dev",
            f"The dashboard's widget: {page}",
        )
    )

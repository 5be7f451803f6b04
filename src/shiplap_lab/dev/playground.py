"""A region of `shiplap lab dev` that stays up after its scenario: for kubectl, `shiplap top` and a browser.

Schedules are not emulated: each minute the functions of the minute are invoked here, and a watch when the last one has
ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

import msgspec

from shiplap.errors import ShiplapError

MINUTE_S = 60.0
WATCH_S = 14 * MINUTE_S
"""A watch lasts so long, as with the schedule of the stack."""

_PATIENCE_LOOKS = 50
"""After so many looks without a change a page draws anew all the same: not every change is one of the version."""

_PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<noscript><meta http-equiv="refresh" content="10"></noscript>'
    '<link rel="icon" href="data:,"><title>shiplap lab dev</title></head>'
    '<body style="margin:16px;font-family:sans-serif"><div id="widget">{}</div><script>'
    'let seen="";const text=async path=>(await fetch(path)).text(),pause=ms=>new Promise(done=>setTimeout(done,ms));'
    "(async()=>{{for(;;){{try{{"
    'seen=await text("version?seen="+seen);document.getElementById("widget").innerHTML=await text("widget")'
    "}}catch(gone){{await pause(2000)}}await pause(400)}}}})()"
    "</script></body></html>"
)
"""Draws the widget anew as soon as the answer of `version` differs from the one before."""


class KeptRegion(Protocol):
    """A region that goes on: `endpoints` are those of the clusters' API servers, by name."""

    @property
    def endpoints(self) -> dict[str, str]: ...

    def now(self) -> float: ...

    def let_time_pass(self) -> None: ...

    def disrupt(self, cluster: str) -> None: ...

    def watch(self, cluster: str) -> None: ...

    def widget(self) -> str: ...

    def version(self) -> str:
        """Differs whenever something has changed that a page may show."""
        ...


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


class _Widget:
    """The widget's markup; it is drawn once for a version, however many pages are open."""

    def __init__(self, draw: Callable[[], str], version: Callable[[], str], closing: Event, look_s: float) -> None:
        self._draw, self._version, self._closing, self._look_s = draw, version, closing, look_s
        self._drawn: tuple[str, str] | None = None
        self._lock = Lock()

    def markup(self) -> str:
        """Raises ShiplapError."""
        with self._lock:
            version = self._version()
            if self._drawn is None or self._drawn[0] != version:
                self._drawn = (version, self._draw())
            return self._drawn[1]

    def version_after(self, seen: str) -> str:
        """The version, once it is another one than was seen; after some seconds in any case, to be drawn anew."""
        for _ in range(_PATIENCE_LOOKS):
            version = self._version()
            if version != seen or self._closing.wait(self._look_s):
                return version
        with self._lock:
            self._drawn = None
        return seen


@contextmanager
def widget_page(draw: Callable[[], str], version: Callable[[], str], *, look_s: float = 0.2) -> Iterator[str]:
    """Serve the dashboard's widget as a page on loopback that follows the changes; yields its address.

    Args:
        draw: the markup.
        version: differs from the one before when there may be something new to draw.
        look_s: how often the version is looked at while a page waits for a change.
    """
    closing = Event()
    widget = _Widget(draw, version, closing, look_s)

    def answer(path: str) -> tuple[str, str]:
        split = urlsplit(path)
        if split.path == "/version":
            return widget.version_after(dict(parse_qsl(split.query)).get("seen", "")), "plain"
        markup = widget.markup()
        return (markup if split.path == "/widget" else _PAGE.format(markup)), "html"

    class _Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                status, (body, kind) = 200, answer(self.path)
            except ShiplapError as error:
                status, body, kind = 502, f"the widget cannot be drawn: {error}", "plain"
            encoded = body.encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", f"text/{kind}; charset=utf-8")
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)
            except ConnectionError:
                return  # the page was closed while it waited for a change

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            """Visits are not logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = Thread(target=server.serve_forever, name="widget-page", args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        closing.set()
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
            "  kubectl create deployment web --image=pause --replicas=200   # pods that fit nowhere get nodes",
            f"  shiplap top --dev --cluster {contexts[0]}",
            f"A page that draws the nodes: {page}",
        )
    )

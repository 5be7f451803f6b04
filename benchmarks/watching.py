"""What the watch function needs: processor time from an API server's event to the bus, and memory by the pods it keeps.

Events come as lines of a watch's stream, hints go to EventBridge as a server on loopback plays it. Lambda gives a
function with 128 MiB a fourteenth of a processor: expect fourteen times the time by wall there, plus the time that what
follows a change is waited for.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

PODS = (0, 10_000, 30_000, 100_000)
EVENTS = 300
_ANSWER = b'{"FailedEntryCount":0,"Entries":[{"EventId":"1"}]}'


class _Bus(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(_ANSWER)))
        self.end_headers()
        self.wfile.write(_ANSWER)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def serve() -> None:
    """Play the bus until killed."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Bus)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


def hints() -> list[float]:
    """Milliseconds of processor time of each event, ascending, from its line to the bus's answer."""
    from large_world import waiting_pod  # noqa: PLC0415 - moto is large

    from shiplap.aws.bus import EventBridgeBus  # noqa: PLC0415
    from shiplap.aws.session import client  # noqa: PLC0415
    from shiplap.cluster.client import _watch_event  # noqa: PLC0415
    from shiplap.cluster.watcher import Tracker  # noqa: PLC0415
    from shiplap.provisioning.watch import hints_of  # noqa: PLC0415

    bus, tracker = EventBridgeBus(client("events"), "bus"), Tracker()
    taken = []
    for number in range(EVENTS):
        pod = waiting_pod(number)
        pod["metadata"] |= {"namespace": "shop", "uid": f"u-{number}", "resourceVersion": str(number)}
        line = msgspec.json.encode({"type": "ADDED", "object": pod})
        began = time.process_time()
        tracker.see(_watch_event("pods", line))
        bus.publish(hints_of("large", tracker.take(), 1e9))
        taken.append(1000 * (time.process_time() - began))
    return sorted(taken)


def memory(pods: int) -> tuple[float, float]:
    """MiB of a process with the handler, its clients and a table of so many pods, and its most as it writes them."""
    sys.path.insert(0, str(ROOT / "functions" / "watch"))
    import handler  # noqa: F401, PLC0415 - for its memory

    from shiplap.aws.session import client  # noqa: PLC0415
    from shiplap.kubernetes.compact import PodTable, Standing  # noqa: PLC0415
    from shiplap.kubernetes.objects import Pod  # noqa: PLC0415

    client("events"), client("s3")
    table = PodTable()
    for number in range(pods):
        name, app = f"service-{number % 1500}-{number:06d}", f"service-{number % 1500}"
        document = {
            "metadata": {
                "name": name,
                "namespace": f"team-{number % 60}",
                "uid": f"{number:08x}-0000-4000-8000-{number:012x}",
                "labels": {"app": app, "pod-template-hash": f"{number % 1500:08x}"},
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{"kind": "ReplicaSet", "name": app, "uid": app, "controller": True}],
            },
            "spec": {
                "nodeName": f"ip-10-0-{number % 5000}.ec2.internal",
                "containers": [{"name": "main", "resources": {"requests": {"cpu": f"{number % 1500}m"}}}],
            },
            "status": {"phase": "Running"},
        }
        table.put(msgspec.convert(document, Pod))
    kept = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    standing = Standing(cluster="c", version="1", taken_at=0.0, listed_at=0.0, kept_since=0.0)
    for _ in range(2):
        table.document(standing)
    return kept, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _run(*arguments: str, **more: str) -> str:
    environment = {**os.environ, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "a"}
    environment |= {"AWS_SECRET_ACCESS_KEY": "b", **more}
    command = [sys.executable, str(Path(__file__)), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout  # noqa: S603


def main() -> None:
    match sys.argv[1:]:
        case ["serve"]:
            serve()
        case ["hints"]:
            print(*hints())
        case ["memory", pods]:
            print(*memory(int(pods)))
        case _:
            with subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, str(Path(__file__)), "serve"], stdout=subprocess.PIPE, text=True
            ) as bus:
                assert bus.stdout is not None
                taken = [float(ms) for ms in _run("hints", AWS_ENDPOINT_URL=bus.stdout.readline().strip()).split()]
                bus.kill()
            print(
                f"from an event to the bus: {statistics.median(taken):.1f} ms of a processor (median of {EVENTS},",
                end="",
            )
            print(f" from {taken[0]:.1f}; the first, which makes the connection, {taken[-1]:.0f})")
            for pods in PODS:
                kept, most = (float(mib) for mib in _run("memory", str(pods)).split())
                print(f"{pods:7} pods: {kept:5.0f} MiB, {most:5.0f} at most while a snapshot is made")


if __name__ == "__main__":
    main()

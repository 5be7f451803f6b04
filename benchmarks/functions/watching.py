"""Measures the watch function: processor time from an API server's event to the bus, memory by the pods it keeps, and
both by the number of clusters that one invocation watches; and its most memory in a cluster of 500 pods of 1.4 MiB,
whatever they consist of, beside that of the schedule function, which lists 1,000 of them. The bar is the memory of each
function; the exit code judges it.

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
from collections.abc import Callable, Sequence
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from benchmarks.shared.bars import exit_code
from shiplap.ports import BusEvent

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (sys.executable, "-m", "benchmarks.functions.watching")
"""This benchmark in a process of its own."""


PODS = (0, 10_000, 30_000, 100_000)
CLUSTERS = (1, 24, 48)
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
    from benchmarks.shared.large_world import waiting_pod  # noqa: PLC0415 - moto is large
    from shiplap.aws.bus import EventBridgeBus  # noqa: PLC0415
    from shiplap.aws.session import client  # noqa: PLC0415
    from shiplap.cluster.client import read_watch_event  # noqa: PLC0415
    from shiplap.cluster.watcher import Tracker  # noqa: PLC0415
    from shiplap.flows.watch.watch import hints_of  # noqa: PLC0415

    bus, tracker = EventBridgeBus(client("events"), "bus"), Tracker()
    taken = []
    for number in range(EVENTS):
        pod = waiting_pod(number)
        pod["metadata"] |= {"namespace": "shop", "uid": f"u-{number}", "resourceVersion": str(number)}
        line = msgspec.json.encode({"type": "ADDED", "object": pod})
        began = time.process_time()
        tracker.see(read_watch_event("pods", line, ""))
        bus.publish(hints_of("large", tracker.take(), 1e9))
        taken.append(1000 * (time.process_time() - began))
    return sorted(taken)


def memory(pods: int) -> tuple[float, float]:
    """MiB of a process with the handler, its clients and a table of so many pods, and its most as it writes them."""
    sys.path.insert(0, str(ROOT / "functions" / "watch"))
    import handler  # noqa: F401, PLC0415 - for its memory

    from shiplap.aws.session import client  # noqa: PLC0415
    from shiplap.kubernetes.compact_pods import PodTable, SnapshotHeader  # noqa: PLC0415
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
    kept = _rss_mib()
    standing = SnapshotHeader(cluster="c", version="1", taken_at=0.0, listed_at=0.0, kept_since=0.0)
    for _ in range(2):
        table.document(standing)
    return kept, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def play(clusters: int) -> None:
    """API servers of clusters with twenty nodes each, in which pods become pending when a line is read."""
    from shiplap_lab.cluster_simulator.http_server import KubeHttpServer  # noqa: PLC0415
    from shiplap_lab.fakes.cluster import ApiServer  # noqa: PLC0415
    from shiplap_lab.fakes.signals import FakeClock  # noqa: PLC0415

    servers = []
    for _ in range(clusters):
        api = ApiServer(FakeClock())
        for number in range(20):
            meta = {"name": f"node-{number}", "labels": {str(label): "x" * 20 for label in range(30)}}
            status = {"conditions": [{"type": "Ready", "status": "True"}]}
            api.create("nodes", {"metadata": meta, "spec": {}, "status": status})
        servers.append(KubeHttpServer(api).start())
    print(*(server.endpoint for server in servers), flush=True)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    for number, _ in enumerate(sys.stdin):
        pod = {"metadata": {"name": f"p-{time.time_ns()}"}, "spec": {"containers": [{"name": "c"}]}}
        pod["status"] = {"phase": "Pending", "conditions": [condition]}
        servers[number % clusters].api.create("pods", pod)


LARGE_PODS, LISTED_PODS, LARGE_BYTES = 500, 1_000, 1_400 * 1024
BAR_MIB, SCHEDULE_BAR_MIB = 128, 1769
_PADDING: dict[str, Callable[[int], dict[str, Any]]] = {
    "annotations": lambda size: {"metadata": {"annotations": {"note": "x" * size}}},
    "labels": lambda size: {"metadata": {"labels": {f"{place:06d}": "x" for place in range(size // 13)}}},
    "owners": lambda size: {"metadata": {"ownerReferences": [{"kind": "R", "name": "r", "uid": "u"}] * (size // 36)}},
    "managedFields": lambda size: {"metadata": {"managedFields": [{"fieldsV1": {"f": "x" * size}}]}},
    "env": lambda size: {"spec": {"containers": [{"name": "c", "env": [{"name": "E", "value": "x" * size}]}]}},
    "tolerations": lambda size: {"spec": {"tolerations": [{"operator": "Exists"}] * (size // 22)}},
    "conditions": lambda size: {"status": {"conditions": [{"type": "X", "status": "True"}] * (size // 28)}},
    "some of each": lambda size: {
        "metadata": {"labels": {f"{place:06d}": "x" * 60 for place in range(900)}, "annotations": {"n": "x" * size}},
        "spec": {"tolerations": [{"operator": "Exists"}] * 400},
    },
    "as much as is read": lambda size: {
        "metadata": {"labels": {f"{place:06d}": "x" * 40 for place in range(900)}, "annotations": {"n": "x" * size}},
        "spec": {
            "tolerations": [{"key": f"t{place}", "operator": "Exists"} for place in range(100)],
            "containers": [{"name": f"c{place}"} for place in range(100)],
        },
    },
}


@cache
def _large_pod(what: str, node: str) -> bytes:
    """One pod, with @ in the place of its number."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod: dict[str, Any] = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}
    pod["status"] = {"phase": "Pending", "conditions": [condition]}
    for part, fields in _PADDING[what](LARGE_BYTES).items():
        pod[part] |= fields
    pod["metadata"] |= {"name": f"{node}p@", "namespace": "shop", "uid": f"u-{node}-@"}
    pod["spec"] |= {"nodeName": node} if node else {}
    return msgspec.json.encode(pod)


class _LargePods(BaseHTTPRequestHandler):
    """Pods of 1.4 MiB, half of them on a node; watches say nothing."""

    protocol_version = "HTTP/1.1"
    what = ""
    pods = LARGE_PODS

    def do_GET(self) -> None:
        split = urlsplit(self.path)
        query = dict(parse_qsl(split.query))
        if "watch" in query:
            self.send_response(200)
            self.end_headers()
            time.sleep(60)
            return
        number = self.pods // 2 if split.path == "/api/v1/pods" else 0
        first = int(query.get("continue", 0))
        last = min(first + int(query["limit"]), number)
        node = "n1" if "nodeName!=" in query.get("fieldSelector", "") else ""
        items = b",".join(self._pod(place, node) for place in range(first, last))
        token = str(last) if last < number else ""
        body = b'{"metadata":{"resourceVersion":"7","continue":"%s"},"items":[%s]}' % (token.encode(), items)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except ConnectionError:  # the page was too large
            self.close_connection = True

    @staticmethod
    def _pod(place: int, node: str) -> bytes:
        return _large_pod(_LargePods.what, node).replace(b"@", str(place).encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def play_large(what: str, pods: int) -> None:
    """Play the API server of a cluster of so many large pods until killed."""
    _LargePods.what, _LargePods.pods = what, pods
    server = ThreadingHTTPServer(("127.0.0.1", 0), _LargePods)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


def _connected(endpoint: str, memory_mib: int) -> Any:
    """Connect to a played cluster with the pages of a function of this memory."""
    from shiplap.cluster.connect import connect  # noqa: PLC0415 - a function's handler comes first, for its memory
    from shiplap.cluster.list_pages import page_bytes_of  # noqa: PLC0415
    from shiplap.settings import ClusterSettings  # noqa: PLC0415

    return connect(
        ClusterSettings(name="c", region="us-east-1", endpoint=endpoint, token="t"),  # noqa: S106
        describe_cluster=_unasked,
        credentials=_unasked,
        clock=_Clock(),
        sleep=time.sleep,
        page_bytes=page_bytes_of(memory_mib),
    )


def large(endpoint: str) -> tuple[float, int]:
    """The most MiB of a process that watches this cluster of large pods, and how many pods it told of."""
    sys.path.insert(0, str(ROOT / "functions" / "watch"))
    import handler  # noqa: F401, PLC0415 - for its memory

    from shiplap.aws.session import client  # noqa: PLC0415
    from shiplap.cluster.snapshot_keeper import PodMemory, SnapshotKeeper  # noqa: PLC0415
    from shiplap.cluster.watcher import KINDS, KindWatch, Tracker  # noqa: PLC0415
    from shiplap.flows.watch.watch import most_pods  # noqa: PLC0415

    client("events"), client("s3")
    api = _connected(endpoint, BAR_MIB)
    store: Any = None
    keeper = SnapshotKeeper("c", api, store, clock=_Clock(), room=PodMemory(most_pods(BAR_MIB)))
    keeping = Thread(target=keeper._list)
    keeping.start()
    tracker = Tracker()
    for kind in KINDS:
        tracker.see(next(iter(KindWatch(api, kind).poll(1.0))))
    keeping.join()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, len(tracker.take().pods)


def listed(endpoint: str) -> tuple[float, int]:
    """The most MiB of a process that lists this cluster of large pods for a decision, and how many pods it read."""
    sys.path.insert(0, str(ROOT / "functions" / "schedule"))
    import handler  # noqa: F401, PLC0415 - for its memory

    api = _connected(endpoint, SCHEDULE_BAR_MIB)
    view = api.view()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, len(view.pods)


def judge_large(reading: str, pods: int, bar_mib: int) -> list[str]:
    """Print the most memory by what pods consist of; those above the bar. `reading` is "large" or "listed"."""
    missed = []
    for what in _PADDING:
        with subprocess.Popen(  # noqa: S603 - our own program
            [*PROGRAM, "play-large", what, str(pods)], stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            most, told = _run(reading, server.stdout.readline().strip()).split()
            server.kill()
        print(f"{pods} pods of {LARGE_BYTES / 2**20:.1f} MiB of {what}: {float(most):.0f} MiB, {told} told of")
        if float(most) > bar_mib:
            missed.append(f"{reading}: {what}: {float(most):.0f} MiB of {bar_mib}")
    return missed


def _judged() -> list[str]:
    return [
        *judge_large("large", LARGE_PODS, BAR_MIB),
        *judge_large("listed", LISTED_PODS, SCHEDULE_BAR_MIB),
    ]


class _Heard:
    """A bus that notes how long after its pod each event came, in milliseconds."""

    def __init__(self) -> None:
        self.after_ms: list[float] = []

    def publish(self, events: Sequence[BusEvent]) -> None:
        for event in events:
            self.after_ms += [(time.time_ns() - int(pod[1][2:])) / 1e6 for pod in event.detail["pods"]]


class _Clock:
    def now(self) -> float:
        return time.time()


def together(clusters: int) -> None:
    """Watch so many clusters in this process and print what that takes."""
    sys.path.insert(0, str(ROOT / "functions" / "watch"))
    import handler  # noqa: F401, PLC0415 - for its memory

    from shiplap.aws.session import client  # noqa: PLC0415
    from shiplap.cluster.connect import connect  # noqa: PLC0415
    from shiplap.flows.context import FlowContext  # noqa: PLC0415
    from shiplap.flows.watch.watch import watch_all  # noqa: PLC0415
    from shiplap.settings import ClusterSettings  # noqa: PLC0415
    from shiplap_lab.fakes.signals import FakeMeter  # noqa: PLC0415
    from shiplap_lab.fakes.stores import FakeSnapshots  # noqa: PLC0415

    client("events"), client("s3")
    command = [*PROGRAM, "play", str(clusters)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as played:  # noqa: S603
        assert played.stdin is not None
        assert played.stdout is not None
        bus, clock, contexts = _Heard(), _Clock(), {}
        for number, endpoint in enumerate(played.stdout.readline().split()):
            settings = ClusterSettings(name=f"c{number}", region="us-east-1", endpoint=endpoint, token="t")  # noqa: S106
            api: Any = connect(settings, describe_cluster=_unasked, credentials=_unasked, clock=clock, sleep=time.sleep)
            unused: Any = None
            contexts[settings.name] = FlowContext(
                clock=clock,
                cluster=api,
                compute=unused,
                state=unused,
                capacity=unused,
                catalog=unused,
                bus=bus,
                timers=unused,
                recorder=unused,
                meter=FakeMeter(),
                snapshots=FakeSnapshots(),
            )
        before = _rss_mib()
        thread = Thread(target=watch_all, args=(contexts,), kwargs={"deadline": time.time() + 45, "pause": time.sleep})
        thread.start()
        time.sleep(10)
        began_s = time.process_time()
        time.sleep(20)
        idle_s = (time.process_time() - began_s) * 3
        for _ in range(200):
            print(file=played.stdin, flush=True)
            time.sleep(0.05)
        thread.join()
        after = sorted(bus.after_ms)
        slowest = after[len(after) * 99 // 100]
        print(
            f"{clusters:4} clusters: {_rss_mib() - before:5.1f} MiB more, {1000 * idle_s:5.0f} ms of a processor",
            end="",
        )
        print(
            f" a minute; {len(after)} pods told after {statistics.median(after):.0f} ms (p50), {slowest:.0f} ms (p99)"
        )
        played.kill()


def _unasked(*_: object) -> Any:
    raise AssertionError("the settings name endpoint and token")


def _rss_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _run(*arguments: str, **more: str) -> str:
    environment = {**os.environ, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "a"}
    environment |= {"AWS_SECRET_ACCESS_KEY": "b", **more}
    command = [*PROGRAM, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout  # noqa: S603


def main() -> None:
    match sys.argv[1:]:
        case ["serve"]:
            serve()
        case ["hints"]:
            print(*hints())
        case ["memory", pods]:
            print(*memory(int(pods)))
        case ["play", clusters]:
            play(int(clusters))
        case ["together", clusters]:
            together(int(clusters))
        case ["play-large", what, pods]:
            play_large(what, int(pods))
        case ["large", endpoint]:
            print(*large(endpoint))
        case ["listed", endpoint]:
            print(*listed(endpoint))
        case ["large"]:
            sys.exit(exit_code(_judged()))
        case _:
            with subprocess.Popen(  # noqa: S603 - our own program
                [*PROGRAM, "serve"], stdout=subprocess.PIPE, text=True
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
            for clusters in CLUSTERS:
                print(_run("together", str(clusters)), end="")
            sys.exit(exit_code(_judged()))


if __name__ == "__main__":
    main()

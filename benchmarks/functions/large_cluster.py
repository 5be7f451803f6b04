"""One invocation of `watch`, `schedule` and `disrupt` on a cluster of 5,000 nodes, 100,000 pods and 500 that wait.

The real handlers run, each in a process of its own, against an API server (`cluster_simulator`) and an AWS (moto with
`emulated_ec2`) that another process plays over HTTP. Processor time and memory are the function's own, its
start and all imports included; wall time is also the other process's, so it is an upper bound. Requests are counted by
the API server, DynamoDB's units from requests and answers: reads are consistent (one unit for 4 kB, begun), a write
costs one for each kB begun, twice in a transaction, and two more for the index on stages, whose key changes.

    python -m benchmarks.functions.large_cluster                  # three runs of each
    python -m benchmarks.functions.large_cluster --nodes 500      # a smaller cluster, in proportion
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.shared.bars import exit_code
from benchmarks.shared.figures import keep

ROOT = Path(__file__).resolve().parents[2]

LIBRARY = ROOT / "layers" / "shiplap" / "python"

PODS_PER_NODE = 20
PENDING_SHARE = 0.1
BARS = {"schedule, snapshot": 5.0, "schedule, list": 20.0}
"""Seconds of an invocation."""
MEMORY_BAR_GIB = 1.5
CLUSTER = "large"


class Units:
    """Counts DynamoDB's units and all requests of a botocore session, and when fleets are asked for."""

    def __init__(self, session: Any) -> None:
        self.reads = self.writes = 0
        self.requests: Counter[str] = Counter()
        self.waited_s: Counter[str] = Counter()
        self.fleets: list[tuple[float, float]] = []
        session.register("before-parameter-build.*", self._asked)
        session.register("after-call.*", self._answered)

    def _asked(self, params: Any, model: Any, context: Any, **_: Any) -> None:
        context["asked"], context["asked_at"] = params, time.monotonic()
        if model.name == "CreateFleet":
            self.fleets.append((time.process_time(), time.monotonic()))

    def _answered(self, parsed: Any, model: Any, context: Any, **_: Any) -> None:
        name = f"{model.service_model.service_name} {model.name}"
        self.requests[name] += 1
        self.waited_s[name] += time.monotonic() - context["asked_at"]
        if model.service_model.service_name != "dynamodb":
            return
        asked = context["asked"]
        match model.name:
            case "Query" | "Scan":
                self.reads += max(1, ceil(sum(map(_size, parsed.get("Items", ()))) / 4096))
            case "GetItem":
                self.reads += max(1, ceil(_size(parsed.get("Item", {})) / 4096))
            case "BatchGetItem":
                found = [item for items in parsed["Responses"].values() for item in items]
                keys = sum(len(table["Keys"]) for table in asked["RequestItems"].values())
                self.reads += sum(max(1, ceil(_size(item) / 4096)) for item in found) + max(0, keys - len(found))
            case "PutItem":
                self.writes += _written(asked["Item"])
            case "UpdateItem":
                self.writes += 1
            case "TransactWriteItems":
                for action in asked["TransactItems"]:
                    self.writes += 2 * _written(action["Put"]["Item"]) if "Put" in action else 2


def _written(item: Mapping[str, Any]) -> int:
    return ceil(_size(item) / 1024) + 2 * ("stage" in item)


def _size(item: Mapping[str, Any]) -> int:
    return sum(len(name) + len(str(next(iter(value.values()))).encode()) for name, value in item.items())


class Context:
    """Lambda's context of an invocation."""

    aws_request_id = "large"

    def get_remaining_time_in_millis(self) -> int:
        return 290_000


def invoke(function: str) -> dict[str, Any]:
    """Run a handler once in this process; what it took."""
    sys.path.insert(0, str(ROOT / "functions" / function))
    started_cpu, started = time.process_time(), time.monotonic()
    handler = importlib.import_module("handler")
    from shiplap.aws import session  # noqa: PLC0415 - imported by the handler

    units = Units(session.session())
    shown = sys.stdout
    sys.stdout = sys.stderr  # logs and metrics
    told = _keep(handler) if function == "watch" else handler.handle(_message(function), Context())
    sys.stdout = shown
    at_fleet = units.fleets[-1] if units.fleets else (time.process_time(), time.monotonic())
    return {
        "told": told,
        "cpu_s": time.process_time(),
        "wall_s": time.monotonic() - started,
        "imports_before_s": started_cpu,
        "to_fleets_cpu_s": at_fleet[0],
        "to_fleets_wall_s": at_fleet[1] - started,
        "fleets": len(units.fleets),
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "reads": units.reads,
        "writes": units.writes,
        "aws": dict(sorted(units.requests.items())),
        "waited_s": {name: round(waited_s, 2) for name, waited_s in units.waited_s.most_common(6)},
    }


def _message(function: str) -> dict[str, Any]:
    if function == "disrupt":
        return {"cluster": CLUSTER}
    detail = {"cluster": CLUSTER, "id": "hint", "time": "2026-01-01T00:00:00Z", "pods": [], "reason": "Unschedulable"}
    body = {"detail-type": "PodPending", "source": "shiplap.watch", "detail": detail}
    return {"Records": [{"messageId": "m", "body": json.dumps(body)}]}


def _keep(handler: Any) -> dict[str, Any]:
    """The watch function's keeper alone: a list, a snapshot, and a quiet second."""
    from shiplap.cluster.snapshot_keeper import SnapshotKeeper  # noqa: PLC0415

    own = handler.install()
    context = own.context(own.settings.clusters[0])
    keeper = SnapshotKeeper(CLUSTER, context.cluster, context.snapshots, clock=own.clock)
    keeper.established.set()
    keeper.round(1.0)
    document = context.snapshots.load(CLUSTER)
    again = time.process_time()
    successor = SnapshotKeeper(CLUSTER, context.cluster, context.snapshots, clock=own.clock)
    successor.established.set()
    successor.round(1.0)
    return {"bytes": len(document), "successor_cpu_s": time.process_time() - again}


class World:
    """The process that plays the API server and AWS."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        package = folder / "shiplap_settings"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "settings.json").write_text(told["settings"])
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "PYTHONPATH": os.pathsep.join(map(str, (LIBRARY, folder, ROOT))),
            "AWS_ENDPOINT_URL": told["aws"],
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "SHIPLAP_STATE_TABLE": "state",
            "SHIPLAP_CAPACITY_TABLE": "capacity",
            "SHIPLAP_BUCKET": "shiplap-large",
            "SHIPLAP_BUS": "shiplap-large",
            "SHIPLAP_LIFECYCLE_QUEUE_URL": told["queue"],
            "POWERTOOLS_LOG_LEVEL": "WARNING",
        }

    def tell(self, command: str) -> dict[str, int]:
        """`churn`, `replace <nodes>`, `lose snapshot`, `reset` or `count`; what was asked for since the reset."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        answer: dict[str, int] = json.loads(self._process.stdout.readline())
        return answer

    def run(self, function: str) -> dict[str, Any]:
        """One invocation in a process of its own, on the world as it was; with what it asked the API server."""
        self.tell("reset")
        command = [sys.executable, "-m", "benchmarks.functions.large_cluster", "--invoke", function]
        done = subprocess.run(  # noqa: S603 - our own program
            command, env=self.environment, stdout=subprocess.PIPE, text=True, check=True
        )
        return {**json.loads(done.stdout), "kube": self.tell("count")}


@contextmanager
def world(nodes: int, pending: int, *more: str) -> Iterator[World]:
    """A world of so many nodes and pods that wait; `more` is `quiet` or nothing."""
    environment = {
        **os.environ,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ACCESS_KEY_ID": "t",
        "AWS_SECRET_ACCESS_KEY": "t",
    }
    command = [sys.executable, "-m", "benchmarks.shared.large_world", str(nodes), str(pending), *more]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(  # noqa: S603 - our own program
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        try:
            yield World(process, Path(folder))
        finally:
            assert process.stdin is not None
            process.stdin.close()


def _show(name: str, runs: list[dict[str, Any]]) -> float:
    best = min(runs, key=lambda run: run["cpu_s"])
    print(f"\n{name}: {best['told']}")
    spread = ", ".join(f"{run['cpu_s']:.1f}" for run in runs)
    print(f"  processor   {best['cpu_s']:6.2f} s  ({spread}; median {median(run['cpu_s'] for run in runs):.2f})")
    print(f"  wall        {min(run['wall_s'] for run in runs):6.2f} s")
    if best["fleets"]:
        print(
            f"  to the last of {best['fleets']} CreateFleet: processor {best['to_fleets_cpu_s']:.2f} s, wall "
            f"{min(run['to_fleets_wall_s'] for run in runs):.2f} s"
        )
    print(f"  memory      {max(run['mib'] for run in runs):6.0f} MiB")
    print(f"  DynamoDB    {best['reads']} read units, {best['writes']} write units")
    print(f"  API server  {sum(best['kube'].values())} requests: {best['kube']}")
    print(f"  AWS         {best['aws']}")
    print(f"  waited for  {best['waited_s']}, in seconds, all threads together", flush=True)
    return float(best["to_fleets_cpu_s"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--invoke", choices=["watch", "schedule", "disrupt"], help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=["schedule", "disrupt"])
    arguments = parser.parse_args()
    if arguments.invoke:
        print(json.dumps(invoke(arguments.invoke)))
        return 0
    missed = []
    pending = int(arguments.nodes * PENDING_SHARE)
    print(f"{arguments.nodes} nodes, {arguments.nodes * PODS_PER_NODE} pods, {pending} that wait")
    with world(arguments.nodes, pending) as played:
        listing: dict[str, list[dict[str, Any]]] = {}
        functions = [arguments.only] if arguments.only else ["schedule", "disrupt"]
        _show("watch: a list and a snapshot", [played.run("watch")])
        played.tell("churn")
        for function in functions:
            listing[f"{function}, snapshot"] = [played.run(function) for _ in range(arguments.runs)]
        for function in functions:
            listing[f"{function}, list"] = [_without_snapshot(played, function) for _ in range(arguments.runs)]
        for name, runs in listing.items():
            taken = _show(name, runs)
            keep(f"{name}, {arguments.nodes} nodes", taken, "s", bar=BARS.get(name))
            if taken > BARS.get(name, 1e9) or max(run["mib"] for run in runs) > MEMORY_BAR_GIB * 1024:
                missed.append(name)
    return exit_code(missed)


def _without_snapshot(played: World, function: str) -> dict[str, Any]:
    played.tell("lose snapshot")
    return played.run(function)


if __name__ == "__main__":
    sys.exit(main())

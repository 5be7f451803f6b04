"""The minutes of a cluster in which nothing happens: `disrupt` and `schedule`'s sweep, again and again in one process.

The world is that of `large_cluster`, but no pod waits, each node is of the cheapest type and full, and EC2 shows its
instance. Invocations are those of the schedules: they name no cluster. A minute passes for the function between two
of them. The third one is the quiet minute; before the fourth, on one node of a hundred another pod takes the place of
one. Processor time is that of the function, its connections included.

    python -m benchmarks.functions.quiet_minute                # 5,000 nodes, 100,000 pods
    python -m benchmarks.functions.quiet_minute --nodes 1000
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import json
import pstats
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.functions.large_cluster import PODS_PER_NODE, ROOT, Context, Units, World, world
from benchmarks.shared.bars import exit_code
from benchmarks.shared.figures import keep

FUNCTIONS = ("disrupt", "schedule")
COLD, WARM, CHANGED = 0, 2, 3
"""Places of the invocations that are compared with the bars."""

CHANGED_SHARE = 0.01
BARS_S = {
    ("disrupt", COLD): 5.0,
    ("disrupt", WARM): 0.5,
    ("disrupt", CHANGED): 1.5,
    ("schedule", WARM): 0.5,
}
READS_BAR = 100
"""Read units of a quiet minute."""

_MINUTE_S = 60.0
_SWEEP = {"Records": [{"messageId": "m", "body": json.dumps({"kind": "sweep"})}]}


class _LaterClock:
    """The clock of the machine, so many minutes later."""

    def __init__(self) -> None:
        self.minutes = 0

    def now(self) -> float:
        return time.time() + self.minutes * _MINUTE_S


def invoke(function: str, profiled: int | None) -> None:
    """Run a handler at each line of input, a minute later each time; write what each invocation took."""
    sys.path.insert(0, str(ROOT / "functions" / function))
    handler = importlib.import_module("handler")
    from shiplap.aws import session  # noqa: PLC0415 - imported by the handler

    units, clock, told = Units(session.session()), _LaterClock(), sys.stdout
    sys.stdout = sys.stderr  # logs and metrics
    handler.install().clock = clock
    began = 0.0  # the first invocation has the start of the process
    for place, _ in enumerate(sys.stdin):
        began = began and time.process_time()
        reads, writes, started = units.reads, units.writes, time.monotonic()
        profile = cProfile.Profile() if place == profiled else None
        if profile is not None:
            profile.enable()
        answer = handler.handle({} if function == "disrupt" else _SWEEP, Context())
        if profile is not None:
            profile.disable()
            pstats.Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats(70)
            pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(40)
        taken = {
            "answer": answer,
            "cpu_s": time.process_time() - began,
            "wall_s": time.monotonic() - started,
            "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "reads": units.reads - reads,
            "writes": units.writes - writes,
        }
        print(json.dumps(taken), file=told, flush=True)
        began, clock.minutes = time.process_time(), clock.minutes + 1


class _Process:
    """A process of a function, which waits for its next invocation."""

    def __init__(self, played: World, process: subprocess.Popen[str]) -> None:
        self._played, self._process = played, process

    def run(self) -> dict[str, Any]:
        """One more invocation, with what it asked the API server."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        before = self._played.tell("count")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        taken: dict[str, Any] = json.loads(self._process.stdout.readline())
        after = self._played.tell("count")
        return {**taken, "kube": sum(after.values()) - sum(before.values())}


@contextmanager
def _process(played: World, function: str, profiled: int | None) -> Iterator[_Process]:
    command = [sys.executable, "-m", "benchmarks.functions.quiet_minute", "--invoke", function]
    command += [] if profiled is None else ["--profile", str(profiled)]
    with subprocess.Popen(  # noqa: S603 - our own program
        command, env=played.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield _Process(played, process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


def _measured(played: World, function: str, nodes: int, profiled: int | None) -> list[str]:
    """Print what each invocation takes; returns which of them miss their bars."""
    missed = []
    with _process(played, function, profiled) as process:
        for place, title in enumerate(("cold", "second", "quiet", "1 % changed", "after that")):
            if place == CHANGED:
                played.tell(f"replace {max(1, int(nodes * CHANGED_SHARE))}")
            run = process.run()
            print(
                f"{function + ', ' + title:24} processor {run['cpu_s']:6.2f} s, wall {run['wall_s']:6.2f} s, "
                f"{run['reads']:5} read and {run['writes']:3} write units, {run['mib']:4.0f} MiB, "
                f"{run['kube']:3} requests to the API server: {run['answer']}",
                flush=True,
            )
            metric = f"{function}, {title}, {nodes} nodes"
            keep(metric, run["cpu_s"], "s", bar=BARS_S.get((function, place)))
            keep(f"{metric}, read units", run["reads"], "units", bar=READS_BAR if place == WARM else None)
            over = place == WARM and run["reads"] > READS_BAR
            if over or run["cpu_s"] > BARS_S.get((function, place), float("inf")):
                missed.append(f"{function}, {title}")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--invoke", choices=FUNCTIONS, help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--only", choices=FUNCTIONS)
    parser.add_argument("--profile", type=int, metavar="N", help="profile the invocation of this number, from 0")
    arguments = parser.parse_args()
    if arguments.invoke:
        invoke(arguments.invoke, arguments.profile)
        return 0
    print(f"{arguments.nodes} nodes, {arguments.nodes * PODS_PER_NODE} pods, none that waits")
    missed = []
    with world(arguments.nodes, 0, "quiet") as played:
        played.run("watch")
        for function in [arguments.only] if arguments.only else FUNCTIONS:
            missed += _measured(played, function, arguments.nodes, arguments.profile)
    return exit_code(missed)


if __name__ == "__main__":
    sys.exit(main())

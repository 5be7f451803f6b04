"""Kills the functions of a played Region again and again, and says what each long standstill was due to.

`python -m tools.kills` plays the first cluster of a scenario, keeps pods coming and going, and kills the
processes in which MiniStack runs the functions, one function after the other. It writes one line for each kill and each
standstill into its folder, keeps the logs of every session and the states of the queues, and goes on where an earlier
run has ended. Other processes keep the processors busy meanwhile, so that functions are slow and die in mid-flight.
Several sessions at once kill more in the same time.

MiniStack and the process that plays the cluster are not killed: AWS and the cluster are in their memory.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import msgspec

from shiplap.errors import ObjectNotFound
from shiplap.kubernetes.objects import Pod
from shiplap_cdk.shipped_files import work_folder
from shiplap_lab.checks.observation import ClusterObservation, RegionObservation
from shiplap_lab.dev.dev_session import ended_by_signals
from shiplap_lab.dev.local_region import LocalRegion, QueueDepth
from shiplap_lab.scenarios.scenario import InterruptionKind, Play, PodGroup, load
from shiplap_lab.scenarios.workload import pod_object

FUNCTIONS = ("watch", "schedule", "lifecycle", "disrupt", "catalog", "interrupt")
_WAITED_FOR = ("schedule", "lifecycle")
"""Those whose invocations pods wait for. They are fed by queues: MiniStack says of each invocation how it ended."""

GAP_S = 120.0
"""A standstill of so many seconds with pods that wait is explained."""

_KILL_EVERY_S = 8.0
_WAVE_EVERY_S = 20.0
_WAVES_TO_INTERRUPTION, _WAVES_TO_CATALOG = 2, 3
_LOOK_S = 2.0
_MOST_PODS = 24
_SESSION_S = 1500.0
_WATCH_AGAIN_S = 60.0
"""How long nobody watches until a watch is begun: on AWS the schedule does that, which `shiplap lab dev` has not."""

_PATIENCE_S = 30.0
"""How long a killed Region may stand still until the next kill, so that functions outlive their cold start."""

_VISIT_S = 20.0
"""How long the last step after a function has ended well may take: a node joins, a pod is bound."""

_FAILED = re.compile("failed processing|Warm worker execution error|timed out after")

_KILLS, _GAPS = "kills.jsonl", "gaps.jsonl"


class Kill(msgspec.Struct, frozen=True):
    """A process of a function that was killed.

    `at` in epoch seconds, `busy_s` its CPU seconds until then, `load` the machine's load average of the minute before.
    """

    session: str
    function: str
    process: int
    at: float
    busy_s: float
    load: float = 0.0


class Gap(msgspec.Struct, frozen=True):
    """A time in which pods waited and nothing changed.

    `depths` are the queues' messages at its end, `kills` the functions that were killed in it or in the minute before,
    `running` those that had a process, `log` the lines that MiniStack wrote in it, the last ones.
    """

    session: str
    began_at: float
    ended_at: float
    waiting: int
    reason: str
    depths: tuple[QueueDepth, ...] = ()
    kills: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    log: tuple[str, ...] = ()


class Ledger:
    """Kills and gaps of all sessions, in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def add(self, item: Kill | Gap) -> None:
        """Append a line."""
        name = _KILLS if isinstance(item, Kill) else _GAPS
        with (self.folder / name).open("ab") as file:
            file.write(msgspec.json.encode(item) + b"\n")

    def kills(self) -> tuple[Kill, ...]:
        """All kills so far."""
        return tuple(msgspec.json.decode(line, type=Kill) for line in self._lines(_KILLS))

    def gaps(self) -> tuple[Gap, ...]:
        """All gaps so far."""
        return tuple(msgspec.json.decode(line, type=Gap) for line in self._lines(_GAPS))

    def _lines(self, name: str) -> list[bytes]:
        path = self.folder / name
        return path.read_bytes().splitlines() if path.exists() else []


def function_processes(guard: int, names: dict[str, str]) -> dict[str, list[int]]:
    """Ids of the processes below `guard` that run a function, by function; `names` maps functions to Lambda's names."""
    of_name = {name: function for function, name in names.items()}
    found: dict[str, list[int]] = {}
    for process in _descendants(guard):
        function = of_name.get(_variable(process, "AWS_LAMBDA_FUNCTION_NAME"))
        if function is not None:
            found.setdefault(function, []).append(process)
    return found


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent = _parent(int(entry.name))
            children.setdefault(parent, []).append(int(entry.name))
    found, left = [], [root]
    while left:
        left += (below := children.get(left.pop(), []))
        found += below
    return sorted(found)


def _parent(process: int) -> int:
    try:
        return int((Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _variable(process: int, name: str) -> str:
    try:
        variables = (Path("/proc") / str(process) / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    prefix = name.encode() + b"="
    return next((item.removeprefix(prefix).decode() for item in variables if item.startswith(prefix)), "")


def _cpu_s(process: int) -> float:
    try:
        fields = (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class KilledRegion(Protocol):
    """The part of a played Region that a session needs."""

    @property
    def emulator_process(self) -> int: ...
    @property
    def emulator_log(self) -> Path: ...
    @property
    def functions(self) -> dict[str, str]: ...
    def observe(self) -> RegionObservation: ...
    def queue_depths(self) -> tuple[QueueDepth, ...]: ...
    def let_time_pass(self) -> None: ...
    def apply(self, cluster: str, *items: dict[str, Any]) -> None: ...
    def remove(self, cluster: str, pod: Pod) -> None: ...
    def interrupt(self, instance_id: str, kind: InterruptionKind) -> None: ...
    def watch(self, cluster: str) -> None: ...
    def read_catalog(self) -> None: ...


@contextmanager
def _running(
    commands: Iterable[Sequence[str]], ended_by: signal.Signals
) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    """Programs that run at the same time, until the block ends or they do."""
    programs = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]  # noqa: S603 - our own
    try:
        yield programs
    finally:
        for program in programs:
            program.send_signal(ended_by)
        for program in programs:
            program.wait()


def busy_processes(number: int) -> AbstractContextManager[Sequence[subprocess.Popen[bytes]]]:
    """So many processes that do nothing but keep the processors busy."""
    return _running([[sys.executable, "-c", "while True: pass"]] * number, signal.SIGKILL)


class Session:
    """One played Region whose functions are killed.

    Args:
        play: the scenario, whose first cluster is played.
        region: where it is played.
        ledger: gets kills and gaps.
        name: the session's in the ledger.
        wanted: how often each function is to be killed.
        now: tells the time, in epoch seconds.
        rest: waits for so many seconds.
    """

    def __init__(
        self,
        play: Play,
        region: KilledRegion,
        ledger: Ledger,
        name: str,
        wanted: int,
        *,
        now: Callable[[], float] = time.time,
        rest: Callable[[float], object] = time.sleep,
    ) -> None:
        self._region, self._ledger, self._name, self._wanted = region, ledger, name, wanted
        self._now, self._rest = now, rest
        self._cluster = play.scenario.clusters[0].name
        self._wave = 0
        self._progress_at = now()
        self._seen: object = None
        self._killed: list[Kill] = []
        self._watched_at = now()

    def run(self, ends_at: float) -> None:
        """Until every function was killed often enough, or until a moment in epoch seconds.

        A standstill that lasts to the end is recorded, too, however the session ends.
        """
        try:
            self._kill_again_and_again(ends_at)
        finally:
            if waiting := _waiting(self._world()):
                self._end_gap(self._now(), waiting)

    def _kill_again_and_again(self, ends_at: float) -> None:
        kill_at, wave_at = self._now() + _KILL_EVERY_S, 0.0
        while self._now() < ends_at and (due := self._due()):
            if self._now() >= wave_at:
                wave_at = self._now() + _WAVE_EVERY_S
                self._next_wave()
            self._watch()
            has_moved = self._progress_at > kill_at - _KILL_EVERY_S
            if self._now() >= kill_at + (0.0 if has_moved else _PATIENCE_S) and self._kill(due):
                kill_at = self._now() + _KILL_EVERY_S
            self._region.let_time_pass()
            self._rest(_LOOK_S)
            self._look()

    def _watch(self) -> None:
        now = self._now()
        if "watch" in self._running():
            self._watched_at = now
        elif now >= self._watched_at + _WATCH_AGAIN_S:
            self._watched_at = now
            self._region.watch(self._cluster)

    def _due(self) -> list[str]:
        """Functions that were killed too seldom, the rarest first."""
        counts = Counter(kill.function for kill in self._ledger.kills())
        return sorted((name for name in FUNCTIONS if counts[name] < self._wanted), key=lambda name: counts[name])

    def _kill(self, due: Sequence[str]) -> bool:
        running = self._running()
        for function in due:
            for process in running.get(function, [])[:1]:
                kill = Kill(self._name, function, process, self._now(), _cpu_s(process), os.getloadavg()[0])
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:  # it has ended by itself
                    continue
                self._killed.append(kill)
                self._ledger.add(kill)
                return True
        return False

    def _running(self) -> dict[str, list[int]]:
        return function_processes(self._region.emulator_process, self._region.functions)

    def _next_wave(self) -> None:
        """Half of the pods that run end, and new ones come; after some, an instance is interrupted, prices read."""
        world = self._world()
        running = sorted((pod for pod in world.workload if pod.spec.node_name), key=lambda pod: pod.key)
        for pod in running[::2]:
            self._remove(pod)
        for index in range(max(0, min(6, _MOST_PODS - len(world.workload)))):
            group = PodGroup(name=f"wave{self._wave}", cpu="900m", memory="1300Mi")
            self._region.apply(self._cluster, pod_object(group, f"{group.name}-{index}"))
        self._wave += 1
        if self._wave % _WAVES_TO_INTERRUPTION == 0 and (claims := world.launched):
            self._region.interrupt(claims[-1].instance_id, "spot")
        if self._wave % _WAVES_TO_CATALOG == 0:
            self._region.read_catalog()

    def _remove(self, pod: Pod) -> None:
        try:
            self._region.remove(self._cluster, pod)
        except ObjectNotFound:
            return  # it was evicted since we looked

    def _world(self) -> ClusterObservation:
        return next(item for item in self._region.observe().clusters if item.name == self._cluster)

    def _look(self) -> None:
        world, now = self._world(), self._now()
        waiting = _waiting(world)
        seen = (
            tuple((claim.name, claim.state) for claim in world.claims),
            tuple(sorted(node.metadata.name for node in world.nodes)),
            frozenset(pod.key for pod in waiting),
        )
        if not waiting or _has_progressed(self._seen, seen):
            self._end_gap(now, waiting)
            self._progress_at = now
        self._seen = seen

    def _end_gap(self, now: float, waiting: Sequence[Pod]) -> None:
        began = self._progress_at
        if now - began < GAP_S:
            return
        kills = tuple(kill.function for kill in self._killed if began - 60 <= kill.at <= now)
        depths = self._region.queue_depths()
        running = tuple(sorted(self._running()))
        log = said_between(self._region.emulator_log, began, now)
        reason = explained(began, now, log)
        self._ledger.add(Gap(self._name, began, now, len(waiting), reason, depths, kills, running, tuple(log[-40:])))


def _waiting(world: ClusterObservation) -> list[Pod]:
    return [pod for pod in world.workload if not pod.spec.node_name]


def _has_progressed(before: Any, after: Any) -> bool:
    """A claim or node changed, or a pod that waited does not any more; pods that are new are no progress."""
    return before is None or before[:2] != after[:2] or bool(before[2] - after[2])


def said_between(log: Path, began: float, ended: float) -> list[str]:
    """Lines of a log between two moments: MiniStack's lines begin with the local time, others belong to the last."""
    said, inside = [], False
    for line in log.read_text(errors="replace").splitlines():
        if at := _moment(line):
            inside = began - 1 <= at <= ended + 1
        if inside:
            said.append(line)
    return said


def explained(began: float, ended: float, log: Sequence[str]) -> str:
    """Return the reasons for a gap that the log shows; empty when it shows none.

    A gap is explained if some function ended no invocation well for most of it, because all that began then were killed
    or took too long: what that function does next could not happen, and its messages come back after their visibility
    timeout.
    """
    reasons = []
    for function in _WAITED_FOR:
        well = [at for at, line in _dated(log) if f"shiplap-{function} processed" in line]
        badly = [at for at, line in _dated(log) if f"shiplap-{function}" in line and _FAILED.search(line)]
        moments = [began, *(at for at in well if began <= at <= ended), ended]
        longest, since = max((later - at, at) for at, later in pairwise(moments))
        failed = sum(since <= at <= since + longest for at in badly)
        if failed and longest >= GAP_S - _VISIT_S:
            reasons.append(f"no {function} ended well for {longest:.0f} s, {failed} failed, were killed or timed out")
    return "; ".join(reasons)


def _dated(log: Iterable[str]) -> Iterator[tuple[float, str]]:
    """Lines that begin with a local time, with it."""
    for line in log:
        if at := _moment(line):
            yield at, line


def _moment(line: str) -> float:
    try:
        return time.mktime(time.strptime(line[:19], "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        return 0.0


def summary(kills: Sequence[Kill], gaps: Sequence[Gap]) -> str:
    """Counts, and every gap with its reason."""
    counts = Counter(kill.function for kill in kills)
    lines = [f"{name}: killed {counts[name]} times" for name in FUNCTIONS]
    if kills:
        loads = [kill.load for kill in kills]
        lines.append(f"load of the minute before a kill: at least {min(loads):.1f}, {median(loads):.1f} in the middle")
    lines.append(f"{len(gaps)} gaps of {GAP_S:.0f} s or more, {sum(not gap.reason for gap in gaps)} without a reason")
    lines += [
        f"  {gap.session}: {gap.ended_at - gap.began_at:.0f} s, {gap.waiting} pods waited, "
        f"killed {', '.join(gap.kills) or 'nothing'}: {gap.reason or 'no reason found'}"
        for gap in gaps
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Kill until each function was killed so many times; exit code 1 while a gap has no reason, or a session failed."""
    parser = ArgumentParser(prog="kills")
    parser.add_argument("--scenario", default="flex-first")
    parser.add_argument("--kills", type=int, default=200, help="of each function")
    parser.add_argument("--sessions", type=int, default=1, help="so many at once, each with a Region of its own")
    parser.add_argument("--load", type=int, default=8, help="processes that keep the processors busy meanwhile")
    parser.add_argument("--minutes", type=float, default=600.0, help="after which it stops; another run goes on")
    parser.add_argument("--folder", type=Path, default=work_folder("kills"))
    given = parser.parse_args(arguments)
    ledger, ends_at = Ledger(given.folder), time.time() + given.minutes * 60
    has_failed = False
    try:
        with ended_by_signals(), busy_processes(given.load):
            if given.sessions > 1:
                alone = (*arguments, "--sessions", "1", "--load", "0")
                has_failed = _side_by_side([[sys.executable, "-m", "tools.kills", *alone]] * given.sessions)
            else:
                _play_sessions(load(given.scenario), ledger, given.kills, ends_at)
    finally:
        sys.stdout.write(summary(ledger.kills(), ledger.gaps()) + "\n")
    return 1 if has_failed or any(not gap.reason for gap in ledger.gaps()) else 0


def _side_by_side(commands: Iterable[Sequence[str]]) -> bool:
    """Run programs at the same time until all have ended, and say whether one of them failed."""
    with _running(commands, signal.SIGTERM) as programs:
        codes = [program.wait() for program in programs]
    return any(codes)


def _play_sessions(play: Play, ledger: Ledger, wanted: int, ends_at: float) -> None:
    """One after the other, each in a new Region."""
    while time.time() < ends_at and _left(ledger, wanted):
        name = f"{time.strftime('%H%M%S')}-{os.getpid()}"
        with LocalRegion(play, _tell) as region:
            session = Session(play, region, ledger, name, wanted)
            try:
                session.run(min(ends_at, time.time() + _SESSION_S))
            finally:
                shutil.copy(region.emulator_log, ledger.folder / f"{name}.log")


def _tell(line: str) -> None:
    sys.stderr.write(line + "\n")


def _left(ledger: Ledger, wanted: int) -> bool:
    counts = Counter(kill.function for kill in ledger.kills())
    return any(counts[name] < wanted for name in FUNCTIONS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

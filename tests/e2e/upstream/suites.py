"""Karpenter's own test suites against Shiplap: `python -m tests.e2e.upstream.suites`, or `make e2e-upstream`.

Every test runs in a process of its own on a cluster that Shiplap provisions: the stack on the emulated AWS, a real
control plane, nodes and pods by kwok. There is no pod of Karpenter and no Lease of one, and none is pretended.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fcntl import LOCK_EX, flock
from multiprocessing import get_context
from multiprocessing.util import Finalize
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

from shiplap.errors import ClusterError
from tests.e2e import programs
from tests.e2e.control_plane import wait_until
from tests.e2e.upstream import binaries, karpenter_install, provider_account
from tests.e2e.upstream.binaries import AWS, CORE, MODULES, module_of
from tests.e2e.upstream.outcomes import (
    FAILED,
    NOT_APPLICABLE,
    PASSED,
    KeptOutcomes,
    Outcome,
    UpstreamTest,
    Verdicts,
    differences,
    line,
    not_applicable,
    part_of,
    summary,
    unknown,
    verdict_of,
)
from tests.e2e.upstream.provider_account import StateChanges
from tests.e2e.world import CLUSTER, World

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[2] / "build" / "upstream" / "results"
VERDICTS = HERE / "verdicts.txt"
_WATCH_S = 13 * 60.0
_LIMIT_S = 1200.0
_LIMITS_S = {"performance": 5400.0, "disruption": 2400.0, "repair": 3600.0}
_GRACE_S = 60.0
_START_S = 120.0
_LEAVES_S = 20.0
"""Upstream's last step sees a Node go some moments before this does; another cluster takes minutes."""


class FunctionUsage:
    """Reads the CPU time and memory of a world's functions twice a second while the context is entered."""

    def __init__(self, world: World) -> None:
        self.peak_mib = 0.0
        self._workers = str(world.aws.state / "tmp" / "ministack-lambda-")
        self._cpu_s: dict[int, float] = {}
        self._before: dict[int, float] = {}
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="usage", daemon=True)

    @property
    def cpu_s(self) -> float:
        """CPU seconds since the context was entered."""
        return sum(self._cpu_s.values()) - sum(self._before.values())

    def __enter__(self) -> FunctionUsage:
        self._look()
        self._before = dict(self._cpu_s)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._stopping.wait(0.5):
            self._look()

    def _look(self) -> None:
        pages = 0
        for folder in Path("/proc").iterdir():
            try:
                if not folder.name.isdecimal() or self._workers not in (folder / "cmdline").read_text():
                    continue
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                pages += int((folder / "statm").read_text().split()[1])
            except OSError:  # it has just ended
                continue
            self._cpu_s[int(folder.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        self.peak_mib = max(self.peak_mib, pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


class Watching:
    """Starts the watch function every 13 minutes, as EventBridge Scheduler does.

    The emulator itself keeps the schedules of sweep and disruption, each every minute.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="watching", daemon=True)

    def __enter__(self) -> Watching:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_WATCH_S):
            self._world.invoke("watch", {"cluster": CLUSTER}, wait=False)


class Cluster:
    """A world for tests, one after the other.

    The next test gets another world where it needs other settings, or one of the core's has failed or launched nodes.
    The AWS provider's, and the core's of disruption that pass, share a cluster as long as they leave nothing behind.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._world: World | None = None
        self._watching: Watching | None = None
        self._settings: Mapping[str, object] = {}

    def run(self, test: UpstreamTest, limit_s: float) -> Outcome:
        """Run one test to its end."""
        world = self._fresh(karpenter_install.settings_of(test))
        if module_of(test.suite) is AWS:
            provider_account.complete(world)
        karpenter_install.install(world.api, test)
        changes: AbstractContextManager[object] = StateChanges(world) if module_of(test.suite) is AWS else nullcontext()
        with FunctionUsage(world) as usage, _alone(test), changes:
            outcome = _run(world, self._folder, test, limit_s)
        outcome = outcome._replace(cpu_s=usage.cpu_s, peak_mib=usage.peak_mib)
        _kept().add(outcome)  # first: what follows may fail on a busy machine
        Verdicts(VERDICTS).note(outcome)
        if outcome.verdict != PASSED:
            shutil.copy(world.aws.state / "ministack.log", RESULTS / f"{test.file_name}.functions")
        if not _is_reusable(world, test, outcome):
            self.close()
        return outcome

    def close(self) -> None:
        """End the world."""
        if self._watching:
            self._watching.__exit__()
        if self._world:
            self._world.__exit__(None, None, None)
        self._world = self._watching = None

    def _fresh(self, settings: Mapping[str, object]) -> World:
        if settings != self._settings:
            self.close()
        if self._world is None:
            self._number += 1
            self._settings = settings
            self._world = World(self._folder / f"world-{self._number}", "", settings)
            self._world.__enter__()
            _await_first_decision(self._world)
            self._watching = Watching(self._world)
            self._watching.__enter__()
        return self._world


def _is_reusable(world: World, test: UpstreamTest, outcome: Outcome) -> bool:
    """Return True if the next test may use the cluster; of one whose test has not passed the state is written first."""
    try:
        if outcome.verdict != PASSED:
            _write(RESULTS / f"{test.file_name}.cluster", world.told())
        return _is_clean(world, test, outcome)
    except (ClusterError, TimeoutError):  # on a busy machine an API server refuses questions, and nodes stay
        return False


def _is_clean(world: World, test: UpstreamTest, outcome: Outcome) -> bool:
    """Tests of the AWS provider clean up, and mostly do so when they fail. Without a joiner no node joins any more."""
    if world.joiner.failure is not None:
        return False
    if test.suite == "disruption" and (outcome.verdict != PASSED or _makes_nodes_sick(test)):
        return False
    if test.suite == "disruption" or module_of(test.suite) is AWS:
        kinds = ("nodes", "nodeclaims", "nodepools", "ec2nodeclasses")
        wait_until(
            lambda: not any(world.api.list(kind).items for kind in kinds), "nothing is left", timeout_s=_LEAVES_S
        )
        return True
    return outcome.verdict == PASSED and not world.launched()


def _makes_nodes_sick(test: UpstreamTest) -> bool:
    """Three sick nodes of an AMI within an hour stop its repairs, and all tests use one AMI."""
    return test.name.startswith(("Repair ", "Reboot ")) or "repairing" in test.name


@contextmanager
def _alone(test: UpstreamTest) -> Iterator[None]:
    """Tests that run a controller of their own listen on its default port: of those there is one at a time."""
    if not test.name.startswith("Chaos "):
        yield
        return
    with (RESULTS / "port.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        yield


def _await_first_decision(world: World) -> None:
    """Until the functions have started: upstream's controller runs when its tests begin, and so does an install."""
    world.sweep()
    log = world.aws.state / "ministack.log"
    wait_until(
        lambda: "Lambda shiplap-schedule output" in log.read_text(errors="replace"),
        "the first sweep is over",
        timeout_s=_START_S,
        told=world.told,
    )


def tests_of(suite: str) -> list[UpstreamTest]:
    """All tests of a suite, in the order of their names."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            str(binaries.find(module_of(suite)) / f"{suite}.test"),
            "-ginkgo.dry-run",
            f"-ginkgo.json-report={report}",
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=60)  # noqa: S603 - our own command
        return sorted(UpstreamTest(suite, _name(spec)) for spec in _specs(report))


def _run(world: World, folder: Path, test: UpstreamTest, limit_s: float) -> Outcome:
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    module = module_of(test.suite)
    command = [
        str(binaries.find(module) / f"{test.suite}.test"),
        f"-ginkgo.focus={re.escape(test.name)}$",
        f"-ginkgo.timeout={limit_s:.0f}s",
        f"-ginkgo.json-report={report}",
        "-ginkgo.v",
        "-ginkgo.no-color",
        *(_core_flags(test) if module is CORE else ()),
    ]
    kubeconfig = world.plane.folder / "kubeconfig.json"
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "OUTPUT_DIR": str(RESULTS)}
    source = folder
    if module is AWS:
        environment |= provider_account.environment(world)
        source = module.source() / "test" / "suites" / test.suite  # tests read files beside them
    began = time.monotonic()
    log = RESULTS / f"{test.file_name}.log"
    with log.open("wb") as output:
        try:
            subprocess.run(  # noqa: S603 - our own command
                command,
                cwd=source,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=limit_s + _GRACE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            pass  # said below: there is no report
    seconds = time.monotonic() - began
    different = differences(module)
    spec = next((spec for spec in _specs(report) if spec["State"] != "skipped"), None) if report.exists() else None
    if spec is None:
        return Outcome(test, verdict_of(test.name, "", different), seconds, "no report: it did not end in time")
    message = (spec.get("Failure") or {}).get("Message", "")
    return Outcome(test, verdict_of(test.name, spec["State"], different), seconds, message)


def _core_flags(test: UpstreamTest) -> list[str]:
    pool = "nodepool-of-two-cpus.yaml" if test.name.startswith("CapacityBuffer ") else "nodepool.yaml"
    flags = [f"-default-nodeclass={HERE / 'ec2nodeclass.yaml'}", f"-default-nodepool={HERE / pool}"]
    rebooted = f"-reboot-condition={karpenter_install.REBOOTED}=False/NvidiaXID46Error"
    return [*flags, "-repair-condition=StorageReady=False", rebooted]


def _specs(report: Path) -> Iterator[dict[str, object]]:
    for suite in json.loads(report.read_text()):
        yield from (spec for spec in suite["SpecReports"] if spec["LeafNodeType"] == "It")


def _name(spec: Mapping[str, object]) -> str:
    return " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]])  # type: ignore[misc]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _kept() -> KeptOutcomes:
    return KeptOutcomes(RESULTS / "outcomes.jsonl")


def run_all(tests: Sequence[UpstreamTest], clusters: int) -> list[Outcome]:
    """Run tests on so many clusters side by side; each outcome is kept and printed as it comes.

    Each cluster has a process of its own: the emulated EC2 of a process is one account, and two installs of one name in
    it would end each other's instances.
    """
    outcomes = []
    applicable = []
    for test in tests:
        reason = not_applicable(module_of(test.suite)).get(test.name)
        if reason is None:
            applicable.append(test)
        else:
            outcomes.append(Outcome(test, NOT_APPLICABLE, 0.0, reason))
    applicable.sort(key=lambda test: repr(karpenter_install.settings_of(test)))  # a change of settings costs a cluster
    with ProcessPoolExecutor(clusters, get_context("spawn")) as pool:
        for running in as_completed([pool.submit(_run_in_this_process, test) for test in applicable]):
            outcomes.append(running.result())
            sys.stdout.write(line(outcomes[-1]))
            sys.stdout.flush()
    return sorted(outcomes)


_CLUSTERS: list[Cluster] = []
"""The one of this process, once a test has run on it."""


def _run_in_this_process(test: UpstreamTest) -> Outcome:
    if not _CLUSTERS:
        folder = TemporaryDirectory(prefix="shiplap-upstream-", ignore_cleanup_errors=True)
        _CLUSTERS.append(Cluster(Path(folder.name)))
        Finalize(None, folder.cleanup, exitpriority=1)  # a spawned process runs no atexit
        Finalize(None, _CLUSTERS[0].close, exitpriority=2)
    limit_s = _LIMITS_S.get(test.suite, _LIMIT_S)
    return _CLUSTERS[0].run(test, float(os.environ.get("SHIPLAP_LIMIT_S") or limit_s))


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 3 and the reason where the suites cannot be built, 1 where a bar is missed or a test fails anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    suites = [*MODULES, *(suite for module in MODULES.values() for suite in module.suites)]
    parser.add_argument("--suite", choices=suites, action="append", help="only this suite, or all of core or aws")
    parser.add_argument("--only", default="", metavar="REGEXP", help="only tests whose names match")
    parser.add_argument(
        "--part", default="1/1", metavar="N/M", help="each M-th test from the N-th; goes on where it ended"
    )
    parser.add_argument("--again", action="store_true", help="run what has ended once more")
    parser.add_argument("--clusters", type=int, default=1, metavar="N", help="clusters that run tests side by side")
    parser.add_argument("--list", action="store_true", help="print the names of the tests and run none")
    given = parser.parse_args(arguments)
    chosen = [
        suite for name in given.suite or ["core"] for suite in (MODULES[name].suites if name in MODULES else [name])
    ]
    try:
        programs.find()
        for module in {module_of(suite) for suite in chosen}:
            binaries.build(module)
    except programs.ProgramsMissing as missing:
        sys.stderr.write(f"no suites: {missing}\n")
        return 3
    all_tests = [test for suite in chosen for test in tests_of(suite)]
    strays = [
        name for module in MODULES.values() if {*module.suites} <= {*chosen} for name in unknown(module, all_tests)
    ]
    if strays:
        sys.stderr.write(f"listed, but no tests of upstream's: {'; '.join(strays)}\n")
        return 1
    tests = part_of([test for test in all_tests if re.search(given.only, test.name)], given.part)
    if given.list:
        sys.stdout.writelines(f"{test.suite}  {test.name}\n" for test in tests)
        return 0
    RESULTS.mkdir(parents=True, exist_ok=True)
    ended = {} if given.again or given.part == "1/1" else _kept().all()
    outcomes = run_all([test for test in tests if test not in ended], given.clusters)
    outcomes += [ended[test] for test in tests if test in ended]
    met = True
    for module in MODULES.values():
        its_own = [outcome for outcome in outcomes if outcome.test.suite in module.suites]
        if its_own:
            said, enough = summary(its_own)
            met = met and enough
            sys.stdout.write(said)
    return 0 if met and outcomes and not any(outcome.verdict == FAILED for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

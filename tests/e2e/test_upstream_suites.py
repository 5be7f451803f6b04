"""Tests the counts of outcomes of Karpenter's own suites, and the preparation of their sources."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from shiplap.aws.tags import CLUSTER
from shiplap.disruption.repair.repair_policies import RepairPolicy
from shiplap.errors import ClusterError, TooManyRequests
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.cluster_simulator.machines import NodeResources
from shiplap_lab.emulated_ec2.control import EmulatedInstance
from shiplap_lab.fakes.signals import FakeClock
from tests.e2e.joiner import Joiner
from tests.e2e.programs import BuildFailed
from tests.e2e.upstream import binaries, karpenter_install, outcomes, suites
from tests.e2e.upstream.binaries import AWS, CORE, MODULES, Replacement, UpstreamModule
from tests.e2e.upstream.outcomes import (
    DIFFERENT,
    FAILED,
    NOT_APPLICABLE,
    PASSED,
    KeptOutcomes,
    Outcome,
    UpstreamTest,
    Verdicts,
)
from tests.e2e.upstream.suites import FunctionUsage

PAGE = Path(__file__).resolve().parents[2] / "docs" / "developers" / "conformance.md"


def ended(suite: str = "regression", **numbers: int) -> list[Outcome]:
    verdicts = {"passed": PASSED, "failed": FAILED, "different": DIFFERENT, "excluded": NOT_APPLICABLE}
    return [
        Outcome(UpstreamTest(suite, f"{verdict} {index}"), verdicts[verdict], 1.0)
        for verdict, number in numbers.items()
        for index in range(number)
    ]


def test_tests_that_do_not_apply_are_no_part_of_the_share() -> None:
    said, met = outcomes.summary(ended(passed=9, failed=1, excluded=2))
    assert "9 passed, 1 failed, 0 deliberate difference, 2 not applicable; 90.0%" in said
    assert met


def test_a_deliberate_difference_does_not_pass() -> None:
    _, met = outcomes.summary(ended(passed=8, different=2))
    assert not met


def test_at_most_a_fifth_may_not_apply() -> None:
    _, met = outcomes.summary(ended(passed=7, excluded=3))
    assert not met


def test_nothing_that_ran_meets_no_bar() -> None:
    _, met = outcomes.summary([])
    assert not met


@pytest.mark.parametrize(
    ("state", "verdict"), [("passed", PASSED), ("failed", DIFFERENT), ("timedout", DIFFERENT), ("", DIFFERENT)]
)
def test_a_listed_test_is_a_difference_only_where_it_fails(state: str, verdict: str) -> None:
    assert outcomes.verdict_of("listed", state, {"listed": "why"}) == verdict


def test_any_other_end_is_a_failure() -> None:
    assert outcomes.verdict_of("other", "interrupted", {"listed": "why"}) == FAILED


def test_what_the_functions_use_is_read_off_their_processes(tmp_path: Path) -> None:
    world: Any = SimpleNamespace(aws=SimpleNamespace(state=tmp_path))
    program = "import sys; sys.stdin.readline(); sum(range(30_000_000)); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(tmp_path / "tmp" / "ministack-lambda-shiplap-watch")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:  # noqa: S603 - our own
        with FunctionUsage(world) as usage:
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write(b"\n")
            worker.stdin.flush()
            worker.stdout.readline()
        worker.communicate()
    assert usage.cpu_s > 0
    assert usage.peak_mib > 1


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_each_listed_test_has_one_reason(module: UpstreamModule) -> None:
    excluded, different = outcomes.not_applicable(module), outcomes.differences(module)
    assert excluded
    assert all(excluded.values())
    assert all(different.values())
    assert not excluded.keys() & different.keys()


def test_a_listed_test_that_upstream_lacks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listed = [*outcomes.not_applicable(AWS), *outcomes.differences(AWS)]
    tests = [UpstreamTest("storage", name) for name in listed[1:]]
    assert outcomes.unknown(AWS, tests) == listed[:1]
    monkeypatch.setattr(suites.programs, "find", lambda: tmp_path)
    monkeypatch.setattr(binaries, "build", lambda _module: tmp_path)
    monkeypatch.setattr(suites, "tests_of", lambda _suite: tests)
    assert suites.main(["--suite", "aws", "--list"]) == 1
    assert suites.main(["--suite", "storage", "--list"]) == 0  # the others may be in its other suites


def test_more_of_the_provider_s_suites_may_not_apply() -> None:
    _, met = outcomes.summary(ended("storage", passed=7, excluded=3))
    assert met
    _, met = outcomes.summary(ended("storage", passed=6, excluded=4))
    assert not met


def test_parts_hold_each_test_once() -> None:
    tests = [UpstreamTest("storage", str(number)) for number in range(7)]
    parts = [outcomes.part_of(tests, f"{number}/3") for number in (1, 2, 3)]
    assert sorted(test for part in parts for test in part) == tests
    assert [len(part) for part in parts] == [3, 2, 2]
    with pytest.raises(ValueError, match="1/3 to 3/3"):
        outcomes.part_of(tests, "4/3")


def test_what_has_ended_is_kept_and_the_last_outcome_counts(tmp_path: Path) -> None:
    kept = KeptOutcomes(tmp_path / "results" / "outcomes.jsonl")
    assert kept.all() == {}
    first, second = ended(failed=1)[0], ended("storage", passed=1)[0]
    for outcome in (first, second, first._replace(verdict=PASSED)):
        kept.add(outcome)
    assert KeptOutcomes(tmp_path / "results" / "outcomes.jsonl").all() == {
        first.test: first._replace(verdict=PASSED),
        second.test: second,
    }


def test_the_last_verdict_on_each_test_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.txt"
    path.touch()
    first, second = ended(failed=1)[0], ended("ami", passed=1)[0]
    for outcome in (first, second, first._replace(verdict=DIFFERENT)):
        Verdicts(path).note(outcome)
    assert Verdicts(path).all() == {first.test: DIFFERENT, second.test: PASSED}
    assert path.read_text() == "ami  passed  passed 0\nregression  deliberate difference  failed 0\n"


def test_the_page_counts_the_verdicts_that_are_noted() -> None:
    """Of each suite the page says how many tests apply, passed, differ and failed when they were played last."""
    noted = Verdicts(suites.VERDICTS).all()
    for suite in CORE.suites:
        of_suite = [verdict for test, verdict in noted.items() if test.suite == suite]
        counts = " | ".join(str(of_suite.count(verdict)) for verdict in (PASSED, DIFFERENT, FAILED))
        assert re.search(rf"^\| `{suite}` \| \d+ \| {counts} \|$", PAGE.read_text(), re.MULTILINE), (suite, counts)


def test_a_part_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = [UpstreamTest("storage", name) for name in "abcd"]
    ran: list[UpstreamTest] = []

    def run_all(chosen: list[UpstreamTest], _clusters: int) -> list[Outcome]:
        ran.extend(chosen)
        return [Outcome(test, PASSED, 1.0) for test in chosen]

    monkeypatch.setattr(suites, "RESULTS", tmp_path)
    monkeypatch.setattr(suites.programs, "find", lambda: tmp_path)
    monkeypatch.setattr(binaries, "build", lambda _module: tmp_path)
    monkeypatch.setattr(suites, "tests_of", lambda _suite: tests)
    monkeypatch.setattr(suites, "run_all", run_all)
    KeptOutcomes(tmp_path / "outcomes.jsonl").add(Outcome(tests[0], FAILED, 1.0))

    assert suites.main(["--suite", "storage", "--part", "1/2"]) == 1
    assert ran == [tests[2]]
    assert suites.main(["--suite", "storage", "--part", "1/2", "--again"]) == 0
    assert ran == [tests[2], tests[0], tests[2]]
    assert suites.main(["--suite", "storage"]) == 0
    assert ran[3:] == tests


@pytest.mark.parametrize(
    ("test", "policy"),
    [
        (UpstreamTest("scheduling-strict", "Scheduling a"), "Strict"),
        (UpstreamTest("scheduling-besteffort", "Scheduling a"), "BestEffort"),
        (UpstreamTest("consolidation", "Consolidation MinValuesPolicyBestEffort a"), "BestEffort"),
        (UpstreamTest("consolidation", "Consolidation MinValuesPolicyStrict a"), "Strict"),
    ],
)
def test_what_a_test_would_set_is_set_before_it(test: UpstreamTest, policy: str) -> None:
    created: list[Any] = []
    api: Any = SimpleNamespace(delete=lambda *_: None, create=lambda _plural, body, _namespace: created.append(body))

    karpenter_install.install(api, test)

    spec = created[0]["spec"]
    stated = {one["name"]: one["value"] for one in spec["template"]["spec"]["containers"][0]["env"]}
    assert spec["replicas"] == 0
    assert stated["MIN_VALUES_POLICY"] == policy
    assert karpenter_install.settings_of(test)["minValuesPolicy"] == policy


def test_only_tests_of_it_terminate_first() -> None:
    first = UpstreamTest("disruption", "TerminateFirst terminates first when drifting an at-limit static NodePool")
    other = UpstreamTest("disruption", "Drift Budgets should respect budgets for empty drift")
    assert karpenter_install.settings_of(first)["disruption"] == {"terminateFirstSeconds": 600}
    assert "disruption" not in karpenter_install.settings_of(other)


def test_only_the_test_of_a_node_that_never_registers_gives_it_up_before_the_test_gives_up() -> None:
    name = "Drift Failure should not disrupt a drifted node if the replacement node never registers"
    assert karpenter_install.settings_of(UpstreamTest("disruption", name))["joinTimeoutSeconds"] == 540
    assert "joinTimeoutSeconds" not in karpenter_install.settings_of(UpstreamTest("disruption", "Drift should x"))


def test_a_node_that_admission_refuses_keeps_no_other_from_joining() -> None:
    server = ApiServer(FakeClock())

    def create(plural: str, body: dict[str, Any]) -> Any:
        if body["metadata"]["name"] == "ip-1":
            raise ClusterError("denied request")
        return server.create(plural, body)

    machines = [
        EmulatedInstance(
            id=f"i-{number}", instance_type="m5.large", zone="us-east-1a", capacity_type="on-demand", ami="ami-1",
            state="running", launched_at=0.0, private_dns=f"ip-{number}", private_ip=f"10.0.0.{number}",
            subnet_id="subnet-1", instance_profile="", tags={CLUSTER: "real"}, user_data="",
        )
        for number in (1, 2)
    ]  # fmt: skip
    ec2: Any = SimpleNamespace(instances=lambda: machines)
    api: Any = SimpleNamespace(create=create)
    Joiner(api, ec2, "real", lambda *_: NodeResources({}, {}), "v1.36.3", 1.0)._agree()
    assert [node["metadata"]["name"] for node in server.list("nodes").items] == ["ip-2"]


def test_tests_of_reboots_find_a_policy_that_reboots_for_their_condition() -> None:
    test = UpstreamTest("disruption", "Reboot should reboot a node in place when repair matches a reboot policy")
    (policy,) = msgspec.convert(karpenter_install.settings_of(test)["repairPolicies"], list[RepairPolicy])
    (flag,) = (flag for flag in suites._core_flags(test) if "reboot" in flag)
    condition, _, value = flag.removeprefix("-reboot-condition=").partition("=")
    status, _, reason = value.partition("/")
    assert (policy.condition, policy.status, policy.action) == (condition, status, "Reboot")
    assert re.fullmatch(policy.reason, reason)


@pytest.mark.parametrize(
    ("name", "verdict", "left", "reusable"),
    [
        ("Drift should x", PASSED, [], True),
        ("Drift should x", PASSED, [{}], False),
        ("Drift should x", FAILED, [], False),
        ("Repair repairs x", PASSED, [], False),
        ("Reboot should x", PASSED, [], False),
        ("TerminateFirst terminates first when repairing x", PASSED, [], False),
    ],
)
def test_a_test_of_disruption_leaves_its_cluster_to_the_next_unless_nodes_were_sick(
    name: str, verdict: str, left: list[Any], reusable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "_LEAVES_S", 0.0)
    monkeypatch.setattr(suites, "_write", lambda *_: None)
    api = SimpleNamespace(list=lambda _plural: SimpleNamespace(items=left))
    world: Any = SimpleNamespace(joiner=SimpleNamespace(failure=None), api=api, told=str)
    test = UpstreamTest("disruption", name)
    assert suites._is_reusable(world, test, Outcome(test, verdict, 1.0)) is reusable


def test_a_cluster_that_answers_no_questions_any_more_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: str) -> Any:
        raise TooManyRequests("busy")

    monkeypatch.setattr(suites, "RESULTS", tmp_path)
    joiner = SimpleNamespace(failure=None)
    world: Any = SimpleNamespace(joiner=joiner, api=SimpleNamespace(list=refused), told=refused)
    test = UpstreamTest("drift", "Drift x")
    for verdict in (PASSED, FAILED):
        assert not suites._is_reusable(world, test, Outcome(test, verdict, 1.0))


def test_a_machine_that_ec2_reboots_shows_another_boot_once() -> None:
    server = ApiServer(FakeClock())
    machine = EmulatedInstance(
        id="i-1", instance_type="m5.large", zone="us-east-1a", capacity_type="on-demand", ami="ami-1", state="running",
        launched_at=0.0, private_dns="ip-1", private_ip="10.0.0.1", subnet_id="subnet-1", instance_profile="",
        tags={CLUSTER: "real"}, user_data="",
    )  # fmt: skip
    instances = [machine]
    ec2: Any = SimpleNamespace(instances=lambda: list(instances))
    api: Any = server
    joiner = Joiner(api, ec2, "real", lambda *_: NodeResources({}, {}), "v1.36.3", 1.0)
    joiner._agree()
    boots = [server.get("nodes", "ip-1")["status"]["nodeInfo"]["bootID"]]
    for reboots in (0, 1, 1, 2):
        instances[:] = [msgspec.structs.replace(machine, reboots=reboots)]
        ready = {"type": "Ready", "status": "True"}
        server.patch("nodes", "ip-1", {"status": {"conditions": [ready]}}, strategic=True, subresource="status")
        joiner._agree()
        status = server.get("nodes", "ip-1")["status"]
        boots.append(status["nodeInfo"]["bootID"])
        was_rebooted = boots[-1] != boots[-2]
        assert [item["status"] for item in status["conditions"]] == ["False" if was_rebooted else "True"]
    assert boots == ["i-1-0", "i-1-0", "i-1-1", "i-1-1", "i-1-2"]


def test_suites_name_their_module() -> None:
    assert binaries.module_of("disruption") is CORE
    assert binaries.module_of("scheduling-strict") is AWS
    assert CORE.key != AWS.key


def test_a_source_that_is_not_as_expected_is_not_built(tmp_path: Path) -> None:
    source = tmp_path / "report.go"
    source.write_text("one one")
    with pytest.raises(BuildFailed, match="`one` 2 times"):
        binaries.replace(source, Replacement("report.go", "one", "two", 1))
    binaries.replace(source, Replacement("report.go", "one", "two", 2))
    assert source.read_text() == "two two"


def test_the_pinned_release_is_stated() -> None:
    assert CORE.version.startswith("v1.")
    assert AWS.version.startswith("v1.")


def test_what_is_not_built_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "CACHE", tmp_path)
    with pytest.raises(binaries.ProgramsMissing, match="make e2e-upstream"):
        binaries.find(AWS)

"""Repair policies: conditions, reasons and the expressions that they are compared with."""

from __future__ import annotations

import pytest

from shiplap.disruption.repair.kept_sick_nodes import SickNote, kept_by, sick_amis
from shiplap.disruption.repair.repair_policies import (
    BUILT_IN,
    MOST_REASON,
    RepairPolicy,
    SickCondition,
    policy_problems,
    sick_condition,
    wrong_expression,
)
from shiplap.kubernetes.objects import Node, NodeCondition, NodeStatus, ObjectMeta
from shiplap.kubernetes.timestamps import rfc3339
from tests.beyond_bounds import beyond_bounds
from tests.builders.claims import running_claim

NOW = 1_800_000_000.0
GPU = "AcceleratedHardwareReady"


def with_condition(kind: str, reason: str = "", status: str = "False", *, for_s: float = 600.0) -> Node:
    bad = NodeCondition(kind, status, reason, "", rfc3339(NOW - for_s))
    return Node(ObjectMeta("n"), status=NodeStatus(conditions=(bad,)))


@pytest.mark.parametrize(
    ("reason", "tolerated_s"),
    [
        ("NvidiaXID48Error", 600),
        ("NvidiaXID158Error", 600),
        ("NvidiaXID79Error", 600),
        ("NvidiaXID13Error", 1800),
        ("NeuronDMAError", 1800),
        ("", 1800),
    ],
)
def test_a_gpu_is_waited_for_by_the_code_of_its_failure(reason: str, tolerated_s: float) -> None:
    assert sick_condition(with_condition(GPU, reason, for_s=tolerated_s - 1), (), NOW) is None
    found = sick_condition(with_condition(GPU, reason, for_s=tolerated_s), (), NOW)
    cause = f" ({reason})" if reason else ""
    assert found == SickCondition(f"its condition {GPU} has been False for {tolerated_s} s{cause}")


def test_a_policy_of_the_cluster_stands_before_the_built_in_ones_for_its_reasons_only() -> None:
    own = (RepairPolicy(GPU, "False", ".*XID13.*", "1m", 7), RepairPolicy("KernelReady", tolerated="Never"))
    found = sick_condition(with_condition(GPU, "NvidiaXID13Error", for_s=60), own, NOW)
    assert found is not None
    assert found.priority == 7
    assert sick_condition(with_condition(GPU, "NvidiaXID31Error", for_s=60), own, NOW) is None
    assert sick_condition(with_condition("KernelReady", "Panic", for_s=99_999), own, NOW) is None
    assert sick_condition(with_condition("KernelReady", "Panic", for_s=99_999), (), NOW) is not None
    assert sick_condition(with_condition("Disk", "Broken", "True", for_s=1800), own, NOW) is None
    more = (*own, RepairPolicy("Disk", "True"))
    assert sick_condition(with_condition("Disk", "Broken", "True", for_s=1800), more, NOW) is not None


def test_of_several_conditions_the_one_of_highest_priority_counts() -> None:
    bad = (*with_condition("KernelReady", for_s=9999).status.conditions, *with_condition(GPU).status.conditions)
    node = Node(ObjectMeta("n"), status=NodeStatus(conditions=bad))
    found = sick_condition(node, (RepairPolicy(GPU, tolerated="5m", priority=1),), NOW)
    assert found is not None
    assert found.words.startswith(f"its condition {GPU}")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a+)+b", "repeats a group"),
        ("(a|a)*b", "repeats a group"),
        ("(?:x?)?", "repeats a group"),
        ("a{99}", "repeats a group or counts"),
        ("a?b?c?d?", "more than 3 repetitions"),
        (".*a.*b.*c.*", "more than 3 repetitions"),
        ("(a|b)(c|d)(e|f)(g|h)(i|j)(k|l)", "too many alternatives"),
        ("(.)\\1", "refers back"),
        ("(?=a)b", "looks around"),
        ("(?P<name>a)", "names a group"),
        ("(a", "is not a regular expression"),
        ("*a", "is not a regular expression"),
    ],
)
def test_expressions_that_may_take_long_are_refused(pattern: str, why: str) -> None:
    assert why in wrong_expression(pattern)
    (problem,) = policy_problems([RepairPolicy("Ready"), RepairPolicy("Ready", reason=pattern)])
    assert problem[0] == (1, "reason")


@pytest.mark.parametrize(
    "pattern", ["", ".*", "Nvidia(XID|Xid)[0-9]+Error", r"a\.b\*c\)\+", "[*+?(){}|]+", "(?:a|b)c?"]
)
def test_expressions_that_end_soon_are_allowed(pattern: str) -> None:
    assert wrong_expression(pattern) == ""


def test_the_longest_search_that_is_allowed_ends() -> None:
    slow = RepairPolicy("Ready", "False", ".*a.*a.*b", "1m")
    assert wrong_expression(slow.reason) == ""
    assert sick_condition(with_condition("Ready", "a" * 100_000, for_s=60), (slow,), NOW) is None
    found = sick_condition(with_condition("Ready", "a" * 100_000, for_s=9999), (slow,), NOW)
    assert found is not None
    assert len(found.words) < MOST_REASON + 100


def test_built_in_policies_are_valid() -> None:
    assert list(policy_problems(BUILT_IN)) == []


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (RepairPolicy(""), "condition"),
        (RepairPolicy("NetworkReady"), "condition"),
        (RepairPolicy("ready"), "condition"),
        (RepairPolicy("MemoryPresure", "True"), "condition"),
        (RepairPolicy("Ready", "false"), "status"),
        (RepairPolicy("Ready", tolerated="soon"), "tolerated"),
        (RepairPolicy("Ready", tolerated="-1m"), "tolerated"),
        (RepairPolicy("Ready", action="reboot"), "action"),
    ],
)
def test_invalid_fields_are_named(policy: RepairPolicy, field: str) -> None:
    assert [place for place, _ in (*beyond_bounds(policy), *policy.problems())] == [(field,)]


def test_conditions_of_other_tools_are_no_misspelt_ones() -> None:
    for condition in ("KernelDeadlock", "ReadonlyFilesystem", "GPUReady", "DiskPressure", "ContainerRuntimeUnhealthy"):
        assert list(RepairPolicy(condition).problems()) == []
    ((_, why),) = RepairPolicy("NetworkReady").problems()
    assert why == "'NetworkReady' is no condition of nodes; did you mean NetworkingReady?"


def test_an_annotation_on_node_or_nodeclaim_keeps_a_node() -> None:
    claim, key = running_claim("a"), "karpenter.sh/do-not-repair"
    marked = Node(ObjectMeta("node-a", annotations={key: "true"}))
    assert kept_by(claim, marked, {}) == f"node node-a has the annotation {key}=true"
    assert kept_by(claim, None, {key: "true"}) == f"NodeClaim a has the annotation {key}=true"
    assert kept_by(running_claim("a", annotations={key: "true"}), None, {}) != ""
    assert kept_by(running_claim("a", annotations={key: "true"}), None, {key: "false"}) == ""
    assert kept_by(claim, Node(ObjectMeta("n", annotations={key: "yes"})), {}) == ""


def test_three_nodes_make_an_ami_suspicious() -> None:
    noted = {"a": SickNote("ami-1", NOW), "b": SickNote("ami-1", NOW), "c": SickNote("ami-2", NOW)}
    assert sick_amis(noted, {}) == frozenset()
    assert sick_amis(noted, {"a": "ami-1", "c": "ami-2"}) == frozenset(), "known already"
    assert sick_amis(noted, {"d": "ami-1"}) == {"ami-1"}
    assert sick_amis({}, {"d": "", "e": "", "f": ""}) == frozenset()


@pytest.mark.parametrize(("nodes", "most"), [(0, 3), (300, 3), (301, 4), (3000, 30)])
def test_of_an_ami_with_many_nodes_a_share_has_to_be_sick(nodes: int, most: int) -> None:
    noted = {f"{number:02}": SickNote("ami-1", NOW) for number in range(most - 1)}
    assert sick_amis(noted, {}, {"ami-1": nodes, "ami-2": 1}) == frozenset()
    assert sick_amis(noted, {"more": "ami-1"}, {"ami-1": nodes}) == {"ami-1"}


def test_after_a_reboot_conditions_are_waited_out_anew() -> None:
    reboots = RepairPolicy("Ready", "False", ".*", "10m", action="Reboot")
    node = with_condition("Ready", "KubeletNotReady", for_s=3600)
    assert sick_condition(node, (reboots,), NOW, NOW - 599) is None
    found = sick_condition(node, (reboots,), NOW, NOW - 600)
    assert found is not None
    assert found.reboots
    both = sick_condition(node, (reboots, RepairPolicy("Ready", "False", ".*", "1m")), NOW)
    assert both is not None
    assert not both.reboots

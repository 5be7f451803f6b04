"""Tests the reasons that keep a node of a command in service after all, and the cost of disrupting its pods."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from shiplap.disruption.candidates import disruption_cost, eviction_cost, objection
from shiplap.disruption.commands import Reason
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.scheduling.model.protected_pods import pdb_limits_of, protected_by
from tests.builders.pods import pod as any_pod

NOW = 1_700_000_000.0
COST = "controller.kubernetes.io/pod-deletion-cost"
KARPENTERS_COST = "karpenter.sh/disruption-cost"
PROTECTED = {labels.DO_NOT_DISRUPT: "true"}
NODE = msgspec.convert({"metadata": {"name": "n"}}, Node)
pod = partial(any_pod, phase="Running", owner="owner", owner_kind="ReplicaSet")
covered = partial(any_pod, labels={"a": "b"}, phase="Running", ready=True)


def against(reason: Reason, *pods: Pod, has_deadline: bool = False) -> str:
    return objection(reason, NODE, pods, NOW, has_deadline=has_deadline)


@pytest.mark.parametrize(
    ("item", "stays"),
    [
        (pod(), True),
        (pod(owner_kind="DaemonSet"), False),
        (pod(annotations={COST: str(-(2**31))}), False),
        (pod(annotations={COST: str(-(2**27))}), False),
        (pod(annotations={COST: str(1 - 2**27)}), True),
        (pod(annotations=PROTECTED), True),
        (pod(owner_kind="DaemonSet", annotations=PROTECTED), True),
    ],
    ids=["any", "of a DaemonSet", "cheaper than none", "costs nothing", "costs least", "protected", "protected daemon"],
)
def test_an_empty_node_stays_for_a_pod_that_came_meanwhile(item: Pod, stays: bool) -> None:
    assert bool(against(Reason.EMPTY, item)) is stays
    assert against(Reason.EMPTY) == ""


@pytest.mark.parametrize("owner", ["ReplicaSet", "StatefulSet"])
@pytest.mark.parametrize("annotations", [{}, PROTECTED])
@pytest.mark.parametrize("reason", [Reason.EMPTY, Reason.UNDERUTILIZED, Reason.DRIFTED])
def test_pods_that_end_or_have_ended_are_no_objection(reason: Reason, annotations: dict[str, str], owner: str) -> None:
    limits = pdb_limits_of((), ())
    for item in (
        pod(owner_kind=owner, annotations=annotations, deleting=True),
        pod(owner_kind=owner, annotations=annotations, phase="Succeeded"),
        pod(owner_kind=owner, annotations=annotations, phase="Failed"),
    ):
        assert against(reason, item) == ""
        assert protected_by(item, limits, NOW) == ""
    assert (protected_by(pod(owner_kind=owner, annotations=annotations), limits, NOW) != "") == bool(annotations)


@pytest.mark.parametrize(
    ("reason", "has_deadline", "stays"),
    [
        (Reason.UNDERUTILIZED, False, True),
        (Reason.UNDERUTILIZED, True, True),
        (Reason.DRIFTED, False, True),
        (Reason.DRIFTED, True, False),
        (Reason.EXPIRED, True, False),
        (Reason.SCALED_DOWN, False, False),
    ],
)
def test_protected_pods_keep_their_node_unless_it_has_a_deadline(
    reason: Reason, has_deadline: bool, stays: bool
) -> None:
    assert bool(against(reason, pod(annotations=PROTECTED), has_deadline=has_deadline)) is stays
    assert against(reason, pod(), has_deadline=has_deadline) == ""


@pytest.mark.parametrize(
    ("deletion_cost", "priority", "cost"),
    [
        ("0", 0, 1.0),
        ("no number", 0, 1.0),
        (str(2**27), 0, 2.0),
        ("0", 2**25, 2.0),
        (str(2**27), -(2**25), 1.0),
        (str(2**31 - 1), 2**30, 10.0),
        (str(-(2**31)), -(2**31) + 1, -10.0),
    ],
)
def test_an_eviction_costs_between_minus_ten_and_ten(deletion_cost: str, priority: int, cost: float) -> None:
    assert eviction_cost(pod(annotations={COST: deletion_cost}, priority=priority)) == cost


@pytest.mark.parametrize(
    ("written", "cost"),
    [
        ({KARPENTERS_COST: str(2**27)}, 2.0),
        ({KARPENTERS_COST: str(2**27), COST: str(-(2**27))}, 2.0),
        ({KARPENTERS_COST: "0", COST: str(2**27)}, 1.0),
        ({KARPENTERS_COST: "much", COST: str(2**27)}, 1.0),
        ({KARPENTERS_COST: str(2**31)}, 1.0),
        ({KARPENTERS_COST: "1_000"}, 1.0),
        ({KARPENTERS_COST: "9" * 5000}, 1.0),
    ],
)
def test_the_cost_that_is_karpenters_stands_before_that_of_the_controller(written: dict[str, str], cost: float) -> None:
    assert eviction_cost(pod(annotations=written)) == cost


def test_pods_that_cost_less_than_nothing_make_their_node_no_cheaper() -> None:
    cheap = pod(annotations={COST: str(-(2**31))})
    assert disruption_cost([]) == disruption_cost([cheap]) == 1.0
    assert disruption_cost([cheap, pod()]) == 2.0


def test_an_ended_pod_hides_no_objection_behind_it() -> None:
    assert against(Reason.EMPTY, pod(deleting=True), pod(annotations=PROTECTED)) != ""
    assert against(Reason.EMPTY, pod(phase="Succeeded"), pod()) == "pod default/pod has come to node n"


@pytest.mark.parametrize(("value", "stays"), [("true", True), ("false", False), ("truex", False)])
def test_a_node_that_says_so_itself_stays(value: str, stays: bool) -> None:
    node = msgspec.structs.replace(
        NODE, metadata=msgspec.structs.replace(NODE.metadata, annotations={labels.DO_NOT_DISRUPT: value})
    )
    words = objection(Reason.UNDERUTILIZED, node, (), NOW, has_deadline=True)
    assert bool(words) is stays
    assert objection(Reason.SCALED_DOWN, node, (), NOW, has_deadline=False) == ""


def budget(**spec: Any) -> PodDisruptionBudget:
    body = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, **spec},
    }
    return msgspec.convert(body, PodDisruptionBudget)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_are_not_counted_by_a_budget(phase: str) -> None:
    """Of two pods one may be missing: with a pod that has ended the other must stay."""
    both = [covered("p"), covered("q", phase=phase)]
    limits = pdb_limits_of([budget(minAvailable=1)], both)
    assert list(limits.by_pod) == ["default/p"]
    assert "pdb default/b" in protected_by(both[0], limits, NOW)
    assert protected_by(covered("p"), pdb_limits_of([budget(minAvailable=1)], [covered("p"), covered("q")]), NOW) == ""


@pytest.mark.parametrize(
    ("policy", "ready", "stays"),
    [
        ("AlwaysAllow", False, False),
        ("AlwaysAllow", True, True),
        ("IfHealthyBudget", False, True),
        ("Other", False, True),
    ],
)
def test_a_budget_may_let_pods_go_that_are_not_ready(policy: str, ready: bool, stays: bool) -> None:
    """As the eviction API does, with `unhealthyPodEvictionPolicy: AlwaysAllow`."""
    limits = pdb_limits_of([budget(maxUnavailable=0, unhealthyPodEvictionPolicy=policy)], [covered("p", ready=ready)])
    assert bool(protected_by(covered("p", ready=ready), limits, NOW)) is stays


def test_a_budget_that_cannot_be_read_protects_all_pods_of_its_namespace_and_no_others() -> None:
    pods = [covered("p"), covered("q", namespace="e"), covered("r", phase="Succeeded")]
    limits = pdb_limits_of([budget(minAvailable="half")], pods)
    assert "prevents the eviction" in protected_by(pods[0], limits, NOW)
    assert protected_by(pods[1], limits, NOW) == ""


def test_a_pod_without_a_namespace_is_in_the_default_one() -> None:
    bare = msgspec.convert({"metadata": {"name": "p"}}, Pod)
    unreadable = msgspec.convert(
        {"metadata": {"name": "b", "namespace": "default"}, "spec": {"minAvailable": "half"}}, PodDisruptionBudget
    )
    assert list(pdb_limits_of([unreadable], [bare, covered("q", namespace="d")]).by_pod) == [bare.key]

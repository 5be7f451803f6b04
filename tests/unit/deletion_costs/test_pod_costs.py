"""Which pods are written, and which value: those of ReplicaSets that ask for it, and none that somebody has set."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.disruption.candidates import eviction_cost
from shiplap.kubernetes.compact_pods import lean_pod
from shiplap.kubernetes.objects import Pod
from shiplap.policies.deletion_costs.pod_costs import cost_changes, written_cost
from tests.builders.pods import pod

COST = "controller.kubernetes.io/pod-deletion-cost"
WISH = "shiplap.dev/deletion-cost"
WRITTEN = "shiplap.dev/written-deletion-cost"
ASKS = {WISH: "managed"}
OURS = {COST: "-1500007", WRITTEN: "-1500007"}
OTHER = -1540007
SPREAD = {
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
}


def member(annotations: dict[str, str], **fields: Any) -> Pod:
    """A Ready pod of a ReplicaSet."""
    known: dict[str, Any] = {"node": "n", "owner": "web", "owner_kind": "ReplicaSet", "ready": True}
    return pod("web", annotations=annotations, **known | fields)


def written(item: Pod, cost: int | None = OTHER, of_pool: dict[str, str] | None = None) -> dict[str, str | None] | None:
    """The annotations that change; None if none does. A pod of a snapshot is judged alike."""
    found, lean = (cost_changes([each], cost, of_pool or {}) for each in (item, lean_pod(item)))
    assert [change.annotations for change in found] == [change.annotations for change in lean]
    return found[0].annotations if found else None


@pytest.mark.parametrize(
    ("of_pod", "of_pool", "fields", "is_written"),
    [
        ({}, {}, {}, False),
        (ASKS, {}, {}, True),
        ({}, ASKS, {}, True),
        ({WISH: "never"}, ASKS, {}, False),
        ({WISH: "Managed"}, ASKS, {}, False),
        ({}, {WISH: "never"}, {}, False),
        ({}, ASKS, {"spec": SPREAD}, False),
        (ASKS, {}, {"spec": SPREAD}, True),
        (ASKS, ASKS, {"owner_kind": "StatefulSet"}, False),
        (ASKS, ASKS, {"owner_kind": "Job"}, False),
        (ASKS, ASKS, {"owner": ""}, False),
        (ASKS, {}, {"ready": False}, False),
        (ASKS, {}, {"deleting": True}, False),
        (ASKS, {}, {"phase": "Succeeded"}, False),
        (ASKS | {COST: "7"}, {}, {}, False),
        (ASKS | {COST: str(OTHER)}, {}, {}, False),
        (ASKS | {COST: "7", WRITTEN: "-1500007"}, {}, {}, False),
        (ASKS | {WRITTEN: "-1500007"}, {}, {}, False),
        (ASKS | {COST: "7", WRITTEN: "7"}, {}, {}, False),
        (ASKS | OURS, {}, {}, True),
        (ASKS | OURS, {}, {"ready": False}, True),
    ],
)
def test_pods_that_are_written(
    of_pod: dict[str, str], of_pool: dict[str, str], fields: dict[str, Any], is_written: bool
) -> None:
    expected = {COST: str(OTHER), WRITTEN: str(OTHER)} if is_written else None
    assert written(member(of_pod, **fields), of_pool=of_pool) == expected


def test_a_pod_that_has_its_cost_is_not_written_again() -> None:
    assert written(member(ASKS | OURS), -1500007) is None


@pytest.mark.parametrize(
    ("of_pod", "cost", "is_removed"),
    [
        (ASKS | OURS, None, True),
        (OURS, OTHER, True),
        (OURS | {WISH: "never"}, OTHER, True),
        ({COST: "7", WRITTEN: "-1500007"}, None, False),
        ({COST: "-1500007"}, None, False),
        ({}, None, False),
    ],
)
def test_costs_that_are_not_wanted_any_more_are_removed(
    of_pod: dict[str, str], cost: int | None, is_removed: bool
) -> None:
    assert written(member(of_pod), cost) == ({COST: None, WRITTEN: None} if is_removed else None)


def test_pods_are_written_in_the_order_of_their_names() -> None:
    pods = [pod(name, owner="web", owner_kind="ReplicaSet", ready=True, node="n", annotations=ASKS) for name in "bac"]
    assert [change.pod.metadata.name for change in cost_changes(pods, OTHER, {})] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("annotations", "cost"),
    [
        (OURS, -1500007),
        ({COST: "-1500007"}, None),
        ({COST: "-1", WRITTEN: "-1"}, None),
        ({COST: "1500007", WRITTEN: "1500007"}, None),
        ({COST: "-1500007\n", WRITTEN: "-1500007\n"}, None),
    ],
)
def test_a_cost_is_known_as_ours_by_its_marker(annotations: dict[str, str], cost: int | None) -> None:
    assert written_cost(member(annotations)) == cost


def test_a_cost_that_shiplap_wrote_weighs_nothing_in_decisions() -> None:
    assert eviction_cost(pod(annotations=OURS)) == 1.0
    assert eviction_cost(pod(annotations=OURS | {COST: str(2**27)})) == 2.0
    assert eviction_cost(pod(annotations=OURS | {"karpenter.sh/disruption-cost": str(2**27)})) == 2.0

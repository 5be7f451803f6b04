"""Pods of one NodePool use what nodes of another have paid for, and enlarge them where that is cheaper."""

from __future__ import annotations

from typing import Any

from shiplap.kubernetes.objects import Pod
from tests.conformance.catalogues import incrementing_types
from tests.conformance.given import Outcome, given, pods, pool

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TAINT = {"key": "dedicated", "value": "jobs", "effect": "NoSchedule"}
_TOLERATES = [{"key": "dedicated", "operator": "Exists"}]


def _of_two_pools(*batch: Pod, weight: int = 0) -> Outcome:
    """Only pods that tolerate it go to NodePool jobs, which is asked first."""
    result = given(
        *batch, pools=[pool("default"), pool("jobs", taints=[_TAINT], weight=weight)], types=incrementing_types(64)
    )
    assert result.scheduled
    return result


def _lean_and_fat(tolerations: list[dict[str, Any]]) -> list[Pod]:
    """Pods with much cpu, and pods with much memory: every type has 2 GiB per vCPU, so that both belong together."""
    lean = pods(310, "lean", cpu="1", memory="128Mi")
    return [*lean, *pods(100, "fat", cpu="100m", memory="4Gi", tolerations=tolerations)]


def test_a_node_of_an_equal_pool_grows_for_pods_that_cost_more_on_their_own() -> None:
    together = given(*_lean_and_fat([]), pools=[pool("default")], types=incrementing_types(64))
    assert _of_two_pools(*_lean_and_fat(_TOLERATES)).plan.hourly <= 1.05 * together.plan.hourly


def test_a_node_of_a_lighter_pool_does_not_grow_for_them() -> None:
    result = _of_two_pools(*_lean_and_fat(_TOLERATES), weight=10)
    assert {claim.node_pool for claim in result.claims if any("fat" in entry.name for entry in claim.pods)} == {
        "default",
        "jobs",
    }
    alone = _of_two_pools(*_lean_and_fat([])[:310], weight=10)
    assert _paid(result, "default") == _paid(alone, "default")


def _paid(result: Outcome, name: str) -> float:
    return round(sum(claim.launch.price for claim in result.claims if claim.node_pool == name), 6)


def test_pods_take_no_room_beside_pods_of_another_pool_that_keep_them_off_their_nodes() -> None:
    rule = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"noisy": "true"}}}
    away = {"affinity": {"podAntiAffinity": {REQUIRED: [rule]}}}
    quiet = pods(310, "quiet", cpu="1", memory="128Mi", spec=away)
    noisy = pods(40, "noisy", cpu="100m", memory="1Gi", tolerations=_TOLERATES, metadata={"labels": {"noisy": "true"}})
    for claim in _of_two_pools(*quiet, *noisy).claims:
        assert len({entry.name.split("-")[0] for entry in claim.pods}) == 1

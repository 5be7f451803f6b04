"""Pods of one NodePool use what nodes of another have paid for, and enlarge them where that is cheaper."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.packing import strategies
from tests.builders.pods import pod, pods
from tests.builders.pools import pool
from tests.conformance.catalogues import fake_type, incrementing_types
from tests.conformance.given import Outcome, given

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
    lean = pods(620, "lean", cpu="1", memory="128Mi")
    return [*lean, *pods(200, "fat", cpu="100m", memory="4Gi", tolerations=tolerations)]


def test_a_node_of_an_equal_pool_grows_for_pods_that_cost_more_on_their_own() -> None:
    together = given(*_lean_and_fat([]), pools=[pool("default")], types=incrementing_types(64))
    assert _of_two_pools(*_lean_and_fat(_TOLERATES)).plan.hourly <= 1.05 * together.plan.hourly


def test_a_node_of_an_equal_pool_does_not_grow_for_more_pods_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four pods would share the price of the larger type, but only one is there."""
    monkeypatch.setattr(strategies, "MOST_STEPWISE_PODS", 0)  # placed step by step they do not grow it either
    types = [
        fake_type(name, cpu=f"{cpu}100m", memory=f"{4 * cpu}Gi", pods="50", price=usd)
        for name, cpu, usd in (("small", 2, 0.10), ("medium", 4, 0.20), ("large", 8, 0.38))
    ]
    result = given(
        pod("web", cpu="4", memory="1Gi"),
        pod("job", cpu="1", memory="1Gi", tolerations=_TOLERATES),
        pools=[pool("default"), pool("jobs", taints=[_TAINT])],
        types=types,
    )
    assert {claim.node_pool: claim.launch.instance_type for claim in result.claims} == {
        "default": "medium",
        "jobs": "small",
    }


def test_a_node_of_a_lighter_pool_does_not_grow_for_them() -> None:
    result = _of_two_pools(*_lean_and_fat(_TOLERATES), weight=10)
    assert {claim.node_pool for claim in result.claims if any("fat" in entry.name for entry in claim.pods)} == {
        "default",
        "jobs",
    }
    alone = _of_two_pools(*_lean_and_fat([])[:620], weight=10)
    assert _paid(result, "default") == _paid(alone, "default")


def _paid(result: Outcome, name: str) -> float:
    return round(sum(claim.launch.price for claim in result.claims if claim.node_pool == name), 6)


def test_pods_take_no_room_beside_pods_of_another_pool_that_keep_them_off_their_nodes() -> None:
    rule = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"noisy": "true"}}}
    away = {"affinity": {"podAntiAffinity": {REQUIRED: [rule]}}}
    quiet = pods(610, "quiet", cpu="1", memory="128Mi", spec=away)
    noisy = pods(40, "noisy", cpu="100m", memory="1Gi", tolerations=_TOLERATES, metadata={"labels": {"noisy": "true"}})
    for claim in _of_two_pools(*quiet, *noisy).claims:
        assert len({entry.name.split("-")[0] for entry in claim.pods}) == 1

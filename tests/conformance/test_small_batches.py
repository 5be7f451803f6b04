"""A small batch is placed step by step where that is clearly cheaper than to give every pod its domain first."""

from __future__ import annotations

import pytest

from shiplap.scheduling import planner
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.given import Outcome, given, pod, pods, pool

_TYPES = [
    fake_type(
        name,
        cpu=f"{cpu}100m",
        memory=f"{cpu * 4096 + 10}Mi",
        pods="50",
        offerings=[("on-demand", zone) for zone in (Z1, Z2, Z3)],
        price=usd,
    )
    for name, cpu, usd in (("small", 2, 0.10), ("medium", 4, 0.19), ("large", 8, 0.36))
]


def _spread(app: str) -> dict[str, object]:
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": app}},
            }
        ]
    }


def _some(free: int) -> Outcome:
    """A pod of each of two spread groups, and pods that may go anywhere."""
    spread = [
        pod(f"{app}-1", cpu=cpu, memory="1Gi", spec=_spread(app), metadata={"labels": {"app": app}})
        for app, cpu in (("api", "1500m"), ("web", "300m"))
    ]
    return given(*spread, *pods(free, "free", cpu="100m", memory="256Mi"), types=_TYPES)


@pytest.mark.parametrize(("free", "bought"), [(1, ["small"]), (3, ["medium"])])
def test_pods_that_may_go_anywhere_join_the_nodes_of_others(
    free: int, bought: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = _some(free)
    assert result.scheduled
    assert [claim.launch.instance_type for claim in result.claims] == bought
    monkeypatch.setattr(planner, "_SMALL_BATCH", 0)
    assert result.plan.hourly < _some(free).plan.hourly


def test_many_classes_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each class takes its time in each of the ways that are tried."""
    monkeypatch.setattr(planner, "_FEW_CLASSES", 2)
    assert len(_some(1).claims) == 2


def test_a_small_saving_does_not_give_up_that_pods_may_bind_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "_CLEARLY", 0.5)
    assert len(_some(1).claims) == 2


def test_pods_keep_the_level_that_they_had() -> None:
    """A pod that tolerates the taint of a heavier NodePool gets its node there: the other's is not enlarged for it."""
    taint = {"key": "dedicated", "value": "jobs", "effect": "NoSchedule"}
    tolerates = {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}
    spread = {"metadata": {"labels": {"app": "api"}}, "spec": _spread("api")}
    result = given(
        pod("job", cpu="1500m", memory="1Gi", spec=tolerates),
        pod("api", cpu="1", memory="1Gi", **spread),  # type: ignore[arg-type]
        pools=[pool("default"), pool("jobs", taints=[taint], weight=10)],
        types=_TYPES,
    )
    assert {claim.node_pool: [entry.name for entry in claim.pods] for claim in result.claims} == {
        "default": ["api"],
        "jobs": ["job"],
    }

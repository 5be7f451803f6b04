"""The worked example of docs/explanation/algorithm.md, with its picture: two nodes that are filled by price."""

from __future__ import annotations

import pytest

from shiplap.scheduling.packing import bulk_stage, strategies
from shiplap.scheduling.search.bin_packing import first_fit
from tests.builders.pods import pod, pods
from tests.conformance.catalogues import Z1, fake_type
from tests.conformance.given import given

_TYPES = [
    # What is left for pods is the round number: fake types keep 100m and 10Mi for themselves.
    fake_type(
        name, cpu=f"{cpu}100m", memory=f"{cpu * 4096 + 10}Mi", pods="50", offerings=[("on-demand", Z1)], price=usd
    )
    for name, cpu, usd in (("small", 2, 0.10), ("medium", 4, 0.20), ("large", 8, 0.38))
]
_APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
            ]
        }
    }
}
_PODS = [
    *(pod(f"db-{n}", cpu="1", memory="4Gi", spec=_APART, metadata={"labels": {"app": "db"}}) for n in (1, 2)),
    *pods(6, "web", cpu="1", memory="2Gi"),
]


@pytest.mark.parametrize("improve_s", [0.0, 1.0])
def test_both_nodes_become_medium(improve_s: float) -> None:
    result = given(*_PODS, types=_TYPES, improve_s=improve_s)
    assert result.scheduled
    assert [claim.launch.instance_type for claim in result.claims] == ["medium", "medium"]
    assert result.plan.hourly == pytest.approx(0.40)
    for claim in result.claims:
        assert sorted(entry.name.partition("-")[0] for entry in claim.pods) == ["db", "web", "web", "web"]


def test_first_fit_buys_one_large_and_one_small_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_stage, "fill_cached", lambda problems: [first_fit(problem) for problem in problems])
    monkeypatch.setattr(strategies, "MOST_STEPWISE_PODS", 0)  # which finds the same as the filling by price
    result = given(*_PODS, types=_TYPES)
    assert sorted(claim.launch.instance_type for claim in result.claims) == ["large", "small"]
    assert result.plan.hourly == pytest.approx(0.48)

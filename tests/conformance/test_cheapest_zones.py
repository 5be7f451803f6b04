"""Pods of a large batch that may choose their zone go where they cost least."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shiplap.kubernetes.objects import Pod
from tests.builders.pods import pods
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.given import Outcome, given

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NODE: dict[str, Any] = {"cpu": "8100m", "memory": "32778Mi", "pods": "60"}
_TYPES = [
    fake_type("cheap", **_NODE, offerings=[("on-demand", zone) for zone in (Z2, Z3)], price=0.40),
    fake_type("dear", **_NODE, offerings=[("on-demand", zone) for zone in (Z1, Z2, Z3)], price=0.80),
]
"""Zone 1 has no cheap nodes."""


def _rule(app: str) -> dict[str, Any]:
    return {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}}


def _near(app: str) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {REQUIRED: [_rule(app)]}}}


def _apart(app: str) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {REQUIRED: [_rule(app)]}}}


def _app(name: str, number: int, spec: dict[str, Any], cpu: str = "1") -> list[Pod]:
    return pods(number, name, cpu=cpu, memory="3Gi", spec=spec, metadata={"labels": {"app": name}})


def _spread(number: int) -> list[Pod]:
    rule = {**_rule("spread"), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return _app("spread", number, {"topologySpreadConstraints": [rule]})


def _zones(result: Outcome, app: str) -> Counter[str]:
    """Return the number of pods of an app in each zone."""
    assert result.scheduled
    zones: Counter[str] = Counter()
    for claim in result.claims:
        zones[claim.launch.zone] += sum(entry.name.startswith(f"{app}-") for entry in claim.pods)
    return +zones


def _paid(result: Outcome, zone: str) -> float:
    """USD per hour of the nodes in a zone."""
    return round(sum(claim.launch.price for claim in result.claims if claim.launch.zone == zone), 6)


@pytest.mark.parametrize(
    ("number", "spec"),
    [(160, {}), (160, _near("app")), (2, _apart("app"))],
    ids=["free", "together", "apart"],
)
def test_pods_go_to_the_zones_in_which_they_cost_least(number: int, spec: dict[str, Any]) -> None:
    """All they may take in zone 1 is what is paid for."""
    alone, result = (given(*_spread(603), *more, types=_TYPES) for more in ((), _app("app", number, spec)))
    assert _paid(result, Z1) == _paid(alone, Z1)
    assert sum(_zones(result, "app").values()) == number
    assert _zones(result, "spread") == {Z1: 201, Z2: 201, Z3: 201}


def test_a_spread_has_its_further_pods_in_the_cheapest_zones() -> None:
    result = given(*_spread(605), types=_TYPES)
    assert _zones(result, "spread") == {Z1: 201, Z2: 202, Z3: 202}


def test_a_pod_that_keeps_others_off_its_nodes_goes_to_a_cheap_zone() -> None:
    own_node = {
        "affinity": {"podAntiAffinity": {REQUIRED: [{**_rule("app"), "topologyKey": "kubernetes.io/hostname"}]}}
    }
    result = given(*_spread(603), *_app("app", 40, own_node), types=_TYPES)
    assert Z1 not in _zones(result, "app")


def test_pods_without_constraints_fill_the_nodes_of_others_in_any_zone() -> None:
    """Nodes hold eight pods: there is room for six more in the zone of the five followers, for three in the others."""
    types = [fake_type("any", **_NODE, offerings=[("on-demand", zone) for zone in (Z1, Z2, Z3)], price=0.40)]
    others = [*_spread(615), *_app("near", 5, _near("near"))]
    alone, result = (given(*others, *more, types=types) for more in ((), _app("free", 12, {})))
    assert result.scheduled
    assert result.plan.hourly == alone.plan.hourly
    assert sorted(_zones(result, "free").values()) == [3, 3, 6]

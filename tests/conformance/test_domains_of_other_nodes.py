"""Spreads beside nodes that are launched for other pods: domains, as far as the constraint's policies see them."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.kubernetes.objects import Pod
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.given import Outcome, given, in_flight

ZONE = "topology.kubernetes.io/zone"
TAINT = {"key": "gpu", "value": "x", "effect": "NoSchedule"}
TOLERATION = {"key": "gpu", "operator": "Exists"}
WEB = {"app": "web"}
SMALL = [fake_type("small", cpu="2", memory="4Gi", pods="10")]


def web(number: int, *, affinity: str = "Honor", taints: str = "Ignore", skew: int = 1, **fields: Any) -> list[Pod]:
    constraint = {
        "maxSkew": skew,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": WEB},
        "nodeAffinityPolicy": affinity,
        "nodeTaintsPolicy": taints,
    }
    more = {"cpu": "100m"} | fields
    return pods(number, "web", metadata={"labels": WEB}, spec={"topologySpreadConstraints": [constraint]}, **more)


def placed(outcome: Outcome) -> int:
    return sum(bool(outcome.home(item.metadata.name)) for item in outcome.snapshot.view.pods if "web" in str(item.key))


@pytest.mark.parametrize("larger", [True, False])
@pytest.mark.parametrize("number", [2, 60])
@pytest.mark.parametrize(("policy", "skew", "most"), [("Ignore", 1, 1), ("Ignore", 2, 2), ("Honor", 1, 60)])
def test_the_zone_of_another_pod_is_a_domain_if_node_affinity_is_ignored(
    policy: str, skew: int, most: int, number: int, larger: bool
) -> None:
    """Pods with the larger requests are placed first; it must not matter which these are."""
    waiting = web(number, affinity=policy, skew=skew, selector={ZONE: Z3}, cpu="200m")
    outcome = given(*waiting, pod("other", cpu="1500m" if larger else "100m", selector={ZONE: Z1}), types=SMALL)
    assert placed(outcome) == min(number, most)
    assert outcome.claim_of("other").launch.zone == Z1
    assert not outcome.plan.unsettled
    if placed(outcome) < number:
        assert "unsatisfiable topology constraint" in outcome.plan.unschedulable[0].message


def test_zones_without_a_node_are_no_domains_though_node_affinity_is_ignored() -> None:
    outcome = given(*web(4, affinity="Ignore", selector={ZONE: Z3}), pod("other", selector={ZONE: Z3}), types=SMALL)
    assert outcome.scheduled


@pytest.mark.parametrize("affinity", ["Honor", "Ignore"])
@pytest.mark.parametrize("taints", ["Honor", "Ignore"])
@pytest.mark.parametrize(("named", "tainted"), [(True, True), (True, False), (False, True)])
def test_policies_say_which_nodes_of_other_pods_are_domains(
    affinity: str, taints: str, named: bool, tainted: bool
) -> None:
    """A node in zone 3 that pods in zones 1 and 2 cannot use: for its zone, for its taint, or for both."""
    pools = [
        pool("plain", rule(ZONE, "In", Z1, Z2)),
        pool("other", rule(ZONE, "In", Z3), taints=[TAINT] if tainted else ()),
    ]
    selects = [[rule(ZONE, "In", Z1, Z2)]] if named else ()
    other = pod("other", cpu="100m", tolerations=[TOLERATION], selector={ZONE: Z3})
    waiting = web(6, affinity=affinity, taints=taints, requires=selects, cpu="200m")
    outcome = given(*waiting, other, pools=pools, types=SMALL)
    hidden = (named and affinity == "Honor") or (tainted and taints == "Honor")
    assert placed(outcome) == (6 if hidden else 2)


@pytest.mark.parametrize("number", [6, 60])
def test_a_zone_that_another_node_may_get_or_not_holds_nothing_down(number: int) -> None:
    """The claim in the tainted pool gets its zone when it is launched, and it may be the zone of the spread."""
    pools = [pool("plain", rule(ZONE, "In", Z1)), pool("other", rule(ZONE, "In", Z1, Z2), taints=[TAINT], weight=0)]
    other = pod("other", cpu="1900m", tolerations=[TOLERATION], selector={"karpenter.sh/nodepool": "other"})
    outcome = given(*web(number), other, pools=pools, types=SMALL)
    assert placed(outcome) == number


def test_the_plan_stays_as_it_is_once_it_is_carried_out() -> None:
    waiting = web(3, affinity="Ignore", selector={ZONE: Z3})
    other = pod("other", selector={ZONE: Z1})
    first = given(*waiting, other, types=SMALL)
    again = given(*waiting, other, types=SMALL, claims=[in_flight(claim) for claim in first.claims])
    assert not again.claims
    assert placed(again) == placed(first) == 1


@pytest.mark.parametrize("number", [2, 3])
def test_a_zone_that_no_node_comes_to_after_all_holds_nothing_down(number: int) -> None:
    """Pods that would rather be apart get a node in another zone, until that zone keeps the others few."""
    soft = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": WEB},
    }
    waiting = web(number, affinity="Ignore", selector={ZONE: Z3}, cpu="200m")
    outcome = given(*waiting, pod("other", cpu="100m", spec={"topologySpreadConstraints": [soft]}), types=SMALL)
    assert [claim.launch.zone for claim in outcome.claims] == [Z3]
    assert placed(outcome) == number


def test_pods_that_are_there_already_count_in_late_domains() -> None:
    """Zone 1 has a pod of the spread, on a node on its way out, and gets a node for another pod."""
    old = pod("old", node="gone", metadata={"labels": WEB})
    gone = node("gone", labels={ZONE: Z1}, cordoned=True, pods="1")
    waiting = web(3, affinity="Ignore", selector={ZONE: Z3})
    outcome = given(*waiting, old, pod("other", selector={ZONE: Z1}), nodes=[gone], types=SMALL)
    assert sum(bool(outcome.home(f"web-{n}")) for n in range(3)) == 2


def test_a_zone_whose_nodes_are_of_another_architecture_is_no_domain() -> None:
    """The other claim does not name its architecture, but no type that zone 3 sells has that of the pods."""
    arm = fake_type("arm", cpu="2", memory="4Gi", pods="10", arch="arm64", offerings=[("spot", Z1), ("spot", Z2)])
    waiting = web(6, selector={"kubernetes.io/arch": "arm64"}, cpu="200m")
    outcome = given(*waiting, pod("other", cpu="100m", selector={ZONE: Z3}), types=[arm, *SMALL])
    assert outcome.scheduled
    assert outcome.claim_of("other").launch.zone == Z3

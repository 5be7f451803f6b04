"""Launches in flight count as if they got the offering that a launch asks for: those of their own NodePool alone."""

from __future__ import annotations

from shiplap.kubernetes.objects import Node
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.policies.spot_risk.risk_evidence import DAY_PARTS, OfferingEvidence, sorted_evidence
from shiplap.policies.spot_risk.safer_offerings import KnownSpotRisk, most_of_pool
from shiplap.policies.spot_risk.spot_risk_input import SpotRiskInput
from shiplap.policies.spot_risk.spot_risk_settings import SpotRiskSettings
from shiplap.scheduling.planner import plan
from tests.builders.claims import node_claim
from tests.builders.nodes import node
from tests.builders.pods import pods
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.given import snapshot_of

KIND = "karpenter.sh/capacity-type"
SPOT = tuple(("spot", zone) for zone in (Z1, Z2, Z3))
TYPES = [fake_type(f"f{n}.large", cpu="4", memory="8Gi", price=0.1, offerings=SPOT) for n in range(20)]
EVIDENCE = [OfferingEvidence("", item.name, (10_000.0,) * DAY_PARTS, (1.0,) * DAY_PARTS) for item in TYPES]
POOLS = [pool(name, taints=[{"key": "team", "value": name, "effect": "NoSchedule"}]) for name in ("batch", "web")]


def full_nodes(number: int, of: str) -> list[Node]:
    """Spot nodes in service of a NodePool, of one offering, without room."""
    return [
        node(
            f"{of}-{place}",
            cpu="0",
            pool=of,
            instance_type="f0.large",
            zone=Z1,
            capacity_type="spot",
            provider_id=f"aws:///{Z1}/i-{of}-{place}",
        )
        for place in range(number)
    ]


def coming(number: int, of: str, kind: str = "spot") -> list[NodeClaim]:
    """Launches in flight of a NodePool that may get any offering of a capacity type."""
    wanted = (RequirementSpec(KIND, "In", (kind,)),)
    return [
        node_claim(name=f"{of}-{kind}-{place}", node_pool=of, state=ClaimState.LAUNCHING, requirements=wanted)
        for place in range(number)
    ]


def most_asked(waiting: dict[str, int], nodes: list[Node], claims: list[NodeClaim]) -> dict[str, int]:
    """By NodePool, how many nodes of an offering a new launch may add to those that are there."""
    tolerant = [
        item
        for team, number in waiting.items()
        for item in pods(number, team, cpu="3", tolerations=[{"key": "team", "value": team}])
    ]
    inputs = KnownSpotRisk(SpotRiskSettings("prefer"), 0.05, sorted_evidence(EVIDENCE))
    made = plan(
        snapshot_of(tolerant, nodes, pools=POOLS, types=TYPES, claims=claims, policies=(SpotRiskInput(inputs),))
    )
    assert len(made.node_claims) == sum(waiting.values())
    asked = [(claim.node_pool, claim.preferred_spot.most) for claim in made.node_claims if claim.preferred_spot]
    assert len(asked) == len(made.node_claims)
    return dict(asked)


def test_each_may_get_any_offering_so_it_takes_of_the_share() -> None:
    """Six nodes, two launches in flight and two new ones: a share of three, of which the launches may get two."""
    found = most_asked({"batch": 2}, full_nodes(6, "batch"), coming(2, "batch"))
    assert found == {"batch": most_of_pool(10) - 2} == {"batch": 1}


def test_more_of_them_than_the_share_leave_nothing_of_it() -> None:
    assert most_asked({"batch": 2}, [], coming(8, "batch")) == {"batch": 0}


def test_those_of_another_pool_take_nothing() -> None:
    nodes = [*full_nodes(8, "batch"), *full_nodes(3, "web")]
    found = most_asked({"batch": 2, "web": 1}, nodes, coming(6, "web"))
    assert found == {"batch": most_of_pool(10), "web": 0}


def test_those_that_cannot_become_spot_take_nothing() -> None:
    found = most_asked({"batch": 2}, full_nodes(8, "batch"), coming(3, "batch", "on-demand"))
    assert found == {"batch": most_of_pool(10)}

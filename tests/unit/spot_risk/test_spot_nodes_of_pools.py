"""Tests the spot nodes of each NodePool, of which an offering may have a share: each counts once, in its own pool."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.policies.spot_risk.risk_evidence import DAY_PARTS, OfferingEvidence, sorted_evidence
from shiplap.policies.spot_risk.safer_offerings import KnownSpotRisk, most_of_pool
from shiplap.policies.spot_risk.spot_choices import spot_nodes
from shiplap.policies.spot_risk.spot_risk_input import SpotRiskInput
from shiplap.policies.spot_risk.spot_risk_settings import SpotRiskSettings
from shiplap.scheduling.model.snapshot import ClusterView, Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.claims import node_claim
from tests.builders.nodes import node
from tests.builders.pods import pods
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.given import NOW, snapshot_of


def runs(name: str, node_pool: str, zone: str, *, capacity_type: str = "spot") -> tuple[Node, NodeClaim]:
    """A node in service and its claim."""
    facts = {"capacity_type": capacity_type, "instance_type": "m5.large", "zone": zone, "instance_id": f"i-{name}"}
    claim = node_claim(name=name, node_pool=node_pool, state=ClaimState.INITIALIZED, node_name=name, **facts)
    marks = {labels.CAPACITY_TYPE: capacity_type, labels.INSTANCE_TYPE: "m5.large", labels.ZONE: zone}
    made = node(name, pool=node_pool, labels=marks)
    return replace(made, spec=replace(made.spec, provider_id=f"aws:///{zone}/i-{name}")), claim


def counted(pairs: list[tuple[Node, NodeClaim]], *coming: NodeClaim) -> dict[str, tuple[Counter[str], int]]:
    view = ClusterView(nodes=tuple(made for made, _ in pairs))
    manifests = Manifests(node_pools=(pool("batch"), pool("web")))
    claims = (*(claim for _, claim in pairs), *coming)
    return dict(spot_nodes(Snapshot(cluster="test", now=NOW, view=view, manifests=manifests, claims=claims)))


def test_a_node_and_its_claim_are_one_spot_node_of_their_own_pool() -> None:
    pairs = [runs("a", "batch", "z1"), runs("b", "batch", "z1"), runs("c", "web", "z2")]
    pairs.append(runs("d", "web", "z1", capacity_type="on-demand"))
    found = counted(pairs)
    assert found["batch"] == (Counter({"m5.large/z1": 2}), 0)
    assert found["web"] == (Counter({"m5.large/z2": 1}), 0)


def test_a_claim_without_a_node_counts_where_it_was_launched_or_as_any_offering() -> None:
    launched = node_claim(
        name="e",
        node_pool="web",
        state=ClaimState.LAUNCHED,
        capacity_type="spot",
        instance_type="m5.large",
        zone="z2",
        instance_id="i-e",
    )
    planned = node_claim(name="f", node_pool="batch", state=ClaimState.PLANNED)
    failed = node_claim(name="g", node_pool="batch", state=ClaimState.FAILED)
    found = counted([runs("a", "batch", "z1")], launched, planned, failed)
    assert found == {"batch": (Counter({"m5.large/z1": 1}), 1), "web": (Counter({"m5.large/z2": 1}), 0)}


def test_the_share_of_an_offering_is_of_its_own_pools_nodes() -> None:
    """Ten nodes of one NodePool and one of another are planned together."""
    spot = tuple(("spot", zone) for zone in (Z1, Z2, Z3))
    types = [fake_type(f"f{n}.large", cpu="4", memory="8Gi", price=0.1, offerings=spot) for n in range(20)]
    evidence = [OfferingEvidence("", item.name, (10_000.0,) * DAY_PARTS, (1.0,) * DAY_PARTS) for item in types]
    pools = [pool(name, taints=[{"key": "team", "value": name, "effect": "NoSchedule"}]) for name in ("batch", "web")]
    waiting = [
        item
        for team, number in (("batch", 10), ("web", 1))
        for item in pods(number, team, cpu="3", tolerations=[{"key": "team", "value": team}])
    ]
    inputs = KnownSpotRisk(SpotRiskSettings("prefer"), 0.05, sorted_evidence(evidence))
    made = plan(snapshot_of(waiting, pools=pools, types=types, policies=(SpotRiskInput(inputs),)))
    most = {claim.node_pool: claim.preferred_spot.most for claim in made.node_claims if claim.preferred_spot}
    assert len(made.node_claims) == 11
    assert most == {"batch": most_of_pool(10), "web": most_of_pool(1)} == {"batch": 3, "web": 1}

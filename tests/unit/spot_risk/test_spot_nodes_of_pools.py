"""How many spot nodes each NodePool has, of which an offering may have a share: each node once, and no other pool's."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.scheduling.model.snapshot import ClusterView, Snapshot
from shiplap.scheduling.packing.spot_choices import _spot_nodes
from tests.conformance.given import NOW, node, pool
from tests.node_claims import node_claim


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
    return dict(_spot_nodes(Snapshot(cluster="test", now=NOW, view=view, manifests=manifests, claims=claims)))


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

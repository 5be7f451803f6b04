"""How full each domain of a spread is when ceilings choose among launches, by pods on nodes and pods promised one.

A launch that ceilings let pass in a fuller domain would be in vain: kube-scheduler keeps its pods off.
"""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.kubernetes.objects import Pod
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.policies.ceilings.ceilings import CeilingMode, CeilingScope, CeilingUse, SpendingView
from shiplap.policies.ceilings.launch_costs import wanted_launches
from shiplap.scheduling.planner import plan
from tests.builders.claims import node_claim
from tests.builders.nodes import node
from tests.builders.pods import pod
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.conformance.given import snapshot_of

ZONE = "topology.kubernetes.io/zone"
SPREAD = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
TYPES = (fake_type("m.large", price=1.0, cpu="4", memory="16Gi", offerings=(("on-demand", Z1), ("on-demand", Z2))),)
ROOMY = SpendingView(
    (CeilingUse(CeilingScope.CLUSTER, "hour", 90_000_000, 0, "test", CeilingMode.STOP, recovery_percent=0),)
)


def web(name: str, on: str = "", **fields: Any) -> Pod:
    return pod(name, cpu="3", node=on, labels={"app": "web"}, spec={"topologySpreadConstraints": [SPREAD]}, **fields)


def claimed(state: ClaimState, *promised: str, zone: str = Z1, node_name: str = "") -> NodeClaim:
    """A claim that was planned for these pods."""
    return node_claim(
        name=f"claim-{zone}",
        state=state,
        node_name=node_name,
        instance_id=f"i-{zone}" if state is not ClaimState.PLANNED else "",
        labels={ZONE: zone, "karpenter.sh/nodepool": "default"},
        instance_types=("m.large",),
        requests={"cpu": 3000},
        allocatable={"cpu": 4000, "memory": 16 * 2**30, "pods": 110},
        pods=tuple(PodReference("default", name, f"uid-{name}") for name in promised),
    )


def before(*pods: Pod, claims: tuple[NodeClaim, ...] = (), nodes: tuple[Any, ...] = ()) -> dict[str, int]:
    """The pods that the first launch of each zone finds there."""
    snapshot = snapshot_of(pods, nodes, types=TYPES, claims=claims)
    claims_made = plan(snapshot).node_claims
    found: dict[str, int] = {}
    for launch, made in zip(wanted_launches(snapshot, ROOMY, claims_made), claims_made, strict=True):
        assert launch.level is not None
        zone = made.labels[ZONE]
        found[zone] = min(launch.level.before, found.get(zone, launch.level.before))
    return found


def in_zone(name: str, zone: str, provider_id: str = "") -> Any:
    return node(name, cpu="4", memory="16Gi", zone=zone, pool="default", initialized=False, provider_id=provider_id)


WAITING = tuple(web(f"new-{number}") for number in range(4))


def test_each_domain_has_the_pods_of_its_nodes() -> None:
    there = [web("a", "n1"), web("b", "n2"), web("c", "n3"), pod("other", cpu="1", node="n1", labels={"app": "db"})]
    around = tuple(in_zone(name, zone) for name, zone in (("n1", Z1), ("n2", Z1), ("n3", Z2)))
    assert before(*there, *WAITING, nodes=around) == {Z1: 2, Z2: 1}


@pytest.mark.parametrize("state", [ClaimState.PLANNED, ClaimState.LAUNCHED, ClaimState.REGISTERED])
def test_pods_that_are_promised_a_node_count_until_they_are_bound(state: ClaimState) -> None:
    """Also between the moment at which the node joins and that at which kube-scheduler binds them."""
    joined = state is ClaimState.REGISTERED
    flight = claimed(state, "p", node_name="n1" if joined else "")
    around = (in_zone("n1", Z1, f"aws:///{Z1}/i-{Z1}"),) if joined else ()
    assert before(web("p"), *WAITING, claims=(flight,), nodes=around) == {Z1: 1, Z2: 0}


def test_a_pod_that_is_bound_counts_once() -> None:
    flight = claimed(ClaimState.REGISTERED, "p", node_name="n1")
    around = (in_zone("n1", Z1, f"aws:///{Z1}/i-{Z1}"),)
    assert before(web("p", "n1"), *WAITING, claims=(flight,), nodes=around) == {Z1: 1, Z2: 0}


def test_a_namesake_of_a_pod_that_a_node_once_had_is_nowhere_yet() -> None:
    """A StatefulSet makes a pod anew by its name. The claim of a node in service promises nothing any more."""
    served = claimed(ClaimState.INITIALIZED, "new-0", node_name="n1")
    full = pod("full", cpu="4", node="n1")
    around = (node("n1", cpu="4", memory="16Gi", zone=Z1, pool="default", provider_id=f"aws:///{Z1}/i-{Z1}"),)
    assert before(full, *WAITING, claims=(served,), nodes=around) == {Z1: 0, Z2: 0}

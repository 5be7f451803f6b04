"""Tests the number of volumes that a node takes which is not there yet: as many as other nodes of its type."""

from __future__ import annotations

from typing import Any

from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.nodes import node
from tests.builders.pods import pod
from tests.builders.pools import pool
from tests.conformance.catalogues import fake_type
from tests.conformance.given import claim_volumes, csi_node, given, in_flight, pvc, storage_class

TYPES = [fake_type("big", cpu="16", memory="32Gi", pods="50", price=1.0)]
SEEN = node("seen", cpu="0", labels={labels.INSTANCE_TYPE: "big"})


def waiting(number: int) -> tuple[list[Any], list[Any]]:
    """Pods with a claim each, and those claims."""
    names = [f"data-{place}" for place in range(number)]
    return [pod(f"pod-{name}", cpu="100m", spec=claim_volumes(name)) for name in names], [
        storage_class(),
        *(pvc(name, storage_class="fast") for name in names),
    ]


def test_new_nodes_get_no_more_volumes_than_others_of_their_type_take() -> None:
    some, storage = waiting(7)
    plan = given(*some, types=TYPES, nodes=[SEEN], storage=[*storage, csi_node("seen", ebs_csi_aws_com=3)])
    assert sorted(len(claim.pods) for claim in plan.claims) == [1, 3, 3]
    assert all(set(claim.requests) == {"cpu", "pods"} for claim in plan.claims)


def test_of_a_type_never_seen_nothing_is_known() -> None:
    some, storage = waiting(7)
    types = [*TYPES, fake_type("other", cpu="16", memory="32Gi", pods="50", price=2.0)]
    plan = given(*some, types=types, nodes=[SEEN], storage=[*storage, csi_node("seen", ebs_csi_aws_com=3)])
    assert [claim.instance_types for claim in plan.claims] == [("other",)]
    alone = given(*some, types=TYPES, storage=storage)
    assert len(alone.claims) == 1


def test_claims_in_flight_keep_to_it() -> None:
    some, storage = waiting(3)
    storage = [*storage, csi_node("seen", ebs_csi_aws_com=2)]
    first = given(some[0], types=TYPES, nodes=[SEEN], storage=storage)
    for changes in ({}, {"state": ClaimState.LAUNCHED, "instance_type": "big"}):
        claim = in_flight(first.claim, **changes)
        plan = given(*some, types=TYPES, nodes=[SEEN], storage=storage, claims=[claim])
        assert [len(place.pods) for place in plan.plan.existing_nodes] == [2]
        assert len(plan.claim.pods) == 1


def test_nodes_whose_drivers_have_not_registered_are_expected_to_take_as_many() -> None:
    some, storage = waiting(3)
    fresh = node("fresh", cpu="8", labels={labels.INSTANCE_TYPE: "big"})
    plan = given(
        *some, pools=[pool()], types=TYPES, nodes=[SEEN, fresh], storage=[*storage, csi_node("seen", ebs_csi_aws_com=2)]
    )
    assert [len(place.pods) for place in plan.plan.existing_nodes] == [2]
    assert len(plan.claims) == 1


def test_a_pod_with_more_volumes_than_any_node_takes_is_told_so() -> None:
    _, storage = waiting(3)
    greedy = pod("greedy", spec=claim_volumes("data-0", "data-1", "data-2"))
    plan = given(greedy, types=TYPES, nodes=[SEEN], storage=[*storage, csi_node("seen", ebs_csi_aws_com=2)])
    assert "volumes of ebs.csi.aws.com short by 1" in plan.left("greedy").message


def test_a_claim_that_pods_share_does_not_part_them() -> None:
    _, storage = waiting(1)
    some = [pod(f"pod-{place}", cpu="100m", spec=claim_volumes("data-0")) for place in range(9)]
    plan = given(*some, types=TYPES, nodes=[SEEN], storage=[*storage, csi_node("seen", ebs_csi_aws_com=2)])
    assert len(plan.claim.pods) == 9

"""Pictures of a cluster that is followed: equal to pictures of what is there, whatever came in between."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.drawing.capture import picture_of_cluster
from shiplap.drawing.picture import ClusterPicture, NodePictureState
from shiplap.instances.offerings.node_prices import NodePrices
from shiplap.kubernetes.objects import Node, Pod
from shiplap.manifests.nodeclaim import ClaimState
from shiplap_cli.commands.top.followed_cluster import FollowedCluster
from shiplap_cli.commands.top.followed_install import ClaimsRead
from shiplap_cli.inputs.cluster_events import ClusterEvent, ObjectChanged, ObjectsListed, SourceProblem
from tests.builders.claims import node_claim
from tests.builders.nodes import node
from tests.builders.pods import pod
from tests.unit.cli.top.framed import NOON, PRICES, followed

BORN = {"creationTimestamp": "2026-01-01T11:00:00Z"}


def drawn(*seen: ClusterEvent) -> ClusterPicture:
    return followed(*seen).picture(NOON)


claim = partial(node_claim, cluster="prod", node_pool="general", hourly=0.03, state=ClaimState.LAUNCHED)
there = partial(claim, state=ClaimState.INITIALIZED)
LISTED = (
    ObjectsListed(
        "nodes", (node("a", instance_type="m5.large", zone="z"), node("b", instance_type="m5.large", zone="z"))
    ),
    ObjectsListed("pods", (pod("x", "500m", node="a"), pod("y", "500m", phase="Running", metadata=BORN))),
)


def test_what_was_listed_is_drawn() -> None:
    picture = drawn(*LISTED)
    assert [(item.name, [p.name for p in item.pods], item.hourly) for item in picture.nodes] == [
        ("a", ["x"], 0.1),
        ("b", [], 0.1),
    ]
    assert [(item.name, item.age_s) for item in picture.pending] == [("y", 3600.0)]


def test_a_pod_that_is_bound_moves_to_its_node() -> None:
    picture = drawn(*LISTED, ObjectChanged("pods", pod("y", "500m", node="b")))
    assert [[p.name for p in item.pods] for item in picture.nodes] == [["x"], ["y"]]
    assert picture.pending == ()


def test_a_pod_that_ends_leaves_its_node() -> None:
    for gone in (
        ObjectChanged("pods", pod("x", "500m", node="a", phase="Succeeded")),
        ObjectChanged("pods", pod("x", "500m", node="a"), gone=True),
    ):
        assert drawn(*LISTED, gone).nodes[0].pods == ()


def test_a_node_that_goes_takes_its_box_along() -> None:
    assert [
        item.name
        for item in drawn(
            *LISTED, ObjectChanged("nodes", node("a", instance_type="m5.large", zone="z"), gone=True)
        ).nodes
    ] == ["b"]


def test_pods_seen_before_their_node() -> None:
    assert [p.name for p in drawn(*reversed(LISTED)).nodes[0].pods] == ["x"]


def test_it_is_ready_when_each_kind_was_listed_or_is_denied() -> None:
    assert not followed(LISTED[0]).ready
    assert followed(*LISTED).ready
    denied = followed(LISTED[0], SourceProblem("pods", "not permitted"))
    assert denied.ready
    assert denied.picture(NOON).missing == ("not permitted",)


def test_what_can_be_seen_again_is_not_missing() -> None:
    assert drawn(*LISTED, SourceProblem("pods", "gone"), SourceProblem("pods", "")).missing == ()


def test_prices_are_asked_for_once_for_each_region_and_what_they_assume_is_said() -> None:
    asked: list[str] = []

    def prices(region: str) -> tuple[NodePrices, str]:
        asked.append(region)
        return PRICES, "" if region else "nodes do not say their Region"

    following = FollowedCluster("prod", prices)
    for seen in LISTED:
        following.apply(seen)
    assert following.picture(NOON).missing == ("nodes do not say their Region",)
    there = node("c", instance_type="m5.large", zone="z")
    marks = there.metadata.labels | {"topology.kubernetes.io/region": "eu-west-1"}
    following.apply(ObjectChanged("nodes", replace(there, metadata=replace(there.metadata, labels=marks))))
    following.picture(NOON)
    following.apply(ObjectsListed("nodes", (replace(there, metadata=replace(there.metadata, labels=marks)),)))
    assert following.picture(NOON).missing == ()
    assert asked == ["", "eu-west-1"]


_NAMES = st.sampled_from("abcd")
_CHANGES = st.one_of(
    st.builds(
        lambda name, gone: ObjectChanged("nodes", node(name, instance_type="m5.large", zone="z"), gone),
        _NAMES,
        st.booleans(),
    ),
    st.builds(
        lambda name, on, phase, gone: ObjectChanged("pods", pod(name, "500m", node=on, phase=phase), gone),
        st.sampled_from("uvwxyz"),
        st.sampled_from(["", "a", "b", "c"]),
        st.sampled_from(["Pending", "Running", "Failed"]),
        st.booleans(),
    ),
    st.builds(lambda names: ObjectsListed("nodes", tuple(map(node, sorted(names)))), st.sets(_NAMES)),
    st.builds(
        lambda names: ObjectsListed("pods", tuple(pod(name, "500m", node="a") for name in sorted(names))),
        st.sets(_NAMES),
    ),
)


@given(st.lists(_CHANGES, max_size=30), st.sets(st.integers(0, 29)))
def test_any_order_of_changes_gives_the_picture_of_what_is_there(changes: list[ClusterEvent], looks: set[int]) -> None:
    following = FollowedCluster("prod", lambda _region: (PRICES, ""))
    nodes: dict[str, Node] = {}
    pods: dict[str, Pod] = {}
    for number, seen in enumerate(changes):
        following.apply(seen)
        if number in looks:
            following.picture(NOON)
        if isinstance(seen, ObjectsListed):
            there: dict[str, Any] = nodes if seen.kind == "nodes" else pods
            there.clear()
            there.update({item.metadata.name: item for item in seen.objects})
        elif isinstance(seen, ObjectChanged):
            there = nodes if seen.kind == "nodes" else pods
            there.pop(seen.object.metadata.name, None)
            if not seen.gone:
                there[seen.object.metadata.name] = seen.object
    picture = following.picture(NOON)
    expected = picture_of_cluster("prod", NOON, list(nodes.values()), pods.values(), (), PRICES)
    assert picture.nodes == expected.nodes
    assert sorted(item.name for item in picture.pending) == sorted(item.name for item in expected.pending)


def test_nodes_are_drawn_by_their_claims_whichever_comes_first() -> None:
    claims = ClaimsRead((there(name="c-1", node_name="a", tier=2), claim(name="c-2")))
    after, before = drawn(*LISTED, claims), drawn(claims, *LISTED)
    assert after == before
    whole = picture_of_cluster(
        "prod",
        NOON,
        [node("a", instance_type="m5.large", zone="z"), node("b", instance_type="m5.large", zone="z")],
        [pod("x", "500m", node="a"), pod("y", "500m", phase="Running", metadata=BORN)],
        claims.claims,
        PRICES,
    )
    assert after.nodes == whole.nodes
    assert [(item.name, item.tier, item.hourly) for item in after.nodes] == [
        ("a", 2, 0.03),
        ("b", 0, 0.1),
        ("c-2", 0, 0.03),
    ]


def test_a_claim_that_is_over_or_whose_node_has_come_is_drawn_no_more() -> None:
    following = followed(
        *LISTED, ClaimsRead((there(name="c-1", node_name="a", tier=2), claim(name="c-2", instance_id="i-2")))
    )
    assert len(following.picture(NOON).nodes) == 3
    following.apply(ClaimsRead((there(name="c-2", node_name="b", tier=1),)))
    found = following.picture(NOON).nodes
    assert [(item.name, item.tier) for item in found] == [("a", 0), ("b", 1)]
    following.apply(ObjectChanged("nodes", node("b", instance_type="m5.large", zone="z"), gone=True))
    assert [item.name for item in following.picture(NOON).nodes] == ["a", "b"]
    assert following.picture(NOON).nodes[1].state is NodePictureState.STARTING
    following.apply(ClaimsRead(()))
    assert [item.name for item in following.picture(NOON).nodes] == ["a"]


def test_trouble_with_claims_does_not_keep_a_picture_waiting() -> None:
    following = followed(SourceProblem("claims", "refused"))
    assert not following.ready
    for item in LISTED:
        following.apply(item)
    assert following.ready
    assert following.picture(NOON).missing == ("refused",)
    following.apply(SourceProblem("claims", ""))
    assert following.picture(NOON).missing == ()

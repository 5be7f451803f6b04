"""Pods that require the company of their own kind, by kube-scheduler's rule for the first pod of a series.

A pod may be the first in a domain only if it meets its own terms and no pod anywhere does, on nodes that have a label
of these terms. Where the pod itself may run plays no part in that.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from shiplap.kubernetes.objects import Affinity, Pod
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.checker import violations
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.given import Outcome, claim_volumes, given, in_flight, pvc, storage_class
from tests.topology_checker import topology_violations

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
KIND, RACK = "karpenter.sh/capacity-type", "example.com/rack"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
WEB = {"app": "web"}
BOTH_KINDS = ("spot", "on-demand")
SOLD_OUT = fake_type("one", unavailable=[(kind, Z1) for kind in BOTH_KINDS])


def near(*keys: str, app: str = "web") -> dict[str, Any]:
    terms = [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}} for key in keys]
    return {"affinity": {"podAffinity": {REQUIRED: terms}}}


def web(number: int, name: str = "web", **fields: Any) -> list[Pod]:
    """Pods of one series over the zone, unless their `spec` says otherwise."""
    spec = near(ZONE) | fields.pop("spec", {})
    made = pods(number, name, metadata={"labels": WEB}, **fields)
    known = made[0].spec.affinity
    chosen = msgspec.convert(spec["affinity"], Affinity)
    affinity = msgspec.structs.replace(chosen, node_affinity=known.node_affinity if known else None)
    volumes = pod(spec=spec).spec.volumes
    return [
        msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, affinity=affinity, volumes=volumes))
        for one in made
    ]


def running(zone: str = Z1, name: str = "old", **labels: str) -> tuple[Pod, Any]:
    """A pod of the series and its full node."""
    return pod(name, cpu="1", node=f"node-{zone}", metadata={"labels": WEB}), node(
        f"node-{zone}", cpu="1", labels={ZONE: zone, **labels}
    )


OUT_OF_REACH: dict[str, dict[str, Any]] = {
    "selector": {"selector": {ZONE: Z2}},
    "required terms": {"requires": [[rule(ZONE, "In", Z2, Z3)]]},
    "volume": {"spec": claim_volumes("data")},
    "pool": {"pools": [pool("default", rule(ZONE, "In", Z2, Z3))]},
    "sold out": {"types": [SOLD_OUT]},
    "not sold": {"types": [fake_type("one", offerings=[(kind, zone) for kind in BOTH_KINDS for zone in (Z2, Z3)])]},
}
WORLD = ("pools", "types")


@pytest.mark.parametrize("path", ["bulk", "one by one"])
@pytest.mark.parametrize("case", OUT_OF_REACH.values(), ids=OUT_OF_REACH.keys())
def test_followers_whose_running_peers_are_out_of_reach_get_no_node(case: dict[str, Any], path: str) -> None:
    old, home = running()
    storage = [storage_class("fast", {ZONE: (Z2,)}), pvc(storage_class="fast")] if "spec" in case else []
    world = {key: value for key, value in case.items() if key in WORLD}
    fields = {key: value for key, value in case.items() if key not in WORLD}
    # Whatever prefers something is not placed in bulk.
    liking = {"prefers": [[rule(KIND, "In", "spot")]]} if path == "one by one" else {}
    outcome = given(old, *web(3, cpu="500m", **fields, **liking), nodes=[home], storage=storage, **world)
    assert outcome.claims == ()
    message = outcome.left("web-0").message
    assert f"pod affinity over {ZONE}" in message
    assert f"such pods are in {Z1} 1" in message
    assert "kube-scheduler starts no second group elsewhere" in message


def test_followers_go_where_their_running_peers_are() -> None:
    old, home = running()
    outcome = given(old, *web(3, cpu="500m"), nodes=[home])
    assert outcome.scheduled
    assert {claim.launch.zone for claim in outcome.claims} == {Z1}


@pytest.mark.parametrize("cordoned", [True, False])
def test_peers_count_on_any_node(cordoned: bool) -> None:
    old, _ = running()
    home = node("node-" + Z1, cpu="1", labels={ZONE: Z1}, cordoned=cordoned)
    assert given(old, *web(1, selector={ZONE: Z2}), nodes=[home]).claims == ()


def test_a_peer_on_a_node_without_the_label_does_not_count() -> None:
    """kube-scheduler counts pods per value of the label, so a node without it adds nothing."""
    old = pod("old", node="bare", metadata={"labels": WEB})
    outcome = given(old, *web(2, selector={ZONE: Z2}), nodes=[node("bare", cpu="1")])
    assert outcome.scheduled


def test_a_peer_that_is_moving_itself_does_not_count() -> None:
    owner = {"ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}]}
    old = pod("old", node="going", metadata={"labels": WEB, **owner})
    going = node("going", cpu="1", labels={ZONE: Z1}, deleting=True)
    outcome = given(old, *web(2, selector={ZONE: Z2}), nodes=[going])
    assert outcome.home("web-0")


def test_terms_over_several_labels_start_together() -> None:
    """A peer without the one label is counted by the other, so that no series starts over either of them."""
    old = pod("old", node="bare", metadata={"labels": WEB})
    bare = node("bare", cpu="1", labels={ZONE: Z1})
    outcome = given(old, *web(1, spec=near(ZONE, KIND)), nodes=[bare])
    assert outcome.claims == ()


def test_a_peer_whose_zone_is_not_settled_yet_is_waited_for() -> None:
    first = given(pod("old", metadata={"labels": WEB}, cpu="4"), types=[fake_type("one", cpu="5", memory="16Gi")])
    flight = in_flight(first.claim)
    assert len(next(entry.values for entry in flight.plan.requirements if entry.key == ZONE)) > 1
    waiting = web(1, cpu="4")
    outcome = given(pod("old", metadata={"labels": WEB}, cpu="4"), *waiting, claims=[flight])
    assert outcome.left("web-0")
    launched = in_flight(first.claim, zone=Z2, capacity_type="spot", instance_type="one")
    outcome = given(pod("old", metadata={"labels": WEB}, cpu="4"), *waiting, claims=[launched])
    assert outcome.claim.launch.zone == Z2


def test_pods_of_one_series_with_different_zones_do_not_start_twice() -> None:
    """Scenario 117, the second half."""
    outcome = given(*web(1, "second", selector={ZONE: Z2}), *web(1, "third", selector={ZONE: Z3}))
    assert len(outcome.claims) == 1
    assert len(outcome.plan.unschedulable) == 1


def judged(outcome: Outcome) -> Outcome:
    assert violations(outcome.snapshot, outcome.plan) == []
    assert topology_violations(outcome.snapshot, outcome.plan) == []
    return outcome


SIZES = list(itertools.permutations(("2", "1", "500m")))


@pytest.mark.parametrize("prefer", [False, True], ids=["bulk", "one by one"])
@pytest.mark.parametrize("sizes", SIZES)
def test_a_series_follows_pods_of_the_same_batch_that_are_pinned(sizes: tuple[str, ...], prefer: bool) -> None:
    """Else the pinned pod could bind first, and the series could start nowhere."""
    liking = {"prefers": [[rule(KIND, "In", "spot")]]} if prefer else {}
    waiting = [
        *web(3, cpu=sizes[0], **liking),
        pod("pinned", cpu=sizes[1], metadata={"labels": WEB}, selector={ZONE: Z3}),
        pod("other", cpu=sizes[2], selector={ZONE: Z2}),
    ]
    outcome = judged(given(*waiting))
    assert outcome.scheduled
    assert {outcome.claim_of(f"web-{place}").launch.zone for place in range(3)} == {Z3}


@pytest.mark.parametrize("sizes", SIZES)
def test_a_series_starts_where_its_least_free_pods_can_go(sizes: tuple[str, ...]) -> None:
    waiting = [
        *web(2, "free", cpu=sizes[0]),
        *web(2, "tied", cpu=sizes[1], selector={ZONE: Z3}),
        *web(2, "torn", cpu=sizes[2], requires=[[rule(ZONE, "In", Z2, Z3)]]),
    ]
    outcome = judged(given(*waiting))
    assert outcome.scheduled
    assert {claim.launch.zone for claim in outcome.claims} == {Z3}


@pytest.mark.parametrize("sizes", SIZES)
def test_a_series_waits_for_pods_that_follow_others(sizes: tuple[str, ...]) -> None:
    """`half` is counted by the series of web and follows db, which is tied to a zone."""
    waiting = [
        *web(2, cpu=sizes[0]),
        pod("half", cpu=sizes[1], metadata={"labels": WEB}, spec=near(ZONE, app="db")),
        pod("db", cpu=sizes[2], metadata={"labels": {"app": "db"}}, spec=near(ZONE, app="db"), selector={ZONE: Z3}),
    ]
    outcome = judged(given(*waiting))
    assert outcome.scheduled
    assert {claim.launch.zone for claim in outcome.claims} == {Z3}


def test_two_series_that_count_each_other_share_a_domain() -> None:
    labels = {"app": "web", "tier": "front"}
    tier = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"tier": "front"}}}
    waiting = [
        *pods(2, "a", cpu="1", metadata={"labels": labels}, spec=near(ZONE)),
        *pods(
            2,
            "b",
            cpu="500m",
            metadata={"labels": labels},
            spec={"affinity": {"podAffinity": {REQUIRED: [tier]}}},
            selector={ZONE: Z2},
        ),
    ]
    outcome = judged(given(*waiting))
    assert outcome.scheduled
    assert {claim.launch.zone for claim in outcome.claims} == {Z2}


def test_custom_labels_start_where_their_pool_has_them() -> None:
    racks = pool("default", rule(RACK, "In", "r1", "r2"))
    old = pod("old", node="far", metadata={"labels": WEB})
    far = node("far", cpu="1", labels={RACK: "r9"})
    assert given(old, *web(1, spec=near(RACK)), nodes=[far], pools=[racks]).claims == ()
    assert given(*web(2, spec=near(RACK)), pools=[racks]).scheduled


def test_pods_that_require_each_other_start_together_or_one_of_them_waits() -> None:
    """Each of two pods meets its own terms and is counted by the other's, over another label.

    Whichever binds first, the other has to be in its domain. So no order of placing them helps, and a pod that the
    group of the other counts goes to where that group starts, or waits.
    """
    labels = {"app": "web", "tier": "front"}
    by_zone = pod("a-zone", cpu="1", metadata={"labels": labels}, selector={ZONE: Z1}, spec=near(ZONE))
    terms = [{"topologyKey": KIND, "labelSelector": {"matchLabels": {"tier": "front"}}}]
    by_kind = {"affinity": {"podAffinity": {REQUIRED: terms}}}

    apart = given(by_zone, pod("b-kind", cpu="1", metadata={"labels": labels}, selector={ZONE: Z2}, spec=by_kind))
    assert len(apart.plan.unschedulable) == 1
    assert "they start together in" in apart.plan.unschedulable[0].message
    assert topology_violations(apart.snapshot, apart.plan) == []

    together = given(by_zone, pod("b-kind", cpu="1", metadata={"labels": labels}, spec=by_kind))
    assert together.scheduled
    assert {claim.launch.zone for claim in together.claims} == {Z1}


def test_a_series_has_the_node_that_holds_all_of_it_where_a_limit_leaves_only_one() -> None:
    """Larger pods open two smaller nodes, cheaper together, on neither of which the series has room."""
    types = [
        fake_type("medium", cpu="4", memory="16Gi", pods="10", price=0.2),
        fake_type("large", cpu="8", memory="32Gi", pods="10", price=0.5),
    ]
    limited = pool(limits={"cpu": "8"})
    series = web(4, cpu="500m", spec=near(HOST))
    outcome = given(*series, *pods(2, "job", cpu="2800m"), pools=[limited], types=types)
    assert outcome.scheduled
    assert [claim.launch.instance_type for claim in outcome.claims] == ["large"]

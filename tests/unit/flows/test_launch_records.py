"""Planned claims as they are committed: what of the plan they keep, which are launched together, and their token."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from shiplap.flows.planning.planned_launches import (
    ClaimOrigin,
    FleetOptions,
    alike,
    fleet_options,
    has_min_values,
    launches,
    plan_of,
    records_of,
    with_token,
)
from shiplap.instances.capacity.described_capacity import ENCLAVES
from shiplap.instances.catalog.type_catalog import Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Taint
from shiplap.manifests.custom_resources import Manifests, NodePool, RequirementSpec
from shiplap.manifests.nodeclaim import ClaimCause, ClaimState, LaunchRequest, NodeClaim, PodReference, PreferredSpot
from shiplap.manifests.template_hash import HASH_VERSION, NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION
from shiplap.ports import COMMIT_BYTES, COMMIT_GROUP, FleetOverride
from shiplap.scheduling.model.scheduling_plan import LaunchChoice, PlannedClaim
from shiplap.scheduling.model.snapshot import NodeClassCatalog, Snapshot
from tests.builders.claims import node_claim, with_fields
from tests.builders.pools import pool
from tests.unit.flows.sold_types import kind

NOW = 1_700_000_000.0
PLANNED = PlannedClaim(
    name="c",
    node_pool="p",
    node_class="default",
    tier=2,
    requirements=(RequirementSpec("a", "Exists"),),
    taints=(Taint("t", "v", "NoSchedule"),),
    startup_taints=(Taint("s", "v", "NoSchedule"),),
    labels={"l": "1"},
    annotations={"n": "2"},
    instance_types=("m",),
    launch=LaunchChoice("m", "a", "spot", 0.25),
    requests={"cpu": 1},
    pods=(PodReference("d", "p", "u"),),
    reasons=("because",),
    allocatable={"cpu": 3},
    relies_on_estimate=("m",),
)
ORIGIN = ClaimOrigin(cluster="demo", owner="me", at=NOW, lease_s=60.0, first_event_at=NOW - 3, event_id="e")


def decided(*pools: NodePool, **spec_hashes: str) -> Snapshot:
    catalogs = tuple(NodeClassCatalog(name, (), spec_hash=known) for name, known in spec_hashes.items())
    return Snapshot(cluster="demo", now=NOW, catalogs=catalogs, manifests=Manifests(node_pools=pools))


def test_a_record_keeps_what_outlives_the_decision_and_says_who_decided() -> None:
    (record,) = records_of([PLANNED], ORIGIN, decided(default="h"))
    marks = {"n": "2", NODE_CLASS_HASH: "h", NODE_CLASS_HASH_VERSION: HASH_VERSION}
    assert record == NodeClaim(
        cluster="demo",
        name="c",
        plan=structs.replace(plan_of(PLANNED), annotations=marks),
        launch=LaunchRequest(owner="me"),
        cause=ClaimCause("e", NOW - 3),
        created_at=NOW,
        changed_at=NOW,
        deadline_at=NOW + 60,
        hourly=0.25,
    )
    plan = record.plan
    assert (plan.node_pool, plan.node_class, plan.tier, plan.instance_types) == ("p", "default", 2, ("m",))
    assert (plan.taints, plan.startup_taints, plan.labels) == (PLANNED.taints, PLANNED.startup_taints, {"l": "1"})
    assert (plan.requests, plan.allocatable, plan.pods) == ({"cpu": 1}, {"cpu": 3}, PLANNED.pods)
    assert (plan.requirements, plan.relies_on_estimate) == (PLANNED.requirements, ("m",))


def test_a_class_whose_content_is_not_known_leaves_no_mark() -> None:
    (record,) = records_of([PLANNED], ORIGIN, decided(other="h", default=""))
    assert record.plan.annotations == {"n": "2"}


@pytest.mark.parametrize("grace", ["5m", None])
def test_a_record_keeps_the_age_limit_and_the_deadline_of_its_own_pool(grace: str | None) -> None:
    own = pool("p", expire_after="9h", grace=grace)
    others = [pool(name, expire_after="1h", grace="1m") for name in "ox"]
    (record,) = records_of([PLANNED], ORIGIN, decided(others[0], own, others[1]))
    later = pool("p", expire_after="Never", grace="7m")
    assert (record.plan.age_limit(later), record.plan.grace(later), record.plan.grace(None)) == ("9h", grace, grace)


def test_a_token_is_that_of_its_launch_and_of_no_other() -> None:
    one = node_claim(cluster="demo", name="a", created_at=NOW)
    other = structs.replace(one, name="b")
    first, second = with_token([one, other], 7, "own")
    token = first.launch.token
    assert token == second.launch.token
    assert len(token) == 32
    assert with_token([one], 7, "own")[0].launch.token == token, "whoever is launched with it"
    changed = [
        with_token([other], 7, "own"),
        with_token([one], 8, "own"),
        with_token([one], 7, "other"),
        with_token([structs.replace(one, cluster="x")], 7, "own"),
        with_token([structs.replace(one, created_at=NOW + 1)], 7, "own"),
    ]
    assert len({token, *(claims[0].launch.token for claims in changed)}) == 6


CLAIM = node_claim(name="c", cluster="demo", node_pool="p", node_class="d", instance_types=("m",))


def grouped(*claims: NodeClaim) -> list[list[str]]:
    return [[item.name for item in group] for group in launches(claims)]


@pytest.mark.parametrize(
    "fields",
    [
        {"node_pool": "q"},
        {"node_class": "e"},
        {"tier": 1},
        {"requirements": (RequirementSpec("a", "Exists"),)},
        {"labels": {"a": "b"}},
        {"annotations": {"a": "b"}},
        {"taints": (Taint("a", "b", "NoSchedule"),)},
        {"startup_taints": (Taint("a", "b", "NoSchedule"),)},
        {"instance_types": ("m", "n")},
        {"requests": {"vpc.amazonaws.com/efa": 1}},
        {"requests": {ENCLAVES: 1}},
        {"relies_on_estimate": ("m",)},
        {"preferred_spot": PreferredSpot(("m/a",))},
    ],
)
def test_claims_that_ec2_or_their_node_is_told_otherwise_are_launched_apart(fields: dict[str, Any]) -> None:
    assert grouped(with_fields(CLAIM, name="a"), with_fields(CLAIM, name="b", **fields), CLAIM) == [["a", "c"], ["b"]]


def test_claims_that_differ_in_their_pods_alone_are_launched_together_in_their_order() -> None:
    claims = [
        with_fields(CLAIM, name="b", requests={"cpu": 1}),
        with_fields(CLAIM, name="a", requests={"cpu": 2, "vpc.amazonaws.com/efa": 0}),
    ]
    assert grouped(*claims) == [["b", "a"]]
    explores = [with_fields(CLAIM, name=name, relies_on_estimate=("m",)) for name in "xy"]
    assert grouped(*explores) == [["x"], ["y"]]


def test_a_launch_fits_into_one_write_by_number_and_by_size() -> None:
    number = COMMIT_GROUP + 1
    assert [len(group) for group in launches([with_fields(CLAIM, name=f"c{place:03}") for place in range(number)])] == [
        COMMIT_GROUP,
        1,
    ]
    size = COMMIT_BYTES // 3
    pods = tuple(PodReference("d", "x" * 1000, f"{place}") for place in range(size // 1040))
    large = [with_fields(CLAIM, name=f"c{place}", pods=pods) for place in range(5)]
    assert [len(group) for group in launches(large)] == [2, 2, 1]


def test_an_instance_for_any_of_some_claims_holds_the_most_that_one_of_them_wants() -> None:
    first = alike(
        [
            with_fields(CLAIM, name="a", requests={"cpu": 1, "memory": 9}),
            with_fields(CLAIM, name="b", requests={"cpu": 3, "pods": 2}),
        ]
    )
    assert (first.name, first.plan.requests) == ("a", {"cpu": 3, "memory": 9, "pods": 2})


def test_a_minimum_of_values_keeps_the_launch_list_wide() -> None:
    assert not has_min_values(with_fields(CLAIM, name="a", requirements=(RequirementSpec("x", "Exists"),)))
    wide = (RequirementSpec("x", "Exists"), RequirementSpec("y", "Exists", min_values=2))
    assert has_min_values(with_fields(CLAIM, name="a", requirements=wide))


def test_an_override_carries_all_that_a_template_is_made_of() -> None:
    efa = "vpc.amazonaws.com/efa"
    known = structs.replace(kind("m.large", 0.2, **{efa: 2}), kubelet_values=(("kubeReserved", "cpu", "100m"),))
    asked = with_fields(CLAIM, name="a", instance_types=("m.large",), requests={"cpu": 1000, "memory": 5000})
    wanted = structs.replace(asked, plan=structs.replace(asked.plan, requests={**asked.plan.requests, efa: 1}))
    first = fleet_options(wanted, {"m.large": known}, ["a"]).overrides
    expected = FleetOverride(
        price=0.2,
        instance_type="m.large",
        zone="a",
        ami="ami-1",
        max_pods=29,
        kubelet_hash="k",
        kubelet_values=(("kubeReserved", "cpu", "100m"),),
        fabric_adapters=2,
    )
    assert first == (expected,)
    assert fleet_options(asked, {"m.large": known}, ["a"]).overrides == (structs.replace(expected, fabric_adapters=0),)


def held(name: str, price: float = 0.001, **fields: Any) -> Offering:
    return Offering("a", labels.RESERVED, price, reservation_id=name, **fields)


@pytest.mark.parametrize(
    ("offers", "best"),
    [
        ([held("b"), held("a")], "a"),
        ([held("a", 0.002), held("b", 0.001)], "b"),
        ([held("a", reservation_interruptible=True), held("b")], "b"),
        ([held("a", reservation_type="capacity-block"), held("b")], "b"),
        ([held("a", reservation_interruptible=True), held("b", reservation_type="capacity-block")], "b"),
        ([held("a", reservation_capacity=1), held("b", reservation_capacity=2)], "b"),
    ],
    ids=["by name", "cheapest", "not interruptible", "no block", "rather a block", "most left"],
)
def test_one_reservation_is_launched_into(offers: list[Offering], best: str) -> None:
    plain = kind("m.large", 0.2)
    types = {"m.large": structs.replace(plain, offerings=(*plain.offerings, *offers))}
    asked = with_fields(CLAIM, name="a", instance_types=("m.large",), requests={"cpu": 1000, "memory": 5000})
    found = fleet_options(asked, types, ["a", "b"])
    assert (found.capacity_type, [item.reservation for item in found.overrides]) == (labels.RESERVED, [best])
    assert fleet_options(asked, types, ["a", "b"], lambda name, *_: name == best).overrides[0].reservation != best


@pytest.mark.parametrize("asked_before", ["a", "b", labels.SPOT, labels.ON_DEMAND])
def test_what_a_launch_asked_for_first_is_asked_for_alone(asked_before: str) -> None:
    """A reservation by its id; what is chosen now, where it differs, is left to another launch."""
    plain = kind("m.large", 0.2)
    spot = Offering("a", labels.SPOT, 0.1)
    asked = with_fields(CLAIM, name="a", instance_types=("m.large",), requests={"cpu": 1000, "memory": 5000})

    def found(*offers: Offering) -> FleetOptions:
        types = {"m.large": structs.replace(plain, offerings=(*plain.offerings, *offers))}
        return fleet_options(asked, types, ["a", "b"], requested_from=asked_before)

    assert (found(held("a")).overrides != ()) == (asked_before == "a")
    assert (found(held("b"), spot).overrides != ()) == (asked_before == "b")
    assert (found(spot).overrides != ()) == (asked_before == labels.SPOT)
    assert (found().overrides != ()) == (asked_before == labels.ON_DEMAND)


def test_what_rests_is_asked_for_no_more() -> None:
    types = {"m.large": kind("m.large", 0.2)}
    asked = with_fields(CLAIM, name="a", instance_types=("m.large",), requests={"cpu": 1000, "memory": 5000})
    found = fleet_options(asked, types, ["a", "b"], lambda *offering: offering == ("m.large", "a", labels.ON_DEMAND))
    assert [item.zone for item in found.overrides] == ["b"]
    assert asked.state is ClaimState.PLANNED


def test_labels_that_were_written_in_another_order_are_the_same() -> None:
    assert grouped(
        with_fields(CLAIM, name="a", labels={"x": "1", "y": "2"}),
        with_fields(CLAIM, name="b", labels={"y": "2", "x": "1"}),
    ) == [["a", "b"]]


@pytest.mark.parametrize(
    ("preferred", "sizes"),
    [
        (PreferredSpot(("m/a",), bounded=("m/a",), most=2), [2, 2, 1]),
        (PreferredSpot(("m/a",), bounded=("m/a",), most=1), [1] * 5),
        (PreferredSpot(("m/a",), bounded=("m/a",), most=0), [1] * 5),
        (PreferredSpot(("m/a",), bounded=("m/a",), most=1000), [5]),
        (PreferredSpot(("m/a",), bounded=(), most=2), [5]),
    ],
    ids=["two", "one", "one in any case", "many", "not bounded"],
)
def test_no_more_are_launched_together_than_one_offering_may_get(preferred: PreferredSpot, sizes: list[int]) -> None:
    claims = [with_fields(CLAIM, name=f"c{place}", preferred_spot=preferred) for place in range(5)]
    assert [len(group) for group in launches(claims)] == sizes


def test_however_much_one_offering_may_get_a_launch_fits_into_one_write() -> None:
    preferred = PreferredSpot(("m/a",), bounded=("m/a",), most=1000)
    claims = [with_fields(CLAIM, name=f"c{place:03}", preferred_spot=preferred) for place in range(COMMIT_GROUP + 1)]
    assert [len(group) for group in launches(claims)] == [COMMIT_GROUP, 1]


def test_a_group_that_was_full_by_size_is_followed_by_others_as_large() -> None:
    """The size of one group does not limit the next groups."""
    pods = tuple(PodReference("d", "x" * 1000, f"{place}") for place in range(COMMIT_BYTES // 3 // 1040))
    mixed = [with_fields(CLAIM, name=f"c{place}", pods=pods) for place in range(4)] + [
        with_fields(CLAIM, name="small"),
        with_fields(CLAIM, name="q", node_pool="q"),
    ]
    assert [[item.name for item in group] for group in launches(mixed)] == [["c0", "c1"], ["c2", "c3", "small"], ["q"]]

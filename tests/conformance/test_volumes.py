"""Volumes: which pods with claims are planned, where their volumes let them run, and how many a node takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.related_objects import PersistentVolumeClaim
from shiplap.kubernetes.timestamps import rfc3339
from tests.builders.nodes import node
from tests.builders.pods import pod
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.given import (
    NOW,
    Storage,
    claim_volumes,
    csi_driver,
    csi_node,
    ephemeral,
    given,
    in_flight,
    pv,
    pvc,
    storage_class,
    wanted,
)

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
EBS_ZONE = "topology.ebs.csi.aws.com/zone"
DATA = claim_volumes("data")

IN_USE = pvc(volume="volume")
UNUSABLE: dict[str, tuple[list[Storage], str]] = {
    "no claim": ([], 'persistentvolumeclaim "default/data" not found'),
    "claim being deleted": ([pvc(volume="volume", deleting=True), pv()], "is being deleted"),
    "claim lost": ([pvc(volume="volume", phase="Lost")], 'bound to non-existent persistentvolume "volume"'),
    "no volume": ([IN_USE], 'persistentvolume "volume" not found'),
    "volume being deleted": ([IN_USE, pv(deleting=True)], 'persistentvolume "volume" is being deleted'),
    "binding not done": ([pvc(volume="volume", bound=False), pv()], "is not bound yet"),
    "unbound, no class": ([pvc()], "has no storage class"),
    "unbound, empty class": ([pvc(storage_class=""), storage_class(default=True)], "has no storage class"),
    "unbound, class missing": ([pvc(storage_class="fast")], 'storageclass "fast" not found'),
    "unbound, class binds at once": (
        [pvc(storage_class="fast"), storage_class(waits=False)],
        "waits for the volume controller",
    ),
    "provisioner of EKS Auto Mode": (
        [pvc(storage_class="fast"), storage_class(provisioner="ebs.csi.eks.amazonaws.com")],
        "provisioner ebs.csi.eks.amazonaws.com is not supported",
    ),
    "volume of EKS Auto Mode": ([IN_USE, pv(driver="ebs.csi.eks.amazonaws.com")], "is not supported"),
    "topology of EKS Auto Mode": (
        [pvc(storage_class="fast"), storage_class("fast", {"eks.amazonaws.com/compute-type": ["auto"]})],
        "asks for eks.amazonaws.com/compute-type",
    ),
    "malformed affinity": ([IN_USE, pv("volume", [rule(ZONE, "In")])], "needs at least one value"),
}


@pytest.mark.parametrize(("storage", "words"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_pod_that_cannot_use_its_claim_is_left_alone_and_others_are_not(storage: list[Storage], words: str) -> None:
    outcome = given(pod("stuck", spec=DATA), pod("other"), storage=storage)
    assert words in outcome.ignored("stuck").message
    assert outcome.home("other")
    assert outcome.plan.unschedulable == ()


USABLE: dict[str, list[Storage]] = {
    "bound, class missing": [pvc(volume="volume", storage_class="gone"), pv()],
    "bound, empty class": [pvc(volume="volume", storage_class=""), pv()],
    "bound, no class": [IN_USE, pv()],
    "bound, class binds at once": [pvc(volume="volume", storage_class="fast"), pv(), storage_class(waits=False)],
    "unbound": [pvc(storage_class="fast"), storage_class()],
    "unbound, default class": [pvc(), storage_class(default=True)],
    "a volume that no driver attaches": [IN_USE, pv(source={"nfs": {"server": "s", "path": "/"}})],
}


@pytest.mark.parametrize("storage", USABLE.values(), ids=USABLE.keys())
def test_claims_that_can_be_used(storage: list[Storage]) -> None:
    assert given(pod(spec=DATA), storage=storage).scheduled


# The volumes of claims a and b, what else the pod asks for, and the zones its node may be in (none: not scheduled).
A, B = pvc("a", volume="va"), pvc("b", volume="vb")
ZONES: dict[str, tuple[list[Storage], dict[str, Any], set[str]]] = {
    "one volume": ([pv("va", [rule(ZONE, "In", Z2)]), pv("vb")], {}, {Z2}),
    "key of the driver": ([pv("va", [rule(EBS_ZONE, "In", Z3)]), pv("vb")], {}, {Z3}),
    "older key": ([pv("va", [rule("failure-domain.beta.kubernetes.io/zone", "In", Z2)]), pv("vb")], {}, {Z2}),
    "both agree": ([pv("va", [rule(ZONE, "In", Z1, Z2)]), pv("vb", [rule(EBS_ZONE, "In", Z2, Z3)])], {}, {Z2}),
    "both disagree": ([pv("va", [rule(ZONE, "In", Z1)]), pv("vb", [rule(ZONE, "In", Z2)])], {}, set()),
    "with the pod": ([pv("va", [rule(ZONE, "In", Z1, Z2)]), pv("vb")], {"selector": {ZONE: Z2}}, {Z2}),
    "against the pod": ([pv("va", [rule(ZONE, "In", Z1)]), pv("vb")], {"selector": {ZONE: Z3}}, set()),
    "one of the pod's terms": (
        [pv("va", [rule(ZONE, "In", Z1)]), pv("vb")],
        {"requires": [[rule(ZONE, "In", Z3)], [rule(ZONE, "In", Z1, Z2)]]},
        {Z1},
    ),
    "terms tried in order": ([pv("va", [rule(ZONE, "In", Z3)], [rule(ZONE, "In", Z1)]), pv("vb")], {}, {Z3}),
    "next term when the first has no node": (
        [pv("va", [rule(ZONE, "In", "elsewhere")], [rule(ZONE, "In", Z1)]), pv("vb")],
        {},
        {Z1},
    ),
    "the combination that agrees": (
        [
            pv("va", [rule(ZONE, "In", Z1)], [rule(ZONE, "In", Z2)]),
            pv("vb", [rule(ZONE, "In", Z3)], [rule(ZONE, "In", Z2)]),
        ],
        {},
        {Z2},
    ),
}


@pytest.mark.parametrize(("volumes", "fields", "zones"), ZONES.values(), ids=ZONES.keys())
def test_the_node_affinity_of_volumes(volumes: list[Storage], fields: dict[str, Any], zones: set[str]) -> None:
    outcome = given(pod(spec=claim_volumes("a", "b"), **fields), storage=[A, B, *volumes])
    if not zones:
        assert "incompatible volume requirements" in outcome.left("pod").message
        return
    entry = wanted(outcome.claim, ZONE)
    assert entry is not None
    assert set(entry.values) == zones


TOPOLOGIES: dict[str, tuple[list[dict[str, list[str]]], set[str]]] = {
    "one zone": ([{ZONE: [Z3]}], {Z3}),
    "several": ([{EBS_ZONE: [Z1, Z2]}], {Z1, Z2}),
    "alternatives in order": ([{ZONE: [Z2]}, {ZONE: [Z1]}], {Z2}),
    "all of a term": ([{ZONE: [Z1], "kubernetes.io/arch": ["riscv"]}, {ZONE: [Z3]}], {Z3}),
}


@pytest.mark.parametrize(("topologies", "zones"), TOPOLOGIES.values(), ids=TOPOLOGIES.keys())
def test_the_allowed_topologies_of_an_unbound_claim(topologies: list[dict[str, list[str]]], zones: set[str]) -> None:
    outcome = given(pod(spec=DATA), storage=[pvc(storage_class="fast"), storage_class("fast", *topologies)])
    entry = wanted(outcome.claim, ZONE)
    assert entry is not None
    assert set(entry.values) == zones


def test_a_bound_claim_stays_where_it_is_whatever_its_class_allows() -> None:
    storage = [
        pvc(volume="volume", storage_class="fast"),
        pv("volume", [rule(ZONE, "In", Z1)]),
        storage_class("fast", {ZONE: [Z3]}),
    ]
    entry = wanted(given(pod(spec=DATA), storage=storage).claim, ZONE)
    assert entry is not None
    assert entry.values == (Z1,)


ON_NODE = rule(HOSTNAME, "In", "old-node")


@pytest.mark.parametrize("source", [{"local": {"path": "/mnt"}}, {"hostPath": {"path": "/mnt"}}])
def test_a_local_volume_stays_behind(source: dict[str, Any]) -> None:
    assert given(pod(spec=DATA), storage=[IN_USE, pv("volume", [ON_NODE], source=source)]).scheduled


@pytest.mark.parametrize("source", [{"local": {"path": "/mnt"}}, {"hostPath": {"path": "/mnt"}}])
def test_what_else_a_local_volume_asks_for_is_kept(source: dict[str, Any]) -> None:
    volume = pv("volume", [ON_NODE, rule(ZONE, "In", Z2)], source=source)
    entry = wanted(given(pod(spec=DATA), storage=[IN_USE, volume]).claim, ZONE)
    assert entry is not None
    assert entry.values == (Z2,)


@pytest.mark.parametrize("source", [{"nfs": {"server": "s"}}, None])
def test_another_volume_on_one_node_is_found_only_there(source: dict[str, Any] | None) -> None:
    volume = pv("volume", [ON_NODE], source=source)
    assert HOSTNAME in given(pod(spec=DATA), storage=[IN_USE, volume]).left("pod").message
    assert given(pod(spec=DATA), storage=[IN_USE, volume], nodes=[node("old-node")]).home("pod") == "old-node"


def test_an_existing_node_must_meet_the_volume() -> None:
    nodes = [node("a", labels={ZONE: Z1}), node("b", labels={ZONE: Z2})]
    outcome = given(pod(spec=DATA), storage=[IN_USE, pv("volume", [rule(EBS_ZONE, "In", Z2)])], nodes=nodes)
    assert outcome.home("pod") == "b"


def test_volumes_part_pods_that_are_alike() -> None:
    storage = [
        *(pvc(f"data-{zone}", volume=f"volume-{zone}") for zone in (Z1, Z2)),
        *(pv(f"volume-{zone}", [rule(ZONE, "In", zone)]) for zone in (Z1, Z2)),
    ]
    waiting = [pod(f"{zone}-{n}", spec=claim_volumes(f"data-{zone}")) for zone in (Z1, Z2) for n in range(2)]
    outcome = given(*waiting, storage=storage)
    assert outcome.scheduled
    assert len(outcome.claims) == 2
    for zone in (Z1, Z2):
        entry = wanted(outcome.claim_of(f"{zone}-0"), ZONE)
        assert entry is not None
        assert entry.values == (zone,)
        assert outcome.home(f"{zone}-0") == outcome.home(f"{zone}-1")


# Attach limits. Nodes and types are large enough for all pods.
LARGE = {"cpu": "64", "memory": "64Gi"}
BIG_TYPE = [fake_type("big", cpu="64", memory="64Gi", pods="200")]
EBS = {"ebs_csi_aws_com": 10}


def bound_claims(*names: str, **volume: Any) -> list[Storage]:
    """Claims, each bound to a volume of its own."""
    return [item for name in names for item in (pvc(name, volume=f"v-{name}"), pv(f"v-{name}", **volume))]


def two_each(pods: int) -> list[list[str]]:
    return [[f"{n}-left", f"{n}-right"] for n in range(pods)]


@pytest.mark.parametrize(
    ("storage_of", "on_node"),
    [
        (bound_claims, 5),
        (lambda name: [pvc(name, storage_class="fast")], 5),
        (lambda name: bound_claims(name, source={"awsElasticBlockStore": {"volumeID": "v"}}), 5),
        (lambda name: bound_claims(name, source={"nfs": {"server": "s"}}), 6),
        (lambda name: bound_claims(name, driver="efs.csi.aws.com"), 6),
    ],
    ids=["bound", "unbound", "in-tree", "NFS", "driver without limit"],
)
def test_a_node_takes_as_many_volumes_as_its_driver_allows(storage_of: Any, on_node: int) -> None:
    names = two_each(6)
    waiting = [pod(f"p{n}", spec=claim_volumes(*pair)) for n, pair in enumerate(names)]
    storage = [item for pair in names for name in pair for item in storage_of(name)]
    outcome = given(
        *waiting,
        storage=[*storage, storage_class(), csi_node(**EBS)],
        nodes=[node(**LARGE)],
        types=BIG_TYPE,
    )
    assert outcome.scheduled
    assert sum(outcome.home(p.metadata.name) == "node" for p in waiting) == on_node
    assert len(outcome.claims) == (0 if on_node == 6 else 1)


def test_volumes_that_are_there_count() -> None:
    names = two_each(6)
    running = [pod(f"r{n}", node="node", spec=claim_volumes(*pair)) for n, pair in enumerate(names[:4])]
    waiting = [pod(f"p{n}", spec=claim_volumes(*pair)) for n, pair in enumerate(names[4:])]
    storage = bound_claims(*(name for pair in names for name in pair))
    outcome = given(*running, *waiting, storage=[*storage, csi_node(**EBS)], nodes=[node(**LARGE)], types=BIG_TYPE)
    assert sorted(outcome.home(p.metadata.name) == "node" for p in waiting) == [False, True]


def test_a_claim_shared_by_pods_is_attached_once() -> None:
    waiting = [pod(f"p{n}", spec=DATA) for n in range(100)]
    storage = [*bound_claims("data"), csi_node(ebs_csi_aws_com=1)]
    assert len(given(*waiting, storage=storage, types=BIG_TYPE).claims) == 1
    outcome = given(*waiting, storage=storage, types=BIG_TYPE, nodes=[node(**LARGE)])
    assert {outcome.home(p.metadata.name) for p in waiting} == {"node"}


@pytest.mark.parametrize(("limit", "home"), [(2, "node"), (1, "")])
def test_a_shared_claim_next_to_one_of_its_own(limit: int, home: str) -> None:
    running = pod("running", node="node", spec=DATA)
    waiting = pod("waiting", spec=claim_volumes("data", "own"))
    storage = [*bound_claims("data", "own"), csi_node(ebs_csi_aws_com=limit)]
    outcome = given(running, waiting, storage=storage, nodes=[node(**LARGE)], types=BIG_TYPE)
    assert outcome.scheduled
    assert (outcome.home("waiting") == "node") is bool(home)


def test_a_node_over_its_limit_takes_pods_without_volumes() -> None:
    running = pod("running", node="node", spec=claim_volumes("a", "b"))
    storage = [*bound_claims("a", "b", "c"), csi_node(ebs_csi_aws_com=1)]
    outcome = given(
        running,
        pod("plain"),
        pod("with", spec=claim_volumes("c")),
        storage=storage,
        nodes=[node(**LARGE)],
        types=BIG_TYPE,
    )
    assert outcome.home("plain") == "node"
    assert outcome.home("with") not in ("", "node")


def test_a_node_whose_drivers_have_not_registered_has_no_known_limit() -> None:
    waiting = [pod(f"p{n}", spec=claim_volumes(*pair)) for n, pair in enumerate(two_each(6))]
    storage = bound_claims(*(name for pair in two_each(6) for name in pair))
    outcome = given(*waiting, storage=[*storage, csi_node()], nodes=[node(**LARGE)], types=BIG_TYPE)
    assert {outcome.home(p.metadata.name) for p in waiting} == {"node"}


# What is known of the node's drivers and of the one that its volume needs; whether the pod goes there.
REGISTRATIONS: dict[str, tuple[list[Storage], bool]] = {
    "not demanded": ([csi_driver(demanded=False), csi_node()], True),
    "demanded and registered": ([csi_driver(), csi_node(ebs_csi_aws_com=25)], True),
    "demanded by another driver": ([csi_driver("efs.csi.aws.com"), csi_node()], True),
    "demanded, another registered": ([csi_driver(), csi_node(efs_csi_aws_com=25)], False),
    "demanded, none registered": ([csi_driver(), csi_node()], False),
    "demanded, nothing known of the node": ([csi_driver(), csi_node("other", ebs_csi_aws_com=25)], False),
}


@pytest.mark.parametrize(("storage", "fits"), REGISTRATIONS.values(), ids=REGISTRATIONS.keys())
def test_a_node_without_a_driver_that_is_demanded_takes_none_of_its_volumes(storage: list[Storage], fits: bool) -> None:
    for age_s, home in ((1000, fits), (100, True)):  # a young node is expected to get the driver
        standing = node(**LARGE, born=rfc3339(NOW - age_s))
        waiting = [pod("plain"), pod("with", spec=DATA)]
        outcome = given(*waiting, storage=[IN_USE, pv(), *storage], nodes=[standing], types=BIG_TYPE)
        assert outcome.home("plain") == "node"
        assert (outcome.home("with") == "node") is home
        assert outcome.home("with")


# Volumes made for the pod, by the class their template names; the class decides the zone.
NEW, OLD = "2026-03-01T00:00:00Z", "2026-02-01T00:00:00Z"
EPHEMERAL: dict[str, tuple[dict[str, Any], list[Storage], str]] = {
    "named class": ({"storageClassName": "a"}, [storage_class("a", {ZONE: [Z1]})], Z1),
    "named before default": (
        {"storageClassName": "a"},
        [storage_class("a", {ZONE: [Z1]}), storage_class("b", {ZONE: [Z2]}, default=True)],
        Z1,
    ),
    "default class": ({}, [storage_class("a", {ZONE: [Z1]}), storage_class("b", {ZONE: [Z2]}, default=True)], Z2),
    "newest default": (
        {},
        [
            storage_class("a", {ZONE: [Z1]}, default=True, born=OLD),
            storage_class("b", {ZONE: [Z3]}, default=True, born=NEW),
            storage_class("c", {ZONE: [Z2]}, default=True, born=OLD),
        ],
        Z3,
    ),
    "first by name of equally old": (
        {},
        [storage_class("b", {ZONE: [Z2]}, default=True), storage_class("a", {ZONE: [Z1]}, default=True)],
        Z1,
    ),
}


@pytest.mark.parametrize(("template", "classes", "zone"), EPHEMERAL.values(), ids=EPHEMERAL.keys())
def test_ephemeral_volumes(template: dict[str, Any], classes: list[Storage], zone: str) -> None:
    entry = wanted(given(pod(spec=ephemeral(**template)), storage=classes).claim, ZONE)
    assert entry is not None
    assert entry.values == (zone,)


def test_ephemeral_volumes_count_against_the_limit() -> None:
    waiting = [pod(f"p{n}", spec=ephemeral()) for n in range(3)]
    storage = [storage_class(default=True), csi_node(ebs_csi_aws_com=2)]
    outcome = given(*waiting, storage=storage, nodes=[node(**LARGE)], types=BIG_TYPE)
    assert sorted(outcome.home(p.metadata.name) == "node" for p in waiting) == [False, True, True]


def test_an_ephemeral_volume_without_a_class_is_left_alone() -> None:
    assert "has no storage class" in given(pod(spec=ephemeral())).ignored("pod").message


def test_a_malformed_template_is_said_so() -> None:
    stuck = pod("stuck", spec=ephemeral(storageClassName=["fast"]))
    assert "volume data: malformed volumeClaimTemplate" in given(stuck).ignored("stuck").message


def test_somebody_elses_claim_is_not_taken_for_an_ephemeral_volume() -> None:
    storage = [*bound_claims("pod-data"), storage_class(default=True)]
    assert "was not created for the pod" in given(pod(spec=ephemeral("data")), storage=storage).ignored("pod").message


def test_the_promise_of_a_claim_in_flight_holds_for_pods_with_volumes() -> None:
    storage = [pvc(storage_class="fast"), storage_class("fast", {ZONE: [Z2]})]
    first = given(pod(spec=DATA), storage=storage)
    again = given(pod(spec=DATA), storage=storage, claims=[in_flight(first.claim)])
    assert again.home("pod") == first.claim.name
    assert again.claims == ()


def test_pods_of_a_leaving_node_go_where_their_volumes_are() -> None:
    moved = pod("moved", node="old", spec=DATA)
    outcome = given(
        moved,
        nodes=[node("old", deleting=True)],
        storage=[IN_USE, pv("volume", [rule(ZONE, "In", Z3)]), csi_node("old", ebs_csi_aws_com=1)],
    )
    entry = wanted(outcome.claim, ZONE)
    assert entry is not None
    assert entry.values == (Z3,)


def test_every_place_of_a_volume_is_tried_with_preferences_given_up() -> None:
    avoided = pool(taints=[{"key": "soft", "effect": "PreferNoSchedule"}])
    volume = pv("volume", [rule(ZONE, "In", Z2)], [rule(ZONE, "In", "elsewhere")])
    assert given(pod(spec=DATA), storage=[IN_USE, volume], pools=[avoided]).scheduled


def spreading(name: str, claim: str, zones: Sequence[str] = ()) -> Pod:
    """A pod of an app that spreads over zones, with a claim of its own."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    return pod(
        name,
        metadata={"labels": {"app": "a"}},
        requires=[[rule(ZONE, "In", *zones)]] if zones else (),
        spec=claim_volumes(claim) | {"topologySpreadConstraints": [constraint]},
    )


@pytest.mark.parametrize(("zones", "placed"), [((), 1), ((Z1,), 2)])
def test_the_place_of_a_volume_does_not_narrow_the_domains_of_a_spread(zones: Sequence[str], placed: int) -> None:
    """Both volumes are in one zone: unless the pods ask for it themselves, the nodes of another count as empty."""
    storage = [
        item for name in ("x", "y") for item in (pvc(name, volume=f"v{name}"), pv(f"v{name}", [rule(ZONE, "In", Z1)]))
    ]
    waiting = [spreading("first", "x", zones), spreading("second", "y", zones)]
    outcome = given(*waiting, storage=storage, nodes=[node("elsewhere", labels={ZONE: Z2})])
    assert sum(bool(outcome.home(p.metadata.name)) for p in waiting) == placed


def test_spreading_pods_follow_their_volumes() -> None:
    storage = [
        item
        for name, zone in (("x", Z1), ("y", Z2), ("z", Z3))
        for item in (pvc(name, volume=f"v{name}"), pv(f"v{name}", [rule(ZONE, "In", zone)]))
    ]
    outcome = given(*(spreading(f"p-{name}", name) for name in "xyz"), storage=storage)
    assert outcome.scheduled
    for name, zone in (("x", Z1), ("y", Z2), ("z", Z3)):
        entry = wanted(outcome.claim_of(f"p-{name}"), ZONE)
        assert entry is not None
        assert entry.values == (zone,)


# A class whose volumes an administrator makes, the claim's request, its volumes, and the zones its node may be in.
BY_HAND = storage_class("hand", provisioner="kubernetes.io/no-provisioner")
REQUEST = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
ASKING = pvc(storage_class="hand", **REQUEST)


def by_hand(name: str, zone: str, **fields: Any) -> Storage:
    made: dict[str, Any] = {"storageClassName": "hand", "capacity": {"storage": "10Gi"}, "phase": "Available"}
    made |= {"accessModes": ["ReadWriteOnce"], **fields}
    return pv(name, [rule(ZONE, "In", zone)], **made)


MADE: dict[str, tuple[Storage, list[Storage], set[str]]] = {
    "one volume": (ASKING, [by_hand("a", Z2)], {Z2}),
    "of two, the first that is found": (ASKING, [by_hand("a", Z3), by_hand("b", Z1)], {Z3}),
    "one is too small": (ASKING, [by_hand("a", Z1, capacity={"storage": "9Gi"}), by_hand("b", Z3)], {Z3}),
    "one is bound": (ASKING, [by_hand("a", Z1, phase="Bound"), by_hand("b", Z3)], {Z3}),
    "one is released": (ASKING, [by_hand("a", Z1, phase="Released"), by_hand("b", Z3)], {Z3}),
    "one is being deleted": (ASKING, [by_hand("a", Z1, deleting=True), by_hand("b", Z3)], {Z3}),
    "one is a block device": (ASKING, [by_hand("a", Z1, volumeMode="Block"), by_hand("b", Z3)], {Z3}),
    "one cannot be written": (ASKING, [by_hand("a", Z1, accessModes=["ReadOnlyMany"]), by_hand("b", Z3)], {Z3}),
    "one is of another class": (ASKING, [by_hand("a", Z1, storageClassName="other"), by_hand("b", Z3)], {Z3}),
    "one is kept for another claim": (
        ASKING,
        [by_hand("a", Z1, claimRef={"namespace": "default", "name": "other"}), by_hand("b", Z3)],
        {Z3},
    ),
    "one is kept for this claim": (
        ASKING,
        [by_hand("a", Z1), by_hand("b", Z3, claimRef={"namespace": "default", "name": "data"})],
        {Z3},
    ),
    "a selector": (
        pvc(storage_class="hand", selector={"matchLabels": {"tier": "gold"}}, **REQUEST),
        [by_hand("a", Z1), by_hand("b", Z3, labels={"tier": "gold"})],
        {Z3},
    ),
    "none is available": (ASKING, [by_hand("a", Z1, phase="Bound")], set()),
    "none is large enough": (ASKING, [by_hand("a", Z1, capacity={})], set()),
}


@pytest.mark.parametrize(("asking", "volumes", "zones"), MADE.values(), ids=MADE.keys())
def test_an_unbound_claim_of_a_class_that_makes_no_volumes(
    asking: Storage, volumes: list[Storage], zones: set[str]
) -> None:
    outcome = given(pod(spec=DATA), storage=[asking, BY_HAND, *volumes])
    if not zones:
        assert "none of its 1 volumes is available and large enough" in outcome.ignored("pod").message
        return
    entry = wanted(outcome.claim, ZONE)
    assert entry is not None
    assert set(entry.values) == zones


def test_an_available_volume_without_a_place_can_be_used_anywhere() -> None:
    volume = pv(
        "a", storageClassName="hand", phase="Available", capacity={"storage": "1Ti"}, accessModes=["ReadWriteOnce"]
    )
    entry = wanted(given(pod(spec=DATA), storage=[ASKING, BY_HAND, by_hand("b", Z1), volume]).claim, ZONE)
    assert entry is not None
    assert len(entry.values) > 1


@pytest.mark.parametrize("volumes", [[], [pv("a", source={"local": {"path": "/x"}}, storageClassName="hand")]])
def test_volumes_that_come_with_a_node_are_expected_of_a_new_one(volumes: list[Storage]) -> None:
    assert given(pod(spec=DATA), storage=[ASKING, BY_HAND, *volumes]).scheduled


def test_a_malformed_size_of_a_volume_is_said() -> None:
    outcome = given(pod(spec=DATA), storage=[ASKING, BY_HAND, by_hand("a", Z1, capacity={"storage": "much"})])
    assert "persistentvolume \"a\": 'much' is not a quantity" in outcome.ignored("pod").message


ONE_POD = [pvc(volume="volume", accessModes=["ReadWriteOncePod"]), pv()]


def test_a_claim_for_one_pod_is_for_the_one_that_runs() -> None:
    running = pod("running", spec=DATA, node="n")
    outcome = given(pod("second", spec=DATA, priority=9), running, nodes=[node("n")], storage=ONE_POD)
    said = 'persistentvolumeclaim "default/data" is ReadWriteOncePod: it waits for pod default/running to end'
    assert outcome.ignored("second").message == said


def test_of_pods_that_wait_the_first_by_priority_gets_a_claim_for_one_pod() -> None:
    waiting = [pod("a", spec=DATA), pod("b", spec=DATA, priority=5), pod("c", spec=DATA, priority=5)]
    outcome = given(*waiting, storage=ONE_POD)
    assert outcome.home("b")
    assert {entry.pod.name for entry in outcome.plan.ignored} == {"a", "c"}


FINISHED: dict[str, Any] = {"node": "n", "status": {"phase": "Succeeded"}}
GATED: dict[str, Any] = {"spec": {**DATA, "schedulingGates": [{"name": "later"}]}}


@pytest.mark.parametrize("other", [FINISHED, GATED])
def test_pods_that_have_ended_or_may_not_start_have_no_claim(other: dict[str, Any]) -> None:
    first = pod("a", **{"spec": DATA} | other)
    outcome = given(first, pod("b", spec=DATA), nodes=[node("n")], storage=ONE_POD)
    assert outcome.home("b")


def test_other_claims_are_shared() -> None:
    shared = [pvc(volume="volume", accessModes=["ReadWriteOnce"]), pv()]
    outcome = given(pod("a", spec=DATA), pod("b", spec=DATA), storage=shared)
    assert outcome.home("a")
    assert outcome.home("b")


def test_the_pod_of_a_leaving_node_takes_its_claim_for_one_pod_along() -> None:
    leaving = node("n", deleting=True)
    assert given(pod("a", spec=DATA, node="n"), nodes=[leaving], storage=ONE_POD).home("a")


def selected(name: str, node_name: str, storage_class_name: str = "fast") -> PersistentVolumeClaim:
    """A claim that kube-scheduler has chosen a node for; its volume does not exist yet."""
    claim = pvc(name, storage_class=storage_class_name)
    notes = {"volume.kubernetes.io/selected-node": node_name}
    return structs.replace(claim, metadata=structs.replace(claim.metadata, annotations=notes))


def test_a_pod_whose_volume_is_being_made_for_a_node_goes_there_and_nowhere_else() -> None:
    nodes = [node("a", labels={ZONE: Z1}), node("b", labels={ZONE: Z2, HOSTNAME: "host-b"})]
    case: dict[str, Any] = {"nodes": nodes, "storage": [selected("data", "b"), storage_class("fast")]}
    assert given(pod(spec=DATA, cpu="1"), **case).home("pod") == "b"
    full = given(pod(spec=DATA, cpu="1"), pod("big", node="b", cpu="4"), **case)
    assert full.home("pod") == ""
    assert full.claims == ()
    assert "on node host-b alone" in full.left("pod").message


def test_each_pod_goes_to_the_node_of_its_own_volume() -> None:
    nodes = [node(name, labels={ZONE: zone}) for name, zone in (("a", Z1), ("b", Z2))]
    pods = [pod(name, spec=claim_volumes(f"of-{name}")) for name in ("one", "two", "free")]
    storage = [selected("of-one", "b"), selected("of-two", "a"), pvc("of-free", storage_class="fast")]
    outcome = given(*pods, nodes=nodes, storage=[*storage, storage_class("fast", {ZONE: [Z2]})])
    assert [outcome.home(name) for name in ("one", "two", "free")] == ["b", "a", "b"]


@pytest.mark.parametrize(
    "storage",
    [
        [selected("data", "gone"), storage_class("fast")],
        [
            structs.replace(selected("data", "a"), spec=IN_USE.spec, metadata=IN_USE.metadata),
            pv("volume", [rule(ZONE, "In", Z2)]),
        ],
    ],
    ids=["the node is gone", "the volume is there"],
)
def test_a_choice_that_is_over_binds_no_pod(storage: list[Storage]) -> None:
    """Without its node the provisioner takes the choice back; once there is a volume, its own place counts."""
    outcome = given(pod(spec=DATA, cpu="1"), nodes=[node("a", labels={ZONE: Z1}, cpu="100m")], storage=storage)
    assert len(outcome.claims) == 1

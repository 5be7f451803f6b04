"""Pods that share a volume which does not exist yet: the first that binds decides where all of them can run."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from shiplap.kubernetes.objects import Pod
from tests.builders.nodes import node
from tests.builders.pods import pod
from tests.builders.pools import rule
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.given import Outcome, Storage, claim_volumes, given, in_flight, pv, pvc, storage_class, wanted

ZONE, EBS_ZONE = "topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"
FAST = storage_class("fast")
SMALL = [fake_type("small", cpu="2", memory="4Gi", pods="20")]


def sharing(number: int, *claims: str, name: str = "web", **fields: Any) -> list[Pod]:
    """Pods that use these claims, one to a node of `SMALL`; `fields` are those of a pod."""
    more = fields.pop("spec", {})
    fields = {"cpu": "1500m", "metadata": {"labels": {"app": name}}} | fields
    return [pod(f"{name}-{place}", spec=claim_volumes(*claims) | more, **fields) for place in range(number)]


def unmade(*names: str, of: str = "fast", **fields: Any) -> list[Storage]:
    return [pvc(name, storage_class=of, **fields) for name in names]


def homes(outcome: Outcome, key: str = "zone") -> dict[str, str]:
    """Return the place of each pod on a claim: its zone, or its claim's name."""
    return {
        held.name: claim.launch.zone if key == "zone" else claim.name for claim in outcome.claims for held in claim.pods
    }


def over(key: str, when: str = "DoNotSchedule", app: str = "web") -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    return {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector}
        ]
    }


@pytest.mark.parametrize("number", [2, 40])
@pytest.mark.parametrize("provisioner", ["ebs.csi.aws.com", "kubernetes.io/aws-ebs"])
def test_pods_that_share_a_volume_to_be_made_go_to_one_zone(number: int, provisioner: str) -> None:
    """The first pod that binds decides where it is made; nodes in other zones would never get a pod."""
    storage = [*unmade("data"), storage_class("fast", provisioner=provisioner)]
    outcome = given(*sharing(number, "data", spec=over(ZONE, "ScheduleAnyway")), storage=storage, types=SMALL)
    assert outcome.scheduled
    assert len(outcome.claims) == number
    assert len(set(homes(outcome).values())) == 1
    assert all(len(entry.values) == 1 for claim in outcome.claims if (entry := wanted(claim, ZONE)))


def test_the_zone_of_a_shared_volume_is_one_that_all_its_pods_can_reach() -> None:
    free, bound = sharing(1, "data", name="free"), sharing(3, "data", name="bound", selector={ZONE: Z3})
    classes = sharing(2, "data", name="class", requires=[[rule(ZONE, "In", Z2, Z3)]])
    for order in ([*free, *classes, *bound], [*bound, *classes, *free]):
        outcome = given(*order, storage=[*unmade("data"), FAST], types=SMALL)
        assert outcome.scheduled
        assert set(homes(outcome).values()) == {Z3}


def test_the_zone_of_a_shared_volume_is_one_that_its_class_allows() -> None:
    storage = [*unmade("data"), storage_class("fast", {EBS_ZONE: [Z2, Z3]})]
    outcome = given(*sharing(3, "data", spec=over(ZONE, "ScheduleAnyway")), storage=storage, types=SMALL)
    assert outcome.scheduled
    assert len(found := set(homes(outcome).values())) == 1
    assert found <= {Z2, Z3}


def test_pods_that_share_volumes_in_a_row_go_to_one_zone() -> None:
    first, second, third = (
        sharing(2, *claims, name=name, spec=over(ZONE, "ScheduleAnyway", name))
        for name, claims in (("a", ("x",)), ("b", ("x", "y")), ("c", ("y",)))
    )
    outcome = given(*first, *third, *second, storage=[*unmade("x", "y"), FAST], types=SMALL)
    assert outcome.scheduled
    assert len(set(homes(outcome).values())) == 1


def test_pods_of_different_volumes_go_to_different_zones() -> None:
    waiting = [p for name in "xyz" for p in sharing(2, name, name="web", cpu="100m", spec=over(ZONE))]
    names = [structs.replace(p, metadata=structs.replace(p.metadata, name=f"p{n}")) for n, p in enumerate(waiting)]
    outcome = given(*names, storage=[*unmade("x", "y", "z"), FAST], types=SMALL)
    assert outcome.scheduled
    found = homes(outcome)
    assert [found["p0"], found["p2"], found["p4"]] == [found["p1"], found["p3"], found["p5"]]
    assert set(found.values()) == {Z1, Z2, Z3}


def test_a_shared_volume_and_another_that_is_there_are_in_one_zone() -> None:
    storage = [*unmade("new"), FAST, pvc("old", volume="v"), pv("v", [rule(ZONE, "In", Z2)])]
    outcome = given(*sharing(2, "new", name="free"), *sharing(1, "new", "old", name="bound"), storage=storage)
    assert outcome.scheduled
    assert set(homes(outcome).values()) == {Z2}


@pytest.mark.parametrize("number", [3, 40])
def test_a_hard_spread_compares_no_zones_but_that_of_the_volume_once_a_pod_decides_it(number: int) -> None:
    """The volume is made in the zone of the first pod: nothing would ever raise the counts of the other zones."""
    waiting = sharing(number, "data", spec=over(ZONE))
    outcome = given(*waiting, storage=[*unmade("data"), FAST], types=SMALL)
    assert outcome.scheduled
    assert len(set(homes(outcome).values())) == 1
    made = [pvc("data", volume="v"), pv("v", [rule(ZONE, "In", homes(outcome)["web-0"])])]
    assert homes(given(*waiting, storage=made, types=SMALL)) == homes(outcome)


def test_a_hard_spread_of_pods_that_share_a_volume_compares_the_zones_of_nodes_that_exist() -> None:
    full = node("full", pods="0", labels={ZONE: Z3})
    outcome = given(*sharing(3, "data", spec=over(ZONE)), storage=[*unmade("data"), FAST], types=SMALL, nodes=[full])
    assert len(outcome.claim.pods) == 1
    assert 'volume of persistentvolumeclaim "default/data"' in outcome.plan.unschedulable[0].message


def test_a_hard_spread_of_pods_that_share_a_volume_compares_the_zones_of_nodes_for_other_pods() -> None:
    other = pod("other", cpu="1500m", selector={ZONE: Z3})
    outcome = given(*sharing(3, "data", spec=over(ZONE)), other, storage=[*unmade("data"), FAST], types=SMALL)
    assert sorted(homes(outcome)) == ["other", "web-0"]


def test_each_volume_to_be_made_has_a_zone_of_its_own_in_a_spread() -> None:
    waiting = [
        p for name in "xy" for p in sharing(2, name, name=name, metadata={"labels": {"app": "web"}}, spec=over(ZONE))
    ]
    outcome = given(*waiting, storage=[*unmade("x", "y"), FAST], types=SMALL)
    assert outcome.scheduled
    found = homes(outcome)
    assert found["x-0"] == found["x-1"] != found["y-0"] == found["y-1"]


def test_followers_of_other_pods_that_share_a_volume_are_where_both_are() -> None:
    near = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "cache"}}}
    affinity = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}}
    running = pod("cache", node="full", metadata={"labels": {"app": "cache"}})
    full = node("full", pods="0", labels={ZONE: Z3})
    waiting = [*sharing(2, "data", name="free"), *sharing(2, "data", name="near", spec=affinity)]
    outcome = given(running, *waiting, nodes=[full], storage=[*unmade("data"), FAST], types=SMALL)
    assert outcome.scheduled
    assert set(homes(outcome).values()) == {Z3}
    cache = pod("cache", cpu="1", selector={ZONE: Z2}, metadata={"labels": {"app": "cache"}})
    outcome = given(cache, *waiting, storage=[*unmade("data"), FAST], types=SMALL)
    assert outcome.scheduled
    assert set(homes(outcome).values()) == {Z2}


def test_the_pods_of_a_shared_volume_follow_one_that_is_on_its_way_to_a_node() -> None:
    storage = [*unmade("data"), FAST]
    first = given(*sharing(1, "data", selector={ZONE: Z2}), storage=storage, types=SMALL)
    later = sharing(3, "data", name="later")
    flight = [in_flight(first.claim)]
    outcome = given(*sharing(1, "data", selector={ZONE: Z2}), *later, storage=storage, types=SMALL, claims=flight)
    assert set(homes(outcome).values()) == {Z2}
    nominated = structs.replace(sharing(1, "data")[0])
    status = structs.replace(nominated.status, nominated_node_name="here")
    nominated = structs.replace(nominated, status=status)
    here = node("here", cpu="2", labels={ZONE: Z3})
    outcome = given(nominated, *later, storage=storage, types=SMALL, nodes=[here])
    assert set(homes(outcome).values()) == {Z3}


@pytest.mark.parametrize("provisioner", ["efs.csi.aws.com", "example.com/nfs"])
def test_volumes_that_are_not_in_one_zone_hold_no_pods_together(provisioner: str) -> None:
    storage = [*unmade("data"), storage_class("fast", provisioner=provisioner)]
    outcome = given(*sharing(3, "data", spec=over(ZONE)), storage=storage, types=SMALL)
    assert outcome.scheduled
    assert set(homes(outcome).values()) == {Z1, Z2, Z3}


def test_a_class_of_any_driver_that_names_zones_has_volumes_in_one() -> None:
    topologies = {ZONE: [Z1, Z2]}
    storage = [*unmade("data"), storage_class("fast", topologies, provisioner="example.com/block")]
    outcome = given(*sharing(3, "data", spec=over(ZONE, "ScheduleAnyway")), storage=storage, types=SMALL)
    assert outcome.scheduled
    assert len(set(homes(outcome).values())) == 1


def test_volumes_made_by_hand_hold_their_pods_together_once_one_is_bound() -> None:
    made = [
        pv(
            f"v{zone}",
            [rule(ZONE, "In", zone)],
            phase="Available",
            storageClassName="manual",
            capacity={"storage": "9Gi"},
        )
        for zone in (Z1, Z2)
    ]
    storage = [*unmade("data", of="manual"), *made, storage_class("manual", provisioner="kubernetes.io/no-provisioner")]
    outcome = given(*sharing(3, "data", spec=over(ZONE, "ScheduleAnyway")), storage=storage, types=SMALL)
    assert outcome.scheduled
    assert len(set(homes(outcome).values())) == 1


def test_pods_that_share_a_local_volume_go_to_one_node() -> None:
    storage = [*unmade("data", of="local"), storage_class("local", provisioner="kubernetes.io/no-provisioner")]
    outcome = given(*sharing(3, "data", cpu="900m"), storage=storage, types=SMALL)
    assert len(set(homes(outcome, "node").values())) == 1
    assert len(outcome.plan.unschedulable) == 1


def test_a_pod_that_shares_a_local_volume_and_one_of_a_zone_is_where_both_are() -> None:
    local = [*unmade("disk", of="local"), storage_class("local", provisioner="kubernetes.io/no-provisioner")]
    near = sharing(1, "disk", name="near", cpu="900m")
    both = sharing(1, "disk", "data", name="both", cpu="900m")
    far = sharing(1, "data", name="far", spec={"nodeSelector": {ZONE: Z3}})
    outcome = given(*near, *both, *far, storage=[*local, *unmade("data"), FAST], types=SMALL)
    assert outcome.scheduled
    nodes, zones = homes(outcome, "node"), homes(outcome)
    assert nodes["near-0"] == nodes["both-0"]
    assert zones["both-0"] == zones["far-0"] == Z3


def test_a_shared_claim_whose_class_is_gone_leaves_its_pods_alone_and_no_others() -> None:
    outcome = given(
        *sharing(2, "data", name="gone"),
        *sharing(2, "other"),
        storage=[*unmade("data", of="none"), *unmade("other"), FAST],
    )
    assert "storageclass" in outcome.ignored("gone-0").message
    assert set(homes(outcome)) == {"web-0", "web-1"}

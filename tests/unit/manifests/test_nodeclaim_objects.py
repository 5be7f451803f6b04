"""NodeClaim objects, judged by upstream's CRD."""

from __future__ import annotations

import copy
import re
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.kubernetes.objects import Taint
from shiplap.manifests.custom_resources import NodePool, RequirementSpec
from shiplap.manifests.live.nodeclaim_objects import (
    FINALIZER,
    GIVEN_BACK,
    INSTALL_LABEL,
    SHOWN,
    TERMINATION_TIMESTAMP,
    ClaimDisruption,
    ClaimObjectChanges,
    Deletion,
    claim_object_changes,
)
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from tests.builders.claims import node_claim
from tests.builders.nodes import node as any_node
from tests.crds.schema_judge import object_violations, violations
from tests.crds.schemas import status_schema_of
from tests.go_modules import KARPENTER_CORE, folder_of
from tests.unit.manifests.manifest_samples import NODE_POOL

NOW = 1_800_000_000.0
UNTOUCHED = ClaimDisruption()
IN_SERVICE = ["ConsistentStateFound", "Initialized", "Launched", "Ready", "Registered"]
POOL = msgspec.convert({**NODE_POOL, "metadata": {"name": "default", "uid": "uid-pool"}}, NodePool)


def claim(state: ClaimState = ClaimState.INITIALIZED, name: str = "default-1", **fields: Any) -> NodeClaim:
    known = {
        "name": name,
        "state": state,
        "node_pool": "default",
        "node_class": "default",
        "requirements": (
            RequirementSpec("karpenter.sh/capacity-type", "In", ("spot", "on-demand")),
            RequirementSpec("karpenter.k8s.aws/instance-family", "In", ("m6i",), min_values=1),
        ),
        "labels": {"team": "a"},
        "annotations": {"karpenter.sh/nodepool-hash": "17"},
        "taints": (Taint("dedicated", "NoSchedule", "a"),),
        "startup_taints": (Taint("agent", "NoExecute"),),
        "requests": {"cpu": 1500, "memory": 2**30},
        "allocatable": {"cpu": 1900, "memory": 2**32},
        "instance_id": "i-0abc",
        "instance_type": "m6i.large",
        "zone": "eu-west-1a",
        "capacity_type": "spot",
        "ami": "ami-0a",
        "node_name": "ip-10-0-0-1" if state in SHOWN - {ClaimState.LAUNCHED} else "",
    }
    return node_claim(cluster="demo", **{**known, **fields})


node = partial(any_node, "ip-10-0-0-1", "2", "8Gi", "29", zone="eu-west-1a", instance_id="i-0abc")
GUARDED = node(labels={INSTALL_LABEL: "one"}, metadata={"finalizers": [FINALIZER]})


def changes(
    *claims: NodeClaim,
    objects: tuple[Any, ...] = (),
    now: float = NOW,
    guarded: bool = False,
    disruption: ClaimDisruption | None = UNTOUCHED,
    pool: NodePool = POOL,
) -> ClaimObjectChanges:
    """`disruption` is what is known of every claim, None if the memory cannot be read."""
    known = None if disruption is None else {claim.name: disruption for claim in claims}
    return claim_object_changes(claims, objects, [pool], [GUARDED if guarded else node()], "one", now, known)


def created(*claims: NodeClaim, **known: Any) -> dict[str, Any]:
    """The only object that is made, as an API server has it then."""
    (body,) = changes(*claims, **known).created
    stored: dict[str, Any] = copy.deepcopy(dict(body))
    stored["metadata"] |= {"uid": "uid-claim", "resourceVersion": "5"}
    return stored


@pytest.mark.parametrize("state", sorted(SHOWN))
def test_upstreams_schema_accepts_it(state: ClaimState) -> None:
    body = created(claim(state))
    assert object_violations("NodeClaim", body) == set()
    assert violations(status_schema_of("NodeClaim"), copy.deepcopy(body["status"])) == set()
    assert set(body["status"]) <= set(status_schema_of("NodeClaim")["properties"])


def test_every_field_of_upstreams_status_is_written() -> None:
    """A field that a new release of upstream adds shows here."""
    known = ClaimDisruption(last_pod_event_at=NOW - 60)
    assert set(created(claim(), disruption=known)["status"]) == set(status_schema_of("NodeClaim")["properties"])


CONDITIONS = {
    "Launched": "with the claim's states",
    "Registered": "with the claim's states",
    "Initialized": "with the claim's states",
    "Ready": "as Initialized",
    "ConsistentStateFound": "False if the node is smaller than planned",
    "Drifted": "while disruption judges the node drifted",
    "Consolidatable": "once consolidateAfter has passed",
    "DisruptionReason": "while a command removes the node, and while it is drained because of one",
    "Drained": "Unknown while the node is drained; then its claim is Terminating at once",
    "InstanceTerminating": "while the claim is Terminating",
    "Rebooting": "from the request for a reboot; False once the node is back",
}
NEVER_WRITTEN = {
    "VolumesDetached": "a drain waits for pods and volumes alike; no state of a claim tells them apart",
}


def test_every_condition_of_upstream_is_written_or_has_a_reason_why_not() -> None:
    """A condition that a new release of upstream adds shows here."""
    folder = folder_of(KARPENTER_CORE)
    source = (folder / "pkg" / "apis" / "v1" / "nodeclaim_status.go").read_text()
    upstream = set(re.findall(r'ConditionType\w+\s+= "(\w+)"', source))
    assert upstream <= CONDITIONS.keys() | NEVER_WRITTEN.keys()
    known = ClaimDisruption("Drifted", is_drifted=True, quiet_since=0.0)
    pool = consolidating("0s")
    claims = [*map(claim, SHOWN), claim(reboots_at=(NOW,), reboot_cause="its GPU is lost")]
    shown = {type_ for item in claims for type_ in conditions(created(item, disruption=known, pool=pool))}
    assert shown == CONDITIONS.keys()


def test_it_shows_what_was_bought_and_to_whom_it_belongs() -> None:
    body = created(claim())
    metadata, spec, status = body["metadata"], body["spec"], body["status"]
    assert metadata["labels"] == {
        "team": "a",
        "node.kubernetes.io/instance-type": "m6i.large",
        "topology.kubernetes.io/zone": "eu-west-1a",
        "karpenter.sh/capacity-type": "spot",
        "karpenter.sh/nodepool": "default",
        INSTALL_LABEL: "one",
    }
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("NodePool", "default", "uid-pool")
    assert metadata["finalizers"] == ["karpenter.sh/termination"]
    assert spec["resources"] == {"requests": {"cpu": "1500m", "memory": "1Gi"}}
    assert spec["expireAfter"] == "720h"
    assert (status["providerID"], status["imageID"], status["nodeName"]) == (
        "aws:///eu-west-1a/i-0abc",
        "ami-0a",
        "ip-10-0-0-1",
    )
    assert status["capacity"]["memory"] == "8Gi"


def consolidating(after: str) -> NodePool:
    return replace(POOL, spec=replace(POOL.spec, disruption=replace(POOL.spec.disruption, consolidate_after=after)))


def conditions(body: Any) -> dict[str, str]:
    return {each["type"]: each["status"] for each in body["status"]["conditions"]}


@pytest.mark.parametrize(
    ("state", "holds"),
    [
        (ClaimState.LAUNCHED, ["Launched"]),
        (ClaimState.REGISTERED, ["Launched", "Registered"]),
        (ClaimState.INITIALIZED, IN_SERVICE),
        (ClaimState.DRAINING, IN_SERVICE),
        (ClaimState.TERMINATING, sorted([*IN_SERVICE, "InstanceTerminating"])),
    ],
)
def test_conditions_follow_the_state(state: ClaimState, holds: list[str]) -> None:
    found = conditions(created(claim(state)))
    assert sorted(type_ for type_, status in found.items() if status == "True") == holds
    assert {"Launched", "Registered", "Initialized", "Ready"} <= set(found)
    assert found.get("Drained") == ("Unknown" if state is ClaimState.DRAINING else None)


def test_a_node_smaller_than_planned_is_not_consistent() -> None:
    assert conditions(created(claim(missed=True)))["ConsistentStateFound"] == "False"


def test_a_drifted_claim_says_so_as_long_as_it_is_drifted() -> None:
    body = created(claim(), disruption=ClaimDisruption(is_drifted=True))
    assert conditions(body)["Drifted"] == "True"
    ((_, status),) = changes(claim(), objects=(body,)).statuses
    assert "Drifted" not in conditions({"status": status})


def test_a_claim_is_consolidatable_once_consolidate_after_has_passed() -> None:
    pool = consolidating("30s")
    quiet = ClaimDisruption(quiet_since=NOW - 29)
    assert "Consolidatable" not in conditions(created(claim(), disruption=quiet, pool=pool))
    assert conditions(created(claim(), disruption=quiet, pool=pool, now=NOW + 1))["Consolidatable"] == "True"


@pytest.mark.parametrize(
    ("after", "state", "quiet_since"),
    [
        ("Never", ClaimState.INITIALIZED, 0.0),
        ("0s", ClaimState.INITIALIZED, None),
        ("0s", ClaimState.REGISTERED, 0.0),
        ("0s", ClaimState.DRAINING, 0.0),
    ],
)
def test_what_disruption_leaves_alone_is_not_consolidatable(
    after: str, state: ClaimState, quiet_since: float | None
) -> None:
    known = ClaimDisruption(quiet_since=quiet_since)
    found = conditions(created(claim(state), disruption=known, pool=consolidating(after)))
    assert "Consolidatable" not in found


def test_nodes_of_a_static_pool_are_not_consolidatable() -> None:
    pool = replace(consolidating("0s"), spec=replace(consolidating("0s").spec, replicas=2))
    assert "Consolidatable" not in conditions(created(claim(), disruption=ClaimDisruption(quiet_since=0.0), pool=pool))


def test_the_reason_of_a_command_is_that_of_the_condition() -> None:
    body = created(claim(ClaimState.DISRUPTING), disruption=ClaimDisruption("Underutilized"))
    (found,) = (item for item in body["status"]["conditions"] if item["type"] == "DisruptionReason")
    assert (found["status"], found["reason"]) == ("True", "Underutilized")
    ((_, status),) = changes(claim(), objects=(body,)).statuses
    assert "DisruptionReason" not in conditions({"status": status})


def test_without_the_memory_of_disruption_its_conditions_stay() -> None:
    known = ClaimDisruption(is_drifted=True, last_pod_event_at=NOW - 60, quiet_since=NOW - 60)
    body = created(claim(), disruption=known, pool=consolidating("30s"))
    assert body["status"]["lastPodEventTime"] == "2027-01-15T07:59:00Z"
    assert changes(claim(), objects=(body,), guarded=True, disruption=None) == ClaimObjectChanges()


def test_annotations_follow_renewed_hashes_and_the_deadline_of_a_drain() -> None:
    body = created(claim())
    renewed = claim(ClaimState.DRAINING, annotations={"karpenter.sh/nodepool-hash": "18"}, deadline_at=NOW + 90)
    ((item, annotations),) = changes(renewed, objects=(body,)).annotated
    assert item is body
    assert annotations == {"karpenter.sh/nodepool-hash": "18", TERMINATION_TIMESTAMP: "2027-01-15T08:01:30Z"}
    body["metadata"]["annotations"] |= annotations
    assert changes(renewed, objects=(body,)).annotated == ()


@pytest.mark.parametrize("state", sorted(set(ClaimState) - SHOWN))
def test_without_an_instance_there_is_no_object(state: ClaimState) -> None:
    """Karpenter launches for a NodeClaim of its kinds whose condition Launched is unknown."""
    assert changes(claim(state)) == ClaimObjectChanges()
    ended = created(claim())
    assert changes(claim(state), objects=(ended,)).deleted == (ended,)


def test_nothing_is_written_twice_and_a_step_is_written_once() -> None:
    body = created(claim(ClaimState.REGISTERED))
    known = claim(ClaimState.REGISTERED)
    assert changes(known, objects=(body,), now=NOW + 600, guarded=True) == ClaimObjectChanges()
    assert changes(known, objects=(body,)).guarded == (node(),)
    ((item, status),) = changes(claim(), objects=(body,), now=NOW + 600).statuses
    assert item is body
    times = {each["type"]: each["lastTransitionTime"] for each in status["conditions"]}
    assert times["Initialized"] > times["Registered"]


def test_an_edited_status_is_written_again() -> None:
    body = created(claim())
    body["status"]["conditions"] = None
    assert len(changes(claim(), objects=(body,)).statuses) == 1


def test_objects_of_others_are_left_alone() -> None:
    karpenters = created(claim(instance_id="i-0def"))
    del karpenters["metadata"]["labels"][INSTALL_LABEL]
    of_another_install = created(claim(name="default-2"))
    of_another_install["metadata"]["labels"][INSTALL_LABEL] = "two"
    unlabelled = {**karpenters, "metadata": {**karpenters["metadata"], "name": "default-3", "labels": None}}
    objects = (karpenters, of_another_install, unlabelled)
    assert changes(claim(), claim(name="default-2"), objects=objects) == ClaimObjectChanges()
    assert changes(objects=objects) == ClaimObjectChanges()


def unlabelled(**annotations: str) -> dict[str, Any]:
    body = created(claim())
    del body["metadata"]["labels"][INSTALL_LABEL]
    body["metadata"]["annotations"] = annotations
    return body


def test_an_object_of_nobody_that_names_the_claims_instance_gets_the_label() -> None:
    body = unlabelled()
    assert changes(claim(), objects=(body,)) == ClaimObjectChanges(taken_over=(body,))
    body["metadata"]["annotations"] = None
    assert changes(claim(), objects=(body,)).taken_over == (body,)


def test_an_object_that_was_given_back_is_left_alone() -> None:
    assert changes(claim(), objects=(unlabelled(**{GIVEN_BACK: "true"}),)) == ClaimObjectChanges()


@pytest.mark.parametrize("status", [{}, None, {"providerID": None}, {"providerID": "aws:///eu-west-1a/i-0def"}])
def test_an_object_that_names_another_instance_is_left_alone(status: Any) -> None:
    assert changes(claim(), objects=({**unlabelled(), "status": status},)) == ClaimObjectChanges()


def test_an_install_without_a_name_touches_nothing() -> None:
    """An object without our label must not be taken for that of an install without a name."""
    karpenters = created(claim(name="other"))
    del karpenters["metadata"]["labels"][INSTALL_LABEL]
    assert claim_object_changes([claim()], (karpenters,), [POOL], [node()], "", NOW) == ClaimObjectChanges()


@pytest.mark.parametrize(
    ("finalizers", "instance_id", "is_kept"),
    [
        (["example.com/backup"], "i-0abc", True),
        ([FINALIZER, "example.com/backup"], "i-0abc", True),
        ([FINALIZER], "i-0abc", False),
        ([], "i-0abc", False),
        (["example.com/backup"], "i-0other", False),
    ],
)
def test_an_object_stays_while_another_controllers_finalizer_keeps_its_node(
    finalizers: list[str], instance_id: str, is_kept: bool
) -> None:
    item = created(claim())
    left = any_node("ip-10-0-0-1", zone="eu-west-1a", instance_id=instance_id, metadata={"finalizers": finalizers})
    for known in ((), (claim(ClaimState.GONE),)):
        found = claim_object_changes(known, [item], [POOL], [left], "one", NOW)
        assert found.deleted == (() if is_kept else (item,))
        assert found.ending == ((item,) if is_kept else ())
        said = [conditions({"status": status})["InstanceTerminating"] for _, status in found.statuses]
        assert said == (["True"] if is_kept else [])
        again = [{**item, "status": status} for _, status in found.statuses]
        assert claim_object_changes(known, again, [POOL], [left], "one", NOW + 60).statuses == ()


@pytest.mark.parametrize("state", sorted(SHOWN))
def test_the_object_of_a_node_that_leaves_for_good_is_deleted_and_kept(state: ClaimState) -> None:
    """Karpenter deletes the NodeClaim first, and the finalizer keeps it until the instance has ended."""
    going = state in {ClaimState.DRAINING, ClaimState.TERMINATING}
    item, other = created(claim(state)), created(claim(name="default-2"))
    found = changes(claim(state), claim(name="default-2"), objects=(item, other))
    assert (found.ending, found.deleted) == ((item,) if going else (), ())
    item["metadata"]["deletionTimestamp"] = "2027-01-15T07:00:00Z"
    if going:
        assert changes(claim(state), objects=(item,)).ending == ()
        assert changes(claim(ClaimState.GONE), objects=(item,)).deleted == (item,)


def test_an_object_without_our_finalizer_stays_until_its_node_has_left() -> None:
    item = created(claim(ClaimState.DRAINING))
    item["metadata"]["finalizers"] = ["example.com/backup"]
    assert changes(claim(ClaimState.DRAINING), objects=(item,)).ending == ()


def test_a_claim_whose_pool_is_gone_gets_no_new_object() -> None:
    assert claim_object_changes([claim()], (), [], [node()], "one", NOW) == ClaimObjectChanges()


@pytest.mark.parametrize("grace", ["", "never", "1.5s"])
def test_a_grace_period_that_is_none_sets_no_deadline(grace: str) -> None:
    body = created(claim())
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    body["spec"]["terminationGracePeriod"] = grace
    assert changes(claim(), objects=(body,)).leaving == (Deletion("default-1"),)


def test_a_node_of_another_instance_under_the_same_name_is_not_the_claims() -> None:
    body = created(claim())
    other = claim(instance_id="i-0other")
    assert changes(other, objects=(body,)).guarded == ()

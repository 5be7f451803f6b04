"""NodeClaim objects, judged by upstream's CRD."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from shiplap.kubernetes.objects import Node, Taint
from shiplap.manifests.custom_resources import NodePool, RequirementSpec
from shiplap.manifests.live.nodeclaim_objects import (
    FINALIZER,
    INSTALL_LABEL,
    SHOWN,
    ClaimObjectChanges,
    Deletion,
    claim_object_changes,
)
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from tests.crds.schema_judge import object_violations, violations
from tests.crds.schemas import status_schema_of
from tests.node_claims import node_claim
from tests.unit.manifests.manifest_samples import NODE_POOL

NOW = 1_800_000_000.0
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


def node(*, guarded: bool = False) -> Node:
    amounts = {"cpu": "2", "memory": "8Gi", "pods": "29"}
    metadata: dict[str, Any] = {"name": "ip-10-0-0-1"}
    if guarded:
        metadata |= {"labels": {INSTALL_LABEL: "one"}, "finalizers": [FINALIZER]}
    spec = {"providerID": "aws:///eu-west-1a/i-0abc"}
    status = {"capacity": amounts, "allocatable": amounts}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Node)


def changes(
    *claims: NodeClaim, objects: tuple[Any, ...] = (), now: float = NOW, guarded: bool = False
) -> ClaimObjectChanges:
    return claim_object_changes(claims, objects, [POOL], [node(guarded=guarded)], "one", now)


def created(*claims: NodeClaim) -> dict[str, Any]:
    """The only object that is made, as an API server has it then."""
    (body,) = changes(*claims).created
    stored: dict[str, Any] = copy.deepcopy(dict(body))
    stored["metadata"] |= {"uid": "uid-claim", "resourceVersion": "5"}
    return stored


@pytest.mark.parametrize("state", sorted(SHOWN))
def test_upstreams_schema_accepts_it(state: ClaimState) -> None:
    body = created(claim(state))
    assert object_violations("NodeClaim", body) == set()
    assert violations(status_schema_of("NodeClaim"), copy.deepcopy(body["status"])) == set()
    assert set(body["status"]) <= set(status_schema_of("NodeClaim")["properties"])


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


def conditions(body: Any) -> dict[str, str]:
    return {each["type"]: each["status"] for each in body["status"]["conditions"]}


@pytest.mark.parametrize(
    ("state", "holds"),
    [
        (ClaimState.LAUNCHED, ["Launched"]),
        (ClaimState.REGISTERED, ["Launched", "Registered"]),
        (ClaimState.INITIALIZED, ["Initialized", "Launched", "Ready", "Registered"]),
        (ClaimState.DRAINING, ["Initialized", "Launched", "Ready", "Registered"]),
    ],
)
def test_conditions_follow_the_state(state: ClaimState, holds: list[str]) -> None:
    found = conditions(created(claim(state)))
    assert sorted(type_ for type_, status in found.items() if status == "True") == holds
    assert set(found) == {"Launched", "Registered", "Initialized", "Ready"}


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
    karpenters = created(claim())
    del karpenters["metadata"]["labels"][INSTALL_LABEL]
    of_another_install = created(claim(name="default-2"))
    of_another_install["metadata"]["labels"][INSTALL_LABEL] = "two"
    unlabelled = {**karpenters, "metadata": {**karpenters["metadata"], "name": "default-3", "labels": None}}
    objects = (karpenters, of_another_install, unlabelled)
    assert changes(claim(), claim(name="default-2"), objects=objects) == ClaimObjectChanges()
    assert changes(objects=objects) == ClaimObjectChanges()


def test_an_install_without_a_name_touches_nothing() -> None:
    """An object without our label must not be taken for that of an install without a name."""
    karpenters = created(claim(name="other"))
    del karpenters["metadata"]["labels"][INSTALL_LABEL]
    assert claim_object_changes([claim()], (karpenters,), [POOL], [node()], "", NOW) == ClaimObjectChanges()


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

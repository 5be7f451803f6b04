"""Tests the launch facts that a claim keeps, and that unknown facts are no drift: 65 to 69 of the AWS side."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.instances.catalog.ami_families import spec_hash
from shiplap.instances.catalog.resolved_nodeclass import SelectedResources
from shiplap.kubernetes import labels
from shiplap.manifests.template_hash import (
    HASH_VERSION,
    NODE_CLASS_HASH,
    NODE_CLASS_HASH_VERSION,
    POOL_HASH,
    POOL_HASH_VERSION,
    pool_hash,
)
from tests.builders.node_classes import node_class as any_node_class
from tests.builders.pools import family_pool as simple_pool
from tests.builders.pools import pool
from tests.conformance.catalogues import fake_type
from tests.conformance.disruptions import Standing, disrupted, standing
from tests.integration.flows.stage import Stage

GROUP = "karpenter.k8s.aws/placement-group-id"
LARGE = replace(fake_type("large", cpu="16", memory="32Gi", pods="50", price=4.0), ami="ami-new")
QUIET = pool(after="Never")


node_class = partial(any_node_class, family="", amiSelectorTerms=[{"alias": "al2023@latest"}], role="r")


def large(**changes: Any) -> Standing:
    return standing("a", LARGE.name, **{"ami": "ami-new", **changes})


def test_65_a_launched_claim_says_what_it_was_launched_as() -> None:
    wanted = simple_pool("any", ("m6i",))
    stage = Stage((wanted,))
    stage.add_pods(1)
    stage.schedule()
    (claim,) = stage.claims()
    assert claim.known_instance.ami
    assert claim.plan.labels[labels.INSTANCE_TYPE] == claim.known_instance.type
    assert claim.plan.labels[labels.ZONE] == claim.known_instance.zone
    assert claim.plan.annotations == {
        POOL_HASH: pool_hash(wanted),
        POOL_HASH_VERSION: HASH_VERSION,
        NODE_CLASS_HASH: spec_hash(stage.settings.manifests.node_classes[0]),
        NODE_CLASS_HASH_VERSION: HASH_VERSION,
    }
    assert claim.known_instance.subnet == f"subnet-{claim.known_instance.zone}"
    assert claim.known_instance.security_groups == ("sg-twin",)


@pytest.mark.parametrize(
    ("node", "types"),
    [
        (large(), []),
        (large(ami=""), [LARGE]),
        (large(), [replace(LARGE, ami="")]),
    ],
    ids=["its node class cannot be answered", "its AMI is unknown", "the AMI of new nodes is unknown"],
)
def test_67_what_is_not_known_is_no_drift(node: Standing, types: list[Any]) -> None:
    assert disrupted(node, pools=[QUIET], types=types).removed == set()


@pytest.mark.parametrize(
    "born_with",
    [{}, {POOL_HASH: "1"}, {POOL_HASH_VERSION: HASH_VERSION}, {POOL_HASH: "1", POOL_HASH_VERSION: "of another day"}],
    ids=["none", "no version", "no hash", "another version"],
)
def test_69_a_hash_that_is_missing_or_of_another_version_is_no_drift(born_with: dict[str, str]) -> None:
    assert disrupted(large(claim_annotations=born_with), pools=[QUIET], types=[LARGE]).removed == set()


# What the EC2NodeClass says


SELECTED = SelectedResources(
    subnets=("subnet-a", "subnet-b"), security_groups=("sg-1", "sg-2"), reservations=("cr-1",), placement_group="pg-1"
)
BORN_WITH = {NODE_CLASS_HASH: "then", NODE_CLASS_HASH_VERSION: HASH_VERSION}


@pytest.mark.parametrize(
    ("annotations", "says", "goes"),
    [
        (BORN_WITH, "now", True),
        (BORN_WITH, "then", False),
        (BORN_WITH, "", False),
        ({}, "now", False),
        ({**BORN_WITH, NODE_CLASS_HASH_VERSION: "of another day"}, "now", False),
    ],
    ids=["changed", "same", "not known", "no hash", "another version"],
)
def test_an_ec2_node_class_that_has_changed_since(annotations: dict[str, str], says: str, *, goes: bool) -> None:
    verdict = disrupted(
        large(claim_annotations=annotations), pools=[QUIET], types=[LARGE], class_says={"spec_hash": says}
    )
    assert [command.detail.partition(":")[0] for command in verdict.commands] == ["NodeClassDrift"] * goes


@pytest.mark.parametrize(("written", "goes"), [({}, set()), ({"hash": "then"}, set()), ({"hash": "other"}, {"a"})])
def test_the_class_hash_that_karpenter_wrote_counts_where_the_class_has_one_too(
    written: dict[str, str], goes: set[str]
) -> None:
    marks = {NODE_CLASS_HASH: written["hash"], NODE_CLASS_HASH_VERSION: "v6"} if written else {}
    node = large(claim_annotations={NODE_CLASS_HASH: "then", NODE_CLASS_HASH_VERSION: "v6"})
    case: dict[str, Any] = {
        "types": [LARGE],
        "node_classes": [node_class(annotations=marks)],
        "class_says": {"spec_hash": "x"},
    }
    assert disrupted(node, pools=[QUIET], **case).removed == goes


@pytest.mark.parametrize(
    ("spec", "another"),
    [
        ({"userData": "echo"}, True),
        ({"tags": {"a": "b"}}, True),
        ({"kubelet": {"maxPods": 20}}, True),
        ({"role": "other"}, True),
        ({"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "30Gi"}}]}, True),
        ({"instanceStorePolicy": "RAID0"}, True),
        ({"detailedMonitoring": True}, True),
        ({"detailedMonitoring": False}, True),
        ({"associatePublicIPAddress": False}, True),
        ({"metadataOptions": {"httpTokens": "optional"}}, True),
        ({"context": "x"}, True),
        ({"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]}, True),
        ({"amiSelectorTerms": [{"id": "ami-1"}], "amiFamily": "AL2023"}, False),
        ({"amiFamily": "AL2023"}, False),
        ({"subnetSelectorTerms": [{"id": "subnet-a"}]}, False),
        ({"securityGroupSelectorTerms": [{"id": "sg-1"}]}, False),
        ({"capacityReservationSelectorTerms": [{"id": "cr-1"}]}, False),
        ({"placementGroupSelector": {"name": "g"}}, False),
        ({"ipPrefixCount": 4}, False),
        ({"metadataOptions": {"httpTokens": "required"}}, False),
        ({"tags": {}, "kubelet": {}, "blockDeviceMappings": []}, False),
    ],
    ids=str,
)
def test_what_of_an_ec2_node_class_makes_other_nodes(spec: dict[str, Any], *, another: bool) -> None:
    assert (spec_hash(node_class(**spec)) != spec_hash(node_class())) is another


def test_the_order_of_lists_and_an_annotation_change_no_hash() -> None:
    disks = [{"deviceName": f"/dev/xvd{letter}", "ebs": {"volumeSize": "30Gi"}} for letter in "ab"]
    one, two = (
        node_class(blockDeviceMappings=disks),
        node_class(annotations={"a": "b"}, blockDeviceMappings=disks[::-1]),
    )
    assert spec_hash(one) == spec_hash(two)


def reserved(held: str) -> dict[str, Any]:
    return {"capacity_type": "reserved", "labels": {labels.RESERVATION_ID: held}}


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"security_groups": ("sg-2", "sg-1")}, ""),
        ({"security_groups": ("sg-1",)}, "SecurityGroupDrift"),
        ({"security_groups": ("sg-1", "sg-2", "sg-3")}, "SecurityGroupDrift"),
        ({"security_groups": ()}, ""),
        ({"subnet": "subnet-b"}, ""),
        ({"subnet": "subnet-c"}, "SubnetDrift"),
        ({"subnet": ""}, ""),
        (reserved("cr-1"), ""),
        (reserved("cr-2"), "CapacityReservationDrift"),
        ({**reserved("cr-2"), "capacity_type": "on-demand"}, ""),
        ({"labels": {labels.INSTANCE_TYPE: "large", GROUP: "pg-1"}}, ""),
        ({"labels": {labels.INSTANCE_TYPE: "large", GROUP: "pg-2"}}, "PlacementGroupDrift"),
        ({"labels": {labels.INSTANCE_TYPE: "large"}}, "PlacementGroupDrift"),
        ({"security_groups": ("sg-9",), "subnet": "subnet-c"}, "SecurityGroupDrift"),
    ],
    ids=str,
)
def test_what_an_instance_is_in_and_its_class_no_longer_selects(made: dict[str, Any], reason: str) -> None:
    verdict = disrupted(large(made=made), pools=[QUIET], types=[LARGE], class_says={"selection": SELECTED})
    assert [command.detail.partition(":")[0] for command in verdict.commands] == [reason] * bool(reason)


@pytest.mark.parametrize(
    ("was", "wanted", "words"),
    [
        ("pg-1", "pg-2", "in pg-1, EC2NodeClass default selects pg-2"),
        ("", "pg-2", "in no group, EC2NodeClass default selects pg-2"),
        ("pg-1", "", "in pg-1, EC2NodeClass default selects none"),
    ],
)
def test_a_placement_group_that_is_no_longer_selected_is_named(was: str, wanted: str, words: str) -> None:
    made = {"labels": {labels.INSTANCE_TYPE: "large", **({GROUP: was} if was else {})}}
    says = {"selection": SelectedResources(placement_group=wanted)}
    verdict = disrupted(large(made=made), pools=[QUIET], types=[LARGE], class_says=says)
    assert verdict.command.detail == f"PlacementGroupDrift: {words}"


@pytest.mark.parametrize(
    "says", [{}, {"not_ready": "SubnetsNotFound", "selection": SelectedResources()}], ids=["", "refused"]
)
def test_a_class_that_cannot_be_answered_selects_what_there_is(says: dict[str, Any]) -> None:
    node = large(made={"security_groups": ("sg-9",), "subnet": "subnet-9", **reserved("cr-9")})
    assert disrupted(node, pools=[QUIET], types=[LARGE], class_says=says).removed == set()


def test_a_reservation_that_is_no_longer_selected_drifts_although_none_is_left() -> None:
    node = large(made=reserved("cr-1"))
    assert disrupted(node, pools=[QUIET], types=[LARGE], class_says={"selection": SelectedResources()}).removed == {"a"}

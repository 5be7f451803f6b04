"""An EC2NodeClass of one cluster may not name anything that belongs to another cluster."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec
from shiplap.manifests.decoding import field_name
from shiplap.manifests.live.allowed_resources import AllowedResources, outside
from shiplap.manifests.validation.live_objects import check_live_object
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, changed

OWN = AllowedResources(
    node_roles=("node",),
    instance_profiles=("a-profile",),
    image_parameters=("/a/image",),
    volume_keys=("alias/a",),
    volume_snapshots=("snap-0a",),
    subnets=("subnet-0a",),
    security_groups=("sg-0123abcd",),
    image_owners=("111111111111", "amazon"),
    capacity_reservations=("cr-0a",),
    placement_groups=("pg-0a",),
)
"""Of cluster A."""

VOLUME = {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi"}}


def volume(**ebs: str) -> list[dict[str, Any]]:
    return [{**VOLUME, "ebs": {**VOLUME["ebs"], **ebs}}]


WITHOUT_ROLE = {key: value for key, value in EC2_NODE_CLASS["spec"].items() if key != "role"}

OF_B: dict[str, tuple[str, Any, str]] = {
    "role": ("role", "b-node", "spec.role"),
    "stack's role": ("role", "shiplap-node-b", "spec.role"),
    "instance profile": ("", {**WITHOUT_ROLE, "instanceProfile": "b-profile"}, "spec.instanceProfile"),
    "image parameter": ("amiSelectorTerms", [{"ssmParameter": "/b/image"}], "spec.amiSelectorTerms[0].ssmParameter"),
    "image parameter of another account": (
        "amiSelectorTerms",
        [{"ssmParameter": "arn:aws:ssm:eu-west-1:222222222222:parameter/a/image"}],
        "spec.amiSelectorTerms[0].ssmParameter",
    ),
    "image parameter of an account with a public name": (
        "amiSelectorTerms",
        [{"ssmParameter": "arn:aws:ssm:eu-west-1:222222222222:parameter/aws/service/image"}],
        "spec.amiSelectorTerms[0].ssmParameter",
    ),
    "image owner": ("amiSelectorTerms", [{"name": "b-*", "owner": "222222222222"}], "spec.amiSelectorTerms[0].owner"),
    "volume key": ("blockDeviceMappings", volume(kmsKeyID="alias/b"), "spec.blockDeviceMappings[0].ebs.kmsKeyID"),
    "volume key of another account": (
        "blockDeviceMappings",
        volume(kmsKeyID="arn:aws:kms:eu-west-1:222222222222:alias/a"),
        "spec.blockDeviceMappings[0].ebs.kmsKeyID",
    ),
    "snapshot": ("blockDeviceMappings", volume(snapshotID="snap-0b"), "spec.blockDeviceMappings[0].ebs.snapshotID"),
    "subnet": ("subnetSelectorTerms", [{"id": "subnet-0b"}], "spec.subnetSelectorTerms[0].id"),
    "security group": ("securityGroupSelectorTerms", [{"id": "sg-0b"}], "spec.securityGroupSelectorTerms[0].id"),
    "reservation": (
        "capacityReservationSelectorTerms",
        [{"id": "cr-0b"}],
        "spec.capacityReservationSelectorTerms[0].id",
    ),
    "placement group": ("placementGroupSelector", {"id": "pg-0b"}, "spec.placementGroupSelector.id"),
    "tag of Shiplap": ("tags", {"shiplap.dev/cluster": "b"}, "spec.tags[shiplap.dev/cluster]"),
    "tag of the cluster": ("tags", {"kubernetes.io/cluster/b": "owned"}, "spec.tags[kubernetes.io/cluster/b]"),
    "tag of AWS": ("tags", {"aws:cloudformation:stack-name": "b"}, "spec.tags.aws:cloudformation:stack-name"),
    "tag of EKS": ("tags", {"eks:cluster-name": "b"}, "spec.tags.eks:cluster-name"),
}


NAMES = {
    "node_roles": ("", {**WITHOUT_ROLE, "role": "x"}),
    "instance_profiles": ("", {**WITHOUT_ROLE, "instanceProfile": "x"}),
    "image_parameters": ("amiSelectorTerms", [{"ssmParameter": "x"}]),
    "image_owners": ("amiSelectorTerms", [{"name": "b-*", "owner": "x"}]),
    "volume_keys": ("blockDeviceMappings", volume(kmsKeyID="x")),
    "volume_snapshots": ("blockDeviceMappings", volume(snapshotID="x")),
    "subnets": ("subnetSelectorTerms", [{"id": "x"}]),
    "security_groups": ("securityGroupSelectorTerms", [{"id": "x"}]),
    "capacity_reservations": ("capacityReservationSelectorTerms", [{"id": "x"}]),
    "placement_groups": ("placementGroupSelector", {"id": "x"}),
}


@pytest.mark.parametrize("listed", NAMES)
def test_a_name_is_allowed_by_its_own_list_alone(listed: str) -> None:
    """A role, a profile, a key and a parameter may have one name. All other lists have it, too."""
    field, value = NAMES[listed]
    data = changed(EC2_NODE_CLASS, f"spec.{field}" if field else "spec", value)
    everywhere = AllowedResources(**{name: (*getattr(OWN, name), "x") for name in NAMES})
    assert problems(data, everywhere) == ([], [])
    elsewhere = msgspec.structs.replace(everywhere, **{listed: getattr(OWN, listed)})
    assert len(problems(data, elsewhere)[0]) == 1


@pytest.mark.parametrize(("field", "value", "at"), OF_B.values(), ids=OF_B)
def test_what_is_of_cluster_b_is_refused_in_cluster_a(field: str, value: Any, at: str) -> None:
    data = changed(EC2_NODE_CLASS, f"spec.{field}" if field else "spec", value)
    found, reasons = problems(data)
    assert found == [at]
    assert all(reason for reason in reasons)
    assert any(reason.startswith(at) for reason in check_live_object(data, OWN).reasons)


ALLOWED: dict[str, tuple[str, Any]] = {
    "role": ("role", "node"),
    "instance profile": ("", {**WITHOUT_ROLE, "instanceProfile": "a-profile"}),
    "image parameter": ("amiSelectorTerms", [{"ssmParameter": "a/image"}]),
    "public parameter": ("amiSelectorTerms", [{"ssmParameter": "/aws/service/eks/optimized-ami/1.33/image_id"}]),
    "public parameter by ARN": (
        "amiSelectorTerms",
        [{"ssmParameter": "arn:aws:ssm:us-east-1::parameter/aws/service/eks/optimized-ami/1.33/image_id"}],
    ),
    "image owner": ("amiSelectorTerms", [{"name": "a-*", "owner": "111111111111"}]),
    "volume key": ("blockDeviceMappings", volume(kmsKeyID="alias/a")),
    "default key": ("blockDeviceMappings", volume()),
    "snapshot": ("blockDeviceMappings", volume(snapshotID="snap-0a")),
    "subnet": ("subnetSelectorTerms", [{"id": "subnet-0a"}]),
    "reservation": ("capacityReservationSelectorTerms", [{"id": "cr-0a"}]),
    "placement group": ("placementGroupSelector", {"id": "pg-0a"}),
    "placement group by name": ("placementGroupSelector", {"name": "any"}),
    "tag": ("tags", {"team": "b", "karpenter.sh/discovery": "b"}),
}


@pytest.mark.parametrize(("field", "value"), ALLOWED.values(), ids=ALLOWED)
def test_what_is_listed_is_allowed(field: str, value: Any) -> None:
    assert problems(changed(EC2_NODE_CLASS, f"spec.{field}" if field else "spec", value)) == ([], [])


def test_without_lists_nothing_may_be_named_but_selectors_are_free() -> None:
    data = changed(EC2_NODE_CLASS, "spec.subnetSelectorTerms", [{"id": "subnet-0b"}])
    assert problems(data, AllowedResources()) == (
        ["spec.role"],
        ["node is not allowed in this cluster: nodeRoles of the cluster in shiplap.yaml lists nothing"],
    )


CANNOT_REACH_ANOTHER_CLUSTER = {
    "ami_family",
    "associate_public_ip_address",
    "connection_tracking",
    "context",
    "cpu_options",
    "detailed_monitoring",
    "enclave_options",
    "instance_store_policy",
    "ip_prefix_count",
    "kubelet",
    "metadata_options",
    "network_interfaces",
    "user_data",
}
"""They say how an instance is made, not with what of others. User data is run by whoever may write it, as root."""


def test_every_field_is_looked_at() -> None:
    wire = dict(zip(EC2NodeClassSpec.__struct_fields__, EC2NodeClassSpec.__struct_encode_fields__, strict=True))
    tried = {field for field, *_ in OF_B.values()} | {"instanceProfile"}
    assert {name for name in wire if wire[name] not in tried} == CANNOT_REACH_ANOTHER_CLUSTER


def test_what_ec2_answers_is_bounded_where_a_list_says_so() -> None:
    assert outside(["subnet-0b", "subnet-0a"], OWN.subnets) == ("subnet-0b",)
    assert outside(["subnet-0b"], ()) == ()


def problems(data: dict[str, Any], allowed: AllowedResources = OWN) -> tuple[list[str], list[str]]:
    node_class = msgspec.convert(data, EC2NodeClass)
    found = list(allowed.problems_of(node_class))
    return [field_name(path) for path, _ in found], [reason for _, reason in found]

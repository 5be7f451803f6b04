"""AMIs of an EC2NodeClass and what is learned of them: scenarios 93 to 99 of the AWS reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from botocore.exceptions import ClientError

from shiplap.aws.selectors.ami_aliases import ami_variants
from shiplap.aws.selectors.amis import AmiResolver
from shiplap.aws.selectors.parameters import Parameters
from shiplap.errors import AwsError, NodeClassNotReady
from shiplap.instances.capacity.capacity_setting import CapacitySetting
from shiplap.instances.catalog.resolved_nodeclass import Ami, ResolvedNodeClass
from shiplap.instances.catalog.type_catalog import InstanceType, LearnedCapacity, Observation
from shiplap.instances.resolve import instance_types
from shiplap.manifests.custom_resources import AmiSelectorTerm, EC2NodeClass
from tests.builders.node_classes import node_class
from tests.conformance.given_aws import SUBNETS
from tests.conformance.real_types import catalog

MIB = 2**20
OLD, NEW = "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"


def image(number: int, architecture: str = "x86_64", created: str = OLD, **fields: str) -> dict[str, Any]:
    identity = {"ImageId": f"ami-{number}", "Name": f"image-{number}"}
    return {**identity, "Architecture": architecture, "CreationDate": created, **fields}


class Aws:
    """EC2 with some images and SSM with some parameters; remembers what it was asked."""

    def __init__(self, *images: Mapping[str, Any], parameters: Mapping[str, str] | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self.denied = False
        self._images = images
        self._parameters = dict(parameters or {})

    def get_paginator(self, operation: str) -> Aws:
        assert operation == "describe_images"
        return self

    def paginate(self, **request: Any) -> list[dict[str, Any]]:
        self.asked.append(request)
        wanted = {item["Name"]: item["Values"] for item in request["Filters"]}
        ids = wanted.get("image-id")
        return [{"Images": [item for item in self._images if ids is None or item["ImageId"] in ids]}]

    def get_parameters(self, *, Names: Sequence[str]) -> dict[str, Any]:  # noqa: N803
        if self.denied:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetParameters")
        return {
            "Parameters": [
                {"Name": name, "Value": self._parameters[name]} for name in Names if name in self._parameters
            ]
        }

    def resolve(self, *terms: AmiSelectorTerm, version: str = "1.34") -> tuple[Ami, ...]:
        resolver = AmiResolver(self, Parameters(lambda: self, lambda: 0.0), lambda: 1_760_000_000.0)  # type: ignore[arg-type, return-value]
        made = msgspec.structs.replace(node_class().spec, ami_selector_terms=terms)
        return resolver.resolve(EC2NodeClass(node_class().metadata, made), version)


def names_of(alias: str) -> list[str]:
    return [variant.parameter for variant in ami_variants(alias, "1.34")]


def test_93_parameters_that_do_not_exist_leave_the_other_images() -> None:
    standard, nvidia, neuron, arm, _ = names_of("al2023@latest")
    aws = Aws(image(1), image(2, "arm64"), parameters={standard: "ami-1", arm: "ami-2"})
    found = aws.resolve(AmiSelectorTerm(alias="al2023@latest"))
    assert [ami.id for ami in found] == ["ami-1", "ami-2"]
    assert nvidia != neuron


def test_93_without_any_parameter_there_is_no_image() -> None:
    with pytest.raises(NodeClassNotReady) as raised:
        Aws(image(1)).resolve(AmiSelectorTerm(alias="al2023@latest"))
    assert raised.value.code == "AMINotFound"


@pytest.mark.parametrize(
    ("term", "owners"),
    [
        (AmiSelectorTerm(name="my-*"), ["self", "amazon"]),
        (AmiSelectorTerm(name="my-*", owner="123456789012"), ["123456789012"]),
        (AmiSelectorTerm(id="ami-1"), None),
        (AmiSelectorTerm(tags={"use": "nodes"}), None),
        (AmiSelectorTerm(owner="123456789012"), ["123456789012"]),
    ],
)
def test_95_whose_images_are_looked_for(term: AmiSelectorTerm, owners: list[str] | None) -> None:
    aws = Aws(image(1))
    aws.resolve(term)
    (asked,) = aws.asked
    assert asked.get("Owners") == owners
    assert asked["IncludeDeprecated"] is True


def test_95_ids_share_one_request() -> None:
    aws = Aws(image(1), image(2, "arm64"))
    aws.resolve(AmiSelectorTerm(id="ami-2"), AmiSelectorTerm(id="ami-1"))
    (asked,) = aws.asked
    assert {"Name": "image-id", "Values": ["ami-1", "ami-2"]} in asked["Filters"]


def test_97_a_parameter_of_ones_own() -> None:
    aws = Aws(image(1), parameters={"/own/ami": "ami-1"})
    assert [ami.id for ami in aws.resolve(AmiSelectorTerm(ssm_parameter="/own/ami"))] == ["ami-1"]
    both = (AmiSelectorTerm(ssm_parameter="/own/ami"), AmiSelectorTerm(ssm_parameter="/not/there"))
    assert [ami.id for ami in aws.resolve(*both)] == ["ami-1"]
    aws.denied = True
    with pytest.raises(AwsError) as raised:
        aws.resolve(AmiSelectorTerm(ssm_parameter="/own/ami"))
    assert raised.value.code == "AccessDeniedException"


def test_images_without_a_usable_architecture_are_none() -> None:
    """From the reference's rules of DescribeImages, not a numbered scenario."""
    with pytest.raises(NodeClassNotReady, match="no image that a node can run"):
        Aws(image(1, "i386"), image(2, "x86_64_mac")).resolve(AmiSelectorTerm(tags={"use": "nodes"}))


def test_the_best_of_equal_images_counts_and_the_newest_comes_first() -> None:
    """From the reference's rules of DescribeImages; deprecated images come last, which upstream leaves to their age."""
    aws = Aws(
        image(1, created=OLD),
        image(2, created=NEW, DeprecationTime=OLD),
        image(3, "arm64", created=NEW, DeprecationTime=OLD),
    )
    found = aws.resolve(AmiSelectorTerm(tags={"use": "nodes"}))
    assert [(ami.id, ami.deprecated) for ami in found] == [("ami-1", False), ("ami-3", True)]


@pytest.mark.parametrize(
    ("alias", "version", "reason"),
    [("al2@latest", "1.33", "al2023"), ("windows2025@latest", "1.34", "1.35")],
)
def test_aliases_that_a_version_does_not_have(alias: str, version: str, reason: str) -> None:
    """From the reference's guards of aliases, not a numbered scenario."""
    with pytest.raises(NodeClassNotReady, match=reason) as raised:
        Aws().resolve(AmiSelectorTerm(alias=alias), version=version)
    assert raised.value.code == "UnsupportedAlias"


# What is learned


def ami(number: int, *requirements: tuple[str, str, tuple[str, ...]]) -> Ami:
    return Ami(f"ami-{number}", "x", NEW, requirements=(("kubernetes.io/arch", "In", ("amd64",)), *requirements))


def t3_medium(*amis: Ami, learned: tuple[LearnedCapacity, ...] = ()) -> InstanceType:
    resolved = ResolvedNodeClass("default", "AL2023", amis, SUBNETS, ("sg-1",), "nodes")
    whole = catalog()
    kept = tuple(kind for kind in whole.types if kind.instance_type == "t3.medium")
    (found,) = instance_types(
        msgspec.structs.replace(whole, types=kept),
        node_class(),
        CapacitySetting(),
        resolved=resolved,
        learned=learned,
        unavailable=(),
    )
    return found


def reported(of: InstanceType, memory_mib: int) -> tuple[LearnedCapacity, ...]:
    amounts = {"memory": memory_mib * MIB}
    seen = Observation(of.ami, of.name, of.kubelet_hash, amounts, amounts, 1_700_000_000.0, "demo", "node")
    return (LearnedCapacity(of.ami, of.name, of.kubelet_hash, (seen,), 1),)


def test_99_what_a_node_reported_holds_for_its_ami_alone() -> None:
    before = t3_medium(ami(1))
    learned = reported(before, 3840)
    assert t3_medium(ami(1), learned=learned).capacity["memory"] == 3840 * MIB
    assert t3_medium(ami(2), learned=learned).capacity["memory"] == before.capacity["memory"] == 3788 * MIB


def test_99_an_ami_second_in_the_list_learns_all_the_same() -> None:
    gpu = ami(1, ("karpenter.k8s.aws/instance-gpu-count", "Exists", ()))
    before = t3_medium(gpu, ami(2))
    assert before.ami == "ami-2"
    assert t3_medium(gpu, ami(2), learned=reported(before, 4096)).capacity["memory"] == 4096 * MIB

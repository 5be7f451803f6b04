"""Tests the images that the terms of an EC2NodeClass select, their owners, and which image comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from shiplap.aws.selectors.amis import AmiResolver, ordered_amis
from shiplap.aws.selectors.node_classes import within_allowed
from shiplap.aws.selectors.parameters import Parameters
from shiplap.errors import NodeClassNotReady
from shiplap.instances.catalog.resolved_nodeclass import Ami, NodeClassProblem, Subnet
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import EC2NodeClass

NOW = 1_767_225_600.0  # 2026-01-01


class Ec2:
    """Images that are described, whatever is asked; it notes what was asked."""

    def __init__(self, *images: Mapping[str, Any]) -> None:
        self._images = images
        self.asked: list[dict[str, Any]] = []

    def get_paginator(self, operation: str) -> Any:
        assert operation == "describe_images"
        outer = self

        class _Paginator:
            def paginate(self, **options: Any) -> list[dict[str, Any]]:
                outer.asked.append(options)
                wanted = next((item["Values"] for item in options["Filters"] if item["Name"] == "image-id"), None)
                found = [image for image in outer._images if wanted is None or image["ImageId"] in wanted]
                return [{"Images": found[:1]}, {"Images": found[1:]}]

        return _Paginator()


class Ssm:
    def __init__(self, **values: str) -> None:
        self._values = values
        self.asked: list[list[str]] = []

    def get_parameters(self, Names: list[str]) -> dict[str, Any]:  # noqa: N803 - SSM's name
        self.asked.append(Names)
        return {"Parameters": [{"Name": name, "Value": self._values[name]} for name in Names if name in self._values]}


def image(name: str, architecture: str = "x86_64", **fields: Any) -> dict[str, Any]:
    created = fields.pop("created", "2025-01-01T00:00:00Z")
    return {"ImageId": name, "Name": f"image {name}", "Architecture": architecture, "CreationDate": created, **fields}


def select(*terms: Mapping[str, Any], ec2: Ec2, ssm: Ssm | None = None, owners: Sequence[str] = ()) -> tuple[Ami, ...]:
    body = {"metadata": {"name": "d"}, "spec": {"amiFamily": "AL2023", "amiSelectorTerms": list(terms)}}
    parameters = Parameters(lambda: ssm or Ssm(), lambda: NOW)  # type: ignore[arg-type, return-value]
    resolver = AmiResolver(ec2, parameters, lambda: NOW, owners)  # type: ignore[arg-type]
    return resolver.resolve(msgspec.convert(body, EC2NodeClass), "1.33")


def test_images_are_asked_for_by_id_among_those_that_are_available() -> None:
    ec2 = Ec2(image("ami-2"), image("ami-1", "arm64"), image("ami-3"))
    found = select({"id": "ami-2"}, {"id": "ami-1"}, {"id": "ami-2"}, ec2=ec2)
    assert [item.id for item in found] == ["ami-1", "ami-2"]
    assert [item.requirements for item in found] == [
        ((labels.ARCH, "In", ("arm64",)),),
        ((labels.ARCH, "In", ("amd64",)),),
    ]
    (asked,) = ec2.asked
    assert asked["Filters"] == [
        {"Name": "image-id", "Values": ["ami-1", "ami-2"]},
        {"Name": "state", "Values": ["available"]},
    ]
    assert asked["IncludeDeprecated"] is True
    assert "Owners" not in asked


@pytest.mark.parametrize(
    ("term", "allowed", "owners"),
    [
        ({"name": "mine-*"}, (), ["self", "amazon"]),
        ({"name": "mine-*", "owner": "123"}, (), ["123"]),
        ({"tags": {"team": "a"}}, (), None),
        ({"tags": {"team": "a"}, "owner": "self"}, (), ["self"]),
        ({"name": "mine-*"}, ("self", "123"), ["self", "123"]),
        ({"name": "mine-*", "owner": "123"}, ("self", "123"), ["123"]),
        ({"name": "mine-*", "owner": "999"}, ("self", "123"), "nothing"),
        ({"tags": {"team": "a"}}, ("self",), ["self"]),
        ({"id": "ami-1"}, ("self",), ["self"]),
    ],
)
def test_whose_images_are_looked_for(term: Mapping[str, Any], allowed: Sequence[str], owners: Any) -> None:
    ec2 = Ec2(image("ami-1"))
    if owners == "nothing":
        with pytest.raises(NodeClassNotReady) as told:
            select(term, ec2=ec2, owners=allowed)
        assert told.value.code == "AMINotFound"
        assert ec2.asked == []
        return
    assert [item.id for item in select(term, ec2=ec2, owners=allowed)] == ["ami-1"]
    assert ec2.asked[0].get("Owners") == owners
    names = {item["Name"]: item["Values"] for item in ec2.asked[0]["Filters"]}
    assert names["state"] == ["available"]
    if "name" in term:
        assert names["name"] == ["mine-*"]
    if "tags" in term:
        assert names["tag:team"] == ["a"]


def test_a_parameter_names_an_image_and_those_that_do_not_exist_are_left_out() -> None:
    ssm = Ssm(mine="ami-1")
    found = select({"ssmParameter": "mine"}, {"ssmParameter": "gone"}, ec2=Ec2(image("ami-1")), ssm=ssm)
    assert [item.id for item in found] == ["ami-1"]
    assert ssm.asked == [["mine", "gone"]]


def test_parameters_are_read_ten_at_a_time() -> None:
    values = {f"p{number:02}": "ami-1" for number in range(23)}
    ssm = Ssm(**values)
    select(*({"ssmParameter": name} for name in values), ec2=Ec2(image("ami-1")), ssm=ssm)
    assert [len(names) for names in ssm.asked] == [10, 10, 3]


@pytest.mark.parametrize("odd", [image("ami-1", "i386"), {"ImageId": "ami-1"}])
def test_an_image_that_no_node_can_run_is_left_out(odd: Mapping[str, Any]) -> None:
    with pytest.raises(NodeClassNotReady, match="EC2NodeClass d: amiSelectorTerms match no image that a node can run"):
        select({"id": "ami-1"}, ec2=Ec2(odd))


@pytest.mark.parametrize(
    ("at", "deprecated"),
    [("", False), ("2025-12-31T23:59:59Z", True), ("2026-01-01T00:00:00Z", True), ("2026-01-01T00:00:01Z", False)],
)
def test_an_image_is_deprecated_from_its_time_on(at: str, deprecated: bool) -> None:
    fields = {"DeprecationTime": at} if at else {}
    (found,) = select({"id": "ami-1"}, ec2=Ec2(image("ami-1", **fields)))
    assert found == Ami("ami-1", "image ami-1", "2025-01-01T00:00:00Z", deprecated, ((labels.ARCH, "In", ("amd64",)),))


def ami(name: str, created: str = "2025", *, arch: str = "amd64", deprecated: bool = False, shown: str = "n") -> Ami:
    return Ami(name, shown, created, deprecated, ((labels.ARCH, "In", (arch,)),))


@pytest.mark.parametrize(
    ("amis", "order"),
    [
        ([ami("a", "2024"), ami("b", "2025")], ["b"]),
        ([ami("a", "2025", deprecated=True), ami("b", "2024")], ["b"]),
        ([ami("a", shown="x"), ami("b", shown="w")], ["a"]),
        ([ami("a"), ami("b")], ["b"]),
        ([ami("a", "2024"), ami("b", "2025", arch="arm64")], ["b", "a"]),
        ([ami("a", "2025", deprecated=True), ami("b", "2024", arch="arm64")], ["b", "a"]),
        ([ami("b"), ami("a", arch="arm64")], ["a", "b"]),
    ],
)
def test_one_image_is_kept_for_each_set_of_requirements_the_best_first(amis: list[Ami], order: list[str]) -> None:
    assert [item.id for item in ordered_amis(amis)] == order
    assert [item.id for item in ordered_amis(amis[::-1])] == order


@pytest.mark.parametrize(
    ("allowed", "kept", "text"),
    [
        ((), ["a", "b"], ""),
        (("a", "b", "c"), ["a", "b"], ""),
        (("a",), [], "selects b, which shiplap.yaml does not allow in this cluster"),
        (("c",), [], "selects a, b, which shiplap.yaml does not allow in this cluster"),
    ],
)
def test_a_selector_that_matches_anything_forbidden_matches_nothing(
    allowed: Sequence[str], kept: list[str], text: str
) -> None:
    problems: list[NodeClassProblem] = []
    matched = within_allowed((Subnet("a", "z"), Subnet("b", "z")), allowed, "SubnetsReady", problems)
    assert [item.id for item in matched] == kept
    assert problems == ([NodeClassProblem("SubnetsReady", "NotAllowed", text)] if text else [])
    assert within_allowed(None, allowed, "SubnetsReady", []) == ()

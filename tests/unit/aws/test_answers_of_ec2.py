"""Tests the reading of EC2's answers: order, bounds and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from shiplap.aws.ec2.launch_templates import MOST_AT_ONCE, UNUSED_FOR_S, sweep_templates
from shiplap.aws.selectors.amis import epoch_of
from shiplap.aws.selectors.network import security_groups, subnets
from shiplap.manifests.custom_resources import EC2NodeClass

NOW = 1_800_000_000.0
NODE_CLASS = msgspec.convert(
    {"metadata": {"name": "default"}, "spec": {"subnetSelectorTerms": [{"tags": {"a": "b"}}]}}, EC2NodeClass
)


class Pages:
    """A client whose paginators answer one page each; `deleted` are launch templates that it was told to delete."""

    def __init__(self, **answers: Mapping[str, Sequence[Any]]) -> None:
        self._answers = answers
        self.deleted: list[str] = []
        self.filters: dict[str, dict[str, list[str]]] = {}

    def get_paginator(self, operation: str) -> Any:
        answer, asked = self._answers[operation], self.filters

        class _Paginator:
            def paginate(self, **options: Any) -> list[Any]:
                asked[operation] = {item["Name"]: sorted(item["Values"]) for item in options["Filters"]}
                return [answer]

        return _Paginator()

    def delete_launch_template(self, LaunchTemplateId: str) -> None:  # noqa: N803 - EC2's name
        self.deleted.append(LaunchTemplateId)


def subnet(name: str, free: int) -> dict[str, Any]:
    return {"SubnetId": name, "AvailabilityZone": "z1", "AvailabilityZoneId": "1", "AvailableIpAddressCount": free}


def test_the_emptiest_subnet_comes_first_and_the_name_decides_among_equals() -> None:
    answer = {"Subnets": [subnet("c", 5), subnet("b", 90), subnet("a", 5), subnet("d", 0)]}
    found = subnets(Pages(describe_subnets=answer), NODE_CLASS)  # type: ignore[arg-type]
    assert [(item.id, item.free_ips) for item in found] == [("b", 90), ("a", 5), ("c", 5), ("d", 0)]


def template(number: int, age_s: float) -> dict[str, Any]:
    return {"LaunchTemplateId": f"lt-{number:02}", "CreateTime": datetime.fromtimestamp(NOW - age_s, UTC), "Tags": []}


def test_a_sweep_deletes_the_oldest_unused_templates_and_no_more_than_a_few() -> None:
    old = [template(number, UNUSED_FOR_S + 100 - number) for number in range(MOST_AT_ONCE + 3)]
    young = template(99, UNUSED_FOR_S - 1)
    used = {"Tags": [{"Key": "aws:ec2launchtemplate:id", "Value": "lt-01"}]}
    ec2 = Pages(
        describe_launch_templates={"LaunchTemplates": [young, *reversed(old)]},
        describe_instances={"Reservations": [{"Instances": [used]}]},
    )
    assert sweep_templates(ec2, "demo", NOW) == MOST_AT_ONCE  # type: ignore[arg-type]
    names = [item["LaunchTemplateId"] for item in old if item["LaunchTemplateId"] != "lt-01"]
    assert ec2.deleted == names[:MOST_AT_ONCE]
    owned = {
        "tag:kubernetes.io/cluster/demo": ["owned"],
        "tag:shiplap.dev/cluster": ["demo"],
        "tag-key": ["shiplap.dev/nodepool"],
    }
    assert ec2.filters["describe_launch_templates"] == owned
    # A stopped instance keeps its template: whoever starts it again may look it up.
    alive = {"instance-state-name": ["pending", "running", "stopped", "stopping"]}
    assert ec2.filters["describe_instances"] == owned | alive


def test_a_time_without_a_zone_is_utc() -> None:
    assert epoch_of("2026-01-01T00:00:00") == epoch_of("2026-01-01T00:00:00Z") == 1_767_225_600.0
    assert epoch_of("2026-01-01T00:00:00+01:00") == 1_767_225_600.0 - 3600


@pytest.mark.parametrize(
    ("age_s", "deleted"), [(UNUSED_FOR_S - 1, []), (UNUSED_FOR_S, []), (UNUSED_FOR_S + 1, ["lt-07"])]
)
def test_a_template_is_left_alone_until_it_is_old(age_s: float, deleted: list[str]) -> None:
    ec2 = Pages(
        describe_launch_templates={"LaunchTemplates": [template(7, age_s)]}, describe_instances={"Reservations": []}
    )
    assert sweep_templates(ec2, "demo", NOW) == len(deleted)  # type: ignore[arg-type]
    assert ec2.deleted == deleted


def test_security_groups_are_asked_for_by_id_by_tags_and_by_name() -> None:
    asked: list[list[tuple[str, list[str]]]] = []

    class Groups:
        def get_paginator(self, operation: str) -> Any:
            assert operation == "describe_security_groups"
            return self

        def paginate(self, *, Filters: Sequence[Mapping[str, Any]]) -> list[Any]:  # noqa: N803 - EC2's name
            asked.append([(item["Name"], list(item["Values"])) for item in Filters])
            return [{"SecurityGroups": [{"GroupId": f"sg-{9 - len(asked)}", "GroupName": "g"}]}]

    terms = [{"id": "sg-b"}, {"name": "nodes"}, {"tags": {"team": "a"}}, {"id": "sg-a"}]
    written = {"metadata": {"name": "default"}, "spec": {"securityGroupSelectorTerms": terms}}
    found = security_groups(Groups(), msgspec.convert(written, EC2NodeClass))  # type: ignore[arg-type]
    assert asked == [[("group-id", ["sg-a", "sg-b"])], [("tag:team", ["a"])], [("group-name", ["nodes"])]]
    assert [group.id for group in found] == ["sg-6", "sg-7", "sg-8"]

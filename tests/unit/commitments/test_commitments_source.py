"""Tests the choice of the account's commitments to count on, and of foreign instances: one odd item at a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from shiplap.aws import tags
from shiplap.aws.policies.commitments_source import AwsCommitments
from shiplap.policies.commitments.account_commitments import AccountCommitments, InstanceUse

REGION, NOW = "eu-west-1", 1_800_000_000.0
END = datetime(2028, 1, 1, tzinfo=UTC)
PLAN = {"savingsPlanId": "p", "savingsPlanType": "Compute", "commitment": "1.5", "end": "2028-01-01T00:00:00.000Z"}
RESERVED = {
    "ReservedInstancesId": "r",
    "InstanceType": "m5.large",
    "InstanceCount": 2,
    "End": END,
    "ProductDescription": "Linux/UNIX",
}
INSTANCE = {"InstanceType": "m5.large", "Placement": {"AvailabilityZone": "a"}}


class _Account:
    """Clients of EC2 and of Savings Plans that answer from lists; Savings Plans show `page` items at a time."""

    def __init__(self, page: int = 100) -> None:
        self.plans: list[dict[str, Any]] = []
        self.rates: dict[str, list[dict[str, Any]]] = {}
        self.reserved: list[dict[str, Any]] = []
        self.pages: list[list[list[dict[str, Any]]]] = []
        self._page = page
        self.asked: set[str] = set()

    def describe_savings_plans(self, *, states: list[str], **request: Any) -> dict[str, Any]:
        assert states == ["active"]
        self.asked.add("describe_savings_plans")
        return self._some("savingsPlans", self.plans, **request)

    def describe_savings_plan_rates(self, *, savingsPlanId: str, filters: Any, **request: Any) -> dict[str, Any]:  # noqa: N803
        wanted = {"region": REGION, "productDescription": "Linux/UNIX", "tenancy": "shared", "serviceCode": "AmazonEC2"}
        assert {item["name"]: item["values"] for item in filters} == {name: [value] for name, value in wanted.items()}
        return self._some("searchResults", self.rates.get(savingsPlanId, []), **request)

    def _some(self, key: str, items: list[Any], *, maxResults: int, nextToken: str = "0") -> dict[str, Any]:  # noqa: N803
        assert maxResults > 0
        first, after = int(nextToken), int(nextToken) + self._page
        return {key: items[first:after]} | ({"nextToken": str(after)} if after < len(items) else {})

    def describe_reserved_instances(self, **request: Any) -> dict[str, Any]:
        assert request == {"Filters": [{"Name": "state", "Values": ["active"]}]}
        self.asked.add("describe_reserved_instances")
        return {"ReservedInstances": self.reserved}

    def get_paginator(self, operation: str) -> _Account:
        assert operation == "describe_instances"
        self.asked.add(operation)
        return self

    def paginate(self, *, Filters: list[dict[str, Any]], **_: Any) -> Iterator[dict[str, Any]]:  # noqa: N803
        wanted = {"instance-state-name": ["pending", "running"], "tenancy": ["default"]}
        assert {item["Name"]: item["Values"] for item in Filters} == wanted
        return ({"Reservations": [{"Instances": lot} for lot in page]} for page in self.pages)

    def described(self, *, others_alone: bool = False) -> AccountCommitments:
        client: Any = self
        source = AwsCommitments(REGION, "shiplap", ec2=client, savings_plans=client, clock=lambda: NOW)
        return source.describe(others_alone=others_alone)


def rate(usage: str, name: str, dollars: str = "0.0715") -> dict[str, Any]:
    return {"rate": dollars, "usageType": usage, "properties": [{"name": "instanceType", "value": name}]}


@pytest.mark.parametrize(
    ("usage", "name", "counts"),
    [
        ("EUW1-BoxUsage:m5.large", "m5.large", True),
        ("BoxUsage:m5.large", "m5.large", True),
        ("EUW1-BoxUsage:c7i-flex.large", "c7i-flex.large", True),
        ("BoxUsage:c7i-flex.large", "c7i-flex.large", True),
        ("EUW1-BoxUsage:u-6tb1.56xlarge", "u-6tb1.56xlarge", True),
        ("EUW1-BoxUsage:m7i.metal-24xl", "m7i.metal-24xl", True),
        ("EUW1-UnusedBox:m5.large", "m5.large", False),
        ("EUW1-DedicatedUsage:m5.large", "m5.large", False),
        ("EUW1-UnusedDed:c7i-flex.large", "c7i-flex.large", False),
    ],
)
def test_rates_are_those_of_running_instances_whatever_the_name_of_their_type(
    usage: str, name: str, counts: bool
) -> None:
    account = _Account()
    account.plans, account.rates = [PLAN], {"p": [rate(usage, name)]}
    (plan,) = account.described().savings_plans
    assert plan.rates == ({name: 71_500} if counts else {})


def test_a_rate_without_a_type_is_left_out_and_types_are_sorted_over_pages() -> None:
    account = _Account(page=1)
    nameless = {"rate": "1", "usageType": "EUW1-BoxUsage:m5.large", "properties": [{"name": "region", "value": REGION}]}
    account.plans = [PLAN | {"savingsPlanId": name} for name in ("z", "p")]
    account.rates = {
        "p": [rate("EUW1-BoxUsage:m5.large", "m5.large"), nameless, rate("EUW1-BoxUsage:c5.large", "c5.large", "0.06")],
        "z": [rate("EUW1-BoxUsage:r5.large", "r5.large", "0.000001")],
    }
    plans = account.described().savings_plans
    assert [(plan.id, list(plan.rates.items())) for plan in plans] == [
        ("p", [("c5.large", 60_000), ("m5.large", 71_500)]),
        ("z", [("r5.large", 1)]),
    ]


@pytest.mark.parametrize(
    ("fields", "family", "reason"),
    [
        ({}, "", ""),
        ({"currency": "USD"}, "", ""),
        ({"currency": "CNY"}, "", "it is in CNY"),
        ({"region": "us-east-1"}, "", ""),
        ({"savingsPlanType": "EC2Instance", "region": REGION, "ec2InstanceFamily": "m5"}, "m5", ""),
        ({"savingsPlanType": "EC2Instance", "region": "us-east-1"}, "", "it is for us-east-1"),
        ({"savingsPlanType": "EC2Instance", "region": REGION, "currency": "CNY"}, "", "it is in CNY"),
        ({"savingsPlanType": "SageMaker"}, "", "Savings Plans of type SageMaker pay for no instances of nodes"),
    ],
)
def test_savings_plans_that_count_and_those_that_do_not(fields: dict[str, Any], family: str, reason: str) -> None:
    account = _Account()
    account.plans = [PLAN | fields, PLAN | {"savingsPlanId": "a"}]
    known = account.described()
    found = [(plan.family, plan.commitment, plan.ends_at) for plan in known.savings_plans]
    assert found == [("", 1_500_000, END.timestamp())] + ([] if reason else [(family, 1_500_000, END.timestamp())])
    assert [(item.id, item.reason) for item in known.left_out] == ([("p", reason)] if reason else [])


@pytest.mark.parametrize(
    ("fields", "zone", "reason"),
    [
        ({}, "", ""),
        ({"Scope": "Region"}, "", ""),
        ({"Scope": "Region", "AvailabilityZone": "a"}, "", ""),
        ({"Scope": "Availability Zone", "AvailabilityZone": "a"}, "a", ""),
        ({"ProductDescription": "Linux/UNIX (Amazon VPC)", "InstanceTenancy": "default"}, "", ""),
        ({"ProductDescription": "Red Hat Enterprise Linux"}, "", "it is for Red Hat Enterprise Linux"),
        ({"InstanceTenancy": "dedicated"}, "", "it is for dedicated tenancy"),
        ({"ProductDescription": "Windows", "InstanceTenancy": "dedicated"}, "", "it is for Windows"),
    ],
)
def test_reserved_instances_that_count_and_those_that_do_not(fields: dict[str, Any], zone: str, reason: str) -> None:
    account = _Account()
    account.reserved = [RESERVED | fields, RESERVED | {"ReservedInstancesId": "first", "InstanceCount": 1}]
    known = account.described()
    found = [(item.id, item.instance_type, item.count, item.ends_at, item.zone) for item in known.reserved_instances]
    usual = ("first", "m5.large", 1, END.timestamp(), "")
    assert found == [usual] + ([] if reason else [("r", "m5.large", 2, END.timestamp(), zone)])
    assert [(item.id, item.reason) for item in known.left_out] == ([("r", reason)] if reason else [])


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, True),
        ({"Tags": []}, True),
        ({"Tags": [{"Key": tags.INSTALL, "Value": "another"}]}, True),
        ({"Tags": [{"Key": tags.CLUSTER, "Value": "shiplap"}]}, True),
        ({"Tags": [{"Key": "team", "Value": "x"}, {"Key": tags.INSTALL, "Value": "shiplap"}]}, False),
        ({"InstanceLifecycle": "spot"}, False),
        ({"InstanceLifecycle": "scheduled"}, False),
        ({"InstanceLifecycle": "spot", "Tags": [{"Key": tags.INSTALL, "Value": "another"}]}, False),
    ],
)
def test_instances_of_others_run_on_demand_and_are_not_ours(fields: dict[str, Any], counts: bool) -> None:
    account = _Account()
    account.pages = [[[INSTANCE | fields]]]
    assert account.described().others == ((InstanceUse("m5.large", "a", 1),) if counts else ())


def test_of_others_alone_neither_plans_nor_reserved_instances_are_asked_for() -> None:
    account = _Account()
    account.plans, account.reserved, account.pages = [PLAN], [RESERVED], [[[INSTANCE]]]
    found = account.described(others_alone=True)
    assert found == AccountCommitments(REGION, NOW, others=(InstanceUse("m5.large", "a", 1),))
    assert account.asked == {"describe_instances"}


def test_what_runs_in_a_capacity_reservation_has_no_zone_as_zonal_ones_do_not_pay_for_it() -> None:
    account = _Account()
    account.pages = [[[INSTANCE | {"CapacityReservationId": "cr-1"}, INSTANCE]]]
    assert account.described().others == (InstanceUse("m5.large", "", 1), InstanceUse("m5.large", "a", 1))


def test_all_instances_of_all_launches_and_pages_count() -> None:
    account, elsewhere = _Account(), INSTANCE | {"Placement": {"AvailabilityZone": "b"}}
    account.pages = [[[elsewhere, INSTANCE], [INSTANCE]], [], [[INSTANCE]]]
    known = account.described()
    assert known.others == (InstanceUse("m5.large", "a", 3), InstanceUse("m5.large", "b", 1))
    assert (known.region, known.fetched_at) == (REGION, NOW)

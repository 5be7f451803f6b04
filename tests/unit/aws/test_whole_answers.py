"""Answers of AWS that come in pages are read to their end, and what decisions depend on is read consistently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from shiplap.aws import tags
from shiplap.aws.dynamodb.items import get, get_all, query, scan, text
from shiplap.aws.dynamodb.join_log import DynamoJoins
from shiplap.aws.ec2.ec2_compute import Ec2Compute, images
from shiplap.errors import AwsError
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec, Manifests
from shiplap.ports import FleetRequest, OfferingFailure
from shiplap.settings import ClusterSettings
from tests.builders.claims import node_claim

STATES = ("pending", "running", "shutting-down", "stopping", "stopped", "terminated")


def instance(instance_id: str, state: str = "running", **fields: Any) -> dict[str, Any]:
    own = {tags.CLUSTER: "demo", tags.INSTALL: "shiplap", tags.LAUNCH: "launch"}
    return {
        "InstanceId": instance_id,
        "InstanceType": "m6i.large",
        "ImageId": f"ami-of-{instance_id}",
        "State": {"Name": state},
        "LaunchTime": datetime(2026, 1, 1, tzinfo=UTC),
        "Tags": [{"Key": key, "Value": value} for key, value in own.items()],
        **fields,
    }


class Ec2:
    """EC2 with some instances: one reservation each, two in a page, filtered by id and state."""

    def __init__(self, *instances: dict[str, Any], fleets: Sequence[dict[str, Any]] = ()) -> None:
        self._instances, self._fleets = instances, fleets
        self.asked_to_end: list[tuple[str, ...]] = []
        self.refusals: dict[str, Exception] = {}

    def get_paginator(self, operation: str) -> Any:
        assert operation == "describe_instances"
        return SimpleNamespace(paginate=self._paginate)

    def describe_instances(self, *, Filters: Sequence[Mapping[str, Any]]) -> dict[str, Any]:  # noqa: N803
        return {"Reservations": [{"Instances": [*self._matching(Filters)]}]}

    def describe_fleets(self, *, FleetIds: Sequence[str]) -> dict[str, Any]:  # noqa: N803
        return {"Fleets": [item for item in self._fleets if item["FleetId"] in FleetIds]}

    def terminate_instances(self, *, InstanceIds: Sequence[str]) -> None:  # noqa: N803
        self.asked_to_end.append(tuple(InstanceIds))
        for refused, error in self.refusals.items():
            if refused in InstanceIds:
                raise error

    def _paginate(self, *, Filters: Sequence[Mapping[str, Any]], **_: Any) -> Iterable[dict[str, Any]]:  # noqa: N803
        found = [{"Instances": [seen]} for seen in self._matching(Filters)]
        return [{"Reservations": found[start : start + 2]} for start in range(0, len(found), 2)]

    def _matching(self, filters: Sequence[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
        wanted = {item["Name"]: item["Values"] for item in filters}
        for seen in self._instances:
            of_id = seen["InstanceId"] in wanted.get("instance-id", [seen["InstanceId"]])
            if of_id and seen["State"]["Name"] in wanted.get("instance-state-name", STATES):
                yield seen


def compute(*instances: dict[str, Any]) -> Ec2Compute:
    return adapter_on(Ec2(*instances))


def adapter_on(client: Any) -> Ec2Compute:
    settings = ClusterSettings(name="demo", region="eu-west-1", install="shiplap", manifests=Manifests())
    return Ec2Compute(settings, ec2=client, ssm=lambda: client, eks=lambda: client, clock=lambda: 0.0)


def test_the_instances_of_all_pages_are_described() -> None:
    names = [f"i-{number}" for number in range(5)]
    adapter = compute(*map(instance, names))
    assert [found.id for found in adapter.instances("demo")] == names
    assert adapter.other_installs("demo") == {}, "its own is none of them"
    assert [found.id for found in adapter.launched("demo", "launch")] == names
    client: Any = Ec2(*map(instance, names))
    assert images(client, names, {}) == {name: f"ami-of-{name}" for name in names}


@pytest.mark.parametrize("state", STATES)
def test_every_instance_that_has_not_ended_is_described(state: str) -> None:
    """One that is pending is a node soon; one that has stopped still costs its volumes, and may be started."""
    found = compute(instance("i-1", state)).instances("demo")
    assert [item.state for item in found] == ([] if state == "terminated" else [state])


@pytest.mark.parametrize("state", STATES)
def test_why_an_instance_ended_is_told_as_soon_as_it_ends(state: str) -> None:
    reason = {"Code": "Server.SpotInstanceTermination", "Message": "spot took it back"}
    failure = compute(instance("i-1", state, StateReason=reason)).ended("demo", "i-1")
    assert (failure is None) == (state in ("pending", "running"))
    assert failure is None or failure.code == "Server.SpotInstanceTermination"


def test_the_end_of_an_instance_says_all_that_a_refused_launch_would() -> None:
    ended = instance(
        "i-1",
        "terminated",
        StateReason={"Code": "Server.InsufficientInstanceCapacity", "Message": "none left"},
        Placement={"AvailabilityZone": "a", "GroupId": "pg-1"},
        CapacityReservationId="cr-1",
    )
    assert compute(ended).ended("demo", "i-1") == OfferingFailure(
        "m6i.large",
        "a",
        "reserved",
        "Server.InsufficientInstanceCapacity",
        "capacity",
        "none left",
        group="pg-1",
        reservation="cr-1",
    )


@pytest.mark.parametrize(
    ("told", "code", "text"),
    [
        ({}, "", "EC2 gave no reason"),
        ({"StateReason": {"Code": "Client.InternalError"}}, "Client.InternalError", "Client.InternalError"),
        ({"StateTransitionReason": "Server.X: later"}, "Server.X", "Server.X: later"),
        ({"StateReason": {"Message": "Client.Y: no"}}, "Client.Y", "Client.Y: no"),
    ],
)
def test_an_end_that_ec2_says_little_of_keeps_what_it_says(told: dict[str, Any], code: str, text: str) -> None:
    failure = compute(instance("i-1", "terminated", **told)).ended("demo", "i-1")
    assert failure is not None
    assert (failure.code, failure.message) == (code, text)


@pytest.mark.parametrize("activity", ["pending_fulfillment", "pending_termination"])
@pytest.mark.parametrize("tags_of", ["fleet", "others"])
def test_the_outcome_of_a_launch_is_open_while_one_of_its_fleets_is_under_way(activity: str, tags_of: str) -> None:
    fleets = [
        {"FleetId": name, "ActivityStatus": status, "Instances": [], "Errors": []}
        for name, status in (("fleet-1", "fulfilled"), ("fleet-2", activity))
    ]

    class Tagged(Ec2):
        def describe_tags(self, *, Filters: Sequence[Mapping[str, Any]]) -> dict[str, Any]:  # noqa: N803
            assert {item["Name"]: item["Values"] for item in Filters} == {
                "resource-type": ["fleet"],
                "key": [tags.LAUNCH],
                "value": ["launch"],
            }
            number = 2 if tags_of == "fleet" else 1
            return {"Tags": [{"ResourceId": item["FleetId"]} for item in fleets[:number]]}

    answer = adapter_on(Tagged(fleets=fleets))._first_answer(wanted("c"), ())
    assert (answer is None) is (tags_of == "fleet")


def wanted(*names: str) -> FleetRequest:
    return FleetRequest(
        claims=tuple(node_claim(name=name) for name in names),
        node_class=EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec()),
        resolved=SimpleNamespace(subnets=(), group="", security_groups=()),  # type: ignore[arg-type]
        capacity_type="on-demand",
        overrides=(),
        token="launch",
        count=len(names),
    )


def test_which_instances_of_a_fleet_have_ended_is_read_from_all_pages() -> None:
    names = [f"i-{number}" for number in range(5)]
    given = [{"InstanceIds": [name], "InstanceType": "m6i.large", "Lifecycle": "on-demand"} for name in names]
    fleet = {"FleetId": "fleet-1", "ActivityStatus": "fulfilled", "Instances": given, "Errors": []}
    ended = {"i-1": "stopping", "i-2": "stopped", "i-3": "shutting-down", "i-4": "terminated"}
    client: Any = Ec2(*(instance(name, ended.get(name, "pending")) for name in names), fleets=[fleet])
    answer = adapter_on(client)._first_answer(wanted(*names), (), "fleet-1")
    assert answer is not None
    assert [(found.id, found.state, found.install) for found in answer.instances] == [("i-0", "pending", "shiplap")]


class Table:
    """DynamoDB with one table; pages of two items."""

    def __init__(self, items: int) -> None:
        self.items = [{"cluster": text("c"), "item": text(f"{number:03d}")} for number in range(items)]
        self.consistent: list[bool] = []

    def _page(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.consistent.append(request.get("ConsistentRead", False))
        start = request.get("ExclusiveStartKey", 0)
        page = {"Items": self.items[start : start + 2]}
        return page | ({"LastEvaluatedKey": start + 2} if start + 2 < len(self.items) else {})

    def query(self, **request: Any) -> dict[str, Any]:
        return self._page(request)

    def scan(self, **request: Any) -> dict[str, Any]:
        return self._page(request)

    def get_item(self, **request: Any) -> dict[str, Any]:
        self.consistent.append(request.get("ConsistentRead", False))
        return {"Item": self.items[0]}

    def batch_get_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N803
        (request,) = RequestItems.values()
        self.consistent.append(request.get("ConsistentRead", False))
        return {"Responses": {"table": list(request["Keys"])}}


def test_all_pages_of_a_table_are_read_and_each_of_them_consistently() -> None:
    table: Any = Table(5)
    assert [*query(table, "table", ("cluster", "c"))] == table.items
    assert [*scan(table, "table")] == table.items
    assert len(get_all(table, "table", table.items * 50, lambda _: None)) == 250
    assert get(table, "table", table.items[0]) == table.items[0]
    assert table.consistent == [True] * (3 + 3 + 3 + 1)


def test_a_global_index_is_not_asked_for_what_it_cannot_give() -> None:
    table: Any = Table(1)
    assert [*query(table, "table", ("cluster", "c"), index="by-instance", consistent=False)] == table.items
    assert table.consistent == [False]


def test_what_decides_on_nodes_is_read_consistently() -> None:
    joins: Any = Table(0)
    DynamoJoins(joins, "table").read("demo")
    assert joins.consistent == [True]


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "TerminateInstances")


def test_every_instance_is_tried_and_the_first_refusal_is_told_whichever_request_it_was_of() -> None:
    names = [f"i-{number:03d}" for number in range(205)]
    client = Ec2(*map(instance, names))
    client.refusals = {"i-007": refused("OperationNotPermitted"), "i-104": refused("UnauthorizedOperation")}
    with pytest.raises(AwsError) as raised:
        adapter_on(client).terminate("demo", *names)
    assert raised.value.code == "OperationNotPermitted"
    assert {name for asked in client.asked_to_end for name in asked} == set(names)
    assert client.asked_to_end[-1] == tuple(names[200:])


@pytest.mark.parametrize(
    "error",
    [refused("RequestLimitExceeded"), EndpointConnectionError(endpoint_url="https://ec2")],
    ids=["throttled", "no answer"],
)
@pytest.mark.parametrize("number", [1, 3])
def test_an_answer_that_says_nothing_about_the_instances_ends_the_attempt(number: int, error: Exception) -> None:
    names = [f"i-{number}" for number in range(number)]
    client = Ec2(*map(instance, names))
    client.refusals = {"i-0": error}
    with pytest.raises(AwsError):
        adapter_on(client).terminate("demo", *names)
    assert client.asked_to_end == [tuple(names)]

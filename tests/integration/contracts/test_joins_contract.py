"""The contract of JoinLog, held by the fake and by the adapter on DynamoDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shiplap.aws.dynamodb.join_log import DynamoJoins
from shiplap.aws.dynamodb.tables import STATE
from shiplap.errors import StoreError
from shiplap.instances.readiness.joins import JoinHistory, JoinRecord
from shiplap.ports import JoinLog
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.state import FakeJoins
from tests.integration.contracts.in_process_aws import (
    HookedClient,
    create_table,
    dynamodb_client,
    emptied,
)

NOW = 1_700_000_000.0


@pytest.fixture(params=["fake", "dynamodb", "dynamodb-local"])
def joins(request: pytest.FixtureRequest) -> Iterator[JoinLog]:
    if request.param == "fake":
        yield FakeJoins()
    elif request.param == "dynamodb":
        yield DynamoJoins(emptied(request.getfixturevalue("dynamodb")), "state")
    else:
        with dynamodb_client(request) as client:
            create_table(client, "state", STATE)
            yield DynamoJoins(client, "state")


def test_nothing_is_known_at_first(joins: JoinLog) -> None:
    assert joins.read("demo") == JoinHistory()


def test_what_is_noted_is_known(joins: JoinLog) -> None:
    joins.joined("demo", "web", "ami-2", "m6i.large", [41.27], NOW)
    joins.joined("demo", "batch", "ami-1", "c7i.large", [60], NOW)
    joins.joined("demo", "web", "ami-2", "m6i.xlarge", [50, 49], NOW + 1)
    joins.initialized("demo", "web", [12], NOW + 2)
    joins.failed("demo", "ami-1", "c7i.large", NOW + 1, NOW + 3)
    joins.joined("other", "web", "ami-2", "m6i.large", [1], NOW)
    history = joins.read("demo")
    assert [item.pool for item in history.pools] == ["batch", "web"]
    assert (history.times("web").register_s, history.times("web").initialize_s) == ((41.3, 50.0, 49.0), (12.0,))
    first, second = history.amis
    assert (first.ami, first.all) == ("ami-1", JoinRecord(failures=1, failed_at=NOW + 3, joined_at=NOW))
    assert (second.ami, sorted(second.types)) == ("ami-2", ["m6i.large", "m6i.xlarge"])
    assert joins.read("other").times("web").register_s == (1.0,)


def fake(_: Any) -> tuple[JoinLog, JoinLog, Faults, str]:
    faults = Faults()
    both = FakeJoins(faults)
    return both, both, faults, "joins.failed"


def dynamo(client: Any) -> tuple[JoinLog, JoinLog, Faults, str]:
    faults = Faults()
    emptied(client)
    hooked: Any = HookedClient(client, faults)
    return DynamoJoins(hooked, "state", sleep=lambda _: None), DynamoJoins(client, "state"), faults, "put_item"


@pytest.mark.parametrize("make", [fake, dynamo])
def test_nobody_loses_what_another_notes_at_the_same_time(
    make: Callable[[Any], tuple[JoinLog, JoinLog, Faults, str]], dynamodb: Any
) -> None:
    one, other, faults, effect = make(dynamodb)
    for count in (2, 4):  # an item that is new, and one that is not
        at = NOW + count
        faults.on("before", effect, lambda at=at: other.failed("demo", "ami-1", "m6i.large", at, at))
        one.failed("demo", "ami-1", "m6i.large", at + 1, at + 1)
        assert one.read("demo").amis[0].all.failures == count


def test_an_item_that_cannot_be_read_is_told(dynamodb: Any) -> None:
    client = emptied(dynamodb)
    broken = {"cluster": {"S": "demo#joins"}, "item": {"S": "AMI#ami-1"}, "joins": {"S": "{"}, "version": {"N": "1"}}
    client.put_item(TableName="state", Item=broken)
    with pytest.raises(StoreError, match="AMI#ami-1"):
        DynamoJoins(client, "state").read("demo")

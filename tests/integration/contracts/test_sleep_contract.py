"""The contract of SleepStore, held by the fake and by the adapter on DynamoDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.aws.dynamodb.tables import EXPIRY, STATE
from shiplap.aws.policies.sleep_adapters import DynamoSleep
from shiplap.errors import ConditionFailed, StoreError
from shiplap.policies.sleep.sleep_state import SleepNotes
from shiplap.policies.sleep.sleep_store import SleepStore
from shiplap_lab.policies.sleep_fakes import FakeSleep
from tests.integration.contracts.in_process_aws import create_table, dynamodb_client, emptied

NOW = 1_700_000_000
NOTES = SleepNotes("digest", {"0": NOW + 60, "12": NOW + 90}, taken=3, taken_until=NOW + 100)


@pytest.fixture(params=["fake", "dynamodb", "dynamodb-local"])
def sleep(request: pytest.FixtureRequest) -> Iterator[SleepStore]:
    if request.param == "fake":
        yield FakeSleep()
    elif request.param == "dynamodb":
        yield DynamoSleep(emptied(request.getfixturevalue("dynamodb")), "state")
    else:
        with dynamodb_client(request) as client:
            create_table(client, "state", STATE)
            yield DynamoSleep(client, "state")


def test_nothing_is_remembered_at_first(sleep: SleepStore) -> None:
    assert sleep.read("demo") == SleepNotes()


def test_what_is_noted_is_known_and_a_wake_beside_it(sleep: SleepStore) -> None:
    assert sleep.save("demo", NOTES, NOW) == replace(NOTES, version=1)
    assert sleep.read("demo") == replace(NOTES, version=1)
    sleep.wake("demo", NOW, NOW + 600)
    sleep.wake("demo", NOW + 1, 0)
    known = sleep.read("demo")
    assert known == replace(NOTES, version=1, woken_at=NOW + 1)
    assert sleep.save("demo", replace(known, taken=4), NOW).version == 2
    assert sleep.read("demo") == replace(known, taken=4, version=2)
    assert sleep.read("other") == SleepNotes()


def test_a_wake_needs_no_notes(sleep: SleepStore) -> None:
    sleep.wake("demo", NOW, NOW + 600)
    assert sleep.read("demo") == SleepNotes(woken_at=NOW, awake_until=NOW + 600)
    sleep.save("demo", sleep.read("demo"), NOW)


def test_nobody_writes_over_what_another_has_noted(sleep: SleepStore) -> None:
    sleep.save("demo", SleepNotes(), NOW)
    with pytest.raises(ConditionFailed):
        sleep.save("demo", SleepNotes(), NOW)
    known = sleep.read("demo")
    sleep.save("demo", known, NOW)
    with pytest.raises(ConditionFailed):
        sleep.save("demo", known, NOW)


def test_items_expire_and_are_small(dynamodb: Any) -> None:
    client = emptied(dynamodb)
    sleep = DynamoSleep(client, "state")
    sleep.save("demo", SleepNotes("0" * 16, {str(place): NOW for place in range(50)}, 5000, NOW), NOW)
    sleep.wake("demo", NOW, NOW + 600)
    wake, notes = sorted(client.scan(TableName="state")["Items"], key=lambda item: item["item"]["S"], reverse=True)
    assert (notes["item"]["S"], wake["item"]["S"]) == ("NOTES", "WAKE")
    assert int(notes[EXPIRY]["N"]) == NOW + 90 * 86_400 + 1
    assert int(wake[EXPIRY]["N"]) == NOW + 600 + 9 * 86_400 + 1, "a window is a week long at most"
    assert sum(len(msgspec.json.encode(item)) for item in (wake, notes)) < 2048  # of 50 windows; tables may hold 10 MB


def test_an_item_that_cannot_be_read_is_told(dynamodb: Any) -> None:
    client = emptied(dynamodb)
    broken = {"cluster": {"S": "demo#sleep"}, "item": {"S": "NOTES"}, "notes": {"S": "{"}, "version": {"N": "1"}}
    client.put_item(TableName="state", Item=broken)
    with pytest.raises(StoreError, match="cluster demo"):
        DynamoSleep(client, "state").read("demo")

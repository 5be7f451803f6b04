"""The contract of GangTriesStore, held by the fake and by the adapter on DynamoDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shiplap.aws.dynamodb.tables import EXPIRY, STATE
from shiplap.aws.policies.gangs_adapters import DynamoGangTries
from shiplap.policies.gangs.memory.gang_tries import MOST_REMEMBERED, GangTries
from shiplap.policies.gangs.memory.tries_store import GangTriesStore
from shiplap_lab.policies.gangs_fakes import FakeGangTries
from tests.integration.contracts.in_process_aws import create_table, dynamodb_client, emptied

NOW = 1_700_000_000
TRIES = (
    GangTries(gang="ml/train", number=3, at=NOW, short="short", supply="digest", room={"cpu": 4}, lacks=("cpu",)),
    GangTries(gang="ml/tune", created_at="2026-01-01T00:00:00Z", at=NOW, short="short"),
)


@pytest.fixture(params=["fake", "dynamodb", "dynamodb-local"])
def store(request: pytest.FixtureRequest) -> Iterator[GangTriesStore]:
    if request.param == "fake":
        yield FakeGangTries()
    elif request.param == "dynamodb":
        yield DynamoGangTries(emptied(request.getfixturevalue("dynamodb")), "state")
    else:
        with dynamodb_client(request) as client:
            create_table(client, "state", STATE)
            yield DynamoGangTries(client, "state")


def test_what_is_saved_last_is_read_of_its_cluster(store: GangTriesStore) -> None:
    assert store.read("demo") == ()
    store.save("demo", TRIES, NOW)
    store.save("other", TRIES[:1], NOW)
    store.save("demo", TRIES[1:], NOW)
    assert (store.read("demo"), store.read("other")) == (TRIES[1:], TRIES[:1])
    store.save("demo", (), NOW)
    assert store.read("demo") == ()


def test_as_many_as_are_remembered_fit_into_an_item(store: GangTriesStore) -> None:
    large = tuple(
        GangTries(
            gang=f"{'n' * 63}/{number:0253}", at=NOW, short="é" * 401, room={f"{'r' * 40}{n}": n for n in range(9)}
        )
        for number in range(MOST_REMEMBERED)
    )
    store.save("demo", large, NOW)
    assert store.read("demo") == large


def test_tries_expire_and_what_is_written_otherwise_begins_anew(dynamodb: Any) -> None:
    client = emptied(dynamodb)
    DynamoGangTries(client, "state").save("demo", TRIES, NOW)
    (item,) = client.scan(TableName="state")["Items"]
    assert item[EXPIRY] == {"N": str(NOW + 24 * 3600 + 1)}
    for text in ("no JSON", '{"gang": 7}', '[{"gang": "ml/train"}]'):
        client.put_item(TableName="state", Item={**item, "tries": {"S": text}})
        assert DynamoGangTries(client, "state").read("demo") == ()

"""AWS in this process (moto) for the contract tests, with faults around every call of a client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any
from unittest.mock import patch

import botocore.session
import pytest
from botocore.loaders import Loader, create_loader
from moto import mock_aws

from shiplap.aws.dynamodb import tables
from shiplap.aws.session import config
from shiplap_lab.fakes.faults import Faults

REGION = "eu-west-1"
_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
    # They are 1,300, of which no test here needs any, and made anew for every test.
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
}


@contextmanager
def aws_in_process() -> Iterator[None]:
    """moto answers every call made inside; nothing of the user's own configuration is read."""
    with patch.dict("os.environ", _ENVIRONMENT), mock_aws():
        yield


@contextmanager
def dynamodb_client(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client of the DynamoDB that the parameter of a fixture names: moto's, or Amazon's own DynamoDB Local."""
    if request.param == "dynamodb-local":
        with request.getfixturevalue("dynamodb_local").client() as client:
            yield client
        return
    with aws_in_process():
        yield make_client("dynamodb")


def emptied(client: Any) -> Any:
    """The client, after all items of its table `state` are gone."""
    for item in client.scan(TableName="state")["Items"]:
        client.delete_item(TableName="state", Key={key: item[key] for key in ("cluster", "item")})
    return client


def make_client(service: str) -> Any:
    """A client configured as the adapters' own are."""
    session = botocore.session.Session()
    session.register_component("data_loader", _loader())
    return session.create_client(service, region_name=REGION, config=config())


@cache
def _loader() -> Loader:
    """Keeps the models of services, which each session would read and parse anew."""
    return create_loader()


class HookedClient:
    """A client whose every call is an effect of `faults`, named by the operation.

    Calls happen one at a time: moto's transactions roll back by restoring a whole table, and lose what was written
    meanwhile.
    """

    def __init__(self, client: Any, faults: Faults) -> None:
        self._client = client
        self._faults = faults
        self._lock = RLock()

    def __getattr__(self, operation: str) -> Any:
        method = getattr(self._client, operation)

        def call(**request: Any) -> Any:
            self._faults.before(operation)
            with self._lock:
                answer = method(**request)
            self._faults.after(operation)
            return answer

        return call


def create_table(client: Any, name: str, table: tables.Table) -> None:
    """Make a table as `tables` describes it, except that nothing in it expires.

    DynamoDB Local deletes by the time of this machine, which is years after the time in the tests.
    """
    attributes = {table.partition_key, table.sort_key}
    indexes: dict[str, list[dict[str, Any]]] = {"LocalSecondaryIndexes": [], "GlobalSecondaryIndexes": []}
    for index in table.indexes:
        attributes |= {key for key in (index.partition_key, index.sort_key) if key}
        indexes["LocalSecondaryIndexes" if index.local else "GlobalSecondaryIndexes"].append(
            {
                "IndexName": index.name,
                "KeySchema": _keys(index.partition_key, index.sort_key),
                "Projection": _projection(index),
            }
        )
    client.create_table(
        TableName=name,
        KeySchema=_keys(table.partition_key, table.sort_key),
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in sorted(attributes)],
        BillingMode="PAY_PER_REQUEST",
        **{kind: made for kind, made in indexes.items() if made},
    )


def _projection(index: tables.Index) -> dict[str, Any]:
    if index.with_:
        return {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(index.with_)}
    return {"ProjectionType": "KEYS_ONLY" if index.keys_only else "ALL"}


def _keys(partition_key: str, sort_key: str) -> list[dict[str, str]]:
    keys = [{"AttributeName": partition_key, "KeyType": "HASH"}]
    return [*keys, {"AttributeName": sort_key, "KeyType": "RANGE"}] if sort_key else keys

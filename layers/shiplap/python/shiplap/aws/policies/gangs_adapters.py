"""Stores the tries for gangs, in table `state`: one item for each cluster, in a partition of its own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from shiplap.aws.dynamodb.items import expiry, get, text
from shiplap.aws.dynamodb.tables import EXPIRY
from shiplap.aws.failures import store_errors
from shiplap.aws.policy_adapters import MakePorts, PolicyResources
from shiplap.policies.gangs.memory.gang_tries import GangTries

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

_LOG = logging.getLogger(__name__)

REMEMBERED_S = 24 * 3600
"""For how long tries are kept after they were last written, in seconds: a gang that waits is tried more often."""

_DECODER = msgspec.json.Decoder(tuple[GangTries, ...])


def adapters(resources: PolicyResources) -> MakePorts:
    """Return how to make the port to the tries for gangs."""
    return {"gang_tries": lambda: DynamoGangTries(resources.client("dynamodb"), resources.state_table)}


class DynamoGangTries:
    """The port GangTriesStore on DynamoDB."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client, self._table = client, table

    def read(self, cluster: str) -> tuple[GangTries, ...]:
        """All of a cluster; none where they are written in an unknown way. Raises StoreThrottled, StoreError."""
        item = get(self._client, self._table, {"cluster": text(_partition(cluster)), "item": text("TRIES")})
        try:
            return _DECODER.decode(item["tries"]["S"]) if item is not None else ()
        except msgspec.DecodeError as error:
            _LOG.warning("tries for gangs begin anew: %s", error, extra={"cluster": cluster})
            return ()

    def save(self, cluster: str, tries: Sequence[GangTries], now: float) -> None:
        """Written over whatever was there. Raises StoreThrottled, StoreError."""
        with store_errors(f"write table {self._table}"):
            self._client.put_item(
                TableName=self._table,
                Item={
                    "cluster": text(_partition(cluster)),
                    "item": text("TRIES"),
                    "tries": text(msgspec.json.encode(tries).decode()),
                    EXPIRY: expiry(now + REMEMBERED_S),
                },
            )


def _partition(cluster: str) -> str:
    return f"{cluster}#gangs"

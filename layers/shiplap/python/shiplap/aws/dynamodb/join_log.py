"""Stores how nodes have joined, in table `state`: an item per NodePool and one per AMI, rewritten under a version.

The items have a partition of their own: decisions read them once per invocation that launches, and no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from shiplap.aws.dynamodb.items import Item, expiry, get, number, of_version, put_if, query, text
from shiplap.aws.dynamodb.tables import EXPIRY
from shiplap.aws.failures import Sleep, attempts
from shiplap.errors import StoreError, StoreThrottled
from shiplap.instances.readiness.joins import AmiJoins, JoinHistory, PoolJoins, with_samples

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

REMEMBERED_S = 30 * 24 * 3600
"""How long a NodePool or an AMI is remembered after its last node, in seconds."""

_POOL, _AMI = "POOL#", "AMI#"
_TRIES = 8
_POOLS = msgspec.json.Decoder(PoolJoins)
_AMIS = msgspec.json.Decoder(AmiJoins)

Joins = TypeVar("Joins", PoolJoins, AmiJoins)


class DynamoJoins:
    """The port JoinLog on DynamoDB."""

    def __init__(self, client: DynamoDBClient, table: str, *, sleep: Sleep = time.sleep) -> None:
        self._client = client
        self._table = table
        self._sleep = sleep

    def read(self, cluster: str) -> JoinHistory:
        """Everything known of a cluster. Raises StoreThrottled, StoreError."""
        pools, amis = [], []
        for item in query(self._client, self._table, ("cluster", _partition(cluster))):
            if item["item"]["S"].startswith(_POOL):
                pools.append(_decoded(_POOLS, item))
            else:
                amis.append(_decoded(_AMIS, item))
        return JoinHistory(tuple(pools), tuple(amis))

    def joined(
        self, cluster: str, pool: str, ami: str, instance_type: str, seconds: Sequence[float], now: float
    ) -> None:
        """Nodes were registered. Raises StoreThrottled, StoreError."""

        def timed(known: PoolJoins) -> PoolJoins:
            return replace(known, register_s=with_samples(known.register_s, seconds))

        self._rewrite(cluster, _POOL + pool, _POOLS, PoolJoins(pool), timed, now)
        self._rewrite(cluster, _AMI + ami, _AMIS, AmiJoins(ami), lambda known: known.joined(instance_type, now), now)

    def initialized(self, cluster: str, pool: str, seconds: Sequence[float], now: float) -> None:
        """Nodes are complete. Raises StoreThrottled, StoreError."""

        def timed(known: PoolJoins) -> PoolJoins:
            return replace(known, initialize_s=with_samples(known.initialize_s, seconds))

        self._rewrite(cluster, _POOL + pool, _POOLS, PoolJoins(pool), timed, now)

    def failed(self, cluster: str, ami: str, instance_type: str, launched_at: float, now: float) -> None:
        """An instance never became a node. Raises StoreThrottled, StoreError."""

        def counted(known: AmiJoins) -> AmiJoins:
            return known.failed(instance_type, launched_at, now)

        self._rewrite(cluster, _AMI + ami, _AMIS, AmiJoins(ami), counted, now)

    def _rewrite(
        self,
        cluster: str,
        name: str,
        decoder: msgspec.json.Decoder[Joins],
        first: Joins,
        change: Callable[[Joins], Joins],
        now: float,
    ) -> None:
        key = {"cluster": text(_partition(cluster)), "item": text(name)}
        for _ in attempts(_TRIES, sleep=self._sleep):
            stored = get(self._client, self._table, key)
            known = first if stored is None else _decoded(decoder, stored)
            version = None if stored is None else int(stored["version"]["N"])
            item = {
                **key,
                "joins": text(msgspec.json.encode(change(known)).decode()),
                "version": number((version or 0) + 1),
                EXPIRY: expiry(now + REMEMBERED_S),
            }
            if put_if(self._client, self._table, item, *of_version(version)):
                return
        raise StoreThrottled(f"cluster {cluster}: {name} is being written by too many at once")


def _partition(cluster: str) -> str:
    return f"{cluster}#joins"


def _decoded(decoder: msgspec.json.Decoder[Joins], item: Item) -> Joins:
    try:
        return decoder.decode(item["joins"]["S"])
    except msgspec.DecodeError as error:
        raise StoreError(f"{item['item']['S']} cannot be read: {error}") from error

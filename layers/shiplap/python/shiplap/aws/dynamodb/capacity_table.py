"""Table `capacity`: learned capacity by (AMI, instance type, kubelet settings) of the account, and leases of pilots.

Partitions that begin with `@` hold what optional features keep there; ids of AMIs begin with letters.

An entry is replaced as a whole, on the condition that it still has the version that was read. A second writer reads it
again and adds to it, so that concurrent observers lose nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from botocore.exceptions import ClientError

from shiplap.aws.dynamodb.items import (
    Item,
    Value,
    expiry,
    float_of,
    get,
    number,
    of_version,
    placeholders,
    put_if,
    query,
    scan,
    text,
)
from shiplap.aws.dynamodb.tables import EXPIRY
from shiplap.aws.failures import CONDITION_FAILED, Sleep, attempts, code_of, store_errors
from shiplap.errors import StoreError, StoreThrottled
from shiplap.instances.capacity.learned_capacity import merged_capacity
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation
from shiplap.ports import PILOT_LEASE_S

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

_OTHER = "@"
"""Partitions of optional features begin with this."""

PILOT = "PILOT#"
"""What the sort key of a lease begins with; no instance type has capitals."""

_TRIES = 16
_DECODER = msgspec.json.Decoder(LearnedCapacity)


class DynamoCapacity:
    """A CapacityStore on DynamoDB."""

    def __init__(self, client: DynamoDBClient, table: str, *, sleep: Sleep = time.sleep) -> None:
        self._client = client
        self._table = table
        self._sleep = sleep

    def learned(self, amis: Sequence[str]) -> tuple[LearnedCapacity, ...]:
        return _sorted(_learned(item) for ami in set(amis) for item in self._entries(ami) if not _is_pilot(item))

    def all(self) -> tuple[LearnedCapacity, ...]:
        return _sorted(_learned(item) for item in scan(self._client, self._table) if _is_learned(item))

    def observe(self, observation: Observation) -> LearnedCapacity:
        key = (observation.ami, observation.instance_type, observation.kubelet_hash)
        return self.merge(LearnedCapacity(*key, recent=(observation,)))

    def merge(self, entry: LearnedCapacity) -> LearnedCapacity:
        key = _key(entry.ami, f"{entry.instance_type}#{entry.kubelet_hash}")
        for _ in attempts(_TRIES, sleep=self._sleep):
            stored = get(self._client, self._table, key)
            known = None if stored is None else _learned(stored)
            learned = merged_capacity(known, entry)
            if learned is known:
                return learned
            item = {**key, "learned": text(msgspec.json.encode(learned).decode()), "version": number(learned.version)}
            if put_if(self._client, self._table, item, *of_version(None if known is None else known.version)):
                return learned
        raise StoreThrottled(f"{entry.instance_type} on {entry.ami} is observed by too many at once")

    def forget(self, ami: str, instance_type: str = "", kubelet_hash: str = "") -> int:
        forgotten = [
            learned
            for learned in self.learned([ami])
            if instance_type in ("", learned.instance_type) and kubelet_hash in ("", learned.kubelet_hash)
        ]
        for learned in forgotten:
            key = _key(ami, f"{learned.instance_type}#{learned.kubelet_hash}")
            with store_errors(f"write table {self._table}"):
                self._client.delete_item(TableName=self._table, Key=key)
        return len(forgotten)

    def acquire_pilot(self, ami: str, instance_type: str, kubelet_hash: str, holder: str, now: float) -> bool:
        until = now + PILOT_LEASE_S
        lease = {"holder": text(holder), "until": number(until), EXPIRY: expiry(until)}
        return put_if(
            self._client,
            self._table,
            {**_key(ami, _pilot(instance_type, kubelet_hash)), **lease},
            "attribute_not_exists(#item) OR #holder = :holder OR #until <= :now",
            ["item", "holder", "until"],
            {":holder": text(holder), ":now": number(now)},
        )

    def release_pilot(self, ami: str, instance_type: str, kubelet_hash: str, holder: str) -> None:
        with store_errors(f"write table {self._table}"):
            try:
                self._client.delete_item(
                    TableName=self._table,
                    Key=_key(ami, _pilot(instance_type, kubelet_hash)),
                    ConditionExpression="#holder = :holder",
                    ExpressionAttributeNames=placeholders(["holder"]),
                    ExpressionAttributeValues={":holder": text(holder)},
                )
            except ClientError as error:  # gone, or another's by now: nothing of ours is left to release
                if code_of(error) != CONDITION_FAILED:
                    raise

    def pilots(self, amis: Sequence[str], now: float) -> frozenset[str]:
        return frozenset(
            f"{ami}/{item['item']['S'].removeprefix(PILOT)}"
            for ami in set(amis)
            for item in self._entries(ami, PILOT)
            if float_of(item, "until") > now
        )

    def _entries(self, ami: str, prefix: str = "") -> Iterator[Item]:
        return query(self._client, self._table, ("ami", ami), ("item", prefix) if prefix else None)


def _key(ami: str, item: str) -> dict[str, Value]:
    return {"ami": text(ami), "item": text(item)}


def _pilot(instance_type: str, kubelet_hash: str) -> str:
    return f"{PILOT}{instance_type}#{kubelet_hash}"


def _is_learned(item: Item) -> bool:
    return not _is_pilot(item) and not item["ami"]["S"].startswith(_OTHER)


def _is_pilot(item: Item) -> bool:
    return bool(item["item"]["S"].startswith(PILOT))


def _learned(item: Item) -> LearnedCapacity:
    try:
        return _DECODER.decode(item["learned"]["S"])
    except msgspec.DecodeError as error:
        raise StoreError(
            f"{item['ami']['S']}/{item['item']['S']} cannot be read as learned capacity: {error}"
        ) from error


def _sorted(entries: Iterator[LearnedCapacity]) -> tuple[LearnedCapacity, ...]:
    return tuple(sorted(entries, key=lambda entry: (entry.ami, entry.instance_type, entry.kubelet_hash)))

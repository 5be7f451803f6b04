"""State that all clusters of an account share: failed offerings, and addresses and reservations that launches take.

It lies in a partition of table `state` that no cluster can have: names of clusters begin with a letter or a digit.
Zones and subnets are of one region, so one partition serves all regions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from botocore.exceptions import ClientError

from shiplap.aws.dynamodb.items import (
    Item,
    Value,
    expiry,
    float_of,
    get,
    get_all,
    number,
    placeholders,
    put_if,
    query,
    text,
)
from shiplap.aws.dynamodb.tables import EXPIRY
from shiplap.aws.failures import TRANSACTION_CANCELED, Sleep, attempts, code_of, store_errors
from shiplap.errors import StoreThrottled
from shiplap.instances.offerings.unavailability import remembered_until
from shiplap.ports import ADDRESSES_S, OfferingFailure, UnavailableOffering, may_take
from shiplap.spending.account_counters import AccountSpending, CountChange

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

ACCOUNT = "@account"
"""The partition. Policies may have items of their own in it."""

OFFERING, ADDRESSES, RESERVED, FROZEN, SPENDING = "OFFERING", "ADDRESSES", "RESERVED", "FROZEN", "SPENDING"
"""Prefixes of sort keys; a `#` and the rest of the key follow, except after FROZEN and SPENDING."""

_HOURLY, _MONTH = "hourly", "month#"
"""Attributes of SPENDING: what all instances cost per hour; a month follows the second."""

_TRIES = 8
_BATCH = 100
"""Items that one BatchGetItem or one transaction takes."""


class Reservation(msgspec.Struct, frozen=True):
    """Addresses by subnet id that a launch will take, counted until an epoch second."""

    addresses: dict[str, int]
    until: float


class SharedState(msgspec.Struct, frozen=True):
    """Everything in the partition that decisions need; offerings sorted by scope. `frozen_at` see `DecisionState`."""

    offerings: tuple[UnavailableOffering, ...]
    reservations: tuple[Reservation, ...]
    taken: dict[str, dict[str, tuple[int, float]]] = {}
    frozen_at: float = 0.0
    spending: AccountSpending = AccountSpending()


class DynamoAccount:
    """The account's partition of table `state`."""

    def __init__(self, client: DynamoDBClient, table: str, sleep: Sleep) -> None:
        self._client = client
        self._table = table
        self._sleep = sleep

    def read(self) -> SharedState:
        """Everything, consistently. Raises StoreThrottled, StoreError."""
        offerings, reservations, taken, frozen_at = [], [], {}, 0.0
        spending = AccountSpending()
        for item in query(self._client, self._table, ("cluster", ACCOUNT)):
            kind, _, rest = item["item"]["S"].partition("#")
            if kind == OFFERING:
                offerings.append(_offering(item))
            elif kind == ADDRESSES:
                addresses = msgspec.json.decode(item["addresses"]["S"], type=dict[str, int])
                reservations.append(Reservation(addresses, float_of(item, "until")))
            elif kind == RESERVED:
                taken[rest] = _taken(item)
            elif kind == FROZEN:
                frozen_at = float_of(item, "at")
            elif kind == SPENDING:
                spending = _spending(item)
        offerings.sort(key=lambda known: known.scope)
        return SharedState(tuple(offerings), tuple(reservations), taken, frozen_at, spending)

    def counting(self, change: CountChange) -> dict[str, Any]:
        """The action of a transaction that adds to the counters if they are not above what the change asks for."""
        month = f"{_MONTH}{change.after.month}"
        values = {":hourly": number(change.more_hourly), ":month": number(change.more_total)}
        update = {
            "TableName": self._table,
            "Key": _key(SPENDING),
            "UpdateExpression": "ADD #hourly :hourly, #month :month",
            "ExpressionAttributeNames": {"#hourly": _HOURLY, "#month": month},
        }
        bounds = (("#month", ":mostTotal", change.most_total), ("#hourly", ":mostHourly", change.most_hourly))
        conditions = []
        for name, key, most in bounds:
            if most is not None:
                conditions.append(f"(attribute_not_exists({name}) OR {name} <= {key})")
                values[key] = number(most)
        if conditions:
            update["ConditionExpression"] = " AND ".join(conditions)
        return {**update, "ExpressionAttributeValues": values}

    def freeze(self, now: float) -> float:
        """Note that launches are frozen; returns since when, which is earlier than `now` if they were already."""
        item = {**_key(FROZEN), "at": number(now)}
        if put_if(self._client, self._table, item, "attribute_not_exists(#item)", ["item"]):
            return now
        return self.frozen_at() or now

    def unfreeze(self) -> None:
        """See `StateStore.unfreeze`."""
        with store_errors(f"write table {self._table}"):
            self._client.delete_item(TableName=self._table, Key=_key(FROZEN))

    def frozen_at(self) -> float:
        """See `StateStore.frozen_at`."""
        stored = get(self._client, self._table, _key(FROZEN))
        return 0.0 if stored is None else float_of(stored, "at")

    def mark_unavailable(self, failures: Sequence[OfferingFailure], now: float) -> tuple[UnavailableOffering, ...]:
        """See `StateStore.mark_unavailable`: two requests for a hundred offerings."""
        by_scope = {failure.scope: failure for failure in sorted(failures, reverse=True)}
        scopes = sorted(by_scope)
        marked: list[UnavailableOffering] = []
        for start in range(0, len(scopes), _BATCH):
            chosen = [by_scope[scope] for scope in scopes[start : start + _BATCH]]
            together = self._mark_together(chosen, now) if len(chosen) > 1 else None
            marked += together or (self._mark(failure, now) for failure in chosen)
        return tuple(marked)

    def _mark_together(self, failures: Sequence[OfferingFailure], now: float) -> list[UnavailableOffering] | None:
        """None when another function wrote one of them meanwhile."""
        stored = self._stored([_offering_key(failure.scope) for failure in failures])
        known = [stored.get(failure.scope) for failure in failures]
        marked = [UnavailableOffering.after(old, failure, now) for old, failure in zip(known, failures, strict=True)]
        puts = [self._put(new, old) for new, old in zip(marked, known, strict=True) if new != old]
        if not puts:
            return marked
        with store_errors(f"write table {self._table}"):
            try:
                self._client.transact_write_items(ClientRequestToken=uuid4().hex, TransactItems=puts)
            except ClientError as error:
                if code_of(error) != TRANSACTION_CANCELED:
                    raise
                return None
        return marked

    def _stored(self, keys: Sequence[Item]) -> dict[tuple[str, str, str], UnavailableOffering]:
        items = get_all(self._client, self._table, keys, self._sleep)
        return {known.scope: known for known in map(_offering, items)}

    def _put(self, marked: UnavailableOffering, known: UnavailableOffering | None) -> Any:
        condition = "attribute_not_exists(#item)" if known is None else "#until = :until"
        put: dict[str, Any] = {
            "TableName": self._table,
            "Item": _offering_item(marked),
            "ConditionExpression": condition,
            "ExpressionAttributeNames": placeholders(["item" if known is None else "until"]),
        }
        if known is not None:
            put["ExpressionAttributeValues"] = {":until": number(known.until)}
        return {"Put": put}

    def _mark(self, failure: OfferingFailure, now: float) -> UnavailableOffering:
        key = _offering_key(failure.scope)
        for _ in attempts(_TRIES, sleep=self._sleep):
            stored = get(self._client, self._table, key)
            known = None if stored is None else _offering(stored)
            marked = UnavailableOffering.after(known, failure, now)
            if marked == known or self._replace(marked, known):
                return marked
        raise StoreThrottled(f"{failure.instance_type} is being marked by too many at once")

    def _replace(self, marked: UnavailableOffering, known: UnavailableOffering | None) -> bool:
        """Replace the known item if it is still current. True if the item was replaced."""
        item = _offering_item(marked)
        if known is None:
            return put_if(self._client, self._table, item, "attribute_not_exists(#item)", ["item"])
        past = {":until": number(known.until), ":failures": number(known.failures)}
        current = "#until = :until AND #failures = :failures"
        return put_if(self._client, self._table, item, current, ["until", "failures"], past)

    def relieve(self, offering: UnavailableOffering) -> None:
        """See `StateStore.relieve`."""
        self._replace(offering.relieved(), offering)

    def take_reserved(self, reservation_id: str, token: str, count: int, available: int, now: float) -> int:
        """See `StateStore.take_reserved`: replaced as a whole, if no other function did meanwhile."""
        key = _key(f"{RESERVED}#{reservation_id}")
        for _ in attempts(_TRIES, sleep=self._sleep):
            stored = get(self._client, self._table, key)
            taken = {} if stored is None else _taken(stored)
            granted = may_take(taken, token, count, available, now)
            current = {name: entry for name, entry in taken.items() if entry[1] > now}
            current[token] = (granted, now + ADDRESSES_S)
            item = {
                **key,
                "taken": text(msgspec.json.encode(current, order="sorted").decode()),
                EXPIRY: expiry(now + ADDRESSES_S),
            }
            if stored is None:
                written = put_if(self._client, self._table, item, "attribute_not_exists(#item)", ["item"])
            else:
                past = {":write": stored["write"]}
                written = put_if(self._client, self._table, item, "#write = :write", ["write"], past)
            if written:
                return granted
        raise StoreThrottled(f"capacity reservation {reservation_id} is being taken by too many at once")

    def reserve_addresses(self, token: str, addresses: Mapping[str, int], now: float) -> None:
        """See `StateStore.reserve_addresses`."""
        item = {
            **_key(f"{ADDRESSES}#{token}"),
            "addresses": text(msgspec.json.encode(addresses, order="sorted").decode()),
            "until": number(now + ADDRESSES_S),
            EXPIRY: expiry(now + ADDRESSES_S),
        }
        with store_errors(f"write table {self._table}"):
            self._client.put_item(TableName=self._table, Item=item)


def _key(item: str) -> dict[str, Value]:
    return {"cluster": text(ACCOUNT), "item": text(item)}


def _spending(item: Item) -> AccountSpending:
    months = {name.removeprefix(_MONTH): int(value["N"]) for name, value in item.items() if name.startswith(_MONTH)}
    return AccountSpending(dict(sorted(months.items())), int(item[_HOURLY]["N"]))


def _taken(item: Item) -> dict[str, tuple[int, float]]:
    return msgspec.json.decode(item["taken"]["S"], type=dict[str, tuple[int, float]])


def _offering_key(scope: tuple[str, str, str]) -> dict[str, Value]:
    return _key("#".join((OFFERING, *scope)))


def _offering_item(offering: UnavailableOffering) -> Item:
    return {
        **_offering_key(offering.scope),
        "until": number(offering.until),
        "failures": number(offering.failures),
        "code": text(offering.code),
        EXPIRY: expiry(remembered_until(offering.failures, offering.until)),
    }


def _offering(item: Item) -> UnavailableOffering:
    _, instance_type, zone, capacity_type = item["item"]["S"].split("#")
    failures = int(item["failures"]["N"])
    return UnavailableOffering(instance_type, zone, capacity_type, float_of(item, "until"), failures, item["code"]["S"])

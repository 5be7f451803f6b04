"""Access to DynamoDB for both tables: attribute values, whole queries, and writes with a condition.

botocore repeats a conditional write whose answer is lost, and the condition then fails because of the first one. So
every write leaves a mark of its own in `write`; a write that finds its own mark has happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from botocore.exceptions import ClientError

from shiplap.aws.failures import CONDITION_FAILED, Sleep, attempts, code_of, store_errors
from shiplap.errors import StoreThrottled

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

Value = Mapping[str, Any]
"""One attribute value in DynamoDB's own notation, `{"S": …}` or `{"N": …}`."""

Item = Mapping[str, Value]

BATCH_OF_KEYS = 100
"""Items that one BatchGetItem reads."""

_TRIES = 8


def text(value: str) -> Value:
    """A string attribute."""
    return {"S": value}


def number(value: float) -> Value:
    """A number attribute; floats keep every digit."""
    return {"N": repr(value)}


def float_of(item: Item, name: str) -> float:
    """A number attribute of an item."""
    return float(item[name]["N"])


def expiry(at: float) -> Value:
    """The value of a time-to-live attribute: whole epoch seconds, never earlier than `at`."""
    return {"N": str(int(at) + 1)}


def placeholders(names: Iterable[str]) -> dict[str, str]:
    """`#name` for each name: half of all sensible names are reserved words of DynamoDB's expressions."""
    return {f"#{name}": name for name in names}


def query(
    client: DynamoDBClient,
    table: str,
    equals: tuple[str, str],
    begins_with: tuple[str, str] | None = None,
    *,
    between: tuple[str, str, str] | None = None,
    index: str = "",
    consistent: bool = True,
) -> Iterator[Item]:
    """All pages of a query on string keys.

    Args:
        client: of DynamoDB.
        table: the table's name.
        equals: the partition key and its value.
        begins_with: the sort key and a prefix of its values; None for all.
        between: the sort key, its least and its greatest value; in place of a prefix.
        index: the index to read; empty for the table.
        consistent: must be False on a global index, which knows no consistent reads.

    Raises:
        StoreThrottled, StoreError.
    """
    condition = "#0 = :0"
    names, values = {"#0": equals[0]}, {":0": text(equals[1])}
    if begins_with is not None:
        condition += " AND begins_with(#1, :1)"
        names["#1"], values[":1"] = begins_with[0], text(begins_with[1])
    elif between is not None:
        condition += " AND #1 BETWEEN :1 AND :2"
        names["#1"] = between[0]
        values |= {":1": text(between[1]), ":2": text(between[2])}
    request: dict[str, Any] = {
        "TableName": table,
        "ConsistentRead": consistent,
        "KeyConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
    if index:
        request["IndexName"] = index
    return _pages(client.query, f"read table {table}", request)


def scan(client: DynamoDBClient, table: str) -> Iterator[Item]:
    """Every item of a table, read consistently. Raises StoreThrottled, StoreError."""
    return _pages(client.scan, f"read table {table}", {"TableName": table, "ConsistentRead": True})


def _pages(call: Any, action: str, request: dict[str, Any]) -> Iterator[Item]:
    while True:
        with store_errors(action):
            page = call(**request)
        yield from page["Items"]
        if "LastEvaluatedKey" not in page:
            return
        request["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def get(client: DynamoDBClient, table: str, key: Item) -> Item | None:
    """One item, read consistently. Raises StoreThrottled, StoreError."""
    with store_errors(f"read table {table}"):
        return client.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")


def get_all(client: DynamoDBClient, table: str, keys: Sequence[Item], sleep: Sleep) -> list[Item]:
    """The items of these keys that exist, in any order, each read consistently. Raises StoreThrottled, StoreError."""
    items: list[Item] = []
    for start in range(0, len(keys), BATCH_OF_KEYS):
        wanted: Any = {table: {"Keys": list(keys[start : start + BATCH_OF_KEYS]), "ConsistentRead": True}}
        for _ in attempts(_TRIES, sleep=sleep):
            with store_errors(f"read table {table}"):
                answer = client.batch_get_item(RequestItems=wanted)
            items += answer["Responses"].get(table, [])
            wanted = answer.get("UnprocessedKeys") or {}
            if not wanted:
                break
        else:
            raise StoreThrottled(f"table {table} could not be read in {_TRIES} attempts")
    return items


def of_version(before: int | None) -> tuple[str, list[str], Item]:
    """The condition that what is stored is of this version, or that nothing is where it is None; names and values, too.

    They are what `put_if` takes. Whoever rewrites an item under versions writes the version with it.
    """
    if before is None:
        return "attribute_not_exists(#item)", ["item"], {}
    return "#version = :version", ["version"], {":version": number(before)}


def put_if(
    client: DynamoDBClient, table: str, item: Item, condition: str, names: Iterable[str], values: Item | None = None
) -> bool:
    """Write an item if the condition holds for what is stored under its key; whether it was written.

    Args:
        client: of DynamoDB.
        table: the table's name.
        item: the whole item; a mark of this write is added to it.
        condition: over `#name` placeholders of `names` and the keys of `values`.
        names: the attributes the condition mentions.
        values: what the condition compares them with, each key beginning with a colon.

    Raises:
        StoreThrottled, StoreError.
    """
    mark = text(uuid4().hex)
    request: dict[str, Any] = {
        "TableName": table,
        "Item": {**item, "write": mark},
        "ConditionExpression": condition,
        "ExpressionAttributeNames": placeholders(names),
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if values:
        request["ExpressionAttributeValues"] = values
    with store_errors(f"write table {table}"):
        try:
            client.put_item(**request)
        except ClientError as error:
            if code_of(error) != CONDITION_FAILED:
                raise
            stored: Any = error.response.get("Item", {})
            return bool(stored.get("write") == mark)
    return True

"""Evidence about spot in table `capacity`, which all clusters of the account share: an item per zone id and type.

An item holds sums that are only added to, in one request of one write unit, so that concurrent writers need not read.
The hours of nodes that live on are added once a day by each cluster: the item remembers the day under a short digest
of the cluster's name, and a second writer of the same day changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from shiplap.aws.dynamodb.items import Item, expiry, query, text
from shiplap.aws.dynamodb.tables import EXPIRY
from shiplap.aws.failures import CONDITION_FAILED, code_of, store_errors
from shiplap.aws.policy_adapters import MakePorts, PolicyResources
from shiplap.policies.spot_risk.risk_evidence import (
    EvidenceChange,
    OfferingEvidence,
    evidence_of_sums,
    sorted_evidence,
    summed,
)

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient


def adapters(resources: PolicyResources) -> MakePorts:
    """Return how to make the port to evidence about spot."""
    return {"spot_evidence": lambda: DynamoSpotEvidence(resources.client("dynamodb"), resources.capacity_table)}


SPOT = "@spot"
"""The partition; ids of AMIs begin with letters."""

REMEMBERED_S = 365 * 24 * 3600.0
"""How long an offering is remembered after its last evidence, in seconds."""

_DAY = "d"


class DynamoSpotEvidence:
    """The port SpotEvidenceStore on DynamoDB."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client = client
        self._table = table

    def read(self, now: float) -> tuple[OfferingEvidence, ...]:
        """See the port. Raises StoreThrottled, StoreError."""
        return sorted_evidence(evidence_of_sums(*_offering(item), _sums(item), now) for item in self._items())

    def counted_days(self, cluster: str) -> Mapping[tuple[str, str], int]:
        """See the port. Raises StoreThrottled, StoreError."""
        mark = day_mark(cluster)
        return {_offering(item): int(item[mark]["N"]) for item in self._items() if mark in item}

    def add(self, changes: Sequence[EvidenceChange], cluster: str = "", day: int = 0) -> bool:
        """See the port. Raises StoreThrottled, StoreError."""
        sums = summed(changes)
        names = {f"#{place}": name for place, name in enumerate(sums)}
        values: dict[str, Any] = {f":{place}": {"N": f"{amount:.6g}"} for place, amount in enumerate(sums.values())}
        added = ", ".join(f"{place} :{place[1:]}" for place in names)
        kept = "#until = :until"
        request: dict[str, Any] = {}
        if cluster:
            kept += ", #day = :day"
            request["ConditionExpression"] = "attribute_not_exists(#day) OR #day < :day"
            names["#day"], values[":day"] = day_mark(cluster), {"N": str(day)}
        names["#until"], values[":until"] = EXPIRY, expiry(changes[0].at + REMEMBERED_S)
        with store_errors(f"write table {self._table}"):
            try:
                self._client.update_item(
                    TableName=self._table,
                    Key={"ami": text(SPOT), "item": text(f"{changes[0].zone_id}#{changes[0].instance_type}")},
                    UpdateExpression=f"SET {kept} ADD {added}",
                    ExpressionAttributeNames=names,
                    ExpressionAttributeValues=values,
                    **request,
                )
            except ClientError as error:
                if code_of(error) != CONDITION_FAILED:
                    raise
                return False
        return True

    def _items(self) -> list[Item]:
        return list(query(self._client, self._table, ("ami", SPOT), consistent=False))


def day_mark(cluster: str) -> str:
    """The attribute that remembers which day of a cluster was counted last: short, so that items stay small."""
    return _DAY + sha256(cluster.encode()).hexdigest()[:5]


def _offering(item: Item) -> tuple[str, str]:
    zone_id, _, instance_type = item["item"]["S"].partition("#")
    return zone_id, instance_type


def _sums(item: Item) -> dict[str, float]:
    return {name: float(value["N"]) for name, value in item.items() if name != EXPIRY and "N" in value}

"""Evidence about spot outlives a year by a second, and is read at half the price."""

from __future__ import annotations

from typing import Any

from shiplap.aws.dynamodb.tables import EXPIRY
from shiplap.aws.policies.spot_risk_adapters import DynamoSpotEvidence
from shiplap.policies.spot_risk.risk_evidence import EvidenceChange

NOW = 1_700_000_000.0


class EvidenceTable:
    """Keeps what is written, and whether reads are consistent; it holds nothing."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.consistent: list[bool] = []

    def update_item(self, **request: Any) -> None:
        self.updates.append(request)

    def query(self, **request: Any) -> dict[str, Any]:
        self.consistent.append(request.get("ConsistentRead", False))
        return {"Items": []}


def test_evidence_outlives_a_year_by_a_second() -> None:
    table: Any = EvidenceTable()
    change = EvidenceChange(zone_id="euw1-az1", instance_type="m5.large", at=NOW, interruptions=1)
    DynamoSpotEvidence(table, "capacity").add([change])
    (update,) = table.updates
    assert update["ExpressionAttributeNames"]["#until"] == EXPIRY
    assert float(update["ExpressionAttributeValues"][":until"]["N"]) == NOW + 365 * 24 * 3600 + 1


def test_evidence_that_is_a_second_old_misleads_nobody() -> None:
    table: Any = EvidenceTable()
    assert DynamoSpotEvidence(table, "capacity").counted_days("demo") == {}
    assert table.consistent == [False]

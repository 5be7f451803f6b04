"""The items that spot risk stores."""

from __future__ import annotations

from typing import Any

from shiplap.aws.policies.spot_risk_adapters import DynamoSpotEvidence
from shiplap.policies.spot_risk.risk_evidence import DAY_PARTS, EvidenceChange


def write(client: Any, now: float) -> None:
    """A digest of its name says that the second node is held back, and the first is not."""
    changes = [
        EvidenceChange(
            zone_id="euw1-az1",
            instance_type="m5.large",
            at=now,
            node=node,
            node_hours=(3.0,) * DAY_PARTS,
            interruptions=1,
            rebalances=1,
            refusals=1,
        )
        for node in ("blue/general-a", "blue/general-d")
    ]
    assert DynamoSpotEvidence(client, "capacity").add(changes, "blue", int(now // 86400) - 1)

"""The item that commitments store."""

from __future__ import annotations

from typing import Any

from shiplap.aws.policies.commitments_adapters import DynamoCommitmentUse
from shiplap.policies.commitments.account_commitments import InstanceUse
from shiplap.policies.commitments.commitment_use import ClusterUse, SharedUse


def write(client: Any, now: float) -> None:
    """Note what a cluster uses."""
    use = ClusterUse(now, (InstanceUse("m5.large", "eu-west-1a", 2),))
    assert DynamoCommitmentUse(client, "state").note(SharedUse(), "blue", use, now)

"""The object that commitments store."""

from __future__ import annotations

from typing import Any

from shiplap.aws.policies.commitments_adapters import BucketCommitments


def key(region: str) -> str:
    return f"catalog/{region}/commitments.json"


def write_again(client: Any, puts: Any, region: str) -> None:
    """Read the object, and store what was read through another client."""
    commitments = BucketCommitments(client, "bucket", region).load()
    assert commitments is not None
    BucketCommitments(puts, "bucket", region).save(commitments)

"""Stores the account's commitments, in the bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shiplap.aws.bucket import CATALOG_PREFIX, find_document, write_document
from shiplap.aws.policy_adapters import MakePorts, PolicyResources
from shiplap.errors import StoreError
from shiplap.policies.commitments.account_commitments import AccountCommitments
from shiplap.policies.commitments.commitment_store import CommitmentSource

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client


def adapters(resources: PolicyResources) -> MakePorts:
    """Return how to make the ports to the account's commitments in the cluster's Region: as stored, and as AWS has."""
    return {
        "commitments": lambda: BucketCommitments(resources.client("s3"), resources.bucket, resources.region),
        "commitment_source": lambda: _source(resources),
    }


def _source(resources: PolicyResources) -> CommitmentSource:
    from shiplap.aws.policies.commitments_source import AwsCommitments  # noqa: PLC0415 - only `catalog` asks AWS

    plans = resources.client("savingsplans", resources.region)
    ec2 = resources.client("ec2", resources.region)
    return AwsCommitments(resources.region, resources.install, ec2=ec2, savings_plans=plans, clock=resources.now)


class BucketCommitments:
    """A CommitmentStore for one region: `catalog/<region>/commitments.json`."""

    def __init__(self, client: S3Client, bucket: str, region: str) -> None:
        self._client = client
        self._bucket = bucket
        self._key = f"{CATALOG_PREFIX}{region}/commitments.json"

    def load(self) -> AccountCommitments | None:
        document = find_document(self._client, self._bucket, self._key)
        if document is None:
            return None
        try:
            return msgspec.json.decode(document, type=AccountCommitments)
        except msgspec.DecodeError as error:
            raise StoreError(f"{self._key} holds no commitments: {error}") from error

    def save(self, commitments: AccountCommitments) -> None:
        write_document(self._client, self._bucket, self._key, msgspec.json.encode(commitments, order="sorted"))

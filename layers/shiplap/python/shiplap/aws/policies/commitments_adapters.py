"""Stores the account's commitments, in the bucket, and who uses them, in table `state`."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec

from shiplap.aws.bucket import CATALOG_PREFIX, find_document, write_document
from shiplap.aws.dynamodb.items import number, of_version, put_if, query, text
from shiplap.aws.dynamodb.shared_state import ACCOUNT
from shiplap.aws.policy_adapters import MakePorts, PolicyResources
from shiplap.errors import StoreError
from shiplap.policies.commitments.account_commitments import AccountCommitments
from shiplap.policies.commitments.commitment_store import CommitmentSource
from shiplap.policies.commitments.commitment_use import ClusterUse, SharedUse

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient
    from types_boto3_s3 import S3Client


def adapters(resources: PolicyResources) -> MakePorts:
    """Return how to make the ports to the account's commitments in the cluster's Region, and to who uses them."""
    return {
        "commitments": lambda: BucketCommitments(resources.client("s3"), resources.bucket, resources.region),
        "commitment_source": lambda: _source(resources),
        "commitment_use": lambda: DynamoCommitmentUse(resources.client("dynamodb"), resources.state_table),
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


_USE = "COMMITMENTS"
"""The sort key of the notes."""


class DynamoCommitmentUse:
    """A CommitmentUseStore: one item for all clusters, which has the number of its writes."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client = client
        self._table = table

    def read(self) -> SharedUse:
        """See the port. Raises StoreThrottled, StoreError."""
        found = list(query(self._client, self._table, ("cluster", ACCOUNT), ("item", _USE)))
        if not found:
            return SharedUse()
        try:
            return msgspec.json.decode(zlib.decompress(found[0]["use"]["B"]), type=SharedUse)
        except (msgspec.DecodeError, zlib.error) as error:
            raise StoreError(f"the notes of who uses commitments cannot be read: {error}") from error

    def note(self, known: SharedUse, cluster: str, use: ClusterUse, now: float) -> bool:
        """See the port. Raises StoreThrottled, StoreError."""
        made = known.with_cluster(cluster, use, now)
        item = {
            "cluster": text(ACCOUNT),
            "item": text(_USE),
            "version": number(made.version),
            "use": {"B": zlib.compress(msgspec.json.encode(made), 9)},
        }
        return put_if(self._client, self._table, item, *of_version(known.version or None))

"""Makes the storage that outlives every function: the tables `state` and `capacity`, and the bucket."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from shiplap.aws.bucket import CATALOG_PREFIX, CHUNKS_PREFIX, CLUSTERS_PREFIX, MEMORY_PREFIX, RECORDS_PREFIX
from shiplap.aws.dynamodb import tables
from shiplap_cdk.constructs.acknowledged import acknowledge

_MOST_DAYS = 2**31 - 1
"""More days a lifecycle rule does not take."""


class InstallStorage(Construct):
    """Both tables and the bucket. They stay when the stack is deleted: learned capacity took real nodes to learn."""

    def __init__(self, scope: Construct, id_: str, *, record_retention_days: int) -> None:
        super().__init__(scope, id_)
        self.state = self._table("State", tables.STATE)
        self.capacity = self._table("Capacity", tables.CAPACITY)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            versioned=True,
            removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
            lifecycle_rules=[
                s3.LifecycleRule(id="records", prefix=RECORDS_PREFIX, expiration=Duration.days(record_retention_days)),
                # Of the same day as the records that name them. The last of these may be written after midnight.
                s3.LifecycleRule(
                    id="chunks",
                    prefix=CHUNKS_PREFIX,
                    expiration=Duration.days(min(record_retention_days + 1, _MOST_DAYS)),
                ),
                # Each refresh writes a catalogue anew, and the pointer to it: what expires has long been replaced.
                s3.LifecycleRule(id="catalogs", prefix=CATALOG_PREFIX, expiration=Duration.days(30)),
                # Written every minute or oftener, and worth nothing a minute later.
                s3.LifecycleRule(id="memory", prefix=MEMORY_PREFIX, noncurrent_version_expiration=Duration.days(1)),
                s3.LifecycleRule(id="clusters", prefix=CLUSTERS_PREFIX, noncurrent_version_expiration=Duration.days(1)),
                s3.LifecycleRule(
                    id="earlier-versions",
                    noncurrent_version_expiration=Duration.days(7),
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                ),
            ],
        )
        acknowledge(
            self.bucket,
            "AwsSolutions-S1",
            "Only the functions of this stack read and write the bucket, and each of them logs what it does; access "
            "logs would need a second bucket that costs more than they tell.",
        )

    def _table(self, id_: str, table: tables.Table) -> dynamodb.TableV2:
        return dynamodb.TableV2(
            self,
            id_,
            partition_key=_key(table.partition_key),
            sort_key=_key(table.sort_key),
            time_to_live_attribute=table.expiry,
            billing=dynamodb.Billing.on_demand(),
            encryption=dynamodb.TableEncryptionV2.dynamo_owned_key(),
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            local_secondary_indexes=[
                dynamodb.LocalSecondaryIndexProps(
                    index_name=index.name,
                    sort_key=_key(index.sort_key),
                    projection_type=_projection(index),
                    non_key_attributes=list(index.with_) or None,
                )
                for index in table.indexes
                if index.local
            ]
            or None,
            global_secondary_indexes=[
                dynamodb.GlobalSecondaryIndexPropsV2(
                    index_name=index.name,
                    partition_key=_key(index.partition_key),
                    sort_key=_key(index.sort_key) if index.sort_key else None,
                    projection_type=_projection(index),
                    non_key_attributes=list(index.with_) or None,
                )
                for index in table.indexes
                if not index.local
            ]
            or None,
            removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        )


def _key(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)


def _projection(index: tables.Index) -> dynamodb.ProjectionType:
    if index.with_:
        return dynamodb.ProjectionType.INCLUDE
    return dynamodb.ProjectionType.KEYS_ONLY if index.keys_only else dynamodb.ProjectionType.ALL

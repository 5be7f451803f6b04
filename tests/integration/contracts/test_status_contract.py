"""The contract of StatusStore, held by the in-memory fake and by the S3 adapter; and whether profiles exist."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from shiplap.aws.bucket import STATUS_KEY, BucketDryRuns, BucketStatus
from shiplap.aws.instance_profiles import is_missing
from shiplap.errors import StoreError
from shiplap.instances.catalog.resolved_nodeclass import (
    Ami,
    CapacityReservation,
    NodeClassProblem,
    PlacementGroup,
    SecurityGroup,
    Subnet,
)
from shiplap.instances.readiness.nodeclass_status import (
    ClusterStatus,
    DryRun,
    DryRuns,
    InstallStatus,
    NodeClassStatus,
    PoolStatus,
    conditions,
)
from shiplap.ports import DryRunStore, StatusStore
from shiplap_lab.fakes.stores import FakeDryRuns, FakeStatus

NODE_CLASS = NodeClassStatus(
    name="default",
    manifest="0123456789ab",
    conditions=conditions((NodeClassProblem("AMIsReady", "AMINotFound", "none"),)),
    family="AL2023",
    subnets=(Subnet("subnet-1", "a", "id-a", 7),),
    security_groups=(SecurityGroup("sg-1", "nodes"),),
    amis=(Ami("ami-1", "x", "2026-01-01", deprecated=True, requirements=(("kubernetes.io/arch", "In", ("arm64",)),)),),
    capacity_reservations=(CapacityReservation("cr-1", "m5.large", "a", ends_at=5.0),),
    placement_group=PlacementGroup("pg-1", "wide", "partition", 7),
    instance_profile="nodes",
    instance_types=12,
    warnings=("old",),
)
STATUS = InstallStatus(
    (
        ClusterStatus(
            "demo", "eu-west-1", 1_700_000_000.0, (NODE_CLASS,), (PoolStatus("p", "default", "False", 3, "w"),)
        ),
    )
)


@pytest.fixture(params=["fake", "s3"])
def store(request: pytest.FixtureRequest) -> StatusStore:
    return FakeStatus() if request.param == "fake" else BucketStatus(request.getfixturevalue("s3"), "bucket")


def test_before_the_first_inspection_nothing_is_known(store: StatusStore) -> None:
    assert store.load() == InstallStatus()


def test_a_status_is_read_back_exactly_and_the_newest_counts(store: StatusStore) -> None:
    store.save(STATUS)
    assert store.load() == STATUS
    store.save(InstallStatus())
    assert store.load() == InstallStatus()


def test_a_document_that_is_no_status(s3: Any) -> None:
    s3.put_object(Bucket="bucket", Key=STATUS_KEY, Body=b'{"clusters": 7}')
    with pytest.raises(StoreError, match="is no status"):
        BucketStatus(s3, "bucket").load()


def test_a_bucket_that_is_not_there(s3: Any) -> None:
    with pytest.raises(StoreError):
        BucketStatus(s3, "other").load()


REHEARSALS = DryRuns((DryRun("a", "0123456789ab", 7.0), DryRun("b", "ba9876543210", 5.0, "Denied", "so")))


@pytest.fixture(params=["fake", "s3"])
def rehearsals(request: pytest.FixtureRequest) -> DryRunStore:
    return FakeDryRuns() if request.param == "fake" else BucketDryRuns(request.getfixturevalue("s3"), "bucket")


def test_rehearsals_are_kept_by_cluster(rehearsals: DryRunStore) -> None:
    assert rehearsals.load("demo") == DryRuns()
    rehearsals.save("demo", REHEARSALS)
    assert rehearsals.load("demo") == REHEARSALS
    assert rehearsals.load("other") == DryRuns()


def test_rehearsals_that_cannot_be_read_begin_anew(s3: Any) -> None:
    s3.put_object(Bucket="bucket", Key="rehearsals/demo.json", Body=b"[]")
    assert BucketDryRuns(s3, "bucket").load("demo") == DryRuns()


class Iam:
    """An IAM client that answers or refuses."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def get_instance_profile(self, *, InstanceProfileName: str) -> dict[str, Any]:  # noqa: N803
        if self._error is not None:
            raise self._error
        return {"InstanceProfile": {"InstanceProfileName": InstanceProfileName}}


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        (None, False),
        (ClientError({"Error": {"Code": "NoSuchEntity", "Message": "x"}}, "GetInstanceProfile"), True),
        (ClientError({"Error": {"Code": "AccessDenied", "Message": "x"}}, "GetInstanceProfile"), False),
        (EndpointConnectionError(endpoint_url="https://iam.example"), False),
    ],
)
def test_an_instance_profile_is_missing_only_when_iam_says_so(error: Exception | None, missing: bool) -> None:
    assert is_missing(Iam(error), "nodes") is missing

"""The contract of SnapshotStore, held by the in-memory fake and by the S3 adapter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shiplap.aws.bucket import CLUSTERS_PREFIX, BucketSnapshots
from shiplap.errors import StoreError
from shiplap.ports import SnapshotStore
from shiplap_lab.fakes.stores import FakeSnapshots
from tests.integration.contracts.in_process_aws import aws_in_process, make_client


@pytest.fixture(params=["fake", "bucket"])
def store(request: pytest.FixtureRequest) -> Iterator[SnapshotStore]:
    if request.param == "fake":
        yield FakeSnapshots()
        return
    with aws_in_process():
        client = make_client("s3")
        client.create_bucket(Bucket="snapshots", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        yield BucketSnapshots(client, "snapshots")


def test_what_was_never_saved_is_not_there(store: SnapshotStore) -> None:
    assert store.load("blue") is None
    assert store.kept_since("blue") == 0.0


def test_documents_are_kept_as_they_are_by_cluster_and_with_their_keeper(store: SnapshotStore) -> None:
    store.save("blue", b"\x00one", 1000.25)
    store.save("green", b"", 7.0)
    assert (store.load("blue"), store.kept_since("blue")) == (b"\x00one", 1000.25)
    assert (store.load("green"), store.kept_since("green")) == (b"", 7.0)
    store.save("blue", b"two", 900.5)
    assert (store.load("blue"), store.kept_since("blue")) == (b"two", 900.5)


def test_an_object_of_somebody_else_has_no_keeper_or_is_an_error() -> None:
    with aws_in_process():
        client = make_client("s3")
        client.create_bucket(Bucket="snapshots", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        store = BucketSnapshots(client, "snapshots")
        client.put_object(Bucket="snapshots", Key=f"{CLUSTERS_PREFIX}blue", Body=b"x")
        assert store.kept_since("blue") == 0.0
        client.put_object(Bucket="snapshots", Key=f"{CLUSTERS_PREFIX}blue", Body=b"x", Metadata={"kept-since": "soon"})
        with pytest.raises(StoreError, match="is no time"):
            store.kept_since("blue")
        with pytest.raises(StoreError):
            BucketSnapshots(client, "another").kept_since("blue")

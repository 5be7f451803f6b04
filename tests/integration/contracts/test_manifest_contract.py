"""The contract of ManifestStore, held by the in-memory fake and by the S3 adapter."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.aws.bucket import MANIFESTS_PREFIX, BucketManifests
from shiplap.errors import StoreError
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.manifests.live.live_manifests import LiveManifests
from shiplap.ports import ManifestStore
from shiplap_lab.fakes.stores import FakeManifests

SPEC = {"template": {"spec": {"nodeClassRef": {"name": "default"}}}, "limits": {"cpu": "100"}, "weight": 7}
POOL = msgspec.convert({"metadata": {"name": "general", "labels": {"team": "a"}}, "spec": SPEC}, NodePool)
READ = LiveManifests(Manifests(node_pools=(POOL,)))


@pytest.fixture(params=["fake", "s3"])
def store(request: pytest.FixtureRequest) -> ManifestStore:
    return FakeManifests() if request.param == "fake" else BucketManifests(request.getfixturevalue("s3"), "bucket")


def test_of_a_cluster_that_was_never_read_there_are_no_manifests(store: ManifestStore) -> None:
    assert store.load("demo") == LiveManifests()


def test_manifests_are_read_back_exactly_by_cluster_and_the_newest_count(store: ManifestStore) -> None:
    store.save("demo", READ)
    assert store.load("demo") == READ
    assert store.load("other") == LiveManifests()
    renamed = msgspec.structs.replace(POOL, metadata=ObjectMeta(name="other"))
    newer = LiveManifests(Manifests(node_pools=(renamed,)))
    store.save("demo", newer)
    assert store.load("demo") == newer


def test_a_document_that_cannot_be_read_counts_as_none_and_is_told(s3: Any, caplog: pytest.LogCaptureFixture) -> None:
    s3.put_object(Bucket="bucket", Key=f"{MANIFESTS_PREFIX}demo.json", Body=b'{"manifests": 7}')
    assert BucketManifests(s3, "bucket").load("demo") == LiveManifests()
    assert "manifests cannot be read" in caplog.text


def test_a_bucket_that_is_not_there(s3: Any) -> None:
    with pytest.raises(StoreError):
        BucketManifests(s3, "other").load("demo")
    with pytest.raises(StoreError):
        BucketManifests(s3, "other").save("demo", READ)

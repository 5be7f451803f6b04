"""Documents of the bucket: equal contents are equal bytes, and nothing is read again that is known."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest

from shiplap.aws.bucket import BucketCatalog, BucketManifests, BucketStatus
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.readiness.nodeclass_status import ClusterStatus, InstallStatus, PoolStatus
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import (
    Manifests,
    NodeClaimTemplateSpec,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    NodePoolTemplate,
)
from shiplap.manifests.live.live_manifests import LiveManifests


class Bucket:
    """S3 with one bucket; `read` are the keys that were asked for, in order."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}
        self.read: list[str] = []

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:  # noqa: N803 - S3's names
        assert Bucket == "bucket"
        self.documents[Key] = Body

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803 - S3's names
        assert Bucket == "bucket"
        self.read.append(Key)
        return {"Body": BytesIO(self.documents[Key])}


POOL = NodePoolSpec(NodePoolTemplate(NodeClaimTemplateSpec(NodeClassReference("default"))))


def limited(limits: dict[str, Any]) -> InstallStatus:
    return InstallStatus(
        (ClusterStatus("demo", "eu-west-1", 7.0, pools=(PoolStatus("p", "c", "True", limits=limits),)),)
    )


@pytest.mark.parametrize(
    ("save", "document"),
    [
        (
            lambda bucket, some: BucketCatalog(bucket, "bucket", "r").save(
                Catalog(region="r", types=(), zones=some, prices={})
            ),
            {"m5.large": ("a", "b"), "c5.large": ("a",)},
        ),
        (lambda bucket, some: BucketStatus(bucket, "bucket").save(limited(some)), {"memory": "1Gi", "cpu": 4}),
        (
            lambda bucket, some: BucketManifests(bucket, "bucket").save(
                "demo", LiveManifests(Manifests(node_pools=(NodePool(ObjectMeta(name="p", labels=some), POOL),)))
            ),
            {"team": "a", "app": "b"},
        ),
    ],
    ids=["catalogue", "status", "manifests"],
)
def test_what_is_equal_is_stored_as_equal_bytes_however_it_was_put_together(
    save: Callable[[Any, dict[str, Any]], None], document: dict[str, Any]
) -> None:
    """The bucket keeps versions of documents, which people compare, and the catalogue is named by its bytes."""
    first, second = Bucket(), Bucket()
    save(first, document)
    save(second, dict(reversed(document.items())))
    assert first.documents == second.documents != {}


def test_the_status_is_laid_out_for_people() -> None:
    bucket: Any = Bucket()
    BucketStatus(bucket, "bucket").save(limited({"cpu": 4}))
    assert bucket.documents["status/clusters.json"].startswith(b'{\n "clusters": [\n  {\n   "cluster": "demo",\n')


def test_a_catalogue_is_read_once_for_as_long_as_the_pointer_names_it() -> None:
    bucket: Any = Bucket()
    store = BucketCatalog(bucket, "bucket", "r")
    store.save(Catalog(region="r", types=(), zones={}, prices={}))
    name = bucket.documents["catalog/r/latest"].decode()
    assert re.fullmatch(r"[0-9a-f]{32}", name)
    assert store.load() is store.load()
    assert bucket.read == ["catalog/r/latest", f"catalog/r/{name}", "catalog/r/latest"]

"""An install's bucket with what its functions stored in it, and what `shiplap status` says of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shiplap.aws import session
from shiplap.aws.bucket import BucketCatalog, BucketStatus
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.resolved_nodeclass import NodeClassProblem, Subnet
from shiplap.instances.readiness.nodeclass_status import (
    ClusterStatus,
    InstallStatus,
    NodeClassStatus,
    PoolStatus,
    conditions,
    unknown_conditions,
)
from shiplap_cli.main import run

NOW = 1_700_000_000.0
BUCKET = "install"
READY = NodeClassStatus(
    "default", "0" * 12, conditions(()), "AL2023", subnets=(Subnet("subnet-1", "a", "id-a", 7),), instance_types=12
)
BROKEN = NodeClassStatus(
    "gpu",
    "1" * 12,
    conditions((NodeClassProblem("SubnetsReady", "SubnetsNotFound", "subnetSelectorTerms match no subnet"),)),
    warnings=("ami-1 is deprecated",),
)
UNKNOWN = NodeClassStatus("odd", "2" * 12, unknown_conditions("RequestLimitExceeded", "slow down"))
POOLS = (PoolStatus("a", "default", "True", 10), PoolStatus("b", "gpu", "False", 0, "no subnet"))


def status_of(name: str, *classes: NodeClassStatus) -> ClusterStatus:
    return ClusterStatus(name, "eu-west-1", NOW - 240, classes, POOLS)


class StatusInstall:
    """A bucket with what was stored in it, and the command's output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.s3 = session.client("s3")
        self.s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        self._capsys = capsys

    def holds(self, *clusters: ClusterStatus, catalogue: bool = True) -> None:
        BucketStatus(self.s3, BUCKET).save(InstallStatus(clusters))
        if catalogue:
            found = Catalog(
                region="eu-west-1", types=(), refreshed_at=NOW - 3600, version="v1", on_demand_at=NOW - 90_000
            )
            BucketCatalog(self.s3, BUCKET, "eu-west-1").save(found)

    def says(self, *arguments: str, code: int = 0) -> str:
        assert run(["status", *arguments]) == code
        printed = self._capsys.readouterr()
        assert (printed.err == "") == (code != 2)
        return printed.err if code == 2 else printed.out

    def document(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        return dict(json.loads(self.says("--bucket", BUCKET, "-o", "json", *arguments, code=code)))

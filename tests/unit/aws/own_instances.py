"""An instance of a cluster, as EC2 describes it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from shiplap.settings import ClusterSettings

CLUSTER = ClusterSettings(name="demo", region="eu-west-1", install="own")


def shown(name: str) -> dict[str, Any]:
    tags = {"shiplap.dev/cluster": "demo", "shiplap.dev/install": "own"}
    return {
        "InstanceId": name,
        "InstanceType": "m5.large",
        "ImageId": "ami-1",
        "LaunchTime": datetime(2026, 1, 1, tzinfo=UTC),
        "State": {"Name": "running"},
        "Placement": {"AvailabilityZone": "eu-west-1a"},
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }

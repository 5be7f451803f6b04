"""Tests the reading of an instance's status checks and of a zone's shifts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from shiplap.aws.health import Ec2Health, ailments
from shiplap.ports import InstanceProblem

NOW = 1_800_000_000.0


def at(ago_s: float) -> datetime:
    return datetime.fromtimestamp(NOW - ago_s, UTC)


@pytest.mark.parametrize(
    ("details", "since"),
    [
        ([], 0.0),
        ([{"Name": "reachability"}], 0.0),
        ([{"ImpairedSince": at(60)}], NOW - 60),
        ([{"ImpairedSince": at(60)}, {"Name": "reachability"}, {"ImpairedSince": at(300)}], NOW - 300),
    ],
)
def test_an_instance_is_impaired_since_the_first_of_its_checks_failed(details: list[Any], since: float) -> None:
    status: Any = {"InstanceId": "i-1", "SystemStatus": {"Status": "impaired", "Details": details}}
    assert list(ailments(status)) == [InstanceProblem("i-1", "system", since)]


@pytest.mark.parametrize(
    ("ago_s", "status", "zones"),
    [(-1.0, "APPLIED", {"az1"}), (0.0, "APPLIED", set()), (-1.0, "NOT_APPLIED", set())],
)
def test_a_shift_counts_until_it_expires(ago_s: float, status: str, zones: set[str]) -> None:
    class Arc:
        def describe_cluster(self, *, name: str) -> dict[str, Any]:
            return {"cluster": {"arn": f"arn:{name}"}}

        def get_managed_resource(self, *, resourceIdentifier: str) -> dict[str, Any]:  # noqa: N803 - ARC's name
            assert resourceIdentifier == "arn:demo"
            return {"zonalShifts": [{"awayFrom": "az1", "appliedStatus": status, "expiryTime": at(ago_s)}]}

    arc: Any = Arc()
    health = Ec2Health("demo", ec2=arc, eks=lambda: arc, zonal_shift=lambda: arc, clock=lambda: NOW)
    assert health.shifted_zones() == zones

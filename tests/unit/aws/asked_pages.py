"""Questions that AWS answers in pages, and clients that note how large the pages are to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from shiplap.aws import tags

MADE = datetime(2026, 1, 1, tzinfo=UTC)


class Asked:
    """Clients of EC2 and Savings Plans that have nothing to tell and note how large their pages are to be."""

    def __init__(self) -> None:
        self.sizes: dict[str, int | None] = {}
        self.filters: list[Any] = []

    def get_paginator(self, operation: str) -> Any:
        outer = self

        class _Paginator:
            def paginate(self, **options: Any) -> Iterator[Any]:
                outer.filters += options.get("Filters", [])
                outer.sizes[operation] = options.get("PaginationConfig", {}).get("PageSize")
                return iter(())

        return _Paginator()

    def describe_reserved_instances(self, **_: Any) -> dict[str, Any]:
        return {"ReservedInstances": []}

    def describe_savings_plans(self, *, maxResults: int, **_: Any) -> dict[str, Any]:  # noqa: N803 - AWS's name
        self.sizes["describe_savings_plans"] = maxResults
        return {}


class Listing(msgspec.Struct, frozen=True):
    """A question: how it is asked, giving the names that were found, and the page that holds a name."""

    service: str
    operation: str
    page: Callable[[str], dict[str, Any]]
    read: Callable[[Any], Iterable[str]]


def instance(name: str, **fields: Any) -> dict[str, Any]:
    """Return a page of DescribeInstances with one instance."""
    tagged = [
        {"Key": "aws:ec2launchtemplate:id", "Value": name},
        *({"Key": key, "Value": "demo"} for key in (tags.CLUSTER, tags.LAUNCH)),
    ]
    described = {"InstanceId": name, "InstanceType": name, "ImageId": name, "State": {"Name": "running"}}
    place = {"Placement": {"AvailabilityZone": "a"}, "LaunchTime": MADE}
    return {"Reservations": [{"Instances": [{**described, **place, "Tags": tagged, **fields}]}]}

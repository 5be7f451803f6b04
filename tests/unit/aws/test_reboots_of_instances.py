"""Tests the request for a reboot: of which instances, by which client, and the meaning of a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from shiplap.aws import session
from shiplap.aws.ec2.ec2_compute import Ec2Compute
from shiplap.errors import AwsError, AwsThrottled, AwsUnavailable
from shiplap.settings import ClusterSettings
from tests.unit.aws.own_instances import CLUSTER, shown


def refusal(code: str, status: int = 400) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "RebootInstances")


class Ec2:
    """Describes `there`; `describes` and `reboots` are errors of the two requests."""

    def __init__(self, *there: str, describes: Exception | None = None, reboots: Exception | None = None) -> None:
        self._there, self._describes, self._reboots = there, describes, reboots
        self.rebooted: list[list[str]] = []

    def get_paginator(self, operation: str) -> Any:
        assert operation == "describe_instances"
        return self

    def paginate(self, **options: Any) -> Iterator[dict[str, Any]]:
        if self._describes is not None:
            raise self._describes
        (names,) = (item["Values"] for item in options["Filters"] if item["Name"] == "instance-id")
        yield {"Reservations": [{"Instances": [shown(name) for name in names if name in self._there]}]}

    def reboot_instances(self, InstanceIds: list[str]) -> None:  # noqa: N803 - EC2's name
        self.rebooted.append(InstanceIds)
        if self._reboots is not None:
            raise self._reboots


def compute(ec2: Ec2, once: Ec2 | None = None, cluster: ClusterSettings = CLUSTER) -> Ec2Compute:
    never: Any = None
    sender: Any = (lambda: once) if once is not None else None
    return Ec2Compute(cluster, ec2=ec2, ssm=never, eks=never, iam=never, once=sender, clock=lambda: 0.0)  # type: ignore[arg-type]


def test_an_instance_is_rebooted_by_the_client_that_sends_once() -> None:
    describing, once = Ec2("i-1"), Ec2()
    compute(describing, once).reboot("demo", "i-1")
    assert (describing.rebooted, once.rebooted) == ([], [["i-1"]])


def test_that_client_makes_one_attempt_and_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_CLIENTS", {})
    once, usual = session.client_without_retries("eu-west-1"), session.client("ec2", "eu-west-1")
    assert once is not usual
    assert once.meta.config.retries["total_max_attempts"] == 1
    assert once.meta.config.read_timeout == usual.meta.config.read_timeout == 15


def test_what_ec2_does_not_show_is_not_rebooted() -> None:
    ec2 = Ec2("i-2")
    with pytest.raises(AwsError) as told:
        compute(ec2).reboot("demo", "i-1")
    assert told.value.code == "InvalidInstanceID.NotFound"
    assert ec2.rebooted == []


@pytest.mark.parametrize("error", [refusal("UnauthorizedOperation"), ReadTimeoutError(endpoint_url="https://ec2")])
def test_an_instance_that_cannot_be_described_was_not_rebooted(error: Exception) -> None:
    ec2 = Ec2("i-1", describes=error)
    with pytest.raises(AwsUnavailable):
        compute(ec2).reboot("demo", "i-1")
    assert ec2.rebooted == []


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (refusal("RequestLimitExceeded", 503), AwsThrottled, "RequestLimitExceeded"),
        (refusal("UnauthorizedOperation", 403), AwsError, "UnauthorizedOperation"),
        (refusal("InvalidInstanceID.NotFound"), AwsError, "InvalidInstanceID.NotFound"),
        (refusal("InternalError", 500), AwsError, "ServiceUnavailable"),
        (ReadTimeoutError(endpoint_url="https://ec2"), AwsError, ""),
    ],
)
def test_the_code_says_whether_it_may_happen(error: Exception, kind: type[AwsError], code: str) -> None:
    ec2 = Ec2("i-1", reboots=error)
    with pytest.raises(kind) as told:
        compute(ec2).reboot("demo", "i-1")
    assert told.value.code == code
    assert ec2.rebooted == [["i-1"]]

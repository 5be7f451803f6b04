"""Tests the choice of instances to end, the number of requests for them, and the meaning of a refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError

from shiplap.aws.ec2.ec2_compute import Ec2Compute
from shiplap.errors import AwsError, AwsThrottled
from tests.unit.aws.own_instances import CLUSTER, shown


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "TerminateInstances")


class Ec2:
    """Describes all that it is asked for but `hidden`; `refuses` by instance id."""

    def __init__(self, hidden: Sequence[str] = (), refuses: Mapping[str, Exception] | None = None) -> None:
        self._hidden, self._refuses = frozenset(hidden), dict(refuses or {})
        self.ended: list[list[str]] = []
        self.described: list[list[str]] = []

    def get_paginator(self, operation: str) -> Any:
        assert operation == "describe_instances"
        outer = self

        class _Paginator:
            def paginate(self, **options: Any) -> list[dict[str, Any]]:
                (names,) = (item["Values"] for item in options["Filters"] if item["Name"] == "instance-id")
                outer.described.append(list(names))
                return [{"Reservations": [{"Instances": [shown(name) for name in names if name not in outer._hidden]}]}]

        return _Paginator()

    def terminate_instances(self, InstanceIds: list[str]) -> None:  # noqa: N803 - EC2's name
        self.ended.append(InstanceIds)
        for name in InstanceIds:
            if name in self._refuses:
                raise self._refuses[name]


def compute(ec2: Ec2) -> Ec2Compute:
    never: Any = None
    return Ec2Compute(CLUSTER, ec2=ec2, ssm=never, eks=never, iam=never, clock=lambda: 0.0)  # type: ignore[arg-type]


def test_what_ec2_shows_is_ended_by_one_request() -> None:
    ec2 = Ec2(hidden=["i-3"])
    compute(ec2).terminate("demo", "i-2", "i-3", "i-1")
    assert ec2.ended == [["i-1", "i-2"]]


def test_what_ec2_does_not_show_is_not_asked_to_end() -> None:
    ec2 = Ec2(hidden=["i-1"])
    compute(ec2).terminate("demo", "i-1")
    assert ec2.ended == []
    compute(ec2).terminate("demo")
    assert len(ec2.described) == 1


@pytest.mark.parametrize("code", ["InvalidInstanceID.NotFound", "UnauthorizedOperation", "OperationNotPermitted"])
def test_one_that_ec2_refuses_to_end_keeps_none_of_the_others(code: str) -> None:
    ec2 = Ec2(refuses={"i-2": refusal(code)})
    if code == "InvalidInstanceID.NotFound":
        compute(ec2).terminate("demo", "i-1", "i-2", "i-3")
    else:
        with pytest.raises(AwsError, match="terminate i-2") as told:
            compute(ec2).terminate("demo", "i-1", "i-2", "i-3")
        assert told.value.code == code
    assert ec2.ended == [["i-1", "i-2", "i-3"], ["i-1"], ["i-2"], ["i-3"]]


@pytest.mark.parametrize("code", ["InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"])
def test_a_single_one_that_is_gone_by_now_is_no_error(code: str) -> None:
    """An id that EC2 has long forgotten, it calls malformed."""
    ec2 = Ec2(refuses={"i-1": refusal(code)})
    compute(ec2).terminate("demo", "i-1")
    assert ec2.ended == [["i-1"]]


def test_a_single_one_that_is_refused_is_not_asked_for_again() -> None:
    ec2 = Ec2(refuses={"i-1": refusal("UnauthorizedOperation")})
    with pytest.raises(AwsError):
        compute(ec2).terminate("demo", "i-1")
    assert ec2.ended == [["i-1"]]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refusal("RequestLimitExceeded"), AwsThrottled),
        (refusal("InternalError"), AwsError),
        (ConnectTimeoutError(endpoint_url="https://ec2"), AwsError),
    ],
)
def test_what_is_no_refusal_of_these_instances_ends_the_call(error: Exception, kind: type[AwsError]) -> None:
    ec2 = Ec2(refuses={"i-1": error})
    with pytest.raises(kind):
        compute(ec2).terminate("demo", "i-1", "i-2")
    assert ec2.ended[0] == ["i-1", "i-2"]


def test_many_are_ended_in_portions() -> None:
    ec2 = Ec2()
    names = [f"i-{number:04}" for number in range(250)]
    compute(ec2).terminate("demo", *names)
    assert sorted(name for some in ec2.ended for name in some) == names
    assert max(map(len, ec2.ended)) <= 100
    assert [len(some) for some in ec2.described] == [len(some) for some in ec2.ended]

"""The token buckets that all functions share for requests which change something in EC2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shiplap.aws import tables, template_sweep
from shiplap.aws.pace import LIMITS, LONGEST_WAIT_S, Bucket, Limit, Pace, paced
from shiplap.errors import AwsThrottled
from shiplap.twins.clock import TwinClock
from shiplap.twins.faults import Faults
from tests.integration.contracts.in_process_aws import HookedClient, aws_in_process, create_table, make_client

FLEETS = LIMITS["create_fleet"]


class Shared:
    """Two functions on one table; waiting moves their clock."""

    def __init__(self, client: Any) -> None:
        self.clock = TwinClock()
        self.faults = Faults()
        self.waits: list[float] = []
        hooked = HookedClient(client, self.faults)
        self.one, self.two = (
            Pace(hooked, "state", "eu-west-1", clock=self.clock.now, sleep=self._sleep, chance=lambda: 0.5)
            for _ in range(2)
        )

    def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.advance(seconds)


@pytest.fixture
def shared() -> Iterator[Shared]:
    with aws_in_process():
        client = make_client("dynamodb")
        create_table(client, "state", tables.STATE)
        yield Shared(client)


def test_a_bucket_refills_up_to_its_burst() -> None:
    limit = Limit(10, 2)
    assert Bucket(1, 100).after(limit, 102) == Bucket(5, 102)
    assert Bucket(1, 100).after(limit, 1000) == Bucket(10, 1000)
    assert Bucket(1, 100).after(limit, 90) == Bucket(1, 100)


def test_a_burst_goes_through_at_once_and_what_follows_waits_its_turn(shared: Shared) -> None:
    for number in range(int(FLEETS.burst)):
        (shared.one if number % 2 else shared.two).wait("create_fleet")
    assert shared.waits == []
    shared.one.wait("create_fleet")
    assert shared.waits == [pytest.approx((1 + 0.5) / FLEETS.per_second)]


def test_actions_and_regions_have_buckets_of_their_own(shared: Shared) -> None:
    for _ in range(int(FLEETS.burst)):
        shared.one.wait("create_fleet")
    shared.one.wait("create_tags")
    assert shared.waits == []


def test_in_the_long_run_all_functions_together_keep_the_pace(shared: Shared) -> None:
    start = shared.clock.now()
    for number in range(100):
        (shared.one if number % 2 else shared.two).wait("create_fleet")
    passed = shared.clock.now() - start
    assert passed >= (100 - FLEETS.burst) / FLEETS.per_second


def test_too_long_a_queue_is_left_for_later(shared: Shared) -> None:
    waited: list[float] = []
    held = Pace(
        make_client("dynamodb"), "state", "eu-west-1", clock=shared.clock.now, sleep=waited.append, chance=lambda: 0.0
    )
    for _ in range(int(FLEETS.burst + LONGEST_WAIT_S * FLEETS.per_second)):
        held.wait("create_fleet")
    with pytest.raises(AwsThrottled):
        held.wait("create_fleet")
    assert max(waited) <= LONGEST_WAIT_S
    assert len(waited) == LONGEST_WAIT_S * FLEETS.per_second


def test_when_ec2_throttles_everybody_slows_down(shared: Shared) -> None:
    shared.one.wait("create_fleet")
    shared.one.throttled("create_fleet")
    shared.two.wait("create_fleet")
    assert len(shared.waits) == 1


def test_two_functions_never_take_the_same_token(shared: Shared) -> None:
    shared.one.wait("create_fleet")
    shared.faults.on("before", "put_item", lambda: shared.two.wait("create_fleet"))
    shared.one.wait("create_fleet")
    for _ in range(int(FLEETS.burst) - 3):
        shared.one.wait("create_fleet")
    assert shared.waits == []
    shared.one.wait("create_fleet")
    assert len(shared.waits) == 1


def test_a_store_that_does_not_answer_stops_nobody(shared: Shared) -> None:
    refusal = ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow"}}, "GetItem")
    for act in (shared.one.wait, shared.one.throttled):
        shared.faults.on("before", "get_item", refusal)
        act("create_fleet")
    assert shared.waits == []


class Ec2:
    """A client that is throttled once."""

    def __init__(self) -> None:
        self.refused = False

    def create_fleet(self, **_: Any) -> str:
        if not self.refused:
            self.refused = True
            raise ClientError({"Error": {"Code": "RequestLimitExceeded", "Message": "slow"}}, "CreateFleet")
        return "fleet"

    def describe_instances(self, **_: Any) -> str:
        return "instances"


def test_only_requests_that_change_something_are_paced(shared: Shared) -> None:
    client: Any = paced(Ec2(), shared.one)  # type: ignore[arg-type]
    with pytest.raises(ClientError):
        client.create_fleet(Type="instant")
    assert client.create_fleet(Type="instant") == "fleet"
    assert len(shared.waits) == 1
    passed = len(shared.faults.points)
    assert client.describe_instances() == "instances"
    assert len(shared.faults.points) == passed


def test_a_sweep_of_templates_keeps_no_pod_waiting() -> None:
    assert LIMITS["delete_launch_template"].burst >= template_sweep.MOST_AT_ONCE

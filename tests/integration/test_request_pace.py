"""The token buckets that all functions share for requests which change something in EC2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shiplap.aws.dynamodb import tables
from shiplap.aws.ec2 import launch_templates
from shiplap.aws.ec2.request_pace import (
    INSTANCE_LIMITS,
    LIMITS,
    LONGEST_WAIT_S,
    RateLimit,
    RequestPace,
    TokenBucket,
    paced,
)
from shiplap.errors import AwsThrottled
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.signals import FakeClock
from tests.integration.contracts.in_process_aws import HookedClient, aws_in_process, create_table, make_client
from tests.thoroughness import THOROUGH

FLEETS = LIMITS["create_fleet"]


class Shared:
    """Two functions on one table; waiting moves their clock."""

    def __init__(self, client: Any) -> None:
        self.clock = FakeClock()
        self.table = client
        self.faults = Faults()
        self.waits: list[float] = []
        hooked = HookedClient(client, self.faults)
        self.one, self.two = (
            RequestPace(hooked, "state", "eu-west-1", clock=self.clock.now, sleep=self._sleep, chance=lambda: 0.5)
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
    limit = RateLimit(10, 2)
    assert TokenBucket(1, 100).after(limit, 102) == TokenBucket(5, 102)
    assert TokenBucket(1, 100).after(limit, 1000) == TokenBucket(10, 1000)
    assert TokenBucket(1, 100).after(limit, 90) == TokenBucket(1, 100)


def test_a_burst_goes_through_at_once_and_what_follows_waits_its_turn(shared: Shared) -> None:
    for number in range(int(FLEETS.burst)):
        (shared.one if number % 2 else shared.two).wait("create_fleet")
    assert shared.waits == []
    shared.one.wait("create_fleet")
    assert shared.waits == [pytest.approx((1 + 0.5) / FLEETS.per_second)]


def test_a_bucket_that_nobody_draws_from_is_forgotten_after_an_hour(shared: Shared) -> None:
    """A bucket is full again within minutes, so that nothing is lost."""
    shared.one.wait("create_tags")
    (item,) = shared.table.scan(TableName="state")["Items"]
    assert int(item[tables.EXPIRY]["N"]) == int(shared.clock.now()) + 3600 + 1


def test_actions_and_regions_have_buckets_of_their_own(shared: Shared) -> None:
    for _ in range(int(FLEETS.burst)):
        shared.one.wait("create_fleet")
    shared.one.wait("create_tags")
    assert shared.waits == []


def test_only_actions_whose_instances_count_draw_from_a_bucket_of_instances(shared: Shared) -> None:
    shared.one.wait("create_tags", 3)
    shared.one.wait("create_fleet")
    names = {item["item"]["S"].partition("#")[2] for item in shared.table.scan(TableName="state")["Items"]}
    assert names == {"create_tags", "create_fleet"}
    shared.one.wait("create_fleet", 1)
    assert len(shared.table.scan(TableName="state")["Items"]) == 3


def test_in_the_long_run_all_functions_together_keep_the_pace(shared: Shared) -> None:
    start = shared.clock.now()
    for number in range(100):
        (shared.one if number % 2 else shared.two).wait("create_fleet")
    passed = shared.clock.now() - start
    assert passed >= (100 - FLEETS.burst) / FLEETS.per_second


def test_too_long_a_queue_is_left_for_later(shared: Shared) -> None:
    waited: list[float] = []
    held = RequestPace(
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


LAUNCHED = INSTANCE_LIMITS["create_fleet"]


class Ec2:
    """A client that is refused once by `refusal`, then answers with `answer`."""

    def __init__(self, refusal: str = "", answer: Any = "fleet") -> None:
        self._refusal = refusal
        self._answer = answer
        self.asked = 0

    def create_fleet(self, **_: Any) -> Any:
        self.asked += 1
        if self._refusal:
            code, self._refusal = self._refusal, ""
            raise ClientError({"Error": {"Code": code, "Message": "slow"}}, "CreateFleet")
        return self._answer

    def terminate_instances(self, **_: Any) -> str:
        return "ended"

    def describe_instances(self, **_: Any) -> str:
        return "instances"


def fleet_of(count: int, **more: Any) -> dict[str, Any]:
    return {"TargetCapacitySpecification": {"TotalTargetCapacity": count}, **more}


def given(launched: int, *codes: str) -> dict[str, Any]:
    """A fleet's answer."""
    groups = [{"InstanceIds": [f"i-{number}" for number in range(launched)]}]
    return {"FleetId": "fleet-1", "Instances": groups, "Errors": [{"ErrorCode": code} for code in codes]}


def left(shared: Shared) -> float:
    """Instances that may be launched at once now."""
    found = shared.table.get_item(
        TableName="state",
        Key={"cluster": {"S": "@requests"}, "item": {"S": "eu-west-1#create_fleet#instances"}},
    )["Item"]
    return float(found["tokens"]["N"])


def test_only_requests_that_change_something_are_paced(shared: Shared) -> None:
    client: Any = paced(Ec2("RequestLimitExceeded", given(1)), shared.one)  # type: ignore[arg-type]
    with pytest.raises(ClientError):
        client.create_fleet(**fleet_of(1))
    assert client.create_fleet(**fleet_of(1)) == given(1)
    assert len(shared.waits) == 1
    passed = len(shared.faults.points)
    assert client.describe_instances() == "instances"
    assert len(shared.faults.points) == passed


def test_a_thousand_instances_are_launched_at_once_and_two_a_second_after_that(shared: Shared) -> None:
    """By fleets of many sizes from two functions: what EC2's own bucket would refuse is never sent, and what it would
    take is sent within seconds.
    """
    clients: list[Any] = [paced(Ec2(answer=given(0)), pace) for pace in (shared.one, shared.two)]
    start, sent, burst = shared.clock.now(), 0, 0
    for turn in range(2000):
        count = (1, 7, 40, 2, 99)[turn % 5]
        try:
            clients[turn % 2].create_fleet(**fleet_of(count))
        except AwsThrottled:
            shared.clock.advance(10)
            continue
        passed = shared.clock.now() - start
        sent += count
        burst = sent if passed <= 20 else burst
        assert sent <= LAUNCHED.burst + LAUNCHED.per_second * passed
        if passed > (1800 if THOROUGH else 600):
            break
    passed = shared.clock.now() - start
    assert burst >= LAUNCHED.burst - 99  # it is the requests, twenty at once, that take seconds here
    assert sent >= LAUNCHED.burst + LAUNCHED.per_second * (passed - 60)


def test_more_instances_than_the_bucket_gives_in_time_are_left_for_later_and_not_taken(shared: Shared) -> None:
    client: Any = paced(Ec2(answer=given(0)), shared.one)  # type: ignore[arg-type]
    client.create_fleet(**fleet_of(950))
    with pytest.raises(AwsThrottled, match="too many instances for create_fleet in eu-west-1") as raised:
        client.create_fleet(**fleet_of(99))
    assert raised.value.code == "RequestLimitExceeded"
    client.create_fleet(**fleet_of(50))
    assert shared.waits == []


def test_a_throttled_instance_inside_a_fleets_answer_slows_everybody_down(shared: Shared) -> None:
    answer = given(3, "InsufficientInstanceCapacity", "RequestLimitExceeded")
    client: Any = paced(Ec2(answer=answer), shared.one)  # type: ignore[arg-type]
    client.create_fleet(**fleet_of(5))
    assert left(shared) == 0
    with pytest.raises(AwsThrottled):
        shared.two.wait("create_fleet", 99)
    shared.two.wait("create_fleet", 4)
    assert shared.waits == [pytest.approx((4 + 0.5) / LAUNCHED.per_second)]


@pytest.mark.parametrize(
    ("answer", "used"),
    [
        (given(3, "InsufficientInstanceCapacity"), 3),
        (given(0, "VcpuLimitExceeded"), 0),
        (given(5), 5),
        (given(3), 5),  # without a reason the other two may exist
    ],
)
def test_instances_that_were_refused_are_given_back(shared: Shared, answer: Any, used: int) -> None:
    client: Any = paced(Ec2(answer=answer), shared.one)  # type: ignore[arg-type]
    client.create_fleet(**fleet_of(5))
    assert left(shared) == LAUNCHED.burst - used


def test_a_refused_fleet_takes_no_instances_and_a_dry_run_asks_for_none(shared: Shared) -> None:
    client: Any = paced(Ec2("InvalidParameterValue", given(0)), shared.one)  # type: ignore[arg-type]
    with pytest.raises(ClientError):
        client.create_fleet(**fleet_of(40))
    assert left(shared) == LAUNCHED.burst
    client.create_fleet(**fleet_of(40, DryRun=True))
    assert left(shared) == LAUNCHED.burst


def test_endings_are_paced_by_instances_too(shared: Shared) -> None:
    client: Any = paced(Ec2(), shared.one)  # type: ignore[arg-type]
    ids = [f"i-{number}" for number in range(100)]
    for _ in range(11):  # a thousand from the bucket, a hundred at twenty a second
        client.terminate_instances(InstanceIds=ids)
    assert shared.waits == [pytest.approx(5 + 0.5 / 20)]
    with pytest.raises(AwsThrottled):
        client.terminate_instances(InstanceIds=[*ids, "i-100"])


def test_a_sweep_of_templates_keeps_no_pod_waiting() -> None:
    assert LIMITS["delete_launch_template"].burst >= launch_templates.MOST_AT_ONCE

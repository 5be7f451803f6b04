"""HealthSource: the adapter on documents as EC2, EKS and ARC write them; the fake beside it where both can be asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from shiplap.aws.health import Ec2Health
from shiplap.errors import AwsError, AwsThrottled
from shiplap.ports import InstanceProblem
from shiplap_lab.fakes.compute import FakeHealth
from tests.aws_faults import AwsFaults
from tests.integration.contracts.in_process_aws import aws_in_process, make_client

NOW = 1_800_000_000.0
SICK, WELL, DUE = "i-1234567890abcdef0", "i-1234567890abcdef1", "i-1234567890abcdef2"
ARN = "arn:aws:eks:eu-west-1:111122223333:cluster/demo"


def statuses(*items: str, token: str = "") -> str:
    more = f"<nextToken>{token}</nextToken>" if token else ""
    return (
        '<DescribeInstanceStatusResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        "<requestId>3be1508e-c444-4fef-89cc-0b1223c4f02f</requestId>"
        f"<instanceStatusSet>{''.join(items)}</instanceStatusSet>{more}</DescribeInstanceStatusResponse>"
    )


def check(status: str, since: str = "") -> str:
    result = "failed" if status == "impaired" else "passed"
    impaired = f"<impairedSince>{since}</impairedSince>" if since else ""
    detail = f"<item><name>reachability</name><status>{result}</status>{impaired}</item>"
    return f"<status>{status}</status><details>{detail}</details>"


def status_of(instance_id: str, *, instance: str = check("ok"), system: str = check("ok"), events: str = "") -> str:
    return (
        f"<item><instanceId>{instance_id}</instanceId><availabilityZone>eu-west-1d</availabilityZone>"
        "<instanceState><code>16</code><name>running</name></instanceState>"
        f"<systemStatus>{system}</systemStatus><instanceStatus>{instance}</instanceStatus>"
        f"<eventsSet>{events}</eventsSet></item>"
    )


def event(code: str, description: str) -> str:
    return (
        f"<item><code>{code}</code><description>{description}</description>"
        "<notBefore>2027-01-20T00:00:00.000Z</notBefore></item>"
    )


class Ground:
    """The adapter, and the hooks of its clients."""

    def __init__(self) -> None:
        clients = {name: make_client(name) for name in ("ec2", "eks", "arc-zonal-shift")}
        self.faults = {name: AwsFaults(client) for name, client in clients.items()}
        self.health = Ec2Health(
            "demo",
            ec2=clients["ec2"],
            eks=lambda: clients["eks"],
            zonal_shift=lambda: clients["arc-zonal-shift"],
            clock=lambda: NOW,
        )

    def shifts(self, **resource: Any) -> None:
        described = {"cluster": {"name": "demo", "arn": ARN, "status": "ACTIVE"}}
        self.faults["eks"].answer("DescribeCluster", json.dumps(described))
        document = {"arn": ARN, "name": "demo", "appliedWeights": {}, "zonalShifts": [], "autoshifts": []}
        self.faults["arc-zonal-shift"].answer("GetManagedResource", json.dumps({**document, **resource}))


@pytest.fixture
def ground() -> Iterator[Ground]:
    with aws_in_process():
        yield Ground()


def test_failed_checks_and_events_to_come_are_told(ground: Ground) -> None:
    faults = ground.faults["ec2"]
    impaired = check("impaired", "2027-01-15T07:00:00.000Z")
    faults.answer("DescribeInstanceStatus", statuses(status_of(SICK, instance=impaired)))
    faults.answer("DescribeInstanceStatus", statuses(status_of(SICK, system=impaired, instance=impaired)))
    retired = event("instance-retirement", "The instance is running on degraded hardware")
    faults.answer("DescribeInstanceStatus", statuses(status_of(DUE, events=retired)))
    since = 1_799_996_400.0
    assert ground.health.ailing() == (
        InstanceProblem(SICK, "instance", since),
        InstanceProblem(SICK, "system", since),
        InstanceProblem(DUE, "event", due_at=1_800_403_200.0),
    )
    asked = [call.parameters for call in faults.made("DescribeInstanceStatus")]
    assert [wanted["Filter.1.Name"] for wanted in asked] == [
        "instance-status.status",
        "system-status.status",
        "event.code",
    ]
    assert asked[0]["Filter.1.Value.1"] == "impaired"
    assert "Filter.2.Name" not in asked[0]  # filters of different names would all have to hold


@pytest.mark.parametrize("prefix", ["[Completed]", "[Canceled]"])
def test_events_that_are_over_are_left_out(ground: Ground, prefix: str) -> None:
    over = event("system-reboot", f"{prefix} scheduled reboot")
    ground.faults["ec2"].answer("DescribeInstanceStatus", statuses(status_of(DUE, events=over)), times=3)
    assert ground.health.ailing() == ()


def test_checks_that_pass_or_have_not_begun_say_nothing(ground: Ground) -> None:
    young = status_of(WELL, instance=check("initializing"), system=check("insufficient-data"))
    ground.faults["ec2"].answer("DescribeInstanceStatus", statuses(young), times=3)
    assert ground.health.ailing() == ()


def test_every_page_is_read(ground: Ground) -> None:
    impaired = check("impaired", "2027-01-15T07:00:00.000Z")
    faults = ground.faults["ec2"]
    faults.answer("DescribeInstanceStatus", statuses(status_of(SICK, instance=impaired), token="next"))
    faults.answer("DescribeInstanceStatus", statuses(status_of(WELL, instance=impaired)))
    faults.answer("DescribeInstanceStatus", statuses(), times=2)
    assert [ailment.instance_id for ailment in ground.health.ailing()] == [SICK, WELL]
    assert faults.calls[1].parameters["NextToken"] == "next"


def test_a_refusal_is_told_by_its_code(ground: Ground) -> None:
    ground.faults["ec2"].refuse("DescribeInstanceStatus", "UnauthorizedOperation", status=403)
    with pytest.raises(AwsError) as refused:
        ground.health.ailing()
    assert refused.value.code == "UnauthorizedOperation"


def test_throttling_is_tried_again_and_then_told(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    faults = ground.faults["ec2"]
    faults.refuse("DescribeInstanceStatus", "RequestLimitExceeded", times=2)
    faults.answer("DescribeInstanceStatus", statuses(), times=3)
    assert ground.health.ailing() == ()
    assert len(faults.calls) == 5
    faults.refuse("DescribeInstanceStatus", "RequestLimitExceeded", times=5)
    with pytest.raises(AwsThrottled):
        ground.health.ailing()


def shift(zone: str, *, applied: str = "APPLIED", expires: float = NOW + 60) -> dict[str, Any]:
    return {
        "appliedStatus": applied,
        "zonalShiftId": "9ac9ec1e-1df1-0755-3dc5-8cf57EXAMPLE",
        "resourceIdentifier": ARN,
        "awayFrom": zone,
        "expiryTime": expires,
        "startTime": NOW - 600,
        "comment": "an impaired zone",
    }


def test_zones_with_an_applied_shift_are_told_while_it_lasts(ground: Ground) -> None:
    started = {"appliedStatus": "APPLIED", "awayFrom": "euw1-az3", "startTime": NOW - 5}
    ended = {"appliedStatus": "NOT_APPLIED", "awayFrom": "euw1-az4", "startTime": NOW - 5}
    ground.shifts(
        zonalShifts=[
            shift("euw1-az1"),
            shift("euw1-az2", applied="NOT_APPLIED"),
            shift("euw1-az5", expires=NOW - 1),
        ],
        autoshifts=[started, ended],
    )
    assert ground.health.shifted_zones() == {"euw1-az1", "euw1-az3"}


def test_a_shift_that_was_cancelled_is_forgotten_although_another_one_lasts(ground: Ground) -> None:
    ground.shifts(zonalShifts=[shift("euw1-az1"), shift("euw1-az2")])
    assert ground.health.shifted_zones() == {"euw1-az1", "euw1-az2"}
    ground.shifts(zonalShifts=[shift("euw1-az2")])
    assert ground.health.shifted_zones() == {"euw1-az2"}
    assert len(ground.faults["eks"].calls) == 1  # the cluster's ARN does not change


def test_a_cluster_that_arc_does_not_manage_is_an_error(ground: Ground) -> None:
    ground.shifts()
    assert ground.health.shifted_zones() == frozenset()
    body = json.dumps({"message": "not a managed resource", "__type": "ResourceNotFoundException"})
    ground.faults["arc-zonal-shift"].answer("GetManagedResource", body, status=404)
    with pytest.raises(AwsError):
        ground.health.shifted_zones()


def test_the_fake_tells_what_it_was_given() -> None:
    fake = FakeHealth()
    assert (fake.ailing(), fake.shifted_zones()) == ((), frozenset())
    fake.ailments |= {InstanceProblem(WELL, "system", 1.0), InstanceProblem(SICK, "event")}
    fake.shifted.add("euw1-az1")
    assert [ailment.instance_id for ailment in fake.ailing()] == [SICK, WELL]
    assert fake.shifted_zones() == {"euw1-az1"}

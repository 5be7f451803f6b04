"""The EC2 adapter when EC2 throttles, answers in part, loses its answer, or does not yet see what it has made.

Answers are written by hand after the API reference of EC2; they pass through botocore's own parsing and retrying.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.config import Config

from shiplap.aws.ec2.ec2_compute import Ec2Compute
from shiplap.errors import AwsError, AwsThrottled, AwsUnavailable, NodeClassNotReady
from shiplap.ports import FleetRequest
from shiplap.settings import ClusterSettings
from tests.aws_faults import AwsFaults
from tests.integration.contracts.emulated_ec2 import REGION, VERSION, ZONES, Region, emulated_region
from tests.integration.contracts.fleet_requests import request_for

TWO = ((0.096, "m5.large", ZONES[0]), (0.192, "m5.xlarge", ZONES[1]))
FIRST, SECOND = "i-1234567890abcdef0", "i-1234567890abcdef1"


@pytest.fixture(scope="module")
def region() -> Iterator[Region]:
    with emulated_region() as running:
        yield running


class Ground:
    """The adapter on a client that retries as the product's does, without its pauses, and the hooks of that client."""

    def __init__(self, region: Region) -> None:
        region.empty()
        region.seed("demo")
        self.ec2 = boto3.client(
            "ec2",
            endpoint_url=region.emulator.url,
            region_name=REGION,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            config=Config(retries={"mode": "standard", "total_max_attempts": 5}),
        )
        self.faults = AwsFaults(self.ec2)
        self.region = region
        self.pauses: list[float] = []
        settings = ClusterSettings(
            name="demo",
            region=REGION,
            endpoint="https://demo.example",
            certificate_authority="Q0E=",
            kubernetes_version=VERSION,
            service_cidr="10.100.0.0/16",
        )
        self.compute = Ec2Compute(
            settings,
            ec2=self.ec2,
            ssm=lambda: region.client("ssm"),
            eks=lambda: region.client("eks"),
            clock=region.emulator.behaviour.now,
            sleep=self._sleep,
        )

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.region.control.advance(seconds)

    def request(self, *names: str, **options: Any) -> FleetRequest:
        first, *others = names or ("default-1",)
        return request_for(self.compute, first, beside=tuple(others), **options)

    def running(self) -> list[str]:
        """Ids of all instances there are, whoever sees them."""
        return [item.id for item in self.region.control.instances() if item.state in ("pending", "running")]


@pytest.fixture
def ground(region: Region, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: None))
    made = Ground(region)
    yield made
    made.ec2.close()


def overrides(instance_type: str, zone: str) -> str:
    return (
        "<launchTemplateAndOverrides><launchTemplateSpecification><launchTemplateId>lt-0abcd290751193123"
        "</launchTemplateId><version>1</version></launchTemplateSpecification><overrides>"
        f"<instanceType>{instance_type}</instanceType><availabilityZone>{zone}</availabilityZone>"
        "</overrides></launchTemplateAndOverrides>"
    )


def error(code: str, instance_type: str, zone: str, message: str = "not now") -> str:
    return (
        f"<item>{overrides(instance_type, zone)}<lifecycle>on-demand</lifecycle>"
        f"<errorCode>{code}</errorCode><errorMessage>{message}</errorMessage></item>"
    )


def group(instance_type: str, zone: str, *ids: str) -> str:
    items = "".join(f"<item>{instance_id}</item>" for instance_id in ids)
    return (
        f"<item>{overrides(instance_type, zone)}<lifecycle>on-demand</lifecycle>"
        f"<instanceIds>{items}</instanceIds><instanceType>{instance_type}</instanceType></item>"
    )


def fleet(groups: str = "", errors: str = "") -> str:
    return (
        '<CreateFleetResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        "<requestId>59dbff89-35bd-4eac-99ed-be587EXAMPLE</requestId>"
        "<fleetId>fleet-12a34b55-67cd-8ef9-ba9b-9208dEXAMPLE</fleetId>"
        f"<errorSet>{errors}</errorSet><fleetInstanceSet>{groups}</fleetInstanceSet></CreateFleetResponse>"
    )


def test_without_capacity_each_offering_is_told(ground: Ground) -> None:
    dry = "".join(error("InsufficientInstanceCapacity", name, zone) for _, name, zone in TWO)
    ground.faults.answer("CreateFleet", fleet(errors=dry))
    result = ground.compute.launch(ground.request(offerings=TWO))
    assert result.instances == ()
    assert [(item.instance_type, item.zone, item.kind) for item in result.failures] == [
        ("m5.large", ZONES[0], "capacity"),
        ("m5.xlarge", ZONES[1], "capacity"),
    ]


def test_a_partial_fleet_is_counted_exactly(ground: Ground) -> None:
    part = fleet(
        group("m5.large", ZONES[0], FIRST) + group("m5.xlarge", ZONES[1], SECOND),
        error("InsufficientInstanceCapacity", "m5.large", ZONES[0]),
    )
    ground.faults.answer("CreateFleet", part)
    result = ground.compute.launch(ground.request("a", "b", "c", offerings=TWO))
    assert [(item.id, item.instance_type, item.zone) for item in result.instances] == [
        (FIRST, "m5.large", ZONES[0]),
        (SECOND, "m5.xlarge", ZONES[1]),
    ]
    assert [item.code for item in result.failures] == ["InsufficientInstanceCapacity"]
    (call,) = ground.faults.made("CreateFleet")
    assert call.parameters["TargetCapacitySpecification.TotalTargetCapacity"] == "3"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientFreeAddressesInSubnet", "subnet"),
        ("VcpuLimitExceeded", "quota"),
        ("MaxSpotInstanceCountExceeded", "quota"),
        ("UnfulfillableCapacity", "capacity"),
        ("RequestLimitExceeded", "throttled"),
        ("InsufficientVolumeCapacity", "capacity"),
        ("IdempotentInstanceTerminated", "transient"),
        ("InternalError", "unknown"),
        ("NeverHeardOfIt", "unknown"),
    ],
)
def test_the_codes_inside_an_answer_are_told_apart(ground: Ground, code: str, kind: str) -> None:
    ground.faults.answer("CreateFleet", fleet(errors=error(code, "m5.large", ZONES[0])))
    (failure,) = ground.compute.launch(ground.request()).failures
    assert (failure.code, failure.kind) == (code, kind)


def test_throttling_is_tried_again_with_the_same_token(ground: Ground) -> None:
    ground.faults.refuse("CreateFleet", "RequestLimitExceeded", times=2)
    assert ground.compute.launch(ground.request()).instance is not None
    tokens = [call.parameters["ClientToken"] for call in ground.faults.made("CreateFleet")]
    assert (len(tokens), len(set(tokens))) == (3, 1)
    assert len(ground.running()) == 1


def test_throttling_that_goes_on_is_told(ground: Ground) -> None:
    ground.faults.refuse("CreateFleet", "RequestLimitExceeded", times=5)
    with pytest.raises(AwsThrottled):
        ground.compute.launch(ground.request())
    assert len(ground.faults.made("CreateFleet")) == 5
    assert ground.running() == []


def test_an_answer_that_is_lost_leaves_one_instance_however_often_it_is_asked_for(ground: Ground) -> None:
    ground.faults.lose("CreateFleet")
    with pytest.raises(AwsError) as lost:
        ground.compute.launch(ground.request())
    assert lost.value.code == ""  # the outcome is unknown
    (running,) = ground.running()
    found = ground.compute.launch(ground.request()).instance
    assert found is not None
    assert found.id == running
    assert ground.running() == [running]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", "capacity"),
        ("InsufficientFreeAddressesInSubnet", "subnet"),
        ("VcpuLimitExceeded", "quota"),
    ],
)
def test_a_fleet_that_is_refused_as_a_whole_leaves_other_offerings(ground: Ground, code: str, kind: str) -> None:
    ground.faults.refuse("CreateFleet", code)
    result = ground.compute.launch(ground.request())
    assert result.instances == ()
    assert {(item.code, item.kind) for item in result.failures} == {(code, kind)}


def test_what_the_manifest_asks_for_and_ec2_refuses_is_the_node_classs_fault(ground: Ground) -> None:
    ground.faults.refuse("CreateFleet", "InvalidParameterValue")
    with pytest.raises(NodeClassNotReady):
        ground.compute.launch(ground.request())


@pytest.mark.parametrize("code", ["ExpiredToken", "RequestExpired", "InvalidClientTokenId"])
def test_credentials_that_ran_out_are_not_the_node_classs_fault(ground: Ground, code: str) -> None:
    ground.faults.refuse("CreateFleet", code)
    with pytest.raises(AwsUnavailable) as raised:
        ground.compute.launch(ground.request())
    assert raised.value.code == code


def test_the_token_of_an_instance_that_has_ended_gives_no_other_and_blames_no_offering(ground: Ground) -> None:
    ground.faults.refuse("CreateFleet", "IdempotentInstanceTerminated")
    result = ground.compute.launch(ground.request())
    assert result.instances == ()
    assert {(item.code, item.kind) for item in result.failures} == {("IdempotentInstanceTerminated", "transient")}


def test_no_more_launch_templates_is_told_by_its_code_and_blames_no_offering(ground: Ground) -> None:
    ground.faults.refuse("CreateLaunchTemplate", "MaxTemplateLimitExceeded")
    with pytest.raises(AwsError) as raised:
        ground.compute.launch(ground.request())
    assert (type(raised.value), raised.value.code) == (AwsError, "MaxTemplateLimitExceeded")
    assert ground.faults.made("CreateFleet") == []


NO_TEMPLATE = "InvalidLaunchTemplateName.NotFoundException"


def test_a_template_that_ec2_does_not_find_yet_gets_a_pause_before_the_second_try(ground: Ground) -> None:
    ground.faults.refuse("CreateFleet", NO_TEMPLATE, times=2)
    assert ground.compute.launch(ground.request()).instance is not None
    assert ground.pauses == [1.0, 2.0]
    assert len({call.parameters["ClientToken"] for call in ground.faults.made("CreateFleet")}) == 1


def test_a_template_that_is_missing_inside_an_answer_gets_a_pause_and_a_token_of_its_own(ground: Ground) -> None:
    ground.faults.answer("CreateFleet", fleet(errors=error(NO_TEMPLATE, "m5.large", ZONES[0])), times=2)
    assert ground.compute.launch(ground.request()).instance is not None
    assert ground.pauses == [1.0, 2.0]
    tokens = [call.parameters["ClientToken"] for call in ground.faults.made("CreateFleet")]
    assert len(set(tokens)) == 3
    # A function that finishes the launch of one that died asks with the same tokens, and gets the same answers.
    assert tokens == ["token-demo-default-1", "token-demo-default-1-again", "token-demo-default-1-again-again"]


def test_a_template_that_stays_missing_leaves_the_launch_for_later(ground: Ground) -> None:
    ground.faults.refuse("CreateFleet", NO_TEMPLATE, times=9)
    with pytest.raises(AwsUnavailable) as raised:
        ground.compute.launch(ground.request())
    assert raised.value.code == NO_TEMPLATE
    assert ground.pauses == [1.0, 2.0, 4.0]
    assert len(ground.faults.made("CreateFleet")) == 4


def emptied(document: str) -> str:
    """A fleet's answer as EC2 may give it before it knows of its instances."""
    return re.sub(r"<fleetInstanceSet>.*</fleetInstanceSet>", "<fleetInstanceSet/>", document, flags=re.DOTALL)


def test_a_fleet_without_instances_is_asked_for_by_tag(ground: Ground) -> None:
    ground.faults.edit("CreateFleet", emptied)
    result = ground.compute.launch(ground.request("a", "b"))
    assert [item.id for item in result.instances] == sorted(ground.running())
    assert len(result.instances) == 2
    assert ground.pauses == [0.5]


def test_a_fleet_whose_instances_are_not_described_yet_is_asked_itself(ground: Ground) -> None:
    ground.region.control.timing(describe_lag_s=60)
    ground.faults.edit("CreateFleet", emptied)
    result = ground.compute.launch(ground.request())
    assert [item.id for item in result.instances] == ground.running()
    (asked,) = ground.faults.made("DescribeFleets")
    assert asked.parameters["FleetId.1"].startswith("fleet-")
    assert ground.faults.made("DescribeTags") == []


def test_a_fleet_that_shows_nothing_at_first_is_asked_again(ground: Ground) -> None:
    ground.region.control.timing(describe_lag_s=60)
    ground.faults.edit("CreateFleet", emptied)
    ground.faults.refuse("DescribeFleets", "InvalidFleetId.NotFound", times=2)
    result = ground.compute.launch(ground.request())
    assert [item.id for item in result.instances] == ground.running()
    assert ground.pauses == [0.5, 1.0, 2.0]


def test_a_fleet_that_shows_nothing_leaves_the_outcome_open_and_a_repetition_finds_its_instances(
    ground: Ground,
) -> None:
    ground.region.control.timing(describe_lag_s=60)
    hidden = [True]
    ground.faults.edit("CreateFleet", lambda document: emptied(document) if hidden[0] else document)
    ground.faults.refuse("DescribeFleets", "InvalidFleetId.NotFound", times=3)
    with pytest.raises(AwsError, match="neither instances nor errors") as raised:
        ground.compute.launch(ground.request())
    assert raised.value.code == ""
    hidden[0] = False
    result = ground.compute.launch(ground.request())
    assert [item.id for item in result.instances] == ground.running()
    assert len(ground.running()) == 1


def test_a_fleet_that_shows_fewer_instances_without_a_reason_is_asked_for_the_others(ground: Ground) -> None:
    def halved(document: str) -> str:
        return re.sub(r"(<instanceIds>.*?</item>).*?</instanceIds>", r"\1</instanceIds>", document, flags=re.DOTALL)

    ground.faults.edit("CreateFleet", halved)
    result = ground.compute.launch(ground.request("a", "b", "c"))
    assert [item.id for item in result.instances] == sorted(ground.running())
    assert len(result.instances) == 3


def test_a_page_of_a_proxy_is_no_answer(ground: Ground) -> None:
    ground.faults.answer("DescribeInstances", "<html><body>Bad Gateway", times=5)
    with pytest.raises(AwsError) as unread:
        ground.compute.instances("demo")
    assert unread.value.code == ""


def test_an_instance_that_describing_does_not_show_yet_is_neither_found_nor_launched_twice(ground: Ground) -> None:
    seen_late = [True]

    def hide(document: str) -> str:
        if not seen_late[0]:
            return document
        return re.sub(r"<reservationSet>.*</reservationSet>", "<reservationSet/>", document, flags=re.DOTALL)

    ground.faults.edit("DescribeInstances", hide)
    made = ground.compute.launch(ground.request()).instance
    assert made is not None
    assert ground.compute.instances("demo") == ()
    again = ground.compute.launch(ground.request()).instance
    assert again is not None
    assert again.id == made.id
    seen_late[0] = False
    assert [item.id for item in ground.compute.instances("demo")] == [made.id]


def test_an_instance_that_ends_while_it_is_being_ended_is_no_error(ground: Ground) -> None:
    made = ground.compute.launch(ground.request()).instance
    assert made is not None
    ground.faults.refuse("TerminateInstances", "InvalidInstanceID.NotFound")
    ground.compute.terminate("demo", made.id)
    assert len(ground.faults.made("TerminateInstances")) == 1


def test_some_that_ec2_refuses_to_end_together_are_ended_one_by_one(ground: Ground) -> None:
    ids = [item.id for item in ground.compute.launch(ground.request("a", "b", "c")).instances]
    ground.faults.refuse("TerminateInstances", "OperationNotPermitted", times=2)  # all together, then the first alone
    with pytest.raises(AwsError) as raised:
        ground.compute.terminate("demo", *ids)
    assert raised.value.code == "OperationNotPermitted"
    assert ground.running() == [ids[0]]
    together, *alone = ground.faults.made("TerminateInstances")
    assert {together.parameters[f"InstanceId.{number}"] for number in (1, 2, 3)} == set(ids)
    assert all("InstanceId.2" not in call.parameters for call in alone)


def test_one_that_is_gone_keeps_no_other_from_being_ended(ground: Ground) -> None:
    ids = [item.id for item in ground.compute.launch(ground.request("a", "b", "c")).instances]
    ground.faults.refuse("TerminateInstances", "InvalidInstanceID.NotFound", times=2)
    ground.compute.terminate("demo", *ids)
    assert ground.running() == [ids[0]]


def test_throttled_endings_are_not_tried_one_by_one(ground: Ground) -> None:
    ids = [item.id for item in ground.compute.launch(ground.request("a", "b", "c")).instances]
    ground.faults.refuse("TerminateInstances", "RequestLimitExceeded", times=5)
    with pytest.raises(AwsThrottled):
        ground.compute.terminate("demo", *ids)
    assert len(ground.faults.made("TerminateInstances")) == 5


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("Client.InternalError", "Client.InternalError: Client error on launch", "configuration"),
        ("Client.InvalidKMSKey.InvalidState", "The KMS key provided is in an incorrect state", "configuration"),
        ("Client.VolumeLimitExceeded", "Volume limit exceeded", "quota"),
        ("Server.InsufficientInstanceCapacity", "Insufficient capacity", "capacity"),
        ("Server.InternalError", "Server.InternalError: Internal error on launch", "unknown"),
    ],
)
def test_an_instance_that_dies_at_once_says_why(ground: Ground, code: str, message: str, kind: str) -> None:
    ground.region.control.death(code, message)
    made = ground.compute.launch(ground.request()).instance
    assert made is not None
    assert ground.running() == []
    failure = ground.compute.ended("demo", made.id)
    assert failure is not None
    assert (failure.code, failure.kind, failure.message) == (code, kind, message)
    assert (failure.instance_type, failure.zone, failure.capacity_type) == ("m5.large", ZONES[0], "on-demand")


def test_the_transition_reason_counts_where_there_is_no_other_and_tags_are_not_needed(ground: Ground) -> None:
    def bare(document: str) -> str:
        without = re.sub(r"<stateReason>.*?</stateReason>", "", document, flags=re.DOTALL)
        without = re.sub(r"<tagSet>.*?</tagSet>", "<tagSet/>", without, flags=re.DOTALL)
        reason = "<reason>Server.InternalError: Internal error on launch</reason>"
        return re.sub(r"<reason>.*?</reason>|<reason\s*/>", reason, without)

    ground.region.control.death("Server.InternalError")
    made = ground.compute.launch(ground.request()).instance
    assert made is not None
    ground.faults.edit("DescribeInstances", bare)
    failure = ground.compute.ended("demo", made.id)
    assert failure is not None
    assert (failure.code, failure.kind) == ("Server.InternalError", "unknown")


def test_a_fleet_that_the_emulator_silences_is_found(ground: Ground) -> None:
    ground.region.control.silence()
    result = ground.compute.launch(ground.request("a", "b"))
    assert [item.id for item in result.instances] == sorted(ground.running())
    assert len(result.instances) == 2

"""Tests the parts that the emulated EC2 adds to moto: capacity, strategies, tokens, delays, faults, the control API."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shiplap.errors import AwsError
from shiplap_lab.emulated_ec2.allocation import CapacityPool, FleetCandidate, order
from shiplap_lab.emulated_ec2.control import EmulatedImage
from tests.integration.contracts.emulated_ec2 import START, ZONES, Region, emulated_region

AMI = "ami-0af46b2a82c2d83fe"
ARM_AMI = "ami-0de231197f45db6bb"


@pytest.fixture(scope="module")
def running() -> Iterator[Region]:
    with emulated_region() as region:
        yield region


class Ground:
    """A network, two images and a launch template."""

    def __init__(self, region: Region) -> None:
        region.empty()
        self.region = region
        self.ec2 = region.client("ec2")
        self.control = region.control
        self.network = region.seed("demo")
        self.control.image(EmulatedImage(AMI, "standard"))
        self.control.image(EmulatedImage(ARM_AMI, "standard-arm", "arm64"))
        self.template()

    def template(self, name: str = "nodes", **data: Any) -> None:
        self.ec2.create_launch_template(
            LaunchTemplateName=name,
            LaunchTemplateData={
                "ImageId": AMI,
                "UserData": b64encode(b"hello").decode(),
                "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [self.network.security_group]}],
                "MetadataOptions": {"HttpTokens": "required"},
                "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "from", "Value": "template"}]}],
                **data,
            },
        )

    def fleet(self, *offerings: tuple[str, str], count: int = 1, **options: Any) -> dict[str, Any]:
        overrides = [
            {"InstanceType": name, "SubnetId": self.network.subnets.get(zone, zone), **options.get("each", {})}
            for name, zone in offerings
        ]
        for override, priority in zip(overrides, options.get("priorities", ()), strict=False):
            override["Priority"] = priority
        strategy = options.get("strategy", {})
        capacity_type = "spot" if "SpotOptions" in strategy else "on-demand"
        answer = self.ec2.create_fleet(
            Type="instant",
            TargetCapacitySpecification={"TotalTargetCapacity": count, "DefaultTargetCapacityType": capacity_type},
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateName": "nodes", "Version": "$Latest"},
                    "Overrides": overrides,
                }
            ],
            TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "claim", "Value": "a"}]}],
            **strategy,
            **({"ClientToken": options["token"]} if "token" in options else {}),
        )
        return dict(answer)

    def seen(self, instance_id: str) -> dict[str, Any]:
        return dict(self.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0])


@pytest.fixture
def ground(running: Region) -> Ground:
    return Ground(running)


def taken(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (group["InstanceType"], group["LaunchTemplateAndOverrides"]["Overrides"]["SubnetId"])
        for group in answer["Instances"]
        for _ in group["InstanceIds"]
    ]


def codes(answer: dict[str, Any]) -> list[str]:
    return [error["ErrorCode"] for error in answer["Errors"]]


def test_on_demand_takes_the_lowest_price(ground: Ground) -> None:
    answer = ground.fleet(("m5.xlarge", ZONES[0]), ("c7i-flex.large", ZONES[1]), ("m5.large", ZONES[0]))
    assert taken(answer) == [("c7i-flex.large", ground.network.subnets[ZONES[1]])]


def test_a_partial_fleet_lists_instances_and_errors(ground: Ground) -> None:
    ground.control.capacity("m5.*", available=2)
    answer = ground.fleet(("m5.large", ZONES[0]), count=3)
    assert len(taken(answer)) == 2
    assert codes(answer) == ["InsufficientInstanceCapacity"]
    assert answer["Errors"][0]["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"] == "m5.large"


def test_a_fleet_of_a_least_capacity_launches_all_of_it_in_one_zone_or_nothing(ground: Ground) -> None:
    least = {"OnDemandOptions": {"MinTargetCapacity": 3, "SingleAvailabilityZone": True}}
    first, second = ZONES[:2]
    ground.control.capacity("m5.large", first, available=2)
    ground.control.capacity("m5.large", second, available=2)
    answer = ground.fleet(("m5.large", first), ("m5.large", second), count=3, strategy=least)
    assert taken(answer) == []
    assert set(codes(answer)) == {"InsufficientInstanceCapacity"}
    assert ground.ec2.describe_instances()["Reservations"] == []
    ground.control.capacity("m5.large", second, available=3)
    answer = ground.fleet(("m5.large", first), ("m5.large", second), count=3, strategy=least)
    assert taken(answer) == [("m5.large", ground.network.subnets[second])] * 3


def test_a_least_capacity_needs_one_zone_or_one_type(ground: Ground) -> None:
    for options, code in (
        ({"MinTargetCapacity": 2}, "InvalidParameterCombination"),
        ({"MinTargetCapacity": 3, "SingleInstanceType": True}, "InvalidParameterValue"),
    ):
        with pytest.raises(ClientError, match=code):
            ground.fleet(("m5.large", ZONES[0]), count=2, strategy={"OnDemandOptions": options})
    both = {"MinTargetCapacity": 2, "SingleInstanceType": True}
    ground.control.capacity("m5.large", available=1)
    answer = ground.fleet(("m5.large", ZONES[0]), ("m5.xlarge", ZONES[0]), count=2, strategy={"OnDemandOptions": both})
    assert {name for name, _ in taken(answer)} == {"m5.xlarge"}


def test_a_newer_rule_replaces_an_older_one_of_the_same_name(ground: Ground) -> None:
    ground.control.capacity("c7i-flex.*", available=0)
    assert codes(ground.fleet(("c7i-flex.large", ZONES[0]))) == ["InsufficientInstanceCapacity"]
    ground.control.capacity("c7i-flex.*", available=None)
    assert taken(ground.fleet(("c7i-flex.large", ZONES[0])))


@pytest.mark.parametrize(
    ("offering", "code"),
    [
        (("zz9.large", ZONES[0]), "InvalidParameterValue"),
        (("m6g.large", ZONES[0]), "InvalidParameterValue"),
        (("m5.large", "subnet-0123456789abcdef0"), "InvalidSubnetID.NotFound"),
    ],
)
def test_what_cannot_run_is_refused_per_override(ground: Ground, offering: tuple[str, str], code: str) -> None:
    answer = ground.fleet(offering, ("m5.xlarge", ZONES[0]))
    if taken(answer) and not codes(answer):  # the cheaper one is tried first; drain it to see the other
        ground.control.capacity("m5.xlarge", available=0)
        answer = ground.fleet(offering, ("m5.xlarge", ZONES[0]))
    assert code in codes(answer)


def test_a_type_not_sold_in_the_zone_is_refused(ground: Ground) -> None:
    subnet = ground.ec2.create_subnet(
        VpcId=ground.network.vpc_id, CidrBlock="10.0.224.0/24", AvailabilityZone="us-east-1e"
    )["Subnet"]["SubnetId"]
    answer = ground.fleet(("c7i-flex.large", subnet))
    assert codes(answer) == ["InvalidFleetConfiguration"]
    assert "us-east-1e" in answer["Errors"][0]["ErrorMessage"]


def test_an_unknown_image_and_an_unknown_template_are_refused(ground: Ground) -> None:
    answer = ground.fleet(("m5.large", ZONES[0]), each={"ImageId": "ami-00000000000000000"})
    assert codes(answer) == ["InvalidAMIID.NotFound"]
    ground.ec2.delete_launch_template(LaunchTemplateName="nodes")
    with pytest.raises(ClientError, match=r"InvalidLaunchTemplateName\.NotFoundException"):
        ground.fleet(("m5.large", ZONES[0]))


def test_a_subnet_without_addresses_is_refused(ground: Ground) -> None:
    ground.control.free_ips(ground.network.subnets[ZONES[0]], 0)
    answer = ground.fleet(("m5.large", ZONES[0]), ("m5.large", ZONES[1]))
    assert codes(answer) == ["InsufficientFreeAddressesInSubnet"]
    assert taken(answer) == [("m5.large", ground.network.subnets[ZONES[1]])]


def test_user_data_over_the_limit_is_refused(ground: Ground) -> None:
    ground.ec2.delete_launch_template(LaunchTemplateName="nodes")
    ground.template(UserData=b64encode(b"x" * 16385).decode())
    assert codes(ground.fleet(("m5.large", ZONES[0]))) == ["InvalidUserData.Malformed"]


def test_a_client_token_gives_the_same_answer_and_no_second_instance(ground: Ground) -> None:
    first = ground.fleet(("m5.large", ZONES[0]), token="t")
    again = ground.fleet(("m5.large", ZONES[0]), token="t")
    assert again["FleetId"] == first["FleetId"]
    assert len(ground.control.instances()) == 1
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        ground.fleet(("m5.large", ZONES[1]), token="t")


def test_run_instances_keeps_its_token_and_knows_capacity(ground: Ground) -> None:
    wanted: dict[str, Any] = {
        "ImageId": AMI,
        "InstanceType": "m5.large",
        "MinCount": 1,
        "MaxCount": 1,
        "SubnetId": ground.network.subnets[ZONES[0]],
    }
    first = ground.ec2.run_instances(**wanted, ClientToken="r")["Instances"][0]["InstanceId"]
    assert ground.ec2.run_instances(**wanted, ClientToken="r")["Instances"][0]["InstanceId"] == first
    ground.control.capacity("m5.large", ZONES[0], available=0)
    with pytest.raises(ClientError, match="InsufficientInstanceCapacity"):
        ground.ec2.run_instances(**wanted, ClientToken="s")
    with pytest.raises(ClientError, match=r"Invalid value 'zz9\.large'"):
        ground.ec2.run_instances(**{**wanted, "InstanceType": "zz9.large"})


def test_the_template_is_applied_and_the_override_image_wins(ground: Ground) -> None:
    answer = ground.fleet(("m6g.large", ZONES[0]), each={"ImageId": ARM_AMI})
    seen = ground.seen(answer["Instances"][0]["InstanceIds"][0])
    assert seen["ImageId"] == ARM_AMI
    assert seen["Architecture"] == "arm64"
    assert seen["MetadataOptions"]["HttpTokens"] == "required"
    assert [group["GroupId"] for group in seen["SecurityGroups"]] == [ground.network.security_group]
    tags = {tag["Key"]: tag["Value"] for tag in seen["Tags"]}
    assert tags["from"] == "template"
    assert tags["claim"] == "a"
    assert tags["aws:ec2:fleet-id"] == answer["FleetId"]
    [shown] = ground.control.instances()
    assert shown.user_data == "hello"
    assert shown.launched_at == START
    assert (shown.zone, shown.state) == (ZONES[0], "running")


def test_states_take_their_time(ground: Ground) -> None:
    ground.control.timing(pending_s=20, terminating_s=30, describe_lag_s=5)
    instance_id = ground.fleet(("m5.large", ZONES[0]))["Instances"][0]["InstanceIds"][0]
    assert ground.ec2.describe_instances()["Reservations"] == []
    ground.control.advance(6)
    assert ground.seen(instance_id)["State"]["Name"] == "pending"
    ground.control.advance(15)
    assert ground.seen(instance_id)["State"]["Name"] == "running"
    ground.ec2.terminate_instances(InstanceIds=[instance_id])
    assert ground.seen(instance_id)["State"]["Name"] == "shutting-down"
    ground.control.advance(31)
    ground.ec2.terminate_instances(InstanceIds=[instance_id])
    assert ground.seen(instance_id)["State"]["Name"] == "terminated"


def test_an_address_is_of_one_instance_only_even_after_its_end(ground: Ground) -> None:
    """A client that knows an instance by its name must not find another instance."""
    first = [ground.fleet(("m5.large", ZONES[0]))["Instances"][0]["InstanceIds"][0] for _ in range(3)]
    ground.ec2.terminate_instances(InstanceIds=first[:2])
    ground.fleet(("m5.large", ZONES[0]), count=4)
    template = {"LaunchTemplateName": "nodes"}
    ground.ec2.run_instances(LaunchTemplate=template, InstanceType="m5.large", MinCount=2, MaxCount=2)
    instances = ground.control.instances()
    assert len(instances) == 9
    assert len({item.private_ip for item in instances}) == 9
    assert len({item.private_dns for item in instances}) == 9


def test_a_subnet_has_the_room_of_ended_instances_again(ground: Ground) -> None:
    subnet_id = ground.network.subnets[ZONES[0]]
    ground.control.free_ips(subnet_id, 2)
    launched = ground.fleet(("m5.large", ZONES[0]), count=2)["Instances"][0]["InstanceIds"]
    assert codes(ground.fleet(("m5.large", ZONES[0]))) == ["InsufficientFreeAddressesInSubnet"]
    ground.ec2.terminate_instances(InstanceIds=launched[:1])
    ground.seen(launched[0])
    (subnet,) = ground.ec2.describe_subnets(SubnetIds=[subnet_id])["Subnets"]
    assert subnet["AvailableIpAddressCount"] == 1
    assert taken(ground.fleet(("m5.large", ZONES[0]))) == [("m5.large", subnet_id)]


def test_instances_are_filtered_by_tag_and_state(ground: Ground) -> None:
    instance_id = ground.fleet(("m5.large", ZONES[0]))["Instances"][0]["InstanceIds"][0]
    ground.fleet(("m5.large", ZONES[0]))
    ground.ec2.terminate_instances(InstanceIds=[instance_id])
    filters = [{"Name": "tag:claim", "Values": ["a"]}, {"Name": "instance-state-name", "Values": ["running"]}]
    found = ground.ec2.describe_instances(Filters=filters)["Reservations"]
    assert len(found) == 1
    assert found[0]["Instances"][0]["InstanceId"] != instance_id


def test_a_fault_before_has_no_effect_and_a_fault_after_has(ground: Ground) -> None:
    ground.control.fault("CreateFleet", "RequestLimitExceeded")
    with pytest.raises(ClientError, match="RequestLimitExceeded"):
        ground.fleet(("m5.large", ZONES[0]), token="f")
    assert ground.control.instances() == ()
    ground.control.fault("CreateFleet", "InternalError", after=True)
    with pytest.raises(ClientError, match="InternalError"):
        ground.fleet(("m5.large", ZONES[0]), token="f")
    [lost] = ground.control.instances()
    assert ground.fleet(("m5.large", ZONES[0]), token="f")["Instances"][0]["InstanceIds"] == [lost.id]
    assert ground.control.calls()["CreateFleet"] == 3


def test_registered_images_keep_their_architecture(ground: Ground) -> None:
    image_id = ground.ec2.register_image(Name="own", Architecture="arm64", RootDeviceName="/dev/xvda")["ImageId"]
    [image] = ground.ec2.describe_images(ImageIds=[image_id])["Images"]
    assert image["Architecture"] == "arm64"


def test_public_parameters_can_be_read(ground: Ground) -> None:
    ground.control.parameters({"/aws/service/bottlerocket/x/image_id": AMI})
    answer = ground.region.client("ssm").get_parameters(Names=["/aws/service/bottlerocket/x/image_id", "/aws/nope"])
    assert [found["Value"] for found in answer["Parameters"]] == [AMI]
    assert answer["InvalidParameters"] == ["/aws/nope"]


def test_public_parameters_can_be_read_by_an_arn_without_an_account(ground: Ground) -> None:
    ground.control.parameters({"/aws/service/bottlerocket/x/image_id": AMI})
    public = "arn:aws:ssm:us-east-1::parameter/aws/service/bottlerocket/x/image_id"
    other = "arn:aws:ssm:us-east-1::parameter/aws/nope"
    answer = ground.region.client("ssm").get_parameters(Names=[public, other])
    assert [found["Value"] for found in answer["Parameters"]] == [AMI]
    assert answer["InvalidParameters"] == [other]


def test_spot_prices_differ_by_zone_and_follow_on_demand(ground: Ground) -> None:
    def prices() -> dict[str, float]:
        history = ground.ec2.describe_spot_price_history(InstanceTypes=["m5.large"])["SpotPriceHistory"]
        return {entry["AvailabilityZone"]: float(entry["SpotPrice"]) for entry in history}

    before = prices()
    assert len(set(before.values())) > 1
    assert all(0.2 * 0.096 < price < 0.5 * 0.096 for price in before.values())
    ground.control.price("m5.large", 0.192)
    assert prices()[ZONES[0]] == pytest.approx(2 * before[ZONES[0]], rel=1e-4)
    ground.control.price("m5.large", 0.096)


def test_control_refuses_what_it_does_not_know(ground: Ground) -> None:
    with pytest.raises(AwsError, match="no such control request"):
        ground.control._request("GET", "/nothing")
    with pytest.raises(AwsError, match="missing required field"):
        ground.control._request("POST", "/clock", b"{}")


def candidate(name: str, price: float, priority: float = 0, available: int | None = None) -> FleetCandidate:
    return FleetCandidate(CapacityPool(name, "z", "spot"), price, available, priority, "subnet", "ami", {}, {}, {})


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("lowest-price", ["cheap-but-scarce", "middle", "dear"]),
        ("price-capacity-optimized", ["middle", "dear", "cheap-but-scarce"]),
        ("capacity-optimized", ["dear", "middle", "cheap-but-scarce"]),
        ("prioritized", ["dear", "cheap-but-scarce", "middle"]),
        ("capacity-optimized-prioritized", ["dear", "middle", "cheap-but-scarce"]),
    ],
)
def test_strategies(strategy: str, expected: list[str]) -> None:
    pools = [
        candidate("middle", 2, 3),
        candidate("dear", 3, 1),
        candidate("cheap-but-scarce", 1, 2, available=1),
    ]
    assert [found.pool.instance_type for found in order(pools, strategy)] == expected


def test_an_unknown_strategy_is_refused(ground: Ground) -> None:
    with pytest.raises(ClientError, match="unknown allocation strategy"):
        ground.fleet(("m5.large", ZONES[0]), strategy={"OnDemandOptions": {"AllocationStrategy": "fastest"}})


def test_a_thousand_instances_are_launched_at_once_then_two_a_second(ground: Ground) -> None:
    ground.region.emulator.behaviour.launchable.take(998, START)
    answer = ground.fleet(("m5.large", ZONES[0]), count=5)
    assert [len(group["InstanceIds"]) for group in answer["Instances"]] == [2]
    assert [error["ErrorCode"] for error in answer["Errors"]] == ["RequestLimitExceeded"]
    ground.control.advance(1.5)
    answer = ground.fleet(("m5.large", ZONES[0]), count=5)
    assert [len(group["InstanceIds"]) for group in answer["Instances"]] == [3]


def test_a_thousand_instances_are_ended_at_once_then_twenty_a_second(ground: Ground) -> None:
    answer = ground.fleet(("m5.large", ZONES[0]), count=3)
    ids = answer["Instances"][0]["InstanceIds"]
    ground.region.emulator.behaviour.endable.take(998, START)
    with pytest.raises(ClientError, match="RequestLimitExceeded"):
        ground.ec2.terminate_instances(InstanceIds=ids)
    ground.control.advance(0.1)
    ground.ec2.terminate_instances(InstanceIds=ids)


def test_an_instance_that_is_to_die_ends_while_it_starts_and_says_why(ground: Ground) -> None:
    ground.control.death("Client.InternalError")
    answer = ground.fleet(("m5.large", ZONES[0]), count=2)
    ids = answer["Instances"][0]["InstanceIds"]
    shown = ground.ec2.describe_instances(InstanceIds=ids)["Reservations"]
    seen = {item["InstanceId"]: item for reservation in shown for item in reservation["Instances"]}
    assert [seen[name]["State"]["Name"] for name in ids] == ["terminated", "running"]
    expected = {"Code": "Client.InternalError", "Message": "Client.InternalError: Client error on launch"}
    assert seen[ids[0]]["StateReason"] == expected


def test_a_silenced_fleet_is_answered_with_its_id_alone(ground: Ground) -> None:
    ground.control.silence()
    answer = ground.fleet(("m5.large", ZONES[0]))
    assert (answer["Instances"], answer["Errors"]) == ([], [])
    (known,) = ground.ec2.describe_fleets(FleetIds=[answer["FleetId"]])["Fleets"]
    assert len(known["Instances"][0]["InstanceIds"]) == 1

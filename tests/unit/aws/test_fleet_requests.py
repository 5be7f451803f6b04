"""CreateFleet's parameters: types, subnets, templates, tokens, strategies; and what its answers mean."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.aws.ec2 import fleet_requests
from shiplap.aws.ec2.launch_templates import block_devices, size_gib
from shiplap.aws.expiring import ExpiringCache
from shiplap.errors import NodeClassNotReady
from shiplap.instances.catalog.resolved_nodeclass import PlacementGroup, Subnet
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import BlockDevice, BlockDeviceMapping, EC2NodeClass, EC2NodeClassSpec
from shiplap.ports import FleetRequest, OfferingFailure
from tests.builders.claims import with_fields
from tests.unit.aws.fleet_parameters import RESOLVED, override, parameters_of, request


def shown(wanted: FleetRequest) -> list[tuple[str, str, str]]:
    """(type, zone, subnet) of all overrides."""
    parameters = parameters_of(wanted)
    return [
        (item["InstanceType"], item["AvailabilityZone"], item["SubnetId"])
        for config in parameters["LaunchTemplateConfigs"]
        for item in config["Overrides"]
    ]


def test_the_fullest_choice_of_addresses_per_zone() -> None:
    wanted = request(override(zone="a"), override(zone="b"), override(zone="c"), override(zone="d"))
    assert shown(wanted) == [("m5.large", "a", "subnet-a2"), ("m5.large", "b", "subnet-b")]


def test_at_most_sixty_types_the_cheapest() -> None:
    overrides = [override(f"t{n:03d}.large", zone, 100 - n) for n in range(80) for zone in "ab"]
    types = {name for name, _, _ in shown(request(*overrides))}
    assert types == {f"t{n:03d}.large" for n in range(20, 80)}


def test_at_most_three_hundred_offerings_the_cheapest() -> None:
    zones = "abcdef"
    subnets = tuple(Subnet(f"subnet-{zone}", zone, free_ips=10) for zone in zones)
    overrides = [override(f"t{n:02d}.large", zone, n) for n in range(60) for zone in zones]
    found = shown(request(*overrides, resolved=msgspec.structs.replace(RESOLVED, subnets=subnets)))
    assert len(found) == 300
    assert {name for name, _, _ in found} == {f"t{n:02d}.large" for n in range(50)}


def test_an_offering_is_asked_for_once() -> None:
    assert len(shown(request(override(price=2), override(price=1)))) == 1


def test_one_template_per_image_and_number_of_pods() -> None:
    configs = fleet_requests.fleet_configs(
        request(
            override("a.large"),
            override("b.large", max_pods=58),
            override("c.large", ami="ami-2"),
            override("d.large", kubelet_hash="other"),  # nothing of it is in this template
        )
    )
    assert sorted(len(config.overrides) for config in configs) == [1, 1, 2]
    assert {config.template.data["ImageId"] for config in configs} == {"ami-1", "ami-2"}


def test_at_most_fifty_templates_those_of_the_cheapest() -> None:
    overrides = [override(f"t{n:03d}.large", price=100 - n, max_pods=10 + n) for n in range(60)]
    configs = fleet_requests.fleet_configs(request(*overrides))
    assert len(configs) == 50
    types = {item.instance_type for config in configs for item in config.overrides}
    assert types == {f"t{n:03d}.large" for n in range(10, 60)}


def test_templates_are_named_after_their_content() -> None:
    def name(**changes: Any) -> str:
        return fleet_requests.fleet_configs(request(**changes))[0].template.name

    claim = request().claim
    assert name() == name()
    assert name().startswith("shiplap/demo/")
    assert name(claims=(msgspec.structs.replace(claim, name="default-2"),)) == name()
    assert name(claims=(with_fields(claim, node_pool="other"),)) != name()
    assert name(claims=(with_fields(claim, labels={"a": "b"}),)) != name()
    assert name(capacity_type="spot") != name()
    assert name(resolved=msgspec.structs.replace(RESOLVED, security_groups=("sg-2",))) != name()


@pytest.mark.parametrize(("capacity_type", "options"), [("on-demand", "OnDemandOptions"), ("spot", "SpotOptions")])
def test_a_launch_for_all_or_nothing_is_of_one_zone(capacity_type: str, options: str) -> None:
    asked = parameters_of(request(capacity_type=capacity_type, at_least=4))[options]
    assert (asked["MinTargetCapacity"], asked["SingleAvailabilityZone"]) == (4, True)
    assert "MinTargetCapacity" not in parameters_of(request(capacity_type=capacity_type))[options]


@pytest.mark.parametrize(
    ("capacity_type", "options", "strategy"),
    [
        ("on-demand", "OnDemandOptions", "lowest-price"),
        ("spot", "SpotOptions", "price-capacity-optimized"),
    ],
)
def test_strategy_by_capacity_type(capacity_type: str, options: str, strategy: str) -> None:
    wanted = request(capacity_type=capacity_type)
    parameters = parameters_of(wanted)
    assert parameters[options] == {"AllocationStrategy": strategy}
    assert ("OnDemandOptions" in parameters) != ("SpotOptions" in parameters)
    assert parameters["TargetCapacitySpecification"] == {
        "TotalTargetCapacity": 1,
        "DefaultTargetCapacityType": capacity_type,
    }
    assert parameters["Type"] == "instant"


@pytest.mark.parametrize(
    ("own", "on_demand", "spot"),
    [
        ("price-capacity-optimized", "lowest-price", "price-capacity-optimized"),
        ("capacity-optimized", "lowest-price", "capacity-optimized"),
        ("lowest-price", "lowest-price", "lowest-price"),
        ("prioritized", "prioritized", "capacity-optimized-prioritized"),
    ],
)
def test_a_pool_may_have_a_strategy_of_its_own(own: str, on_demand: str, spot: str) -> None:
    def options(capacity_type: str) -> Any:
        wanted = request(capacity_type=capacity_type, strategy=own)
        return parameters_of(wanted)

    assert options("on-demand")["OnDemandOptions"] == {"AllocationStrategy": on_demand}
    assert options("spot")["SpotOptions"] == {"AllocationStrategy": spot}


def test_priorities_are_whole_numbers_the_cheapest_first() -> None:
    wanted = request(override("dear", price=0.4), override("cheap", price=0.05), override("same", price=0.4))
    parameters = parameters_of(wanted)
    [config] = parameters["LaunchTemplateConfigs"]
    priorities = {item["InstanceType"]: item["Priority"] for item in config["Overrides"]}
    assert priorities == {"cheap": 0, "dear": 1, "same": 1}
    assert all(type(priority) is int for priority in priorities.values())


def test_tokens_fit_into_what_ec2_takes() -> None:
    assert fleet_requests.client_token("short") == "short"
    long = fleet_requests.client_token("x" * 65)
    assert len(long) == 64
    assert long != fleet_requests.client_token("x" * 66)
    assert long != "x" * 64 == fleet_requests.client_token("x" * 64)


@pytest.mark.parametrize("length", [1, 32, 63, 64])
def test_a_token_that_fits_reaches_ec2_whole(length: int) -> None:
    """Cut short, the tokens of two launches could be the same, and the second would get the first one's instances."""
    wanted = request()
    whole = fleet_requests.parameters(wanted, fleet_requests.fleet_configs(wanted), "x" * (length - 1) + "y")
    assert whole["ClientToken"] == "x" * (length - 1) + "y"


def test_tags_of_instances_volumes_and_the_fleet() -> None:
    wanted = request()
    parameters = parameters_of(wanted)
    specifications = {item["ResourceType"]: item["Tags"] for item in parameters["TagSpecifications"]}
    assert set(specifications) == {"instance", "volume", "fleet"}
    assert {"Key": "shiplap.dev/nodeclaim", "Value": "default-1"} in specifications["instance"]
    assert {"Key": "shiplap.dev/launch", "Value": "t"} in specifications["instance"]


def test_a_fleet_of_many_says_how_many_and_names_no_claim() -> None:
    wanted = request(claims=(request().claim, msgspec.structs.replace(request().claim, name="default-2")))
    parameters = parameters_of(wanted)
    assert parameters["TargetCapacitySpecification"]["TotalTargetCapacity"] == 2
    keys = {tag["Key"] for tag in parameters["TagSpecifications"][0]["Tags"]}
    assert "shiplap.dev/launch" in keys
    assert "shiplap.dev/nodeclaim" not in keys


def error(code: str, name: str = "m5.large", **where: str) -> dict[str, Any]:
    overrides = {"InstanceType": name, **(where or {"SubnetId": "subnet-a2"})}
    return {"ErrorCode": code, "ErrorMessage": "m", "LaunchTemplateAndOverrides": {"Overrides": overrides}}


def test_failures_are_listed_once_per_offering_and_code() -> None:
    wanted = request()
    configs = fleet_requests.fleet_configs(wanted)
    answer: Any = {
        "Errors": [
            error("InsufficientInstanceCapacity"),
            error("InsufficientInstanceCapacity"),
            error("UnfulfillableCapacity", AvailabilityZone="b"),
            error("InsufficientFreeAddressesInSubnet", "a.large"),
            error("InsufficientCidrBlocks", "b.large"),
        ]
    }
    assert fleet_requests.failures_of(wanted, configs, answer) == (
        OfferingFailure("a.large", "a", "on-demand", "InsufficientFreeAddressesInSubnet", "subnet", "m", "subnet-a2"),
        OfferingFailure("b.large", "a", "on-demand", "InsufficientCidrBlocks", "subnet", "m", "subnet-a2"),
        OfferingFailure("m5.large", "a", "on-demand", "InsufficientInstanceCapacity", "capacity", "m"),
        OfferingFailure("m5.large", "b", "on-demand", "UnfulfillableCapacity", "capacity", "m"),
    )
    assert fleet_requests.instances_of(wanted, configs, answer, 1.0) == ()


def test_only_a_fleet_that_failed_for_its_templates_alone_is_repeated() -> None:
    gone: Any = {"Errors": [error("InvalidLaunchTemplateName.NotFoundException")]}
    assert fleet_requests.template_is_gone(gone)
    assert not fleet_requests.template_is_gone({**gone, "Instances": [{"InstanceIds": ["i-1"]}]})
    mixed: Any = {"Errors": [*gone["Errors"], error("InsufficientInstanceCapacity")]}
    assert not fleet_requests.template_is_gone(mixed)
    nothing: Any = {"Errors": []}
    assert not fleet_requests.template_is_gone(nothing)


@pytest.mark.parametrize(("size", "gib"), [("20Gi", 20), ("4G", 4), ("2T", 1863), ("1Ti", 1024), ("1.5Gi", 2)])
def test_volume_sizes_round_up(size: str, gib: int) -> None:
    assert size_gib(size) == gib


def test_a_volume_size_that_is_none() -> None:
    with pytest.raises(NodeClassNotReady, match="volumeSize"):
        size_gib("large")


@pytest.mark.parametrize(
    ("family", "devices"),
    [
        ("AL2", [("/dev/xvda", 20)]),
        ("AL2023", [("/dev/xvda", 20)]),
        ("Bottlerocket", [("/dev/xvda", 4), ("/dev/xvdb", 20)]),
        ("Windows2022", [("/dev/sda1", 50)]),
        ("Custom", []),
    ],
)
def test_devices_of_a_family(family: str, devices: list[tuple[str, int]]) -> None:
    plain = EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec())
    found = block_devices(plain, family)
    assert [(item["DeviceName"], item["Ebs"]["VolumeSize"]) for item in found] == devices
    assert all(item["Ebs"]["Encrypted"] and item["Ebs"]["VolumeType"] == "gp3" for item in found)


def test_own_devices_replace_those_of_the_family() -> None:
    device = BlockDeviceMapping("/dev/xvdz", ebs=BlockDevice(snapshot_id="snap-1", kms_key_id="key"))
    own = EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec(block_device_mappings=(device,)))
    assert block_devices(own, "AL2023") == [
        {"DeviceName": "/dev/xvdz", "Ebs": {"SnapshotId": "snap-1", "KmsKeyId": "key"}}
    ]


def test_all_that_is_said_of_a_device_reaches_ec2() -> None:
    ebs = BlockDevice(False, True, 4000, "key", "snap-1", 250, 200, "20Gi", "gp3")
    mappings = (BlockDeviceMapping("/dev/xvda", ebs=ebs), BlockDeviceMapping("/dev/xvdb"))
    own = EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec(block_device_mappings=mappings))
    assert block_devices(own, "AL2023") == [
        {
            "DeviceName": "/dev/xvda",
            "Ebs": {
                "DeleteOnTermination": False,
                "Encrypted": True,
                "Iops": 4000,
                "KmsKeyId": "key",
                "SnapshotId": "snap-1",
                "Throughput": 250,
                "VolumeInitializationRate": 200,
                "VolumeSize": 20,
                "VolumeType": "gp3",
            },
        },
        {"DeviceName": "/dev/xvdb"},
    ]


def test_answers_expire() -> None:
    now = [0.0]
    calls: list[int] = []

    def fetch() -> int:
        calls.append(1)
        return len(calls)

    kept: ExpiringCache[int] = ExpiringCache(60, lambda: now[0])
    assert [kept.get("k", fetch), kept.get("k", fetch)] == [1, 1]
    assert kept.get("other", fetch) == 2
    now[0] = 60.0
    assert kept.get("k", fetch) == 3
    kept.forget("k")
    assert kept.get("k", fetch) == 4


@pytest.mark.parametrize(("annotations", "context"), [({}, "c-1"), ({labels.MIN_VALUES_RELAXED: "true"}, None)])
def test_the_context_is_for_launches_that_keep_their_minimum_of_values(
    annotations: dict[str, str], context: str | None
) -> None:
    wanted = request(node_class=EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec(context="c-1")))
    claim = with_fields(wanted.claim, annotations=annotations)
    wanted = msgspec.structs.replace(wanted, claims=(claim,))
    assert parameters_of(wanted).get("Context") == context


SPREAD_FULL = (
    "You've reached the limit of instances in this spread placement group. A spread placement group can have up to "
    "seven instances per Availability Zone."
)


def refused(message: str, group: str) -> set[tuple[str, str, str]]:
    placement = PlacementGroup(group, "mine", "spread") if group else None
    wanted = request(resolved=msgspec.structs.replace(RESOLVED, placement_group=placement))
    errors = [
        {
            "ErrorCode": "InsufficientInstanceCapacity",
            "ErrorMessage": message,
            "LaunchTemplateAndOverrides": {"Overrides": {"InstanceType": name, "SubnetId": "subnet-a2"}},
        }
        for name in ("m5.large", "c5.large")
    ]
    failures = fleet_requests.failures_of(wanted, fleet_requests.fleet_configs(wanted), {"Errors": errors})  # type: ignore[typeddict-item]
    return {failure.scope for failure in failures}


def test_what_a_placement_group_lacks_rests_for_that_group_alone() -> None:
    plain = {("m5.large", "a", "on-demand"), ("c5.large", "a", "on-demand")}
    assert refused("no capacity", "") == plain
    assert refused("no capacity", "pg-1") == {(f"pg-1/{name}", zone, kind) for name, zone, kind in plain}
    assert refused(SPREAD_FULL, "pg-1") == {("pg-1/*", "a", "*")}

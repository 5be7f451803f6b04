"""Tests what instances of the emulated EC2 show of their templates, and images and placement groups of users."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from shiplap_lab.emulated_ec2 import seed
from shiplap_lab.emulated_ec2.control import EmulatedImage
from tests.integration.contracts.emulated_ec2 import REGION, START, Region, emulated_region

AMI = "ami-0af46b2a82c2d83fe"
KINDS = ("instance", "volume", "network-interface", "spot-instances-request")


@pytest.fixture(scope="module")
def running() -> Iterator[Region]:
    with emulated_region() as region:
        yield region


class Launches:
    """An image and a network from which templates are launched."""

    def __init__(self, region: Region) -> None:
        region.empty()
        self.ec2 = region.client("ec2")
        region.control.image(EmulatedImage(AMI, "standard", tags={"release": "1"}))
        self.network: seed.ClusterVpc = region.seed("demo")
        self._launched = 0

    def instance(self, capacity_type: str = "on-demand", zone: str = "us-east-1a", **data: Any) -> dict[str, Any]:
        """Launch one instance with the data of a template, and describe it."""
        self._launched += 1
        name = f"template-{self._launched}"
        interface = {"DeviceIndex": 0, "Groups": [self.network.security_group]}
        self.ec2.create_launch_template(
            LaunchTemplateName=name,
            LaunchTemplateData={"ImageId": AMI, "NetworkInterfaces": [interface], **data},
        )
        answer = self.ec2.create_fleet(
            Type="instant",
            TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": capacity_type},
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "$Latest"},
                    "Overrides": [{"InstanceType": "m5.large", "SubnetId": self.network.subnets[zone]}],
                }
            ],
        )
        return self.seen(answer["Instances"][0]["InstanceIds"][0])

    def seen(self, instance_id: str) -> dict[str, Any]:
        return dict(self.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0])

    def interface(self, described: dict[str, Any]) -> dict[str, Any]:
        names = [described["NetworkInterfaceId"]]
        return dict(self.ec2.describe_network_interfaces(NetworkInterfaceIds=names)["NetworkInterfaces"][0])


@pytest.fixture
def launches(running: Region) -> Launches:
    return Launches(running)


def test_volumes_are_those_of_the_template(launches: Launches) -> None:
    ebs = {"VolumeSize": 20, "VolumeType": "io2", "Iops": 1000, "Encrypted": True, "DeleteOnTermination": True}
    other = {"VolumeSize": 9, "VolumeType": "gp3", "Throughput": 200, "DeleteOnTermination": False}
    devices = [{"DeviceName": "/dev/xvda", "Ebs": ebs}, {"DeviceName": "/dev/xvdb", "Ebs": other}]

    seen = launches.instance(BlockDeviceMappings=[*devices, {"DeviceName": "/dev/xvdc", "VirtualName": "ephemeral0"}])

    first, second = seen["BlockDeviceMappings"]
    volumes = launches.ec2.describe_volumes(VolumeIds=[first["Ebs"]["VolumeId"], second["Ebs"]["VolumeId"]])["Volumes"]
    by_size = {volume["Size"]: volume for volume in volumes}
    assert (first["DeviceName"], first["Ebs"]["DeleteOnTermination"]) == ("/dev/xvda", True)
    assert second["Ebs"]["DeleteOnTermination"] is False
    assert (by_size[20]["Iops"], by_size[20]["VolumeType"], by_size[20]["Encrypted"]) == (1000, "io2", True)
    assert (by_size[9]["Throughput"], by_size[9]["Encrypted"]) == (200, False)


def test_interfaces_keep_type_device_and_tracking(launches: Launches) -> None:
    groups = [launches.network.security_group]
    tracked = {"TcpEstablishedTimeout": 300, "UdpTimeout": 45}
    primary = {"DeviceIndex": 0, "NetworkCardIndex": 0, "Groups": groups, "ConnectionTrackingSpecification": tracked}
    efa = [
        {"DeviceIndex": 1, "NetworkCardIndex": card, "InterfaceType": "efa-only", "Groups": groups} for card in (0, 1)
    ]

    seen = launches.instance(NetworkInterfaces=[primary, *efa])

    types = [(one["Attachment"]["DeviceIndex"], one["InterfaceType"]) for one in seen["NetworkInterfaces"]]
    assert types == [(0, "interface"), (1, "efa-only"), (1, "efa-only")]
    assert launches.interface(seen["NetworkInterfaces"][0])["ConnectionTrackingConfiguration"] == tracked
    assert "ConnectionTrackingConfiguration" not in launches.interface(seen["NetworkInterfaces"][1])


def test_cpu_options_and_enclaves_are_shown(launches: Launches) -> None:
    seen = launches.instance(CpuOptions={"NestedVirtualization": "enabled"}, EnclaveOptions={"Enabled": True})
    assert seen["CpuOptions"]["NestedVirtualization"] == "enabled"
    assert seen["EnclaveOptions"] == {"Enabled": True}


def test_tags_reach_all_resources_of_an_instance(launches: Launches) -> None:
    tags = [{"Key": "team", "Value": "a"}]
    specifications = [{"ResourceType": kind, "Tags": tags} for kind in KINDS]
    volume = {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 8, "VolumeType": "gp3"}}

    seen = launches.instance("spot", TagSpecifications=specifications, BlockDeviceMappings=[volume])

    volume_id = seen["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    request = seen["SpotInstanceRequestId"]
    requests = launches.ec2.describe_spot_instance_requests(SpotInstanceRequestIds=[request])["SpotInstanceRequests"]
    assert tags[0] in seen["Tags"]
    assert launches.ec2.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]["Tags"] == tags
    assert launches.interface(seen["NetworkInterfaces"][0])["TagSet"] == tags
    assert [(one["Tags"], one["InstanceId"]) for one in requests] == [(tags, seen["InstanceId"])]


def test_an_instance_on_demand_has_no_spot_request(launches: Launches) -> None:
    assert "SpotInstanceRequestId" not in launches.instance()


def test_partitions_are_those_asked_for_or_the_emptiest(launches: Launches) -> None:
    made = launches.ec2.create_placement_group(GroupName="spread", Strategy="partition", PartitionCount=2)
    group = made["PlacementGroup"]
    launches.ec2.create_placement_group(GroupName="other", Strategy="cluster")

    asked = launches.instance(Placement={"GroupName": "spread", "PartitionNumber": 1})["Placement"]
    free = launches.instance(Placement={"GroupId": group["GroupId"]})["Placement"]
    close = launches.instance(Placement={"GroupName": "other"})["Placement"]

    assert (asked["GroupName"], asked["PartitionNumber"]) == ("spread", 1)
    assert (free["GroupId"], free["PartitionNumber"]) == (group["GroupId"], 2)
    assert close["GroupName"] == "other"
    assert "PartitionNumber" not in close


def test_placement_groups_are_found_and_deleted_once_empty(launches: Launches) -> None:
    launches.ec2.create_placement_group(GroupName="spread", Strategy="spread")
    launches.ec2.create_placement_group(GroupName="close", Strategy="cluster")
    held = launches.instance(Placement={"GroupName": "close"})
    named = [{"Name": "group-name", "Values": ["close"]}, {"Name": "state", "Values": ["available"]}]

    assert [one["Strategy"] for one in launches.ec2.describe_placement_groups(Filters=named)["PlacementGroups"]] == [
        "cluster"
    ]
    launches.ec2.delete_placement_group(GroupName="spread")
    with pytest.raises(ClientError, match=r"InvalidPlacementGroup\.InUse"):
        launches.ec2.delete_placement_group(GroupName="close")
    launches.ec2.terminate_instances(InstanceIds=[held["InstanceId"]])
    launches.seen(held["InstanceId"])
    launches.ec2.delete_placement_group(GroupName="close")
    assert launches.ec2.describe_placement_groups()["PlacementGroups"] == []
    with pytest.raises(ClientError, match=r"InvalidPlacementGroup\.Unknown"):
        launches.ec2.delete_placement_group(GroupName="close")


def test_a_name_of_a_placement_group_is_given_once(launches: Launches) -> None:
    launches.ec2.create_placement_group(GroupName="close")
    with pytest.raises(ClientError, match=r"InvalidPlacementGroup\.Duplicate"):
        launches.ec2.create_placement_group(GroupName="close")


def test_a_copied_image_has_its_own_tags_and_may_be_deprecated(launches: Launches) -> None:
    tags = [{"Key": "family", "Value": "AL2023"}]
    copied = launches.ec2.copy_image(
        SourceImageId=AMI,
        SourceRegion=REGION,
        Name="copy",
        TagSpecifications=[{"ResourceType": "image", "Tags": tags}],
    )["ImageId"]
    now = datetime.fromtimestamp(START, tz=UTC)

    launches.ec2.enable_image_deprecation(ImageId=copied, DeprecateAt=now)

    filters = [{"Name": "tag:family", "Values": ["AL2023"]}]
    image = launches.ec2.describe_images(Filters=filters, IncludeDeprecated=True)["Images"]
    assert [(one["ImageId"], one["Architecture"], one["Tags"]) for one in image] == [(copied, "x86_64", tags)]
    assert image[0]["DeprecationTime"].startswith("2023-11-14T22:13:20")
    source = launches.ec2.describe_images(ImageIds=[AMI])["Images"][0]
    assert "DeprecationTime" not in source
    with pytest.raises(ClientError, match=r"InvalidAMIID\.NotFound"):
        launches.ec2.enable_image_deprecation(ImageId="ami-00000000000000000", DeprecateAt=now)

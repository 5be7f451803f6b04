"""An emulated account with what an EC2NodeClass names."""

from __future__ import annotations

from typing import Any

from shiplap.aws import session
from tests.integration.contracts.in_process_aws import REGION
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS as NODE_CLASS


def node_class_of_account() -> dict[str, Any]:
    """An EC2NodeClass whose AMI, one subnet and security group exist."""
    ec2: Any = session.client("ec2")
    network = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=network, CidrBlock="10.0.0.0/24", AvailabilityZone=f"{REGION}b")["Subnet"]
    group = ec2.create_security_group(GroupName="g", Description="g", VpcId=network)["GroupId"]
    reservation = ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)
    instance = reservation["Instances"][0]["InstanceId"]
    image = ec2.create_image(InstanceId=instance, Name="own")["ImageId"]
    spec = {
        "amiFamily": "AL2023",
        "amiSelectorTerms": [{"id": image}],
        "subnetSelectorTerms": [{"id": subnet["SubnetId"]}],
        "securityGroupSelectorTerms": [{"id": group}],
        "role": "node",
    }
    return {**NODE_CLASS, "spec": spec}

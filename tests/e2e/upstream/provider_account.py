"""What the suites of Karpenter's AWS provider expect of their account and cluster, beyond what a world has."""

from __future__ import annotations

import json
from threading import Event, Thread
from typing import Any

import boto3
import yaml
from moto.eks.models import eks_backends
from msgspec.structs import replace

from shiplap.errors import ObjectConflict
from shiplap.kubernetes.timestamps import rfc3339
from shiplap_lab.emulated_aws.emulator import ACCOUNT
from shiplap_lab.emulated_ec2 import seed
from tests.e2e.upstream.binaries import AWS
from tests.e2e.upstream.karpenter_install import NODE_ROLE
from tests.e2e.world import CLUSTER, REGION, ZONES, World

_BLOCK = 1
_IMAGES = ("al2023@latest", "bottlerocket@latest", "windows2022@latest")
_OLDER_IMAGES = ("al2023@v20260923", "bottlerocket@v1.40.0")
_OLDER = "2025-09-23T00:00:00Z"
_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
_POLL_S = 0.5


def complete(world: World) -> None:
    """Make what is missing; of a world that has it already, nothing."""
    iam = world.aws.client("iam")
    if any(role["RoleName"] == NODE_ROLE for role in iam.list_roles()["Roles"]):
        return
    iam.create_role(RoleName=NODE_ROLE, AssumeRolePolicyDocument=json.dumps(_TRUST))
    _make_network(world)
    _register_images(world)
    for document in yaml.safe_load_all((AWS.folder / "cluster.yaml").read_text()):
        try:
            world.api.apply(document)
        except ObjectConflict:
            pass  # the cluster has it


def environment(world: World) -> dict[str, str]:
    """Return the variables of the tests' process."""
    queue = world.deployed.interruption_queue_url.rpartition("/")[2]
    return world.aws.environment() | {
        "AWS_ENDPOINT_URL_EC2": world.ec2.url,
        "AWS_ENDPOINT_URL_SSM": world.ec2.url,
        "AWS_ENDPOINT_URL_EKS": world.ec2.url,
        "CLUSTER_NAME": CLUSTER,
        "CLUSTER_ENDPOINT": world.plane.endpoint,
        "INTERRUPTION_QUEUE": queue,
    }


def _make_network(world: World) -> None:
    """A public and a private subnet in each zone and two security groups, named as eksctl names them."""
    ec2 = boto3.client(
        "ec2",
        endpoint_url=world.ec2.url,
        region_name=REGION,
        aws_access_key_id=ACCOUNT,
        aws_secret_access_key="local",
    )
    network = seed.create_network(ec2, CLUSTER, ZONES, block=_BLOCK)
    groups = [network.security_group]
    group = ec2.create_security_group(GroupName=f"{CLUSTER}-shared", Description="shared", VpcId=network.vpc_id)
    groups.append(group["GroupId"])
    names = dict(zip(groups, (f"{CLUSTER}/Nodes", f"{CLUSTER}/Shared"), strict=True))
    for number, (zone, public) in enumerate(network.subnets.items(), len(ZONES)):
        block = f"10.{_BLOCK}.{number * 32}.0/19"
        private = ec2.create_subnet(VpcId=network.vpc_id, CidrBlock=block, AvailabilityZone=zone)["Subnet"]["SubnetId"]
        names |= {public: f"{CLUSTER}/SubnetPublic{zone}", private: f"{CLUSTER}/SubnetPrivate{zone}"}
    for resource, name in names.items():
        tags = {"Name": name, seed.DISCOVERY_TAG: CLUSTER}
        ec2.create_tags(Resources=[resource], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
    ec2.close()
    _make_cluster(world, network)


def _make_cluster(world: World, network: seed.ClusterVpc) -> None:
    """The cluster as EKS describes it, in place of that of a world before: moto keeps it as long as the process runs.

    Moto does not look up the VPC of its subnets.
    """
    clusters = eks_backends[ACCOUNT][REGION].clusters
    clusters.pop(CLUSTER, None)
    subnets = list(network.subnets.values())
    role = f"arn:aws:iam::{ACCOUNT}:role/eks"
    world.aws.client("eks", world.ec2.url).create_cluster(
        name=CLUSTER, roleArn=role, resourcesVpcConfig={"subnetIds": subnets}
    )
    clusters[CLUSTER].resources_vpc_config["vpcId"] = network.vpc_id


def _register_images(world: World) -> None:
    """Releases of this minor version of Kubernetes and the one before."""
    major, minor = world.kubernetes_minor.split(".")
    for version in (world.kubernetes_minor, f"{major}.{int(minor) - 1}"):
        for alias in _IMAGES:
            seed.register_images(world.ec2.control, seed.release_images(alias, version))
        for alias in _OLDER_IMAGES:
            released = seed.release_images(alias, version)
            older = [replace(one, image=replace(one.image, creation_date=_OLDER)) for one in released]
            seed.register_images(world.ec2.control, older)


class StateChanges:
    """Sends an event for each state that an instance gets to the interruption queue, as the rule for EC2's events does.

    A context manager; only for the world's own instances, as they are when it is entered.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._states: dict[str, str] = {}
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="state-changes", daemon=True)

    def __enter__(self) -> StateChanges:
        self._states = self._now()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _now(self) -> dict[str, str]:
        return {instance.id: instance.state for instance in self._world.launched()}

    def _run(self) -> None:
        while not self._stopping.wait(_POLL_S):
            states = self._now()
            for instance, state in states.items():
                if self._states.get(instance) != state:
                    self._send(instance, state)
            self._states = states

    def _send(self, instance: str, state: str) -> None:
        body: dict[str, Any] = {
            "source": "aws.ec2",
            "detail-type": "EC2 Instance State-change Notification",
            "time": rfc3339(self._world.ec2.behaviour.now()),
            "detail": {"instance-id": instance, "state": state},
        }
        self._world.send_event(body)

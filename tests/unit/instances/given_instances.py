"""Short ways to say what the tests of `instances/` are given. Figures are in the tests, not here."""

from __future__ import annotations

from functools import cache

from shiplap.instances.capacity.capacity_setting import CapacitySetting
from shiplap.instances.catalog.ec2_catalog import Catalog, Ec2InstanceType
from shiplap.instances.catalog.resolved_nodeclass import Ami, ResolvedNodeClass, Subnet
from shiplap.instances.catalog.type_catalog import InstanceType, LearnedCapacity, Observation
from shiplap.instances.resolve import instance_types
from shiplap.manifests.custom_resources import BlockDevice, BlockDeviceMapping, EC2NodeClass
from shiplap_lab.catalogue import embedded
from tests.builders.node_classes import node_class

MIB = 2**20
GIB = 2**30


@cache
def catalog() -> Catalog:
    return embedded.load()


def kind(name: str) -> Ec2InstanceType:
    return next(kind for kind in catalog().types if kind.instance_type == name)


def only(*names: str) -> Catalog:
    """The embedded catalogue cut down to a few types."""
    whole = catalog()
    return Catalog(
        region=whole.region, types=tuple(map(kind, sorted(names))), zones=whole.zones, zone_ids=whole.zone_ids
    )


def disk(device: str, size: str | None, *, root: bool = False) -> BlockDeviceMapping:
    return BlockDeviceMapping(device, root, BlockDevice(volume_size=size))


ARM = Ami("ami-arm", "arm", "2026-01-02T00:00:00Z", requirements=(("kubernetes.io/arch", "In", ("arm64",)),))
AMD = Ami("ami-amd", "amd", "2026-01-01T00:00:00Z", requirements=(("kubernetes.io/arch", "In", ("amd64",)),))


def resolved(*amis: Ami, zones: tuple[str, ...] = ("us-east-1a", "us-east-1b")) -> ResolvedNodeClass:
    return ResolvedNodeClass(
        name="default",
        family="AL2023",
        amis=amis or (ARM, AMD),
        subnets=tuple(Subnet(f"subnet-{zone}", zone) for zone in zones),
        security_groups=("sg-1",),
        instance_profile="nodes",
    )


def yields(
    name: str,
    made: EC2NodeClass | None = None,
    setting: CapacitySetting | None = None,
    *,
    answered: ResolvedNodeClass | None = None,
    learned: tuple[LearnedCapacity, ...] = (),
    beside: tuple[str, ...] = (),
    cluster: str = "",
    now: float = 0.0,
) -> InstanceType:
    """One type as resolved, with others `beside` it in the catalogue (siblings are only known from there)."""
    found = instance_types(
        only(name, *beside),
        made or node_class(),
        setting or CapacitySetting(),
        resolved=answered,
        learned=learned,
        unavailable=(),
        cluster=cluster,
        now=now,
    )
    return next(kind for kind in found if kind.name == name)


def seen(
    instance_type: str,
    memory: int,
    *,
    ami: str = "ami-amd",
    kubelet: str = "h",
    at: float = 1000.0,
    node: str = "n1",
    allocatable: int | None = None,
    **others: int,
) -> Observation:
    """A node that reported so much memory, and 674 MiB less of it allocatable."""
    capacity = {"memory": memory, **others}
    free = {"memory": memory - 674 * MIB if allocatable is None else allocatable, **others}
    return Observation(ami, instance_type, kubelet, capacity, free, at, "demo", node)


def known(*observations: Observation) -> LearnedCapacity:
    first = observations[0]
    return LearnedCapacity(first.ami, first.instance_type, first.kubelet_hash, observations, len(observations))

"""The AMI families: where they keep pods' data, how they count pods and which settings their kubelets accept."""

from __future__ import annotations

import msgspec

from shiplap.errors import InvalidInput
from shiplap.manifests.custom_resources import BlockDevice, BlockDeviceMapping, EC2NodeClass
from shiplap.manifests.template_hash import first_node_class_hashes, node_class_hash


class AmiFamily(msgspec.Struct, frozen=True):
    """An AMI family.

    `eni_limited_density`: pods per node follow the network interfaces. `eni_limited_overhead`: the memory kubelet keeps
    back follows the interfaces too, even where `maxPods` says otherwise.
    """

    name: str
    eni_limited_density: bool = True
    eni_limited_overhead: bool = True
    pods_per_core: bool = True
    windows_build: str = ""
    block_devices: tuple[BlockDeviceMapping, ...] = ()

    ephemeral_device: str = ""
    """The device pods' data lives on; empty when only the AMI knows."""

    mounts_by_user_data: bool = False
    """Whether user data can have pods' data on another device, by commands before kubelet starts."""

    @property
    def os(self) -> str:
        """The value of label kubernetes.io/os."""
        return "windows" if self.windows_build else "linux"


def _disk(device: str, size: str) -> BlockDeviceMapping:
    return BlockDeviceMapping(
        device, ebs=BlockDevice(delete_on_termination=True, encrypted=True, volume_size=size, volume_type="gp3")
    )


def _amazon_linux(name: str) -> AmiFamily:
    return AmiFamily(
        name,
        block_devices=(_disk("/dev/xvda", "20Gi"),),
        ephemeral_device="/dev/xvda",
        mounts_by_user_data=True,
    )


def _windows(name: str, build: str) -> AmiFamily:
    return AmiFamily(
        name,
        eni_limited_density=False,
        eni_limited_overhead=False,
        windows_build=build,
        block_devices=(_disk("/dev/sda1", "50Gi"),),
        ephemeral_device="/dev/sda1",
    )


FAMILIES = {
    family.name: family
    for family in (
        _amazon_linux("AL2"),
        _amazon_linux("AL2023"),
        AmiFamily(
            "Bottlerocket",
            eni_limited_overhead=False,
            pods_per_core=False,
            block_devices=(_disk("/dev/xvda", "4Gi"), _disk("/dev/xvdb", "20Gi")),
            ephemeral_device="/dev/xvdb",
        ),
        _windows("Windows2019", "10.0.17763"),
        _windows("Windows2022", "10.0.20348"),
        _windows("Windows2025", "10.0.26100"),
        AmiFamily("Custom"),
    )
}
"""All AMI families by name, with the block devices used when an EC2NodeClass names none."""

_ALIASES = {name.lower(): name for name in FAMILIES if name != "Custom"}


def spec_hash(node_class: EC2NodeClass, ca: str = "") -> str:
    """The digest by which nodes of an EC2NodeClass remember its content (`node_class_hash`); raises as `family_of`."""
    return node_class_hash(node_class, family_of(node_class).name, ca)


def first_hashes(node_class: EC2NodeClass) -> tuple[str, ...]:
    """The digests of older nodes of an EC2NodeClass (`first_node_class_hashes`), sorted; raises as `family_of`."""
    return tuple(sorted(first_node_class_hashes(node_class, family_of(node_class).name)))


def family_of(node_class: EC2NodeClass) -> AmiFamily:
    """The AMI family of an EC2NodeClass: `amiFamily` where written, else the family of the alias.

    Raises:
        InvalidInput: neither names a known family.
    """
    spec = node_class.spec
    name = spec.ami_family
    if not name:
        aliases = [term.alias for term in spec.ami_selector_terms if term.alias]
        name = _ALIASES.get(aliases[0].partition("@")[0].lower(), aliases[0]) if aliases else ""
    if name not in FAMILIES:
        raise InvalidInput(
            "EC2NodeClass",
            f"{name!r} is not an AMI family; known are {', '.join(FAMILIES)} (or use an alias such as al2023@latest)",
            document=f"EC2NodeClass/{node_class.metadata.name}",
            field="spec.amiFamily",
        )
    return FAMILIES[name]

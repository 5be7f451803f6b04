"""How many pods a node can hold: Karpenter's formula, the VPC CNI's ceilings, and what kubelet is told.

The ceilings are those of max-pods-calculator.sh (awslabs/amazon-eks-ami), quirks included: only the default network
card counts, bare metal is not taken to delegate prefixes, and the recommended ceiling holds without prefixes too.
"""

from __future__ import annotations

from shiplap.instances.capacity.capacity_setting import CapacitySetting, VpcCni
from shiplap.instances.capacity.kubelet_settings import KubeletSettings
from shiplap.instances.catalog.ami_families import AmiFamily
from shiplap.instances.catalog.ec2_catalog import Ec2InstanceType
from shiplap.manifests.custom_resources import NetworkInterface

_HOST_NETWORK_PODS = 2
_ADDRESSES_PER_PREFIX = 16
_WITHOUT_ENI_LIMIT = 110


def default_card_interfaces(kind: Ec2InstanceType) -> int:
    """Network interfaces of the default network card, the only one pods get addresses from."""
    network = kind.network_info
    if network.default_network_card_index < len(network.network_cards):
        return network.network_cards[network.default_network_card_index].maximum_network_interfaces
    return network.maximum_network_interfaces


def eni_limited_pods(kind: Ec2InstanceType, reserved_enis: int = 0) -> int:
    """Pods by secondary addresses, as Karpenter counts them; 0 when no interface is left for pods."""
    usable = max(default_card_interfaces(kind) - reserved_enis, 0)
    return _secondary(kind, usable) if usable else 0


def cni_max_pods(kind: Ec2InstanceType, cni: VpcCni, reserved_enis: int = 0) -> int:
    """Pods the VPC CNI can give addresses to: max-pods-calculator.sh with --show-max-allowed.

    Custom networking keeps the first interface from pods. It is also what `reserved_enis` of 1 is commonly set for,
    so the two do not add up.
    """
    usable = default_card_interfaces(kind)
    if cni.max_eni is not None:
        usable = min(usable, cni.max_eni)
    usable = max(usable - max(reserved_enis, int(cni.custom_networking)), 0)
    if cni.delegates_prefixes and kind.hypervisor == "nitro":
        return (
            usable * (kind.network_info.ipv4_addresses_per_interface - 1) * _ADDRESSES_PER_PREFIX + _HOST_NETWORK_PODS
        )
    return _secondary(kind, usable)


def recommended_max_pods(kind: Ec2InstanceType, cni: VpcCni, reserved_enis: int = 0) -> int:
    """The figure of max-pods-calculator.sh: the ceiling, but at most 110, or 250 on more than 30 vCPUs."""
    return min(cni_max_pods(kind, cni, reserved_enis), 250 if kind.v_cpu_info.default_v_cpus > 30 else 110)


def max_pods(
    kind: Ec2InstanceType,
    family: AmiFamily,
    kubelet: KubeletSettings,
    setting: CapacitySetting,
    network_interfaces: tuple[NetworkInterface, ...] = (),
) -> int:
    """Pods a node of this type is told to take; planned with, and written to its user data.

    By default Karpenter's formula, or what the calculator recommends once the CNI is known to depart from plain
    secondary addresses. `maxPods` replaces the default but never exceeds the addresses the CNI can give out; while
    nothing is known about the CNI, prefix delegation is allowed for. `podsPerCore` lowers the result.
    """
    reserved = _reserved(setting, network_interfaces)
    pods = default_max_pods(kind, family, setting, network_interfaces)
    if kubelet.max_pods is not None:
        pods = kubelet.max_pods
        if family.eni_limited_density:
            pods = min(pods, cni_max_pods(kind, setting.cni or VpcCni(prefix_delegation=True), reserved))
    if kubelet.pods_per_core > 0 and family.pods_per_core:
        pods = min(pods, kubelet.pods_per_core * kind.v_cpu_info.default_v_cpus)
    return pods


def default_max_pods(
    kind: Ec2InstanceType,
    family: AmiFamily,
    setting: CapacitySetting,
    network_interfaces: tuple[NetworkInterface, ...] = (),
) -> int:
    """Pods a node of this type takes when its EC2NodeClass says nothing about it."""
    if not family.eni_limited_density:
        return _WITHOUT_ENI_LIMIT
    return _default(kind, setting.cni, _reserved(setting, network_interfaces))


def _reserved(setting: CapacitySetting, network_interfaces: tuple[NetworkInterface, ...]) -> int:
    """Interfaces of the default card that pods cannot use: those set aside, and those for elastic fabric alone."""
    return setting.reserved_enis + sum(
        1 for nic in network_interfaces if nic.network_card_index == 0 and nic.interface_type == "efa-only"
    )


def _default(kind: Ec2InstanceType, cni: VpcCni | None, reserved_enis: int) -> int:
    if cni is not None and (cni.delegates_prefixes or cni.custom_networking or cni.max_eni is not None):
        return recommended_max_pods(kind, cni, reserved_enis)
    return eni_limited_pods(kind, reserved_enis)


def _secondary(kind: Ec2InstanceType, usable: int) -> int:
    return usable * (kind.network_info.ipv4_addresses_per_interface - 1) + _HOST_NETWORK_PODS

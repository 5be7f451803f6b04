"""Parts of an instance that its launch template describes and moto loses: volumes, interfaces, CPU, placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.utils import random_spot_request_id

from shiplap_lab.emulated_ec2.placement_groups import place

_CARD = 100
"""Moto keeps interfaces by their device index, which each network card counts anew."""

_TRACKED = ("TcpEstablishedTimeout", "UdpStreamTimeout", "UdpTimeout")


class SpotRequest(TaggedEC2Resource):
    """The request that EC2 makes for a spot instance of a fleet."""

    def __init__(self, instance: Any, tags: dict[str, str]) -> None:
        self.ec2_backend = instance.ec2_backend
        self.id = self.spot_instance_request_id = random_spot_request_id()
        self.instance_id = instance.id
        self.state, self.type = "active", "one-time"
        self.add_tags(tags)


def complete(instance: Any, data: Mapping[str, Any], tags: Mapping[str, Mapping[str, str]]) -> None:
    """Give an instance without volumes, and with one interface, what the data of its template say."""
    backend = instance.ec2_backend
    _attach_volumes(backend, instance, data, dict(tags.get("volume", {})))
    _attach_interfaces(backend, instance, data, dict(tags.get("network-interface", {})))
    if instance.lifecycle == "spot":
        request = SpotRequest(instance, dict(tags.get("spot-instances-request", {})))
        backend.spot_instance_requests[request.id] = request
        instance.spot_instance_request_id = request.id
    if data.get("CpuOptions"):
        instance.cpu_options = dict(data["CpuOptions"])
    if data.get("EnclaveOptions"):
        instance.enclave_options = {"Enabled": _is_true(data["EnclaveOptions"].get("Enabled"))}
    if data.get("Placement"):
        place(backend, instance, data["Placement"])


def _attach_volumes(backend: Any, instance: Any, data: Mapping[str, Any], tags: dict[str, str]) -> None:
    for device in data.get("BlockDeviceMappings") or ():
        if "Ebs" not in device:
            continue
        ebs = device["Ebs"]
        volume = backend.create_volume(
            ebs.get("VolumeSize"),
            instance.placement.zone,
            snapshot_id=ebs.get("SnapshotId"),
            encrypted=_is_true(ebs.get("Encrypted")),
            kms_key_id=ebs.get("KmsKeyId"),
            volume_type=ebs.get("VolumeType"),
            iops=ebs.get("Iops"),
            throughput=ebs.get("Throughput"),
        )
        backend.attach_volume(
            volume.id, instance.id, device["DeviceName"], _is_true(ebs.get("DeleteOnTermination", True))
        )
        volume.add_tags(tags)


def _attach_interfaces(backend: Any, instance: Any, data: Mapping[str, Any], tags: dict[str, str]) -> None:
    """The primary one is there; an interface that is for EFA alone has no address, the subnet loses none."""
    interfaces: Sequence[Mapping[str, Any]] = data.get("NetworkInterfaces") or ({},)
    for described in interfaces:
        card, device = int(described.get("NetworkCardIndex") or 0), int(described.get("DeviceIndex") or 0)
        if card == device == 0:
            interface = instance.nics[0]
        else:
            groups = list(described.get("Groups") or ())
            interface = backend.create_network_interface(instance.subnet_id, "", device_index=device, group_ids=groups)
            instance.attach_eni(interface, device)
            instance.nics[_CARD * card + device] = interface
        kind = described.get("InterfaceType") or "interface"
        interface.interface_type = kind
        tracked = described.get("ConnectionTrackingSpecification")
        if tracked:
            configuration = {name: int(tracked[name]) for name in _TRACKED if name in tracked}
            interface.connection_tracking_configuration = configuration
        interface.add_tags(tags)


def _is_true(value: object) -> bool:
    """Parameters of a request may have stayed text."""
    return value is True or str(value).lower() == "true"

"""Starting one instance inside moto as EC2 would: everything validated, the launch template applied in full."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from moto.core.types import Base64EncodedString
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.ec2.models.instances import InstanceState, StateReason
from moto.ec2.utils import convert_tag_spec

from shiplap_lab.emulated_ec2.allocation import CapacityPool, FleetCandidate
from shiplap_lab.emulated_ec2.behaviour import Behaviour
from shiplap_lab.emulated_ec2.emulated_reservations import BLOCK, EmulatedReservation, refusal_of, target_of
from shiplap_lab.emulated_ec2.instance_parts import complete

USER_DATA_BYTES = 16384

TOO_MANY = ("RequestLimitExceeded", "Request limit exceeded.")

Refusal = tuple[str, str]
"""EC2's error code and message."""


def offered(region: str, instance_type: str, zone: str) -> bool:
    """True if EC2 sells a type in a zone."""
    return any(
        offering["InstanceType"] == instance_type and offering["Location"] == zone
        for offering in INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, ())
    )


def refusal_of_pool(region: str, pool: CapacityPool) -> Refusal | None:
    """Return why EC2 can never sell from a pool, or None."""
    if pool.instance_type not in INSTANCE_TYPES:
        return "InvalidParameterValue", f"Invalid value '{pool.instance_type}' for InstanceType."
    if not offered(region, pool.instance_type, pool.zone):
        return "InvalidFleetConfiguration", (
            f"Your requested instance type ({pool.instance_type}) is not supported in your requested Availability Zone "
            f"({pool.zone})."
        )
    if pool.capacity_type == "spot" and "spot" not in INSTANCE_TYPES[pool.instance_type]["SupportedUsageClasses"]:
        return "UnsupportedOperation", f"{pool.instance_type} is not supported as spot."
    return None


def refusal_of_image(backend: Any, image_id: str, instance_type: str) -> Refusal | None:
    """Return why an image cannot run on a type, or None."""
    image = backend.amis.get(image_id)
    if image is None:
        return "InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist"
    architectures = INSTANCE_TYPES[instance_type]["ProcessorInfo"]["SupportedArchitectures"]
    if image.architecture and image.architecture not in architectures:
        return "InvalidParameterValue", (
            f"The architecture '{','.join(architectures)}' of the specified instance type does not match the "
            f"architecture '{image.architecture}' of the specified AMI."
        )
    return None


def no_capacity(pool: CapacityPool) -> Refusal:
    """EC2's answer when a pool is empty."""
    if pool.capacity_type == "spot":
        return "InsufficientInstanceCapacity", "There is no Spot capacity available that matches your request."
    return "InsufficientInstanceCapacity", (
        f"We currently do not have sufficient {pool.instance_type} capacity in the Availability Zone you requested "
        f"({pool.zone}). Our system will be working on provisioning additional capacity."
    )


def _refusal(backend: Any, candidate: FleetCandidate) -> Refusal | None:
    """Everything EC2 checks of an override before it looks for capacity."""
    if candidate.pool.zone == "":
        return "InvalidSubnetID.NotFound", f"The subnet ID '{candidate.subnet_id}' does not exist"
    refused = refusal_of_pool(backend.region_name, candidate.pool)
    if refused is None:
        refused = refusal_of_image(backend, candidate.image_id, candidate.pool.instance_type)
    if refused is None:
        refused = _refusal_of_data(backend, candidate.data)
    return refused


def _refusal_of_data(backend: Any, data: Mapping[str, Any]) -> Refusal | None:
    for group in groups_of(data):
        if backend.get_security_group_from_id(group) is None:
            return "InvalidGroup.NotFound", f"The security group '{group}' does not exist"
    user_data = data.get("UserData")
    if user_data is not None and len(b64decode(str(user_data))) > USER_DATA_BYTES:
        return "InvalidUserData.Malformed", f"User data is limited to {USER_DATA_BYTES} bytes"
    return None


def groups_of(data: Mapping[str, Any]) -> list[str]:
    """Security groups of a launch template: those of its primary interface, else its own."""
    for interface in data.get("NetworkInterfaces") or ():
        if int(interface.get("DeviceIndex", 0)) == 0 and interface.get("Groups"):
            return list(interface["Groups"])
    return list(data.get("SecurityGroupIds") or ())


def launch(
    behaviour: Behaviour, backend: Any, candidate: FleetCandidate, tags: Mapping[str, Mapping[str, str]], count: int
) -> tuple[list[str], Refusal | None]:
    """Ids of up to `count` new instances of a candidate, and why there are not more."""
    refused = _refusal(backend, candidate)
    if refused is not None:
        return [], refused
    reserved = target_of(candidate.data)
    launched: list[str] = []
    while len(launched) < count:
        subnet = backend.get_subnet(candidate.subnet_id)
        if subnet.available_ip_address_count <= 0:
            return launched, (
                "InsufficientFreeAddressesInSubnet",
                f"There are not enough free addresses in subnet {candidate.subnet_id} for the instances requested.",
            )
        if reserved:
            used = reserved_instances(backend.all_instances())[reserved]
            pool, held = candidate.pool, behaviour.reservations.get(reserved)
            refused = refusal_of(held, pool.instance_type, pool.zone, used, behaviour.now())
            if refused is not None:
                return launched, refused
        elif not behaviour.take(candidate.pool):
            return launched, no_capacity(candidate.pool)
        if not behaviour.launchable.take(1, behaviour.now()):
            return launched, TOO_MANY
        launched.append(_start(behaviour, backend, candidate, tags))
    return launched, None


def _start(behaviour: Behaviour, backend: Any, candidate: FleetCandidate, tags: Mapping[str, Mapping[str, str]]) -> str:
    data = candidate.data
    own = convert_tag_spec(data.get("TagSpecifications") or [])
    merged = {kind: {**own.get(kind, {}), **tags.get(kind, {})} for kind in {*own, *tags}}
    reservation = backend.run_instances(
        candidate.image_id,
        1,
        data.get("UserData"),
        [],
        instance_type=candidate.pool.instance_type,
        is_instance_type_default=False,
        region_name=backend.region_name,
        subnet_id=candidate.subnet_id,
        security_group_ids=groups_of(data),
        key_name=data.get("KeyName"),
        monitoring_state="enabled" if (data.get("Monitoring") or {}).get("Enabled") else "disabled",
        metadata_options=data.get("MetadataOptions") or {},
        associate_public_ip=_public_ip(data),
        instance_market_options="spot" if candidate.pool.capacity_type == "spot" else None,
        block_device_mappings=[],
        tags=merged,
    )
    instance = reservation.instances[0]
    complete(instance, data, merged)
    instance.add_tags(
        {
            "aws:ec2launchtemplate:id": candidate.template["LaunchTemplateId"],
            "aws:ec2launchtemplate:version": str(candidate.template["Version"]),
        }
    )
    begin(behaviour, instance)
    _reserve(instance, behaviour.reservations.get(target_of(data)))
    give_profile(instance, (data.get("IamInstanceProfile") or {}).get("Name", ""))
    return str(instance.id)


def give_profile(instance: Any, name: str) -> None:
    """EC2 shows the ARN of the profile; its path is unknown here, because IAM is played elsewhere."""
    instance.shiplap_profile = name
    if name:
        arn = f"arn:aws:iam::{instance.ec2_backend.account_id}:instance-profile/{name}"
        instance.iam_instance_profile = {"Arn": arn, "Id": f"AIPA{sha256(name.encode()).hexdigest()[:17].upper()}"}


def _public_ip(data: Mapping[str, Any]) -> bool | None:
    for interface in data.get("NetworkInterfaces") or ():
        if "AssociatePublicIpAddress" in interface:
            return bool(interface["AssociatePublicIpAddress"])
    return None


def begin(behaviour: Behaviour, instance: Any) -> None:
    """A new instance starts pending; `settle` makes it run when its time has come."""
    now = behaviour.now()
    instance._state = InstanceState("pending", 0)
    instance.launch_time = datetime.fromtimestamp(now, tz=UTC).replace(tzinfo=None)
    instance.shiplap_visible_at = now + behaviour.timing.describe_lag_s
    instance.shiplap_settles = (now + behaviour.timing.pending_s, InstanceState("running", 16))
    death = behaviour.death()
    if death is not None:
        end(behaviour, instance)
        instance._reason = death.code
        instance.state_reason = StateReason(death.message or f"{death.code}: Client error on launch", death.code)


def end(behaviour: Behaviour, instance: Any) -> None:
    """An instance that was terminated shuts down first."""
    instance._state = InstanceState("shutting-down", 32)
    instance.shiplap_settles = (behaviour.now() + behaviour.timing.terminating_s, InstanceState("terminated", 48))


def _reserve(instance: Any, held: EmulatedReservation | None) -> None:
    if held is not None:
        instance.capacity_reservation_id = held.id
        instance.lifecycle = held.purchased_as if held.purchased_as == BLOCK else None


def reserved_instances(instances: Iterable[Any]) -> Counter[str]:
    """Count the instances that run in each reservation."""
    running = (item for item in instances if item.state not in ("shutting-down", "terminated"))
    return Counter(getattr(item, "capacity_reservation_id", None) or "" for item in running)


def _leave(behaviour: Behaviour, instance: Any, now: float) -> None:
    """End an instance of a block that ends; one of another reservation that has ended goes on without it."""
    held = behaviour.reservations.get(getattr(instance, "capacity_reservation_id", None) or "")
    if held is not None and instance.state in ("pending", "running"):
        if held.ends_instances(now):
            end(behaviour, instance)
        elif held.state_at(now) != "active":
            instance.capacity_reservation_id = None


def settle(behaviour: Behaviour, instances: Sequence[Any]) -> None:
    """Let every state change happen whose time has come."""
    now = behaviour.now()
    for instance in instances:
        _leave(behaviour, instance, now)
        due = getattr(instance, "shiplap_settles", None)
        if due is not None and due[0] <= now:
            instance._state = due[1]
            instance.shiplap_settles = None
            if due[1].name == "terminated":
                _remove_interfaces(instance)


def _remove_interfaces(instance: Any) -> None:
    """The subnet has room again. The addresses themselves are not given to others: names of Nodes are made of them, and
    who was told of one instance must not take another for it.
    """
    for interface in instance.nics.values():
        instance.ec2_backend.enis.pop(interface.id, None)


def decoded(user_data: Base64EncodedString | None) -> str:
    """User data as text, for the control API."""
    return "" if user_data is None else b64decode(str(user_data)).decode("utf-8", "replace")

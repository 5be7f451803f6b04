"""CreateFleet: one instant fleet for claims with equal wishes, and the meaning of its answer.

When the answer to a launch was lost, its token must not be used again. EC2 keeps the answer with the fleet, and an
instant fleet carries the launch's tag. So the outcome of a launch is known as soon as its fleet is found, long before
describing instances is certain to show all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from shiplap.aws import tags
from shiplap.aws.ec2.launch_templates import LaunchTemplate, launch_template, pool_tags
from shiplap.aws.ec2_errors import GROUP_FULL, SUBNET, TEMPLATE_GONE, classify, named_types
from shiplap.aws.failures import FAILURES
from shiplap.instances.catalog.resolved_nodeclass import emptiest_subnets
from shiplap.instances.offerings.unavailability import ANY
from shiplap.kubernetes import labels
from shiplap.ports import FleetOverride, FleetRequest, FleetResult, Instance, OfferingFailure

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import (
        CreateFleetResultTypeDef,
        FleetDataTypeDef,
        FleetLaunchTemplateConfigRequestTypeDef,
        FleetLaunchTemplateOverridesRequestTypeDef,
    )

    FleetAnswer = CreateFleetResultTypeDef | FleetDataTypeDef

MAX_TYPES = 60
MAX_OVERRIDES = 300
MAX_TEMPLATES = 50

_MAX_TOKEN = 64
_RESERVED_CAPACITY = "reserved-capacity"
_ON_DEMAND_STRATEGIES = {"prioritized": "prioritized"}
_SPOT_STRATEGIES = {
    "capacity-optimized": "capacity-optimized",
    "lowest-price": "lowest-price",
    "prioritized": "capacity-optimized-prioritized",
}


class FleetConfig(msgspec.Struct, frozen=True):
    """Offerings that are launched from one template."""

    template: LaunchTemplate
    overrides: tuple[FleetOverride, ...]


FleetConfigs = Sequence[FleetConfig]
"""What a request asks EC2 for: one entry for each launch template."""


def fleet_configs(request: FleetRequest, install: str = "") -> FleetConfigs:
    """The types and launch templates of a request; what is made is tagged as the install's.

    The cheapest 60 types are kept, and one template for all that boot alike, at most as many as EC2 takes. Offerings in
    zones without a subnet are left out.

    Raises:
        NodeClassNotReady: the launch templates cannot be made.
    """
    subnets = subnet_ids(request)
    kept = cheapest_types([override for override in sorted(request.overrides) if override.zone in subnets])
    groups: dict[tuple[object, ...], list[FleetOverride]] = {}
    for override in kept[:MAX_OVERRIDES]:
        boots = (override.ami, override.max_pods, override.kubelet_values, override.fabric_adapters)
        key = (*boots, override.reservation)
        if key in groups or len(groups) < MAX_TEMPLATES:
            groups.setdefault(key, []).append(override)
    by_name: dict[str, tuple[LaunchTemplate, list[FleetOverride]]] = {}
    for _, group in sorted(groups.items()):
        made = launch_template(request, group[0], install)
        _, overrides = by_name.setdefault(made.name, (made, []))
        overrides += group
    return tuple(FleetConfig(made, tuple(overrides)) for made, overrides in by_name.values())


def subnet_ids(request: FleetRequest) -> dict[str, str]:
    """The subnet that each zone's instances go to: the one with most free addresses."""
    return {zone: subnet.id for zone, subnet in emptiest_subnets(request.resolved.subnets).items()}


def _all_overrides(configs: FleetConfigs) -> list[FleetOverride]:
    return [override for config in configs for override in config.overrides]


def _reservation(configs: FleetConfigs) -> str:
    """The capacity reservation that a launch goes into, empty for none: a launch goes into one."""
    return next((override.reservation for override in _all_overrides(configs)), "")


def cheapest_types(overrides: Sequence[FleetOverride]) -> list[FleetOverride]:
    """The overrides of the first 60 types, each (type, zone) once; `overrides` come cheapest first."""
    types: dict[str, None] = {}
    kept: dict[tuple[str, str], FleetOverride] = {}
    for override in overrides:
        if override.instance_type in types or len(types) < MAX_TYPES:
            types[override.instance_type] = None
            kept.setdefault((override.instance_type, override.zone), override)
    return list(kept.values())


def parameters(request: FleetRequest, configs: FleetConfigs, token: str, install: str = "") -> dict[str, Any]:
    """CreateFleet's parameters. They depend on nothing but the launch, so that a repeated token matches."""
    common_tags = tags.written(launch_tags(request, install))
    target = _target(request, configs)
    subnets, priorities = subnet_ids(request), _priorities(configs)
    wanted: dict[str, Any] = {
        "Type": "instant",
        "ClientToken": client_token(token),
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": request.wanted,
            "DefaultTargetCapacityType": target,
        },
        "LaunchTemplateConfigs": [_config(config, subnets, priorities) for config in configs],
        "TagSpecifications": [
            {"ResourceType": resource, "Tags": common_tags} for resource in ("instance", "volume", "fleet")
        ],
    }
    if target == labels.SPOT:
        strategy = _SPOT_STRATEGIES.get(request.strategy, "price-capacity-optimized")
        wanted["SpotOptions"] = {"AllocationStrategy": strategy, **_least(request.at_least)}
    elif target == labels.ON_DEMAND:  # of which EC2 knows two: what is best for spot means nothing here
        strategy = _ON_DEMAND_STRATEGIES.get(request.strategy, "lowest-price")
        wanted["OnDemandOptions"] = {"AllocationStrategy": strategy, **_least(request.at_least)}
    elif target == _RESERVED_CAPACITY:
        wanted["ReservedCapacityOptions"] = {"ReservationTypes": ["interruptible-capacity-reservation"]}
    relaxed = request.claim.plan.annotations.get(labels.MIN_VALUES_RELAXED) == "true"
    if request.node_class.spec.context and not relaxed:  # it is meant for launches as the pool wants them
        wanted["Context"] = request.node_class.spec.context
    return wanted


def _least(instances: int) -> dict[str, Any]:
    """Return the options by which a fleet launches nothing unless one zone has so many instances."""
    return {"SingleAvailabilityZone": True, "MinTargetCapacity": instances} if instances else {}


def launch_tags(request: FleetRequest, install: str) -> dict[str, str]:
    """Tags of the instances of a launch, their volumes and the fleet; a user's Name is kept.

    A fleet gives all its instances the same tags, so only one that stands alone has its claim's name from the start.
    """
    common = {**pool_tags(request, install), tags.LAUNCH: request.token}
    if request.wanted > 1:
        return {tags.NAME: request.claim.plan.node_pool or request.claim.plan.node_class, **common}
    return {tags.NAME: request.claim.name, **common, tags.NODE_CLAIM: request.claim.name}


def _target(request: FleetRequest, configs: FleetConfigs) -> str:
    """Return the capacity type that the fleet is to buy.

    An ordinary reservation is on-demand capacity that the launch template aims at.
    """
    if request.capacity_type != labels.RESERVED:
        return request.capacity_type
    chosen = {override.reservation for override in _all_overrides(configs)}
    for held in request.resolved.capacity_reservations:
        if held.id in chosen and held.type == "capacity-block":
            return "capacity-block"
        if held.id in chosen and held.interruptible:
            return _RESERVED_CAPACITY
    return labels.ON_DEMAND


def _priorities(configs: FleetConfigs) -> dict[float, int]:
    """EC2's priority of each price: whole numbers from 0, the lowest goes first."""
    prices = {override.price for override in _all_overrides(configs)}
    return {price: place for place, price in enumerate(sorted(prices))}


def client_token(token: str) -> str:
    """The token as EC2 takes it: at most 64 characters."""
    return token if len(token) <= _MAX_TOKEN else sha256(token.encode()).hexdigest()


def _config(
    config: FleetConfig, subnets: Mapping[str, str], priorities: Mapping[float, int]
) -> FleetLaunchTemplateConfigRequestTypeDef:
    return {
        "LaunchTemplateSpecification": {"LaunchTemplateName": config.template.name, "Version": "$Latest"},
        "Overrides": [
            _override(override, subnets[override.zone], priorities[override.price]) for override in config.overrides
        ],
    }


def _override(override: FleetOverride, subnet_id: str, priority: int) -> FleetLaunchTemplateOverridesRequestTypeDef:
    return {
        "InstanceType": override.instance_type,  # type: ignore[typeddict-item]  # EC2 knows more types than its stubs
        "SubnetId": subnet_id,
        "AvailabilityZone": override.zone,
        "ImageId": override.ami,
        "Priority": priority,
    }


def instances_of(
    request: FleetRequest, configs: FleetConfigs, answer: FleetAnswer, launched_at: float, install: str = ""
) -> tuple[Instance, ...]:
    """The instances a fleet gave, by id."""
    subnets = subnet_ids(request)
    instances = []
    for group in answer.get("Instances", ()):
        override = group.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
        alike = Instance(
            id="",
            instance_type=str(group.get("InstanceType") or override.get("InstanceType", "")),
            zone=override.get("AvailabilityZone") or _zone(subnets, override.get("SubnetId", "")),
            capacity_type=request.capacity_type,
            ami=override.get("ImageId", ""),
            state="pending",
            launched_at=launched_at,
            cluster=request.claim.cluster,
            claim=request.claim.name if request.wanted == 1 else "",
            node_pool=request.claim.plan.node_pool,
            launch=request.token,
            install=install,
            reservation=_reservation(configs),
            subnet=override.get("SubnetId", ""),
            security_groups=tuple(sorted(request.resolved.security_groups)),
        )
        instances += [msgspec.structs.replace(alike, id=instance_id) for instance_id in group.get("InstanceIds", ())]
    return tuple(sorted(instances, key=lambda instance: instance.id))


def failures_of(request: FleetRequest, configs: FleetConfigs, answer: FleetAnswer) -> tuple[OfferingFailure, ...]:
    """Return why EC2 refused offerings, one failure per offering and code, sorted."""
    subnets = subnet_ids(request)
    failures: dict[tuple[str, str, str], OfferingFailure] = {}
    for error in answer.get("Errors", ()):
        override = error.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
        code, message = error.get("ErrorCode", ""), error.get("ErrorMessage", "")
        kind = classify(code, message, (str(override.get("InstanceType", "")),))
        full = GROUP_FULL in message
        failure = OfferingFailure(
            ANY if full else str(override.get("InstanceType", "")),
            override.get("AvailabilityZone") or _zone(subnets, override.get("SubnetId", "")),
            ANY if full else request.capacity_type,
            code,
            kind,
            message,
            override.get("SubnetId", "") if kind == SUBNET else "",
            request.group,
            _reservation(configs),
        )
        failures.setdefault((failure.instance_type, failure.zone, code), failure)
    return tuple(sorted(failures.values()))


def all_failed(
    request: FleetRequest, configs: FleetConfigs, code: str, kind: str, message: str
) -> tuple[OfferingFailure, ...]:
    """One failure for each offering that was asked for, when EC2 refused the request as a whole.

    A refusal that names some of the instance types is about these alone: the next launch goes without them.
    """
    overrides = _all_overrides(configs) or request.overrides
    asked = {override.instance_type for override in overrides}
    blamed = named_types(message, asked) or asked
    offerings = {(override.instance_type, override.zone) for override in overrides if override.instance_type in blamed}
    about = {"group": request.group, "reservation": _reservation(configs)}
    return tuple(
        OfferingFailure(name, zone, request.capacity_type, code, kind, message, **about)
        for name, zone in sorted(offerings)
    )


def template_is_gone(answer: CreateFleetResultTypeDef) -> bool:
    """True if a fleet gave nothing because a launch template was deleted."""
    codes = {error.get("ErrorCode", "") for error in answer.get("Errors", ())}
    return not answer.get("Instances") and bool(codes) and codes <= set(TEMPLATE_GONE)


def _zone(subnets: Mapping[str, str], subnet_id: str) -> str:
    return next((zone for zone, known in subnets.items() if known == subnet_id), "")


_LOG = logging.getLogger(__name__)

_UNDER_WAY = ("pending_fulfillment", "pending_termination")
_NEVER_NODES = ("shutting-down", "terminated", "stopping", "stopped")


def first_answer(
    ec2: EC2Client,
    request: FleetRequest,
    configs: FleetConfigs,
    launched_at: float,
    *,
    install: str = "",
    fleet_id: str = "",
) -> FleetResult | None:
    """Return what the fleets of a launch gave, but for instances that have ended since; None while that is not certain.

    None, too, when EC2 refuses the request: then Shiplap looks for its instances by tag while they may be hidden.
    With the id of its fleet, the fleet need not be found by tag.
    """
    token = request.token
    try:
        fleets = _fleets(ec2, [fleet_id] if fleet_id else _ids(ec2, token))
        if not fleets or any(item.get("ActivityStatus") in _UNDER_WAY for item in fleets):
            return None
        given = [each for item in fleets for each in instances_of(request, configs, item, launched_at, install)]
        instances = _still_there(ec2, sorted(given, key=lambda instance: instance.id))
    except FAILURES as error:
        _LOG.warning("the fleet of launch %s was not found: %s", token, error)
        return None
    return FleetResult(instances, tuple(failure for item in fleets for failure in failures_of(request, configs, item)))


def _ids(ec2: EC2Client, token: str) -> list[str]:
    """Raises what botocore raises."""
    wanted = {"resource-type": "fleet", "key": tags.LAUNCH, "value": token}
    shown = ec2.describe_tags(Filters=[{"Name": name, "Values": [value]} for name, value in wanted.items()])
    return sorted({tag["ResourceId"] for tag in shown["Tags"]})


def _fleets(ec2: EC2Client, ids: list[str]) -> Sequence[FleetDataTypeDef]:
    """Raises what botocore raises."""
    # Instant fleets are described by id alone: a filter leaves them out.
    return ec2.describe_fleets(FleetIds=ids)["Fleets"] if ids else ()


def _still_there(ec2: EC2Client, given: Sequence[Instance]) -> tuple[Instance, ...]:
    """Without those that have ended; what is not shown yet has been launched a moment ago. Raises as botocore does."""
    if not given:
        return ()
    ids = [instance.id for instance in given]
    states: dict[str, str] = {}
    for page in ec2.get_paginator("describe_instances").paginate(Filters=[{"Name": "instance-id", "Values": ids}]):
        for reservation in page["Reservations"]:
            states |= {seen["InstanceId"]: seen["State"]["Name"] for seen in reservation["Instances"]}
    kept = (replace(instance, state=states.get(instance.id, instance.state)) for instance in given)
    return tuple(instance for instance in kept if instance.state not in _NEVER_NODES)

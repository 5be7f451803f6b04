"""CreateFleet of type `instant` as EC2 answers it: overrides tried in strategy order, failures listed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.utils import convert_tag_spec, random_fleet_id

from shiplap_lab.emulated_ec2.allocation import CapacityPool, FleetCandidate, order
from shiplap_lab.emulated_ec2.behaviour import Behaviour
from shiplap_lab.emulated_ec2.launching import end, launch, no_capacity


def create_instant(behaviour: Behaviour, backend: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer of CreateFleet for parsed request parameters.

    Raises:
        EC2ClientError: the request as a whole is refused (unknown launch template, no overrides …).
    """
    target = request["TargetCapacitySpecification"]
    capacity_type = target.get("DefaultTargetCapacityType") or "on-demand"
    options = request.get("SpotOptions" if capacity_type == "spot" else "OnDemandOptions") or {}
    strategy = options.get("AllocationStrategy") or "lowest-price"
    try:
        candidates = order(_candidates(behaviour, backend, request, capacity_type), strategy)
    except ValueError as error:
        raise EC2ClientError("InvalidParameterValue", str(error)) from error
    least = _least(options, int(target["TotalTargetCapacity"]))
    fleet_id = random_fleet_id()
    tags = convert_tag_spec(request.get("TagSpecifications") or [])
    tags["instance"] = {**tags.get("instance", {}), "aws:ec2:fleet-id": fleet_id}
    instances: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    missing = int(target["TotalTargetCapacity"])
    if options.get("SingleAvailabilityZone") or options.get("SingleInstanceType"):
        candidates = _of_one_kind(candidates, options, least or missing)
    if least and _room(candidates, missing) < least:
        refusals = [(item, no_capacity(item.pool)) for item in candidates]
        errors = [_described(item) | {"ErrorCode": code, "ErrorMessage": message} for item, (code, message) in refusals]
        candidates = []
    for candidate in candidates:
        launched, refusal = launch(behaviour, backend, candidate, tags, missing)
        missing -= len(launched)
        what = _described(candidate)
        if launched:
            instances.append(what | {"InstanceIds": launched, "InstanceType": candidate.pool.instance_type})
        if refusal is not None:
            errors.append(what | {"ErrorCode": refusal[0], "ErrorMessage": refusal[1]})
        if not missing:
            break
    if int(target["TotalTargetCapacity"]) - missing < least:
        for instance_id in (name for group in instances for name in group["InstanceIds"]):
            end(behaviour, backend.get_instance(instance_id))
        instances = []
    answer = {"FleetId": fleet_id, "Instances": instances, "Errors": errors}
    backend.create_tags([fleet_id], tags.get("fleet", {}))
    behaviour.fleets[fleet_id] = answer
    return answer


_MOST_LEAST = 1_000


def _least(options: Mapping[str, Any], total: int) -> int:
    """Return the number of instances below which a fleet launches none. Raises EC2ClientError."""
    least = int(options.get("MinTargetCapacity") or 0)
    if not least:
        return 0
    if not (options.get("SingleAvailabilityZone") or options.get("SingleInstanceType")):
        raise EC2ClientError(
            "InvalidParameterCombination", "MinTargetCapacity needs SingleAvailabilityZone or SingleInstanceType"
        )
    if least > min(total, _MOST_LEAST):
        raise EC2ClientError("InvalidParameterValue", f"MinTargetCapacity {least} is more than can be asked for")
    return least


def _of_one_kind(candidates: Sequence[FleetCandidate], options: Mapping[str, Any], wanted: int) -> list[FleetCandidate]:
    """Return the candidates of the first zone, type or both that have room for all; else of the one with most."""

    def kind(candidate: FleetCandidate) -> tuple[str, str]:
        pool = candidate.pool
        return (
            pool.zone if options.get("SingleAvailabilityZone") else "",
            pool.instance_type if options.get("SingleInstanceType") else "",
        )

    kinds = dict.fromkeys(map(kind, candidates))
    by_kind = [[item for item in candidates if kind(item) == one] for one in kinds]
    return max(by_kind, key=lambda items: _room(items, wanted), default=[])


def _room(candidates: Iterable[FleetCandidate], wanted: int) -> int:
    pools = {item.pool: item.available for item in candidates}
    return min(sum(wanted if left is None else left for left in pools.values()), wanted)


def described(behaviour: Behaviour, fleet_ids: list[str]) -> dict[str, Any]:
    """Answer of DescribeFleets: instant fleets are shown to those only who know their ids.

    Raises:
        EC2ClientError: one of them does not exist.
    """
    unknown = [fleet_id for fleet_id in fleet_ids if fleet_id not in behaviour.fleets]
    if unknown:
        raise EC2ClientError("InvalidFleetId.NotFound", f"The fleet ID '{unknown[0]}' does not exist.")
    state = {"Type": "instant", "FleetState": "active", "ActivityStatus": "fulfilled"}
    return {"Fleets": [state | behaviour.fleets[fleet_id] for fleet_id in fleet_ids]}


def _described(candidate: FleetCandidate) -> dict[str, Any]:
    return {
        "LaunchTemplateAndOverrides": {
            "LaunchTemplateSpecification": candidate.template,
            "Overrides": candidate.override,
        },
        "Lifecycle": candidate.pool.capacity_type,
    }


def _candidates(
    behaviour: Behaviour, backend: Any, request: Mapping[str, Any], capacity_type: str
) -> Iterator[FleetCandidate]:
    configs = request.get("LaunchTemplateConfigs") or []
    if not configs:
        raise EC2ClientError("MissingParameter", "The request must contain the parameter LaunchTemplateConfigs")
    for config in configs:
        specification, data = _template(backend, config["LaunchTemplateSpecification"])
        for override in config.get("Overrides") or [{}]:
            merged = {**data, **override}
            if "InstanceType" not in merged:
                raise EC2ClientError("MissingParameter", "An override needs an InstanceType")
            subnet_id = merged.get("SubnetId", "")
            pool = CapacityPool(merged["InstanceType"], _zone_of(backend, subnet_id), capacity_type)
            yield FleetCandidate(
                pool,
                behaviour.prices.price(pool.instance_type, pool.zone, capacity_type),
                behaviour.available(pool),
                float(override.get("Priority", "inf")),
                subnet_id,
                merged.get("ImageId", ""),
                specification,
                override,
                merged,
            )


def _template(backend: Any, wanted: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The specification to echo and the data of the version asked for. Unknown templates are refused by moto."""
    if "LaunchTemplateId" in wanted:
        template = backend.get_launch_template(wanted["LaunchTemplateId"])
    else:
        template = backend.get_launch_template_by_name(wanted["LaunchTemplateName"])
    version = template.get_version(wanted.get("Version", "$Default"))
    return {"LaunchTemplateId": template.id, "Version": str(version.number)}, version.data


def _zone_of(backend: Any, subnet_id: str) -> str:
    """Zone of a subnet, empty when there is no such subnet (EC2 reports that per override)."""
    for zone, subnets in backend.subnets.items():
        if subnet_id in subnets:
            return str(zone)
    return ""

"""Moto's EC2 answers, replaced where EC2 behaves differently. Installed on the response class while in use.

Patching the class rather than the HTTP layer keeps moto's own parsing and serialising, and works both for the server
and for `mock_aws` in process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec
from moto.core.constants import MISSING
from moto.core.responses import ActionResult, EmptyResult
from moto.core.serialize import AttributePickerContext, XFormedAttributePicker
from moto.core.utils import get_value
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.amis import AmiBackend
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS
from moto.ec2.models.instances import Reservation
from moto.ec2.responses import EC2Response
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, convert_tag_spec, get_prefix
from moto.ssm.models import SimpleSystemManagerBackend

from shiplap.errors import AwsError
from shiplap_lab.emulated_ec2.allocation import CapacityPool
from shiplap_lab.emulated_ec2.behaviour import Behaviour
from shiplap_lab.emulated_ec2.emulated_reservations import EmulatedReservation
from shiplap_lab.emulated_ec2.emulated_reservations import described as shown
from shiplap_lab.emulated_ec2.fleets import create_instant, described
from shiplap_lab.emulated_ec2.image_actions import copy_image, enable_image_deprecation, register_image
from shiplap_lab.emulated_ec2.launching import (
    TOO_MANY,
    begin,
    end,
    give_profile,
    no_capacity,
    refusal_of_pool,
    reserved_instances,
    settle,
)
from shiplap_lab.emulated_ec2.placement_groups import (
    create_placement_group,
    delete_placement_group,
    describe_placement_groups,
)

_FLEET_PARAMETERS = (
    "Type",
    "TargetCapacitySpecification",
    "LaunchTemplateConfigs",
    "SpotOptions",
    "OnDemandOptions",
    "TagSpecifications",
    "Context",
)


_REPLACED = (
    "call_action",
    "create_fleet",
    "describe_fleets",
    "create_launch_template",
    "run_instances",
    "terminate_instances",
    "reboot_instances",
    "describe_instances",
    "describe_instance_types",
    "describe_spot_price_history",
)

_WHOLE = (
    copy_image,
    create_placement_group,
    delete_placement_group,
    describe_placement_groups,
    enable_image_deprecation,
    register_image,
)
"""Actions that need no behaviour, by the names that moto looks for; it lacks those that are not in place of its own."""


@contextmanager
def installed(behaviour: Behaviour) -> Iterator[None]:
    """Answer EC2 requests of this process with a behaviour until the block ends."""
    original = {name: getattr(EC2Response, name) for name in _REPLACED}
    # Scenarios register their own images; loading moto's 1,300 takes a second.
    changes: list[tuple[Any, str, Any]] = [
        (AmiBackend, "_load_amis", _load_nothing),
        (TaggedEC2Resource, "get_tags", _tags_of),
        (XFormedAttributePicker, "__call__", _picked),
        (SimpleSystemManagerBackend, "_strip_parameter_arn", _parameter_name),
    ]
    changes += [(EC2Response, name, made) for name, made in _replacements(behaviour, original).items()]
    changes += [(EC2Response, made.__name__, made) for made in _WHOLE]
    reservations = (_create_capacity_reservation, _describe_capacity_reservations, _cancel_capacity_reservation)
    changes += [(EC2Response, of.__name__.removeprefix("_"), of(behaviour)) for of in reservations]
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in changes]
    for owner, name, made in changes:
        setattr(owner, name, made)
    try:
        yield
    finally:
        for owner, name, made in before:
            if made is None:
                delattr(owner, name)  # inherited, or unknown to moto
            else:
                setattr(owner, name, made)


def _load_nothing(_backend: Any) -> None:
    """In place of moto's stored images."""


_NAMES: dict[tuple[object, ...], tuple[str, ...]] = {}
"""Under which names moto looks for a member of an answer, by all that these names depend on."""

_TRANSFORMERS: dict[tuple[object, ...], str] = {}
"""The path of the transformer for a member of an answer, empty if there is none."""


def _parameter_name(_backend: Any, name: str) -> str:
    """Return the name in an ARN. ARNs of AWS's public parameters name no account, which moto expects."""
    return name.partition(":parameter")[2] if name.startswith("arn:") else name


def _picked(picker: Any, context: AttributePickerContext) -> Any:
    """A member of an answer. Moto works out names and transformer for each anew: most of the time an answer takes."""
    shape, model, value = context.shape, context.service_model, None
    parent = getattr(shape, "parent", None)
    service = model and model.service_name
    asked = (
        service,
        parent and parent.name,
        context.key,
        shape.name,
        shape.serialization.get("name"),
        type(context.obj),
    )
    if asked not in _NAMES:
        _NAMES[asked] = tuple(dict.fromkeys(picker.get_possible_keys(context)))
    for name in _NAMES[asked]:
        found = get_value(context.obj, name, MISSING)
        if found is not MISSING:
            value = found
            break
    transformers, path = picker.response_transformers, f"{context.key_path}.{context.key}"
    place = (service, len(transformers), path)
    if place not in _TRANSFORMERS:
        _TRANSFORMERS[place] = next((suffix for suffix in transformers if path.endswith(suffix)), "")
    transformer = _TRANSFORMERS[place]
    return transformers[transformer](value) if transformer else value


def _tags_of(resource: Any) -> list[dict[str, str]]:
    """A resource's own tags. Moto looks for them in those of all resources, which takes seconds for hundreds."""
    kind = EC2_PREFIX_TO_RESOURCE.get(get_prefix(resource.id), "") if resource.id else ""
    tags = resource.ec2_backend.tags.get(resource.id, {})
    return [
        {"resource_id": resource.id, "key": key, "value": value, "resource_type": kind} for key, value in tags.items()
    ]


_Answer = Callable[[Any], Any]

_UNCHANGING = frozenset({"DescribeInstanceTypes", "DescribeInstanceTypeOfferings"})
_WRITTEN: dict[tuple[object, ...], tuple[int, dict[str, str], str]] = {}
"""Answers to these by what was asked, while the process lives."""


def _replacements(behaviour: Behaviour, original: dict[str, _Answer]) -> dict[str, _Answer]:
    return {
        "call_action": _call_action(behaviour, original["call_action"]),
        "create_fleet": _create_fleet(behaviour),
        "describe_fleets": _describe_fleets(behaviour),
        "create_launch_template": _create_launch_template(behaviour, original["create_launch_template"]),
        "run_instances": _run_instances(behaviour, original["run_instances"]),
        "terminate_instances": _terminate_instances(behaviour, original["terminate_instances"]),
        "reboot_instances": _reboot_instances(behaviour),
        "describe_instances": _describe_instances(behaviour, original["describe_instances"]),
        "describe_instance_types": _describe_instance_types,
        "describe_spot_price_history": _describe_spot_price_history(behaviour),
    }


def _call_action(behaviour: Behaviour, original: _Answer) -> _Answer:
    """Count the call, then fail before or after it when a fault says so."""

    def call_action(self: Any) -> Any:
        action = str(self._get_action())
        behaviour.count(action)
        before = behaviour.fault(action, after=False)
        if before is not None:
            return _refused(self, before.code, before.message)
        answer = _unchanging(self, action, original) if action in _UNCHANGING else original(self)
        after = behaviour.fault(action, after=True)
        return answer if after is None else _refused(self, after.code, after.message)

    return call_action


def _unchanging(self: Any, action: str, original: _Answer) -> Any:
    """An answer that depends on nothing but the Region and the request: moto takes seconds to write all types."""
    asked = (action, self.region, *sorted((name, *map(str, values)) for name, values in self.querystring.items()))
    if asked not in _WRITTEN:
        _WRITTEN[asked] = original(self)
    status, headers, body = _WRITTEN[asked]
    return status, dict(headers), body


def _refused(self: Any, code: str, message: str) -> Any:
    status, headers, body = self.serialized(ActionResult(EC2ClientError(code, message)))
    if code in ("InternalError", "Unavailable", "RequestLimitExceeded"):
        status = 500 if code == "InternalError" else 503
    headers["status"] = str(status)
    return status, headers, body


def _create_fleet(behaviour: Behaviour) -> _Answer:
    def create_fleet(self: Any) -> ActionResult:
        self.error_on_dryrun()
        request = {name: self._get_param(name) for name in _FLEET_PARAMETERS if self._get_param(name) is not None}
        if request.get("Type") != "instant":
            raise EC2ClientError("UnsupportedOperation", "only instant fleets are emulated")
        with behaviour.lock:
            answer = _once(self, behaviour, request, lambda: create_instant(behaviour, self.ec2_backend, request))
            if behaviour.silent_fleets > 0:
                behaviour.silent_fleets -= 1
                answer = {"FleetId": answer["FleetId"], "Instances": [], "Errors": []}
            return ActionResult(answer)

    return create_fleet


def _describe_fleets(behaviour: Behaviour) -> _Answer:
    def describe_fleets(self: Any) -> ActionResult:
        with behaviour.lock:
            return ActionResult(described(behaviour, self._get_param("FleetIds", [])))

    return describe_fleets


def _create_launch_template(behaviour: Behaviour, original: _Answer) -> _Answer:
    """Moto's own, made at the time of the emulated region."""

    def create_launch_template(self: Any) -> Any:
        answer = original(self)
        template = self.ec2_backend.get_launch_template_by_name(self._get_param("LaunchTemplateName"))
        template.create_time = datetime.fromtimestamp(behaviour.now(), tz=UTC).replace(tzinfo=None)
        return answer

    return create_launch_template


def _once(self: Any, behaviour: Behaviour, parameters: Any, produce: Callable[[], Any]) -> Any:
    action = f"{self.current_account}/{self.region}/{self._get_action()}"
    try:
        return behaviour.once(action, self._get_param("ClientToken") or "", parameters, produce)
    except AwsError as error:
        raise EC2ClientError(error.code, str(error)) from error


def _run_instances(behaviour: Behaviour, original: _Answer) -> _Answer:
    def run_instances(self: Any) -> Any:
        self.error_on_dryrun()

        def produce() -> Any:
            pool = _pool_of(self)
            refusal = refusal_of_pool(self.region, pool)
            if refusal is None:
                count = int(self._get_param("MinCount") or 1)
                if not all(behaviour.take(pool) for _ in range(count)):
                    refusal = no_capacity(pool)
                elif not behaviour.launchable.take(count, behaviour.now()):
                    refusal = TOO_MANY
            if refusal is not None:
                raise EC2ClientError(*refusal)
            answer = original(self)
            for instance in answer.result.instances:
                begin(behaviour, instance)
                give_profile(instance, self._get_param("IamInstanceProfile.Name") or "")
            return answer

        parameters = {key: value for key, value in self.querystring.items() if key != "ClientToken"}
        with behaviour.lock:
            return _once(self, behaviour, parameters, produce)

    return run_instances


def _pool_of(self: Any) -> CapacityPool:
    """The pool a RunInstances request buys from; like EC2 it defaults to the region's first zone."""
    subnet_id = self._get_param("SubnetId")
    for interface in self._get_param("NetworkInterfaces") or ():
        subnet_id = subnet_id or interface.get("SubnetId")
    zone = self._get_param("Placement.AvailabilityZone") or f"{self.region}a"
    if subnet_id:
        zone = self.ec2_backend.get_subnet(subnet_id).availability_zone
    market = self._get_param("InstanceMarketOptions.MarketType")
    instance_type = self._get_param("InstanceType")
    template = self._get_param("LaunchTemplate")
    if not instance_type and template:
        instance_type = self.ec2_backend._get_template_from_args(template).instance_type
    return CapacityPool(instance_type or "m1.small", zone, "spot" if market == "spot" else "on-demand")


def _terminate_instances(behaviour: Behaviour, original: _Answer) -> _Answer:
    def terminate_instances(self: Any) -> Any:
        with behaviour.lock:
            wanted = set(self._get_param("InstanceIds") or ())
            if not behaviour.endable.take(len(wanted), behaviour.now()):
                raise EC2ClientError(*TOO_MANY)
            settle(behaviour, self.ec2_backend.all_instances())
            gone = {
                instance.id: instance._state
                for instance in self.ec2_backend.all_instances()
                if instance.id in wanted and instance.state in ("shutting-down", "terminated")
            }
            answer = original(self)
            for instance in self.ec2_backend.all_instances():
                if instance.id in gone:
                    instance._state = gone[instance.id]
                elif instance.id in wanted:
                    end(behaviour, instance)
                    # Moto takes the profile away at once; EC2 shows it until the instance is gone.
                    give_profile(instance, getattr(instance, "shiplap_profile", ""))
            return answer

    return terminate_instances


def _reboot_instances(behaviour: Behaviour) -> _Answer:
    """Count the reboots of each instance: who plays its kubelet reports another boot then."""

    def reboot_instances(self: Any) -> Any:
        self.error_on_dryrun()
        with behaviour.lock:
            settle(behaviour, self.ec2_backend.all_instances())
            chosen = self.ec2_backend.get_multi_instances_by_id(self._get_param("InstanceIds") or [])
            for instance in chosen:
                if instance.state != "running":
                    wrong = f"The instance '{instance.id}' is not in a state from which it can be rebooted."
                    raise EC2ClientError("IncorrectInstanceState", wrong)
            for instance in chosen:
                instance.shiplap_reboots = getattr(instance, "shiplap_reboots", 0) + 1
            return EmptyResult()

    return reboot_instances


def _describe_instances(behaviour: Behaviour, original: _Answer) -> _Answer:
    def describe_instances(self: Any) -> Any:
        filters = self._filters_from_querystring()
        # Moto does not know this filter. Names of profiles are an account's, so the name at the end of an ARN will do.
        carried = {str(arn).rpartition("/")[2] for arn in filters.pop("iam-instance-profile.arn", ())}
        self._filters_from_querystring = lambda: filters
        with behaviour.lock:
            settle(behaviour, self.ec2_backend.all_instances())
            answer = original(self)
        now = behaviour.now()
        visible = []
        for reservation in answer.result["Reservations"]:
            instances = [
                found
                for found in reservation.instances
                if getattr(found, "shiplap_visible_at", 0) <= now
                and (not carried or getattr(found, "shiplap_profile", "") in carried)
            ]
            if instances:
                shown = Reservation(reservation.id, reservation.owner_id)
                shown.instances = instances
                visible.append(shown)
        answer.result["Reservations"] = visible
        return answer

    return describe_instances


def _paged(self: Any, key: str, items: list[Any], size: int) -> ActionResult:
    """EC2 pages these answers; the token is an offset."""
    start = int(self._get_param("NextToken") or 0)
    size = min(int(self._get_param("MaxResults") or size), size)
    end_ = start + size
    return ActionResult({key: items[start:end_], "NextToken": str(end_) if end_ < len(items) else None})


def _describe_instance_types(self: Any) -> ActionResult:
    found = self.ec2_backend.describe_instance_types(
        self._get_param("InstanceTypes") or [], self._filters_from_querystring()
    )
    return _paged(self, "InstanceTypes", found, 100)


def _describe_spot_price_history(behaviour: Behaviour) -> _Answer:
    def describe_spot_price_history(self: Any) -> ActionResult:
        filters = self._filters_from_querystring()
        types = set(self._get_param("InstanceTypes") or filters.get("instance-type") or ())
        zones = set(filters.get("availability-zone") or ())
        now = datetime.fromtimestamp(behaviour.now(), tz=UTC).replace(tzinfo=None)
        history = []
        for offering in INSTANCE_TYPE_OFFERINGS["availability-zone"].get(self.region, ()):
            name, zone = offering["InstanceType"], offering["Location"]
            price = behaviour.prices.spot(name, zone)
            if price is None or (types and name not in types) or (zones and zone not in zones):
                continue
            history.append(
                {
                    "InstanceType": name,
                    "AvailabilityZone": zone,
                    "ProductDescription": "Linux/UNIX",
                    "SpotPrice": f"{price:.6f}",
                    "Timestamp": now,
                }
            )
        return _paged(self, "SpotPriceHistory", history, 1000)

    return describe_spot_price_history


def _describe_capacity_reservations(behaviour: Behaviour) -> _Answer:
    def describe_capacity_reservations(self: Any) -> ActionResult:
        states = self._filters_from_querystring().get("state") or ()
        with behaviour.lock:
            instances = self.ec2_backend.all_instances()
            settle(behaviour, instances)
            used = reserved_instances(instances)
            held, now = behaviour.reservations.values(), behaviour.now()
            return _paged(self, "CapacityReservations", shown(held, used, states, now, self.current_account), 100)

    return describe_capacity_reservations


def _create_capacity_reservation(behaviour: Behaviour) -> _Answer:
    def create_capacity_reservation(self: Any) -> ActionResult:
        """An on-demand reservation that holds its instances at once."""
        self.error_on_dryrun()
        end = self._get_param("EndDate")
        with behaviour.lock:
            now, known = behaviour.now(), behaviour.reservations
            held = EmulatedReservation(
                id=next(name for number in count(1) if (name := f"cr-{number:017x}") not in known),
                instance_type=str(self._get_param("InstanceType")),
                zone=str(self._get_param("AvailabilityZone")),
                total=int(self._get_param("InstanceCount")),
                state="active",
                starts_at=now,
                ends_at=datetime.fromisoformat(end).timestamp() if end else 0.0,
                tags=convert_tag_spec(self._get_param("TagSpecifications") or []).get("capacity-reservation", {}),
            )
            known[held.id] = held
            return ActionResult({"CapacityReservation": shown((held,), {}, (), now, self.current_account)[0]})

    return create_capacity_reservation


def _cancel_capacity_reservation(behaviour: Behaviour) -> _Answer:
    def cancel_capacity_reservation(self: Any) -> ActionResult:
        """Instances that run in it go on as on-demand ones."""
        self.error_on_dryrun()
        name = str(self._get_param("CapacityReservationId"))
        with behaviour.lock:
            held = behaviour.reservations.get(name)
            if held is None:
                missing = f"The capacity reservation ID '{name}' does not exist"
                raise EC2ClientError("InvalidCapacityReservationId.NotFound", missing)
            behaviour.reservations[name] = msgspec.structs.replace(held, state="cancelled")
        return ActionResult({"Return": True})

    return cancel_capacity_reservation

"""The server side of the control API: requests turned into changes of the behaviour and of moto's backends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ssm.models import Parameter, ssm_backends

from shiplap_lab.emulated_ec2.behaviour import ActionFault, Behaviour, CapacityRule, StartFailure, Timing
from shiplap_lab.emulated_ec2.control import EmulatedImage, EmulatedInstance
from shiplap_lab.emulated_ec2.emulated_reservations import EmulatedReservation
from shiplap_lab.emulated_ec2.launching import decoded, settle


class _Silence(msgspec.Struct, rename="camel"):
    fleets: int


class _Clock(msgspec.Struct, rename="camel"):
    advance_s: float


class _Price(msgspec.Struct, rename="camel"):
    instance_type: str
    price: float


class _SubnetSize(msgspec.Struct, rename="camel"):
    subnet_id: str
    free_ips: int


class _Request(msgspec.Struct, frozen=True):
    body: bytes
    region: str


class Admin:
    """Answers control requests for one behaviour."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self._actions: dict[tuple[str, str], Callable[[_Request], Any]] = {
            ("POST", "/capacity"): self._capacity,
            ("POST", "/reservations"): self._reservation,
            ("POST", "/faults"): self._fault,
            ("POST", "/deaths"): self._death,
            ("POST", "/silence"): self._silence,
            ("POST", "/timing"): self._timing,
            ("POST", "/clock"): self._clock,
            ("POST", "/prices"): self._price,
            ("POST", "/subnets"): self._subnet,
            ("POST", "/images"): self._image,
            ("POST", "/parameters"): self._parameters,
            ("GET", "/instances"): self._instances,
            ("GET", "/calls"): lambda _request: self._behaviour.calls,
            ("POST", "/reset"): self._reset,
        }

    def answer(self, method: str, path: str, body: bytes, region: str) -> tuple[int, bytes]:
        """Status and JSON body."""
        action = self._actions.get((method, path))
        if action is None:
            return 404, b'"no such control request"'
        try:
            with self._behaviour.lock:
                return 200, msgspec.json.encode(action(_Request(body, region)))
        except msgspec.DecodeError as error:
            return 400, msgspec.json.encode(str(error))

    def _backend(self, region: str) -> Any:
        return ec2_backends[DEFAULT_ACCOUNT_ID][region]

    def _capacity(self, request: _Request) -> None:
        rule = msgspec.json.decode(request.body, type=CapacityRule)
        same = (rule.instance_type, rule.zone, rule.capacity_type)
        rules = self._behaviour.rules
        rules[:] = [old for old in rules if (old.instance_type, old.zone, old.capacity_type) != same]
        rules.append(rule)

    def _reservation(self, request: _Request) -> None:
        made = msgspec.json.decode(request.body, type=EmulatedReservation)
        self._behaviour.reservations[made.id] = made

    def _fault(self, request: _Request) -> None:
        self._behaviour.faults.append(msgspec.json.decode(request.body, type=ActionFault))

    def _death(self, request: _Request) -> None:
        self._behaviour.start_failures.append(msgspec.json.decode(request.body, type=StartFailure))

    def _silence(self, request: _Request) -> None:
        self._behaviour.silent_fleets = msgspec.json.decode(request.body, type=_Silence).fleets

    def _timing(self, request: _Request) -> None:
        self._behaviour.timing = msgspec.json.decode(request.body, type=Timing)

    def _clock(self, request: _Request) -> None:
        self._behaviour.advance(msgspec.json.decode(request.body, type=_Clock).advance_s)

    def _price(self, request: _Request) -> None:
        wanted = msgspec.json.decode(request.body, type=_Price)
        self._behaviour.prices.set(wanted.instance_type, wanted.price)

    def _subnet(self, request: _Request) -> None:
        wanted = msgspec.json.decode(request.body, type=_SubnetSize)
        subnet = self._backend(request.region).get_subnet(wanted.subnet_id)
        subnet._available_ip_addresses += wanted.free_ips - subnet.available_ip_address_count

    def _image(self, request: _Request) -> None:
        wanted = msgspec.json.decode(request.body, type=EmulatedImage)
        backend = self._backend(request.region)
        image = Ami(
            backend,
            wanted.image_id,
            name=wanted.name,
            architecture=wanted.architecture,
            virtualization_type="hvm",
            hypervisor="xen",
            owner_alias=wanted.owner_alias or None,
            creation_date=_time(wanted.creation_date),
            root_device_type="ebs",
            root_device_name="/dev/xvda",
            public=True,
            tags=wanted.tags,
        )
        if wanted.deprecation_time:
            vars(image)["deprecation_time"] = wanted.deprecation_time
        backend.amis[wanted.image_id] = image

    def _parameters(self, request: _Request) -> None:
        store = ssm_backends[DEFAULT_ACCOUNT_ID][request.region]._parameters
        for name, value in msgspec.json.decode(request.body, type=dict[str, str]).items():
            # Straight into the store: PutParameter refuses names under /aws, as the real service does.
            store[name] = [self._parameter(name, value)]

    def _parameter(self, name: str, value: str) -> Any:
        make: Any = Parameter
        return make(
            account_id=DEFAULT_ACCOUNT_ID,
            name=name,
            value=value,
            parameter_type="String",
            description=None,
            allowed_pattern=None,
            keyid=None,
            last_modified_date=datetime.fromtimestamp(self._behaviour.now(), tz=UTC),
            version=1,
            data_type="text",
        )

    def _instances(self, request: _Request) -> list[EmulatedInstance]:
        instances = self._backend(request.region).all_instances()
        settle(self._behaviour, instances)
        return [_shown(instance) for instance in instances]

    def _reset(self, request: _Request) -> None:
        self._behaviour.reset()
        for backends in (ec2_backends, ssm_backends):
            backends[DEFAULT_ACCOUNT_ID][request.region].reset()


def _shown(instance: Any) -> EmulatedInstance:
    return EmulatedInstance(
        id=instance.id,
        instance_type=instance.instance_type,
        zone=instance.placement.zone,
        capacity_type="spot" if instance.lifecycle == "spot" else "on-demand",
        ami=instance.image_id,
        state=instance.state,
        launched_at=instance.launch_time.replace(tzinfo=UTC).timestamp(),
        private_dns=instance.private_dns_name,
        private_ip=instance.private_ip,
        subnet_id=instance._subnet_id or "",
        instance_profile=getattr(instance, "shiplap_profile", ""),
        tags={tag["key"]: tag["value"] for tag in instance.get_tags()},
        user_data=decoded(instance.user_data),
        reboots=getattr(instance, "shiplap_reboots", 0),
    )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None)

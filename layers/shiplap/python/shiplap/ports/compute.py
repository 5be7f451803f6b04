"""The ports to EC2: instances are launched, found and ended, and their health is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from shiplap.instances.catalog.resolved_nodeclass import NodeClassProblem, ResolvedNodeClass
from shiplap.instances.offerings.unavailability import ANY, in_placement_group, quota_of
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.manifests.nodeclaim import NodeClaim


class FleetOverride(msgspec.Struct, frozen=True, order=True):
    """One offering a fleet may take. `price` in USD per hour orders prioritized strategies.

    `kubelet_values` are the values of expressions in the kubelet settings on this type. `fabric_adapters` counts the
    instance's elastic fabric adapters. `reservation` is the id of the capacity reservation to launch into.
    """

    price: float
    instance_type: str
    zone: str
    ami: str
    max_pods: int
    kubelet_hash: str = ""
    kubelet_values: tuple[tuple[str, str, str], ...] = ()
    fabric_adapters: int = 0
    reservation: str = ""


class FleetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Requests an instance for each of several claims with equal plans.

    A repetition with the same `token` returns the same instances. `count` is the number of instances, 0 for one per
    claim. It exceeds the number of claims when a launch is repeated and some of its claims have their instance already.
    `strategy` is the NodePool's own allocation strategy (see `shiplap_annotations`), empty for the default. Where fewer
    than `at_least` instances can be had in one zone, none is launched; 0 takes what there is.
    """

    claims: tuple[NodeClaim, ...]
    node_class: EC2NodeClass
    resolved: ResolvedNodeClass
    capacity_type: str
    overrides: tuple[FleetOverride, ...]
    token: str
    count: int = 0
    strategy: str = ""
    at_least: int = 0

    @property
    def claim(self) -> NodeClaim:
        """Any of the claims: the fleet request is the same for all."""
        return self.claims[0]

    @property
    def group(self) -> str:
        """The id of the placement group to launch into, empty without one."""
        return self.resolved.group

    @property
    def wanted(self) -> int:
        """The number of instances requested."""
        return self.count or len(self.claims)


class Instance(msgspec.Struct, frozen=True, omit_defaults=True):
    """An EC2 instance. `state` has EC2's names; `claim`, `launch`, `cluster`, `node_pool` and `install` come from its
    tags. `install` is empty on instances that are older than that tag.

    `launch` is the token of its launch. `claim` is empty until an instance that was launched together with others is
    tagged; the claim itself names its instance. `subnet`, `security_groups` (sorted) and `reservation` (where it runs
    now) are ids, empty if unknown or absent.
    """

    id: str
    instance_type: str
    zone: str
    capacity_type: str
    ami: str
    state: str
    launched_at: float = 0.0
    cluster: str = ""
    claim: str = ""
    node_pool: str = ""
    private_dns: str = ""
    launch: str = ""
    subnet: str = ""
    security_groups: tuple[str, ...] = ()
    reservation: str = ""
    partition: str = ""
    install: str = ""

    @property
    def tagged(self) -> str:
        """The claim, or else the launch, that its tags name."""
        return self.claim or self.launch

    @property
    def provider_id(self) -> str:
        return f"aws:///{self.zone}/{self.id}"


_VCPU_QUOTAS = frozenset({"VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "InstanceLimitExceeded"})


class OfferingFailure(msgspec.Struct, frozen=True, order=True):
    """An offering EC2 refused. `kind`: capacity, subnet, quota, configuration, throttled, transient or unknown.

    `subnet` is the id of the subnet without free addresses, `group` that of the placement group and `reservation` that
    of the capacity reservation of the launch: others of the same type may have capacity. Instance type and capacity
    type are `*` when the group is full in the zone. `node_class` is set when the EC2NodeClass is the cause; it is the
    name under which the EC2NodeClass backs off (see `readiness/joins.py`).
    """

    instance_type: str
    zone: str
    capacity_type: str
    code: str
    kind: str = "capacity"
    message: str = ""
    subnet: str = ""
    group: str = ""
    reservation: str = ""
    node_class: str = ""

    @property
    def scope(self) -> tuple[str, str, str]:
        """The offerings that back off: (type, zone, capacity type), where `*` means any.

        Instead of a type it may name a subnet, a reservation, an EC2NodeClass, or a quota that many types share.
        """
        if self.node_class:
            return self.node_class, ANY, ANY
        if self.kind == "subnet" and self.subnet:
            return self.subnet, ANY, ANY
        if self.kind == "quota":
            return quota_of(self.instance_type) if self.code in _VCPU_QUOTAS else ANY, ANY, self.capacity_type
        wanted = self.reservation or in_placement_group(self.group, self.instance_type)
        return wanted, self.zone, self.capacity_type


class FleetResult(msgspec.Struct, frozen=True):
    """The instances, by id, and the reasons why there are fewer than requested. Both may be present.

    Without `was_sent` EC2 was not asked. An earlier request of the same token may have given instances all the same.
    """

    instances: tuple[Instance, ...] = ()
    failures: tuple[OfferingFailure, ...] = ()
    was_sent: bool = True

    @property
    def instance(self) -> Instance | None:
        """The first instance, for requests of one."""
        return self.instances[0] if self.instances else None


class Compute(Protocol):
    """Launches, finds and ends instances in EC2."""

    def resolve(self, node_class: EC2NodeClass, *, fresh: bool = False) -> ResolvedNodeClass:
        """Resolve the selectors; `fresh` ignores cached answers.

        Raises NodeClassNotReady, AwsThrottled, AwsError.
        """
        ...

    def inspect(self, node_class: EC2NodeClass) -> ResolvedNodeClass:
        """Resolve what can be resolved; `problems` has the rest. Raises AwsThrottled, AwsError."""
        ...

    def dry_run(self, request: FleetRequest) -> NodeClassProblem | None:
        """Return why EC2 would refuse the request, None if it would not; nothing is launched.

        Raises NodeClassNotReady, AwsThrottled, AwsError.
        """
        ...

    def launch(self, request: FleetRequest) -> FleetResult:
        """Create one instant fleet; all claims of a request belong to one cluster and NodePool.

        Raises AwsThrottled, NodeClassNotReady, AwsError.
        """
        ...

    def instances(self, cluster: str) -> tuple[Instance, ...]:
        """List this install's instances of a cluster that are not terminated."""
        ...

    def other_installs(self, cluster: str) -> dict[str, int]:
        """Count the instances of other installs in a cluster, by install, as of the last `instances`."""
        ...

    def launched(self, cluster: str, token: str) -> tuple[Instance, ...]:
        """List a launch's instances by tag, unless terminated; sorted by id. New ones appear with a delay."""
        ...

    def instance(self, cluster: str, instance_id: str) -> Instance | None:
        """Read an instance of ours, unless terminated."""
        ...

    def ended(self, cluster: str, instance_id: str) -> OfferingFailure | None:
        """Return why a claim's instance has ended or is ending; None while it runs, or when EC2 does not say.

        The kind is `transient` when the same may be launched again. Raises AwsThrottled, AwsError.
        """
        ...

    def images(self, instance_ids: Sequence[str]) -> dict[str, str]:
        """Return the AMI of each existing instance, ours or not. Raises AwsThrottled, AwsError."""
        ...

    def sweep_templates(self, cluster: str) -> int:
        """Delete a cluster's launch templates that were unused for a day; returns how many.

        Does nothing if the last sweep was less than an hour ago.
        """
        ...

    def name(self, claim: NodeClaim, *, keeps_name: bool = False) -> None:
        """Tag an instance that was launched together with others with its claim; a missing one is no error.

        With `keeps_name` the tag `Name` stays: the EC2NodeClass sets it.
        """
        ...

    def terminate(self, cluster: str, *instance_ids: str) -> None:
        """End instances of ours; a missing one is no error. A failure for one does not stop the others."""
        ...

    def reboot(self, cluster: str, instance_id: str) -> None:
        """Have an instance of ours restart in place, by one request: EC2 knows no token that would make two of it one.

        A missing one is refused with the code `InvalidInstanceID.NotFound`. Raises AwsThrottled, AwsUnavailable: it was
        not asked; AwsError: it was refused, but with an empty code or `ServiceUnavailable` it may happen.
        """
        ...


class InstanceProblem(msgspec.Struct, frozen=True, order=True):
    """A failed status check or a scheduled event of an instance. `kind`: instance, system or event.

    `since` and, of an event, `due_at` are epoch seconds, 0 if unknown.
    """

    instance_id: str
    kind: str
    since: float = 0.0
    due_at: float = 0.0


class HealthSource(Protocol):
    """Health of instances and zones that AWS reports on request only, not by events."""

    def ailing(self) -> tuple[InstanceProblem, ...]:
        """List the account's running instances with failed status checks or scheduled events, sorted.

        Raises AwsThrottled, AwsError.
        """
        ...

    def shifted_zones(self) -> frozenset[str]:
        """Return ids of zones that traffic is shifted away from now. Raises AwsThrottled, AwsError."""
        ...

"""EC2 as far as launching, finding and ending nodes goes, and what it says of their health."""

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

    `kubelet_values` is what expressions in the kubelet settings come to on this type, `fabric_adapters` how many
    elastic fabric adapters the instance gets, `reservation` the id of the capacity reservation to launch into.
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
    """Launch an instance for each of some claims that want the same.

    `token` makes repeats return the same instances. `count` is how many are asked for: more than there are claims when
    a launch is repeated of which some claims have got their instance already; 0 stands for one per claim.
    `strategy` is the NodePool's own for choosing among the overrides (see `own_annotations`), empty for the usual one.
    """

    claims: tuple[NodeClaim, ...]
    node_class: EC2NodeClass
    resolved: ResolvedNodeClass
    capacity_type: str
    overrides: tuple[FleetOverride, ...]
    token: str
    count: int = 0
    strategy: str = ""

    @property
    def claim(self) -> NodeClaim:
        """Any of the claims: in what a fleet is told they are equal."""
        return self.claims[0]

    @property
    def group(self) -> str:
        """The id of the placement group that is launched into, empty without one."""
        return self.resolved.group

    @property
    def wanted(self) -> int:
        """How many instances are asked for."""
        return self.count or len(self.claims)


class Instance(msgspec.Struct, frozen=True, omit_defaults=True):
    """An EC2 instance. `state` as EC2 names it; `claim`, `launch`, `cluster`, `node_pool` and `install` come from its
    tags; `install` is empty on instances that are older than that tag.

    `launch` is the token of the launch that made it. `claim` is empty for as long as nobody has tagged an instance that
    was launched together with others; which claim has it is written in the claim. `subnet`, `security_groups` (sorted)
    and `reservation`, in which it runs now, are ids, empty where they are not known or there is none.
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
        """What its tags say whose it is: its claim, or the launch that made it."""
        return self.claim or self.launch

    @property
    def provider_id(self) -> str:
        return f"aws:///{self.zone}/{self.id}"


_VCPU_QUOTAS = frozenset({"VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "InstanceLimitExceeded"})


class OfferingFailure(msgspec.Struct, frozen=True, order=True):
    """An offering EC2 refused. `kind`: capacity, subnet, quota, configuration, throttled, transient or unknown.

    `subnet` is the id of the one that has no addresses left, `group` that of the placement group that was launched
    into, `reservation` that of the capacity reservation: another one of the same type may well have room. The instance
    type and the capacity type are `*` when the group is full in the zone. `node_class` is the name under which an
    EC2NodeClass is left alone, see `readiness/joins.py`, when it is to blame.
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
        """What is left alone: an offering as (type, zone, capacity type), or more than one.

        In the place of the type may stand a subnet, a reservation, an EC2NodeClass, or a quota that many types share;
        `*` means any.
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
    """The instances, by id; as many as were asked for, or fewer and why. Failures may accompany a success."""

    instances: tuple[Instance, ...] = ()
    failures: tuple[OfferingFailure, ...] = ()

    @property
    def instance(self) -> Instance | None:
        """The first one, for those who asked for one."""
        return self.instances[0] if self.instances else None


class Compute(Protocol):
    """EC2, as far as launching and ending nodes goes."""

    def resolve(self, node_class: EC2NodeClass, *, fresh: bool = False) -> ResolvedNodeClass:
        """Answer the selectors; `fresh` believes nothing that was answered before.

        Raises NodeClassNotReady, AwsThrottled, AwsError.
        """
        ...

    def inspect(self, node_class: EC2NodeClass) -> ResolvedNodeClass:
        """Answer what can be answered; the rest is in its `problems`. Raises AwsThrottled, AwsError."""
        ...

    def dry_run(self, request: FleetRequest) -> NodeClassProblem | None:
        """Why EC2 would not allow what is requested, None when it would; nothing is launched.

        Raises NodeClassNotReady, AwsThrottled, AwsError.
        """
        ...

    def launch(self, request: FleetRequest) -> FleetResult:
        """One instant fleet; all claims of a request are of one cluster and NodePool.

        Raises AwsThrottled, NodeClassNotReady, AwsError.
        """
        ...

    def instances(self, cluster: str) -> tuple[Instance, ...]:
        """Instances tagged as ours for this cluster that are not terminated; none of another install."""
        ...

    def other_installs(self, cluster: str) -> dict[str, int]:
        """How many instances other installs have in this cluster, by install, as `instances` saw it last."""
        ...

    def launched(self, cluster: str, token: str) -> tuple[Instance, ...]:
        """The instances of a launch, by tag, unless terminated; sorted by id. New ones show with a delay."""
        ...

    def instance(self, cluster: str, instance_id: str) -> Instance | None:
        """An instance of ours, unless terminated."""
        ...

    def ended(self, cluster: str, instance_id: str) -> OfferingFailure | None:
        """Why a claim's instance has ended or is ending; None while it runs, or when that is not known (any more).

        Its kind is `transient` when the like may be launched again. Raises AwsThrottled, AwsError.
        """
        ...

    def images(self, instance_ids: Sequence[str]) -> dict[str, str]:
        """The AMI of each of these instances that exists, whoever launched it. Raises AwsThrottled, AwsError."""
        ...

    def sweep_templates(self, cluster: str) -> int:
        """Delete launch templates of a cluster that nothing has used for a day; returns how many.

        At most once an hour; in between nothing is asked for.
        """
        ...

    def name(self, claim: NodeClaim, *, keeps_name: bool = False) -> None:
        """Tag a claim's instance, launched together with others, as its own; already gone is not an error.

        With `keeps_name` its tag `Name` stays: the EC2NodeClass gives it one.
        """
        ...

    def terminate(self, cluster: str, *instance_ids: str) -> None:
        """End those instances that are ours; already gone is not an error. One that cannot be ended stops no other."""
        ...


class InstanceProblem(msgspec.Struct, frozen=True, order=True):
    """What EC2 says is wrong with an instance, or planned for it. `kind`: instance, system or event.

    `since` and, of an event, `due_at` in epoch seconds, 0 when it is not told.
    """

    instance_id: str
    kind: str
    since: float = 0.0
    due_at: float = 0.0


class HealthSource(Protocol):
    """What AWS says about instances and zones only when it is asked: no event tells of it."""

    def ailing(self) -> tuple[InstanceProblem, ...]:
        """Running instances of the account with failed status checks or scheduled events, sorted; ours and others'.

        Raises AwsThrottled, AwsError.
        """
        ...

    def shifted_zones(self) -> frozenset[str]:
        """Ids of the zones that traffic of the cluster is shifted away from now. Raises AwsThrottled, AwsError."""
        ...

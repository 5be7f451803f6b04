"""Floor 3: what the flows need from the world, as Protocols.

Each port has an adapter (floor 4) and an in-memory twin (`shiplap.twins`), held to one contract test-suite under
tests/integration/contracts. Adapters translate; they decide nothing. All of them raise only `shiplap.errors`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from shiplap.api.nodeclaim import ClaimState, NodeClaim
from shiplap.api.types import EC2NodeClass
from shiplap.disruption.memory import Memory
from shiplap.disruption.progress import Command, CommandState
from shiplap.errors import ConditionFailed
from shiplap.instances.catalog import Catalog
from shiplap.instances.joins import JoinHistory
from shiplap.instances.nodeclass import ResolvedNodeClass
from shiplap.instances.status import InstallStatus
from shiplap.instances.types import LearnedCapacity, Observation
from shiplap.instances.unavailability import (
    ANY,
    FIRST_WAIT_FOR_QUOTA_S,
    FIRST_WAIT_S,
    after_failure,
    quota_of,
    remembered_until,
)
from shiplap.kubernetes.disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.objects import Event, Node, Pod, Taint
from shiplap.kubernetes.workloads import Scalable, ScalableName
from shiplap.scheduling.plan import Plan
from shiplap.scheduling.snapshot import ClusterView, Snapshot

COMMIT_GROUP = 99
"""Claims one transaction can hold beside the epoch: DynamoDB allows 100 actions."""

COMMIT_BYTES = 3_000_000
"""Encoded claims one transaction can hold: DynamoDB takes 4 MB, and names, keys and later changes need some of it."""

MISSED_FOR_S = 30 * 24 * 3600
"""How long a pod is remembered as one whose node turned out too small, in seconds."""

ADDRESSES_S = 60
"""How long addresses of a launch are counted apart, in seconds: until describing a subnet must show them."""

PILOT_LEASE_S = 15 * 60
"""How long the right to explore an unverified estimate is held without a sign of life, in seconds."""

LONGEST_DELAY_S = 900
"""The longest delay of a timer, in seconds: what SQS allows."""


class Clock(Protocol):
    """Time, so that nothing below the handlers reads a clock."""

    def now(self) -> float:
        """Epoch seconds."""
        ...


class WatchEvent(msgspec.Struct, frozen=True):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK; a bookmark's object carries only the resourceVersion."""

    type: str
    object: Pod | Node
    resource_version: str


class ClusterApi(Protocol):
    """The Kubernetes API of one cluster."""

    def view(self, leaving: Collection[str] = (), *, workloads: bool = False) -> ClusterView:
        """Everything a scheduling decision reads; pending pods are listed fresh, in pages.

        Storage objects are listed only for pods with claims that need a node: pending ones, and those of nodes that are
        being deleted or `leaving` (names of nodes, or of the claims that became them). Namespaces are listed only if a
        pod selects them by their labels, Services and controllers only for `workloads`.
        """
        ...

    def pending_pods(self) -> tuple[Pod, ...]:
        """Pods without a node, listed fresh (fieldSelector `spec.nodeName=`)."""
        ...

    def nodes(self) -> tuple[Node, ...]: ...

    def node(self, name: str) -> Node:
        """Raises ObjectNotFound."""
        ...

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        """Unfinished pods bound to a node, listed fresh, sorted by namespace and name."""
        ...

    def watch(self, kind: str, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        """Changes of `pods` or `nodes` since a resourceVersion; ends at the timeout. Raises ResourceVersionGone."""
        ...

    def list_for_watch(self, kind: str) -> tuple[tuple[Pod, ...] | tuple[Node, ...], str]:
        """Pending `pods` or all `nodes`, with the resourceVersion to watch from."""
        ...

    def register_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        taints: Sequence[Taint],
        resource_version: str,
    ) -> None:
        """Merge labels and annotations and replace the taints; refused with ObjectConflict if the node changed."""
        ...

    def nominate(self, pod: Pod, node: str) -> None:
        """Set `status.nominatedNodeName`."""
        ...

    def bind(self, pod: Pod, node: str) -> None:
        """Assign a pod to a node in the scheduler's place; nothing checks whether it fits.

        Raises ObjectNotFound, ObjectConflict when the pod has a node already or was recreated under its name.
        """
        ...

    def evict(self, pod: Pod, grace_s: int | None = None) -> None:
        """Ask for a pod to be deleted, with its own grace period unless one is given, as far as PDBs allow it.

        Raises TooManyRequests when a PodDisruptionBudget forbids it now, ObjectNotFound, ObjectConflict when the pod
        was recreated under its name.
        """
        ...

    def delete_pod(self, pod: Pod, grace_s: int) -> None:
        """Delete a pod whatever its PodDisruptionBudgets say; one that is ending already gets no more than `grace_s`.

        Raises ObjectNotFound, ObjectConflict when the pod was recreated under its name.
        """
        ...

    def delete_node(self, node: Node) -> None:
        """Remove a Node object. Raises ObjectNotFound, ObjectConflict when it was recreated under its name."""
        ...

    def attached_volumes(self, node: str, staying: Sequence[Pod]) -> tuple[str, ...]:
        """Names of volumes attached to a node, sorted, without those that pods of `staying` use."""
        ...

    def disruption_budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """All PodDisruptionBudgets, sorted by namespace and name."""
        ...

    def scalables(self, names: Iterable[ScalableName]) -> tuple[Scalable, ...]:
        """These workloads in the order given, as far as they exist."""
        ...

    def publish(self, event: Event) -> None:
        """Write a Kubernetes Event; failures to do so are never worth failing a flow, so callers log and go on."""
        ...


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
    def wanted(self) -> int:
        """How many instances are asked for."""
        return self.count or len(self.claims)


class Instance(msgspec.Struct, frozen=True, omit_defaults=True):
    """An EC2 instance. `state` as EC2 names it; `claim`, `launch`, `cluster` and `node_pool` come from its tags.

    `launch` is the token of the launch that made it. `claim` is empty for as long as nobody has tagged an instance that
    was launched together with others; which claim has it is written in the claim.
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

    @property
    def tagged(self) -> str:
        """What its tags say whose it is: its claim, or the launch that made it."""
        return self.claim or self.launch

    @property
    def provider_id(self) -> str:
        return f"aws:///{self.zone}/{self.id}"


_VCPU_QUOTAS = frozenset({"VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "InstanceLimitExceeded"})


class OfferingFailure(msgspec.Struct, frozen=True, order=True):
    """An offering EC2 refused. `kind`: capacity, subnet, quota, configuration, throttled or unknown.

    `subnet` is the id of the one that has no addresses left.
    """

    instance_type: str
    zone: str
    capacity_type: str
    code: str
    kind: str = "capacity"
    message: str = ""
    subnet: str = ""

    @property
    def scope(self) -> tuple[str, str, str]:
        """What is left alone: an offering as (type, zone, capacity type), or more than one.

        In the place of the type may stand a subnet, or a quota that many types share; `*` means any.
        """
        if self.kind == "subnet" and self.subnet:
            return self.subnet, ANY, ANY
        if self.kind == "quota":
            return quota_of(self.instance_type) if self.code in _VCPU_QUOTAS else ANY, ANY, self.capacity_type
        return self.instance_type, self.zone, self.capacity_type


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

    def resolve(self, node_class: EC2NodeClass) -> ResolvedNodeClass:
        """Answer the selectors. Raises NodeClassNotReady, AwsThrottled, AwsError."""
        ...

    def inspect(self, node_class: EC2NodeClass) -> ResolvedNodeClass:
        """Answer what can be answered; the rest is in its `problems`. Raises AwsThrottled, AwsError."""
        ...

    def launch(self, request: FleetRequest) -> FleetResult:
        """One instant fleet; all claims of a request are of one cluster and NodePool.

        Raises AwsThrottled, NodeClassNotReady, AwsError.
        """
        ...

    def instances(self, cluster: str) -> tuple[Instance, ...]:
        """Instances tagged as ours for this cluster that are not terminated."""
        ...

    def launched(self, cluster: str, token: str) -> tuple[Instance, ...]:
        """The instances of a launch, by tag, unless terminated; sorted by id. New ones show with a delay."""
        ...

    def instance(self, cluster: str, instance_id: str) -> Instance | None:
        """An instance of ours, unless terminated."""
        ...

    def images(self, instance_ids: Sequence[str]) -> dict[str, str]:
        """The AMI of each of these instances that exists, whoever launched it. Raises AwsThrottled, AwsError."""
        ...

    def sweep_templates(self, cluster: str) -> int:
        """Delete launch templates of a cluster that nothing has used for a day; returns how many.

        At most once an hour; in between nothing is asked for.
        """
        ...

    def name(self, instance_id: str, claim: str) -> None:
        """Tag an instance that was launched together with others as its claim's; already gone is not an error."""
        ...

    def terminate(self, cluster: str, instance_id: str) -> None:
        """End an instance if it is ours; already gone is not an error."""
        ...


class Ailment(msgspec.Struct, frozen=True, order=True):
    """What EC2 says is wrong with an instance, or planned for it. `kind`: instance, system or event.

    `since` in epoch seconds, 0 when it is not told.
    """

    instance_id: str
    kind: str
    since: float = 0.0


class HealthSource(Protocol):
    """What AWS says about instances and zones only when it is asked: no event tells of it."""

    def ailing(self) -> tuple[Ailment, ...]:
        """Running instances of the account with failed status checks or scheduled events, sorted; ours and others'.

        Raises AwsThrottled, AwsError.
        """
        ...

    def shifted_zones(self) -> frozenset[str]:
        """Ids of the zones that traffic of the cluster is shifted away from now. Raises AwsThrottled, AwsError."""
        ...


class UnavailableOffering(msgspec.Struct, frozen=True, omit_defaults=True):
    """An offering not to try before `until` (epoch seconds); `failures` in a row lengthen the wait, 3 min to 1 h.

    It may stand for more than one, see `OfferingFailure.scope`. Known to all clusters of the account.
    """

    instance_type: str
    zone: str
    capacity_type: str
    until: float
    failures: int = 1
    code: str = ""

    @classmethod
    def after(cls, known: UnavailableOffering | None, failure: OfferingFailure, now: float) -> UnavailableOffering:
        """What is known once `failure` was seen at `now`; `known` itself while that still rests."""
        if known is not None and now < known.until:
            return known
        past = (known.failures, known.until) if known is not None else (0, 0.0)
        first_s = FIRST_WAIT_FOR_QUOTA_S if failure.kind == "quota" else FIRST_WAIT_S
        failures, until = after_failure(*past, now, first_s)
        return cls(*failure.scope, until, failures, failure.code)

    @property
    def scope(self) -> tuple[str, str, str]:
        """What is left alone; see `OfferingFailure.scope`."""
        return self.instance_type, self.zone, self.capacity_type

    def relieved(self) -> UnavailableOffering:
        """What is known once it has given an instance again: one failure less, so that twice as much may be asked."""
        return msgspec.structs.replace(self, failures=max(self.failures - 1, 0))

    def is_recovering(self, now: float) -> bool:
        """Whether it rests no more, but its failures are not forgotten yet."""
        return self.until <= now < remembered_until(self.failures, self.until) and self.failures > 0


class DecisionState(msgspec.Struct, frozen=True):
    """What the store knows when a decision starts, read after the epoch.

    `recovering` offerings rest no more, but failed not long ago. `addresses` are those that launches in flight will
    take from each subnet, by its id; `reserved` the instances they will take of each capacity reservation, by token.
    """

    epoch: int
    claims: tuple[NodeClaim, ...] = ()
    unavailable: tuple[UnavailableOffering, ...] = ()
    recovering: tuple[UnavailableOffering, ...] = ()
    addresses: dict[str, int] = {}
    reserved: dict[str, dict[str, int]] = {}
    missed_pods: frozenset[str] = frozenset()


class Move(msgspec.Struct, frozen=True):
    """A claim on its way to a state; `changes` are fields of NodeClaim."""

    claim: NodeClaim
    to: ClaimState
    changes: dict[str, Any] = {}


Taken = Mapping[str, tuple[int, float]]
"""Instances of a capacity reservation and the epoch second until which they count, by the token of a launch."""


def taken_now(taken: Mapping[str, Taken], now: float) -> dict[str, dict[str, int]]:
    """What still counts, by reservation and token, sorted."""
    counted = {
        name: {token: number for token, (number, until) in sorted(taken[name].items()) if until > now and number}
        for name in sorted(taken)
    }
    return {name: tokens for name, tokens in counted.items() if tokens}


def may_take(taken: Taken, token: str, count: int, available: int, now: float) -> int:
    """How many of a reservation's instances a launch may take."""
    others = sum(number for other, (number, until) in taken.items() if other != token and until > now)
    return max(min(count, available - others), 0)


def total_addresses(reservations: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Addresses by subnet id, added up over launches and sorted."""
    total: Counter[str] = Counter()
    for reservation in reservations:
        total.update(reservation)
    return {subnet: total[subnet] for subnet in sorted(total)}


def check_together(moves: Sequence[Move]) -> None:
    """Moves can be one transaction: each claim once, and not too many. Raises ConditionFailed."""
    if len(moves) > COMMIT_GROUP or len({(move.claim.cluster, move.claim.name) for move in moves}) < len(moves):
        raise ConditionFailed(f"{len(moves)} moves cannot be made together")


class StateStore(Protocol):
    """Table `state`: the epoch, claims, unavailable offerings and the launch ledger. All writes are conditional."""

    def read(self, cluster: str, now: float) -> DecisionState:
        """The epoch first, then unsettled claims, offerings unavailable at `now` and missed pods; consistent reads.

        Everything is sorted by name. A cluster never written to is at epoch 0.
        """
        ...

    def commit(self, cluster: str, epoch: int, claims: Sequence[NodeClaim], commands: Sequence[Command] = ()) -> int:
        """Write commands and Planned claims exactly as given and advance the epoch, atomically in groups of at most 99.

        Commands come first. Returns the new epoch; without anything to write the epoch stays. The claims are also the
        launch ledger: how many nodes were launched for a pod is how many claims list it.

        Raises:
            EpochMoved: somebody decided meanwhile. Groups written before stay and are resumed as theirs.
            ConditionFailed: a claim is not Planned, or a name is taken.
        """
        ...

    def commands(self, cluster: str) -> tuple[Command, ...]:
        """The disruption commands that are not over, sorted by name; consistent."""
        ...

    def advance_command(self, command: Command, to: CommandState, **changes: Any) -> Command:
        """Move a command to a state if it is unchanged since it was read (see `disruption.progress.advanced`).

        Raises ConditionFailed.
        """
        ...

    def claim(self, cluster: str, name: str) -> NodeClaim | None: ...

    def claim_of_instance(self, instance_id: str) -> NodeClaim | None:
        """By the index on instance ids; the index may lag behind a launch by a moment."""
        ...

    def claims(self, cluster: str) -> tuple[NodeClaim, ...]:
        """All claims that are not Gone, sorted by name; Failed ones as long as they are remembered."""
        ...

    def advance(self, claim: NodeClaim, to: ClaimState, **changes: Any) -> NodeClaim:
        """Move a claim to a state if it is unchanged since it was read (see `api.nodeclaim.moved`); returns it anew.

        `changes` are fields of NodeClaim; `changed_at` belongs among them, for an ended claim is forgotten by it.
        Raises ConditionFailed.
        """
        ...

    def advance_all(self, moves: Sequence[Move]) -> tuple[NodeClaim, ...]:
        """Move claims together: all of them, or none if any has changed since it was read.

        At most COMMIT_GROUP claims of at most COMMIT_BYTES. Raises ConditionFailed.
        """
        ...

    def mark_unavailable(self, failures: Sequence[OfferingFailure], now: float) -> tuple[UnavailableOffering, ...]:
        """Remember for the whole account that offerings failed; their waits double while failures repeat.

        Returns what is known then, once for each `scope` of the failures, sorted. What is already unavailable at `now`
        is left as it is (see `instances.unavailability`).
        """
        ...

    def relieve(self, offering: UnavailableOffering) -> None:
        """Remember that an offering which had failed gave an instance; does nothing if it has changed since."""
        ...

    def take_reserved(self, reservation_id: str, token: str, count: int, available: int, now: float) -> int:
        """Count a capacity reservation's instances as taken by a launch for ADDRESSES_S seconds; how many it may take.

        Never more than `available`, as EC2 described it a moment ago, less what other launches have taken meanwhile.
        Again for a token replaces what it took.
        """
        ...

    def reserve_addresses(self, token: str, addresses: Mapping[str, int], now: float) -> None:
        """Count addresses per subnet id as taken by a launch, for ADDRESSES_S seconds; again for a token replaces."""
        ...

    def mark_missed(self, cluster: str, pod_uids: Sequence[str], now: float) -> None:
        """Remember pods whose node turned out too small, for 30 days."""
        ...


class JoinLog(Protocol):
    """How instances of a cluster become nodes: times by NodePool, successes and failures by AMI and type."""

    def read(self, cluster: str) -> JoinHistory:
        """Everything known, sorted by name."""
        ...

    def joined(self, cluster: str, pool: str, ami: str, instance_type: str, seconds: float, now: float) -> None:
        """A node was registered so many seconds after its launch."""
        ...

    def initialized(self, cluster: str, pool: str, seconds: float, now: float) -> None:
        """A node was complete so many seconds after its registration."""
        ...

    def failed(self, cluster: str, ami: str, instance_type: str, launched_at: float, now: float) -> None:
        """An instance did not become a complete node in time."""
        ...


class CapacityStore(Protocol):
    """Table `capacity`: learned capacity, shared by all clusters of the account."""

    def learned(self, amis: Sequence[str]) -> tuple[LearnedCapacity, ...]:
        """Everything known about these AMIs; consistent."""
        ...

    def all(self) -> tuple[LearnedCapacity, ...]: ...

    def observe(self, observation: Observation) -> LearnedCapacity:
        """Add an observation; concurrent observers lose nothing."""
        ...

    def forget(self, ami: str, instance_type: str = "", kubelet_hash: str = "") -> int:
        """Remove entries; returns how many."""
        ...

    def acquire_pilot(self, ami: str, instance_type: str, kubelet_hash: str, holder: str, now: float) -> bool:
        """Claim the right to launch the one node that relies on an unverified estimate; False if another holds it.

        Re-acquiring as the same holder succeeds. A lease lapses after 15 minutes.
        """
        ...

    def release_pilot(self, ami: str, instance_type: str, kubelet_hash: str, holder: str) -> None: ...

    def pilots(self, amis: Sequence[str], now: float) -> frozenset[str]:
        """`ami/instance type#kubelet hash` keys that are being explored."""
        ...


class CatalogStore(Protocol):
    """The instance-type catalogue in the bucket."""

    def load(self) -> Catalog:
        """Raises StoreError when there is none."""
        ...

    def save(self, catalog: Catalog) -> None: ...


class StatusStore(Protocol):
    """What is known of the clusters' EC2NodeClasses and NodePools, in the bucket."""

    def load(self) -> InstallStatus:
        """Empty before the first inspection. Raises StoreError."""
        ...

    def save(self, status: InstallStatus) -> None:
        """Raises StoreError."""
        ...


class MemoryStore(Protocol):
    """What the disrupt function remembers of each cluster, written by it alone."""

    def load(self, cluster: str) -> Memory:
        """Empty when there is nothing, or nothing that can be read: memory is only patience. Raises StoreError."""
        ...

    def save(self, cluster: str, memory: Memory) -> None:
        """Raises StoreError."""
        ...


class CatalogSource(Protocol):
    """Where the catalogue comes from: EC2's types and offerings, its spot prices, the Pricing API."""

    def fetch(self, previous: Catalog | None) -> Catalog:
        """A fresh catalogue; prices that cannot be had are kept from `previous`. Raises AwsThrottled, AwsError."""
        ...


class BusEvent(msgspec.Struct, frozen=True, rename="camel"):
    """One event for the bus. `detail` always holds cluster, id and time."""

    detail_type: str
    detail: dict[str, Any]
    source: str = "shiplap.functions"


class EventBus(Protocol):
    def publish(self, events: Sequence[BusEvent]) -> None:
        """Raises StoreError when any event was not accepted."""
        ...


class Timers(Protocol):
    def remind(self, cluster: str, claim: str, step: str, delay_s: int) -> None:
        """Have the lifecycle function look at a claim again after the delay, at most LONGEST_DELAY_S."""
        ...


class FlightRecorder(Protocol):
    def record(self, snapshot: Snapshot, plan: Plan) -> str:
        """Store a decision; returns its record id. The same decision recorded twice is one record."""
        ...


METRICS_NAMESPACE = "Shiplap"
"""CloudWatch's namespace of all metrics."""

INSTALL_DIMENSION = "install"
"""The dimension that every metric has: the install's name."""


class Meter(Protocol):
    """Counts and measures. A name with other dimensions is a metric of its own, and each is paid for by the hour."""

    def count(
        self, name: str, value: float = 1.0, unit: str = "Count", *, dimensions: Mapping[str, str] | None = None
    ) -> None:
        """Add a value to a metric; `dimensions` are those it has beside the install's, at most cluster, pool, tier."""
        ...


class DeadLetters(Protocol):
    """Where messages go that nobody can read, at once and with the reason, instead of after every retry."""

    def send(self, body: str, reason: str) -> None:
        """Keep a malformed message as it came. Raises StoreError."""
        ...

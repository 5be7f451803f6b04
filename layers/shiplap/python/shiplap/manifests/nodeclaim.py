"""NodeClaim: the record that exists before its instance does, and the states it passes through."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypedDict

import msgspec
from msgspec.structs import replace

from shiplap.errors import ConditionFailed
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of, namespaced_name
from shiplap.kubernetes.objects import Pod, Taint
from shiplap.manifests.custom_resources import NodePool, RequirementSpec


class ClaimState(StrEnum):
    """Planned, Launching, Launched, Registered, Initialized, (Disrupting,) Draining, Terminating, Gone, in this order.

    Failed is reached from the first three, and from Terminating when the instance ended before it became a node.
    """

    PLANNED = "Planned"
    LAUNCHING = "Launching"
    LAUNCHED = "Launched"
    REGISTERED = "Registered"
    INITIALIZED = "Initialized"
    DISRUPTING = "Disrupting"
    DRAINING = "Draining"
    TERMINATING = "Terminating"
    GONE = "Gone"
    FAILED = "Failed"


IN_FLIGHT = frozenset({ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.LAUNCHED, ClaimState.REGISTERED})
"""States in which the cluster shows no initialised Node yet, so planning must read the claim itself.

A Registered claim has a Node, which may still lack extended resources and carry startup taints.
"""

LEAVING = frozenset({ClaimState.DISRUPTING, ClaimState.DRAINING, ClaimState.TERMINATING})
"""States of claims whose node is on its way out: its capacity is gone and its pods need another node.

A Disrupting one may still come back; until then the replacement that is being launched holds capacity for its pods.
"""

GOING_FOR_GOOD = LEAVING - {ClaimState.DISRUPTING}
"""States of claims whose node does not come back."""

UNSETTLED = IN_FLIGHT | LEAVING
"""States that planning must know: the Node alone, if there is one, would mislead it."""

FINAL = frozenset({ClaimState.GONE, ClaimState.FAILED})
"""States that no other follows; the record is kept for a while and then forgotten."""

FORGET_AFTER_S = 7 * 24 * 3600
"""How long a claim is remembered after it ended, in seconds."""

_ENDING = frozenset({ClaimState.DISRUPTING, ClaimState.DRAINING, ClaimState.TERMINATING, ClaimState.GONE})

TRANSITIONS: dict[ClaimState, frozenset[ClaimState]] = {
    ClaimState.PLANNED: frozenset({ClaimState.LAUNCHING, ClaimState.FAILED}),
    ClaimState.LAUNCHING: frozenset({ClaimState.LAUNCHED, ClaimState.FAILED}),
    ClaimState.LAUNCHED: frozenset({ClaimState.REGISTERED, ClaimState.FAILED}) | _ENDING - {ClaimState.DISRUPTING},
    ClaimState.REGISTERED: frozenset({ClaimState.INITIALIZED}) | _ENDING,
    ClaimState.INITIALIZED: _ENDING,
    # A disruption command that is given up returns its nodes to service.
    ClaimState.DISRUPTING: frozenset({ClaimState.INITIALIZED}) | _ENDING,
    # A node that leaves for sleep stays if all is awake again before it has been ended, and one that goes before its
    # replacement if it is not empty in time.
    ClaimState.DRAINING: frozenset({ClaimState.INITIALIZED, ClaimState.TERMINATING, ClaimState.GONE}),
    ClaimState.TERMINATING: frozenset({ClaimState.GONE, ClaimState.FAILED}),
}
"""Which states may follow each; a claim may stay in its state while something else of it is written."""


SCHEMA = 1
"""The form in which this release stores claims and commands.

It grows when older releases must not write over new items; a new field alone does not ask for that. A release reads an
item of a newer schema by the fields that it knows. The item counts in its plans, limits and inventories, so nothing is
launched or ended in its stead. But it is not written, and nothing is launched, drained or ended on account of it.
"""


class PodReference(msgspec.Struct, frozen=True, order=True):
    namespace: str
    name: str
    uid: str = ""

    @classmethod
    def of(cls, pod: Pod) -> PodReference:
        """Return a pod as plans refer to it."""
        return cls(pod.metadata.namespace or "default", pod.metadata.name, pod.metadata.uid)

    @property
    def key(self) -> str:
        """`namespace/name`, as `Pod.key`."""
        return namespaced_name(self.namespace, self.name)


class PreferredSpot(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The spot offerings of a launch list that are asked for first, as `type/zone`, sorted.

    `bounded` are those among them that are chosen only because cheaper ones are avoided: each of these may have `most`
    spot nodes of the NodePool. `held` counts those that some of them have already.
    """

    offerings: tuple[str, ...]
    bounded: tuple[str, ...] = ()
    most: int = 1
    held: dict[str, int] = {}


class ClaimPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """The plan of a decision for one node; a launch narrows `labels` and `allocatable` to the instance that it bought.

    These are the fields of PlannedClaim that outlive the decision, and a few that are known of a record only. Resources
    are canonical. `instance_types` is the launch list, cheapest first; `relies_on_estimate` are those of it whose
    unverified estimate, not only the careful bound, is needed for `requests` to fit. `allocatable` is what the plan
    counted on for the type that was launched (before launch: the smallest over the list). `unproven` are the kinds of
    its pods, if no node was known to have run any of them when it was planned (see `unproven`). `expire_after` and
    `termination_grace_period` are those of the launch: what its NodePool says later makes the node drift. `object_name`
    and `object_uid` are those of the NodeClaim object that asked for the node: a user wrote it, and there is no
    NodePool. `preferred_spot` is None where the whole list is asked for.
    """

    node_pool: str
    node_class: str
    tier: int = 0
    requirements: tuple[RequirementSpec, ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    instance_types: tuple[str, ...] = ()
    relies_on_estimate: tuple[str, ...] = ()
    requests: dict[str, int] = {}
    pods: tuple[PodReference, ...] = ()
    unproven: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    allocatable: dict[str, int] = {}
    expire_after: str = ""
    termination_grace_period: str = ""
    object_name: str = ""
    object_uid: str = ""
    preferred_spot: PreferredSpot | None = None

    def age_limit(self, pool: NodePool) -> str:
        """Return the age that the node may reach, a duration or Never.

        The claim of an older release or of an adopted node has none of its own: its NodePool's counts.
        """
        return self.expire_after or pool.spec.template.spec.expire_after

    def grace(self, pool: NodePool | None) -> str | None:
        """Return the terminationGracePeriod, a duration; that of the NodePool counts where `age_limit` is its own."""
        if self.termination_grace_period or self.expire_after or self.object_uid or pool is None:
            return self.termination_grace_period or None
        return pool.spec.template.spec.termination_grace_period


class LaunchRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The request that launches the instance, and the invocation that may send it.

    `token` makes the launch idempotent; claims that share it are launched by one request for `together` instances.
    `requested_from` is what every request of the token asks for: `spot`, `on-demand` or the id of a reservation; empty
    before the first.
    `answered_at` is when EC2 was first known to have answered another request of this token, 0 if never: no further
    request can make an instance, and those of the first are found by their tag. `owner` is the invocation that may
    launch until `NodeClaim.deadline_at`. Claims of the same `atomic` are of use only together: a request for them gets
    all its instances or none; empty for any other.
    """

    token: str = ""
    together: int = 0
    requested_from: str = ""
    answered_at: float = 0.0
    owner: str = ""
    atomic: str = ""


class LaunchedInstance(msgspec.Struct, frozen=True, omit_defaults=True):
    """The instance of a claim. `subnet` and `security_groups` are ids, empty where they are not known.

    `zone_id` is known only where evidence about spot is collected.
    """

    id: str = msgspec.field(name="instance_id")
    type: str = msgspec.field(default="", name="instance_type")
    zone: str = ""
    capacity_type: str = ""
    ami: str = ""
    kubelet_hash: str = ""
    subnet: str = ""
    security_groups: tuple[str, ...] = ()
    zone_id: str = ""


class ClaimCause(msgspec.Struct, frozen=True, omit_defaults=True):
    """The event that caused the node, so that its history can be found in the log, and when the first one was sent."""

    event_id: str = ""
    first_event_at: float = 0.0


class Reboots(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reboots by which repair tries to heal a claim's node. Times are epoch seconds.

    `asked_at` is when each reboot of the last day was asked for, oldest first. `cause` is the reason of the one under
    way, empty when there is none. `boot_id` is the node's boot before it, and `sent_at` when EC2 was about to be asked;
    both are empty while pods may still leave. `ended_at` is when the node was last back in service.
    """

    asked_at: tuple[float, ...] = msgspec.field(default=(), name="reboots_at")
    cause: str = msgspec.field(default="", name="reboot_cause")
    boot_id: str = msgspec.field(default="", name="reboot_boot_id")
    sent_at: float = msgspec.field(default=0.0, name="reboot_sent_at")
    ended_at: float = msgspec.field(default=0.0, name="reboot_ended_at")


class NodeClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node that is to be, is, or was. Times are epoch seconds, prices USD per hour.

    `instance` is None until the claim is Launched. `hourly` is the price of what is planned, then of what was launched.
    `missed` says that the node turned out smaller than the plan counted on. `cordoned` says why the node takes no more
    pods although its pods stay; empty when it takes them. `change_at` is when AWS will change or end its instance, 0
    when nothing is scheduled. `most_hourly` is the most that the instance may cost, 0 without ceilings in dollars.
    `version` counts the conditional writes; `schema` is the form of the stored item.

    Items and recorded decisions hold it in its flat form, see `StoredForm`.
    """

    cluster: str
    name: str
    plan: ClaimPlan
    state: ClaimState = ClaimState.PLANNED
    launch: LaunchRequest = LaunchRequest()
    instance: LaunchedInstance | None = None
    cause: ClaimCause = ClaimCause()
    created_at: float = 0.0
    changed_at: float = 0.0
    deadline_at: float = 0.0
    hourly: float = 0.0
    node_name: str = ""
    failure: str = ""
    missed: bool = False
    cordoned: str = ""
    change_at: float = 0.0
    most_hourly: float = 0.0
    reboots: Reboots = Reboots()
    version: int = 0
    schema: int = SCHEMA

    @property
    def instance_id(self) -> str:
        """Its instance's, empty while it has none."""
        return self.instance.id if self.instance is not None else ""

    @property
    def known_instance(self) -> LaunchedInstance:
        """Its instance, or one of empty fields while it has none."""
        return self.instance if self.instance is not None else _NO_INSTANCE

    @property
    def launched_labels(self) -> dict[str, str]:
        """The known type, zone and capacity type of its instance, as labels."""
        launched = {
            labels.INSTANCE_TYPE: self.known_instance.type,
            labels.ZONE: self.known_instance.zone,
            labels.CAPACITY_TYPE: self.known_instance.capacity_type,
        }
        return {key: value for key, value in launched.items() if value}

    @property
    def node_labels(self) -> dict[str, str]:
        """The labels that its node will have whichever of its types is launched; those of its plan win."""
        node_class = label_value_of(self.plan.node_class)
        return {
            **labels.of_pool(self.plan.node_pool),
            **({labels.NODE_CLASS: node_class} if node_class else {}),
            **self.launched_labels,
            **self.plan.labels,
        }

    @property
    def is_standalone(self) -> bool:
        """True if a user wrote the claim's NodeClaim object. Such a claim belongs to no NodePool."""
        return bool(self.plan.object_uid)

    @property
    def is_replacement(self) -> bool:
        """True if it is planned for a disruption command: its cause is a hint as `claim_events.disruption_hint`."""
        hint = self.cause.event_id
        return hint.startswith(f"{self.cluster}/") and hint.endswith("/disruption")

    @property
    def is_metered(self) -> bool:
        """True if the ledger has to know when the claim's instance ended."""
        return self.most_hourly > 0 and self.instance is not None

    @property
    def is_rebooting(self) -> bool:
        """True while its node in service is rebooted. One that leaves meanwhile for another reason is not."""
        return bool(self.reboots.cause) and self.state is ClaimState.INITIALIZED

    @property
    def newer(self) -> bool:
        """True if a newer release wrote the claim in a form that this release must not touch, see `SCHEMA`."""
        return self.schema > SCHEMA


_NO_INSTANCE = LaunchedInstance("")


class ClaimChanges(TypedDict, total=False):
    """Fields of NodeClaim that change while it lives; `changed_at` belongs among them where the state changes."""

    plan: ClaimPlan
    launch: LaunchRequest
    instance: LaunchedInstance
    changed_at: float
    deadline_at: float
    hourly: float
    node_name: str
    failure: str
    missed: bool
    cordoned: str
    change_at: float
    reboots: Reboots


def check_new_claims(cluster: str, claims: Sequence[NodeClaim]) -> None:
    """Claims can be committed together: all of one cluster, Planned, of different names. Raises ConditionFailed."""
    if len({claim.name for claim in claims}) < len(claims):
        raise ConditionFailed(f"cluster {cluster}: two claims have one name")
    for claim in claims:
        if claim.state is not ClaimState.PLANNED or claim.cluster != cluster:
            raise ConditionFailed(f"cluster {cluster}: claim {claim.name} is {claim.state} in cluster {claim.cluster}")


def advanced_claim(claim: NodeClaim, to: ClaimState, changes: ClaimChanges) -> NodeClaim:
    """The claim after one conditional write: in state `to`, with `changes` applied and its version one higher.

    Staying in a state (a new owner, a later deadline) is a move too, except in the final ones: nothing follows those.

    Raises:
        ConditionFailed: no arrow leads from the claim's state to `to`, or a newer release wrote the claim in a form
            that is not to be written over.
    """
    if claim.newer:
        raise ConditionFailed(f"claim {claim.name}: schema {claim.schema} is newer than {SCHEMA}, it is left alone")
    if claim.state in FINAL or (to is not claim.state and to not in TRANSITIONS[claim.state]):
        raise ConditionFailed(f"claim {claim.name}: no way leads from {claim.state} to {to}")
    return replace(claim, **{**changes, "state": to, "version": claim.version + 1, "schema": SCHEMA})


def forgotten_at(claim: NodeClaim) -> float | None:
    """Epoch seconds after which an ended claim may be forgotten, counted from `changed_at`; None while it has not."""
    return claim.changed_at + FORGET_AFTER_S if claim.state in FINAL else None

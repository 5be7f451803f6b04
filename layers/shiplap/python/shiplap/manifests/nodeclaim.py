"""NodeClaim: the record that exists before its instance does, and the states it passes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from shiplap.errors import ConditionFailed
from shiplap.kubernetes.names import namespaced_name
from shiplap.kubernetes.objects import Taint
from shiplap.manifests.custom_resources import RequirementSpec


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
    ClaimState.DRAINING: frozenset({ClaimState.TERMINATING, ClaimState.GONE}),
    ClaimState.TERMINATING: frozenset({ClaimState.GONE, ClaimState.FAILED}),
}
"""Which states may follow each; a claim may stay in its state while something else of it is written."""


class PodReference(msgspec.Struct, frozen=True, order=True):
    namespace: str
    name: str
    uid: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, as `Pod.key`."""
        return namespaced_name(self.namespace, self.name)


class NodeClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node that is to be, is, or was. Times are epoch seconds, prices USD per hour, resources canonical.

    `instance_types` is the launch list, cheapest first; `relies_on_estimate` are those of it whose unverified estimate,
    not only the careful bound, is needed for `requests` to fit. `allocatable` is what the plan counted on for the type
    that was launched (before launch: the smallest over the list). `token` makes the launch idempotent; claims that
    share it are launched by one request for `together` instances. `answered_at` is when EC2 was first known to have
    answered another request of this token, 0 if never: no further request can make an instance, and those of the first
    are found by their tag. `subnet` and `security_groups` are ids, empty where they are not known. `cordoned` says why
    the node takes no more pods although its pods stay; empty when it takes them. `change_at` is when AWS will change or
    end its instance, 0 when nothing is scheduled. `expire_after` and `termination_grace_period` are those of the
    NodeClaim object; where empty, those of its NodePool count. `unproven` are the kinds of its pods, if no node was
    known to have run any of them when it was planned (see `unproven_pods`). `event_id` names the event that caused the
    node, so that its history can be found in the log.
    """

    cluster: str
    name: str
    node_pool: str
    node_class: str
    state: ClaimState = ClaimState.PLANNED
    tier: int = 0
    created_at: float = 0.0
    changed_at: float = 0.0
    deadline_at: float = 0.0
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
    token: str = ""
    together: int = 0
    answered_at: float = 0.0
    owner: str = ""
    instance_id: str = ""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    ami: str = ""
    kubelet_hash: str = ""
    subnet: str = ""
    security_groups: tuple[str, ...] = ()
    hourly: float = 0.0
    allocatable: dict[str, int] = {}
    node_name: str = ""
    failure: str = ""
    missed: bool = False
    first_event_at: float = 0.0
    event_id: str = ""
    cordoned: str = ""
    change_at: float = 0.0
    expire_after: str = ""
    termination_grace_period: str = ""
    version: int = 0


def check_new_claims(cluster: str, claims: Sequence[NodeClaim]) -> None:
    """Claims can be committed together: all of one cluster, Planned, of different names. Raises ConditionFailed."""
    if len({claim.name for claim in claims}) < len(claims):
        raise ConditionFailed(f"cluster {cluster}: two claims have one name")
    for claim in claims:
        if claim.state is not ClaimState.PLANNED or claim.cluster != cluster:
            raise ConditionFailed(f"cluster {cluster}: claim {claim.name} is {claim.state} in cluster {claim.cluster}")


def advanced_claim(claim: NodeClaim, to: ClaimState, changes: Mapping[str, Any]) -> NodeClaim:
    """The claim after one conditional write: in state `to`, with `changes` applied and its version one higher.

    Staying in a state (a new owner, a later deadline) is a move too, except in the final ones: nothing follows those.

    Raises:
        ConditionFailed: no arrow leads from the claim's state to `to`.
    """
    if claim.state in FINAL or (to is not claim.state and to not in TRANSITIONS[claim.state]):
        raise ConditionFailed(f"claim {claim.name}: no way leads from {claim.state} to {to}")
    return replace(claim, **{**changes, "state": to, "version": claim.version + 1})


def forgotten_at(claim: NodeClaim) -> float | None:
    """Epoch seconds after which an ended claim may be forgotten, counted from `changed_at`; None while it has not."""
    return claim.changed_at + FORGET_AFTER_S if claim.state in FINAL else None

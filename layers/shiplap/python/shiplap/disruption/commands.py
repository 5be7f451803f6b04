"""Commands: which nodes go and what replaces them.

A command is stored before it begins and advances by conditional writes, so that a function may die between any two of
its steps: the next one reads its state.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec import UNSET, UnsetType

from shiplap.scheduling.model.scheduling_plan import Placement, PlannedClaim


class Reason(StrEnum):
    """The reason for a disruption of a node; budgets name the first three and Unhealthy."""

    EMPTY = "Empty"
    DRIFTED = "Drifted"
    UNDERUTILIZED = "Underutilized"
    EXPIRED = "Expired"
    UNHEALTHY = "Unhealthy"
    SCALED_DOWN = "ScaledDown"
    ASLEEP = "Asleep"


OF_POLICIES = frozenset({Reason.ASLEEP})
"""Reasons that optional features have. A node leaves for one of them only as long as that feature says so."""

VOLUNTARY = frozenset(Reason) - {Reason.UNHEALTHY}
"""Reasons for which a node can wait until its pods have left in good order."""

EVENTUAL = frozenset({Reason.DRIFTED, Reason.EXPIRED})
"""Reasons of Karpenter's eventual class: a node with a terminationGracePeriod goes in spite of protected pods. All
other reasons are graceful: a protected pod keeps its node."""

EACH_BY_ITSELF = frozenset({Reason.EMPTY, Reason.ASLEEP})
"""Reasons whose nodes do not depend on each other: without replacements, each goes or stays by itself."""


class Method(StrEnum):
    """The method that found a command."""

    EMPTINESS = "emptiness"
    STATIC_DRIFT = "static-drift"
    DRIFT = "drift"
    EXPIRATION = "expiration"
    CONSOLIDATION = "consolidation"
    CLIMB_BACK = "climb-back"
    SCALE_DOWN = "scale-down"
    SLEEP = "sleep"
    TERMINATE_FIRST = "terminate-first"
    ZONE_BALANCE = "zone-balance"


class PlacementGap(msgspec.Struct, frozen=True, rename="camel"):
    """How long pods of a node that goes before its replacement is launched have no place, in seconds."""

    pods: int
    """The pods without a place meanwhile."""
    empty_s: float = msgspec.field(name="emptySeconds")
    """The time until the node is empty."""
    free_s: float = msgspec.field(name="freeSeconds")
    """The time from there until EC2 and the NodePool's limit no longer count the node."""
    join_s: float = msgspec.field(name="joinSeconds")
    """The time from there until the replacement is initialized."""
    most_s: float = msgspec.field(name="mostSeconds")
    """The longest gap that is allowed."""

    @property
    def expected_s(self) -> float:
        """The whole gap."""
        return self.empty_s + self.free_s + self.join_s

    @property
    def emptying_most_s(self) -> float:
        """How long emptying the node may take at most."""
        return self.most_s - self.free_s - self.join_s


class DisruptionProposal(msgspec.Struct, frozen=True, rename="camel"):
    """A command that has been decided and not begun. Money in USD per hour.

    `nodes` are sorted by name; `replacements` have to be ready before the nodes go, `placements` are the nodes that
    stay and take pods. `moved` counts the pods that lose their node; `detail` is the reason in words. `gap` is there
    where the node goes first and its replacement follows.
    """

    reason: Reason
    method: Method
    nodes: tuple[str, ...]
    replacements: tuple[PlannedClaim, ...] = ()
    placements: tuple[Placement, ...] = ()
    savings_hourly: float = 0.0
    moved: int = 0
    detail: str = ""
    gap: PlacementGap | UnsetType = UNSET


class Blocked(msgspec.Struct, frozen=True, rename="camel", order=True):
    """A node that is not disrupted, and why not."""

    node: str
    reason: str


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    """The result of one disruption decision: commands in the order they begin, `blocked` by node.

    `drifted` names all nodes that have drifted, also those without a command; `overdue` those that have expired and
    stay because of protected pods. `rehearsed` names those that would leave for sleep if this were no rehearsal, and
    `kept_awake` those of sleeping NodePools that stay; both are absent where nothing sleeps.
    """

    commands: tuple[DisruptionProposal, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    drifted: tuple[str, ...] = ()
    overdue: tuple[str, ...] = ()
    rehearsed: tuple[str, ...] | UnsetType = UNSET
    kept_awake: tuple[str, ...] | UnsetType = UNSET

"""The snapshot of a disruption decision: the scheduling snapshot and the inputs of disruption alone.

Also the settings of disruption for a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.scheduling.model.protected_pods import PdbLimits
from shiplap.scheduling.model.scheduling_plan import LaunchChoice
from shiplap.scheduling.model.snapshot import Snapshot


class DisruptionSettings(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """Settings of disruption: what consolidation may disrupt, and how long it waits.

    `enabled` switches the whole of disruption off. `spot_to_spot` allows replacing spot nodes by cheaper spot nodes.
    `move_cost` (USD) is what moving one pod costs: a command has to save it within the expected remaining life of its
    nodes. `least_saving_per_pod` (USD per hour) is its deprecated form, a saving per hour whatever the life; while it
    is set, it counts alone. `least_saving_share` is the part of what nodes cost that replacing them has to save:
    smaller savings are not worth the restarts, and the search could find them without end. `settle_s` is how long pods
    stay where a command moved them. `improve_s` is the effort spent on finding cheaper replacements. `climb_back_s` is
    how old a node of a fallback tier has to be before it may go back to the preferred one. `expire_protected` lets
    nodes expire in spite of protected pods, as Karpenter does. `terminate_first_s` is how long pods may have no place
    while a node goes before its replacement is launched; 0 if they must have one.
    """

    enabled: bool = True
    spot_to_spot: bool = True
    least_saving_per_pod: float | None = None
    least_saving_share: float = 0.1
    settle_s: float = msgspec.field(default=600.0, name="settleSeconds")
    improve_s: float = msgspec.field(default=0.6, name="improveSeconds")
    climb_back_s: float = msgspec.field(default=3600.0, name="climbBackSeconds")
    expire_protected: bool = False
    move_cost: float = 0.025
    terminate_first_s: float = msgspec.field(default=0.0, name="terminateFirstSeconds")

    def problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Invalid settings: the field as written, and the reason."""
        if self.move_cost < 0:
            yield ("moveCost",), f"{self.move_cost:g} must not be negative"
        if self.least_saving_per_pod is not None and self.least_saving_per_pod < 0:
            yield ("leastSavingPerPod",), f"{self.least_saving_per_pod:g} must not be negative"
        if not 0 <= self.least_saving_share < 1:
            yield ("leastSavingShare",), f"{self.least_saving_share:g} must be at least 0 and below 1"
        if self.settle_s < 0:
            yield ("settleSeconds",), f"{self.settle_s:g} must not be negative"
        if self.improve_s < 0:
            yield ("improveSeconds",), f"{self.improve_s:g} must not be negative"
        if self.climb_back_s < 0:
            yield ("climbBackSeconds",), f"{self.climb_back_s:g} must not be negative"
        if self.terminate_first_s < 0:
            yield ("terminateFirstSeconds",), f"{self.terminate_first_s:g} must not be negative"


class NodeHistory(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts about a node that its present objects do not have. Times are epoch seconds, 0 where nothing is known.

    `last_pod_event_at` is when a pod last came or went, `drifted_at` when the node was first seen to have drifted,
    `moved_in_at` when a disruption command last moved pods onto it, `undone_at` when its last command was given up, the
    one of `undone` in a row. `said_to_drift` is why another controller says that it has drifted, `said_to_stay` whether
    one says that it is not consolidatable. `pods` stands for the pods it held when it was last looked at.
    """

    node: str
    initialized_at: float = 0.0
    last_pod_event_at: float = 0.0
    drifted_at: float = 0.0
    moved_in_at: float = 0.0
    undone_at: float = 0.0
    undone: int = 0
    said_to_drift: str = ""
    said_to_stay: bool = False
    pods: str = ""


class PaidNode(msgspec.Struct, frozen=True):
    """A node that would be removed: its labels, and its price in USD per hour."""

    labels: Mapping[str, str]
    hourly: float


class DisruptionInput(msgspec.Struct, frozen=True):
    """The data of one optional feature for a decision on disruption; plans do not need this data.

    A subclass holds plain data in one field. Records hold the data under the name `recorded_as`.
    """

    recorded_as: ClassVar[str]

    @property
    def recorded(self) -> Any:
        """The data of the input, as records hold it."""
        return getattr(self, self.__struct_fields__[0])

    def limits(self, limits: PdbLimits) -> PdbLimits:
        """Return what keeps pods on their nodes, where the feature moves pods or keeps them."""
        return limits

    def idle_hourly(self, removed: Sequence[PaidNode], added: Sequence[LaunchChoice]) -> float:
        """Return the part of a saving, USD per hour, that list prices show and no bill would."""
        return 0.0


class DisruptionSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All inputs of one disruption decision.

    `scheduling.claims` hold every claim that has a node or is on its way to one. `busy` names the nodes that commands
    under way have taken, as nodes to remove or as replacements. `unsettled_pools` names NodePools whose spec may still
    be taken back: their nodes do not drift yet. `policies` are the inputs of optional features that plans do not need.
    """

    scheduling: Snapshot
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    histories: tuple[NodeHistory, ...] = ()
    busy: frozenset[str] = frozenset()
    settings: DisruptionSettings = DisruptionSettings()
    unsettled_pools: tuple[str, ...] = ()
    policies: tuple[DisruptionInput, ...] = ()

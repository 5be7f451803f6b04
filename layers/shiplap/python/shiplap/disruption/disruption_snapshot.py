"""The snapshot of a disruption decision: the scheduling snapshot and the inputs of disruption alone.

Also the settings of disruption for a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec

from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.manifests.decoding import demands
from shiplap.scheduling.model.protected_pods import PdbLimits
from shiplap.scheduling.model.scheduling_plan import LaunchChoice
from shiplap.scheduling.model.snapshot import Snapshot


class DisruptionSettings(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """Settings of disruption: what consolidation may disrupt, and how long it waits."""

    enabled: bool = True
    """False stops new commands; those under way are completed."""
    spot_to_spot: bool = True
    """Replace spot nodes by cheaper spot nodes."""
    least_saving_per_pod: Annotated[float, demands(least=0)] | None = None
    """Deprecated form of `moveCost`: USD per hour that moving one pod must save. While it is set, it counts alone."""
    least_saving_share: Annotated[float, demands(least=0, below=1)] = 0.1
    """Share of the nodes' cost that replacing them must save: smaller savings are not worth the restarts."""
    settle_s: Annotated[float, demands(least=0)] = msgspec.field(default=600.0, name="settleSeconds")
    """Time for which pods that a command moved are not moved again."""
    improve_s: Annotated[float, demands(least=0)] = msgspec.field(default=0.6, name="improveSeconds")
    """Effort of the search for cheaper replacements in one decision, in seconds of a server core."""
    climb_back_s: Annotated[float, demands(least=0)] = msgspec.field(default=3600.0, name="climbBackSeconds")
    """Least age of a node of a fallback tier before it may go back to the preferred one."""
    expire_protected: bool = False
    """Nodes expire in spite of protected pods, as Karpenter lets them."""
    move_cost: Annotated[float, demands(least=0)] = 0.025
    """USD that moving one pod costs: a command saves it within the expected remaining life of its nodes."""
    terminate_first_s: Annotated[float, demands(least=0)] = msgspec.field(default=0.0, name="terminateFirstSeconds")
    """Time for which pods may have no place while a node goes before its replacement is launched; 0: none."""


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

    def kept_from_consolidation(self, now: float) -> Mapping[str, str]:
        """Return the nodes that are not to be consolidated now, by name, and the reasons."""
        return {}

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

"""The snapshot of a disruption decision: the scheduling snapshot, and what only disruption looks at."""

from __future__ import annotations

import msgspec

from shiplap.disruption.settings import DisruptionSettings
from shiplap.kubernetes.disruption_budgets import PodDisruptionBudget
from shiplap.scheduling.snapshot import Snapshot


class NodeHistory(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the objects of the moment do not tell about a node. Times are epoch seconds, 0 where nothing is known.

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


class DisruptionSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One disruption decision's world.

    `scheduling.claims` hold every claim that has a node or is on its way to one. `busy` names the nodes that commands
    under way have taken, as nodes to remove or as replacements.
    """

    scheduling: Snapshot
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    histories: tuple[NodeHistory, ...] = ()
    busy: frozenset[str] = frozenset()
    settings: DisruptionSettings = DisruptionSettings()

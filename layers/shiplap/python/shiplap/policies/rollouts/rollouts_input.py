"""Rollouts within decisions on disruption: pods that move by restarts keep no node, others that must not leave do."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec.structs import replace

from shiplap.disruption.disruption_snapshot import DisruptionInput
from shiplap.scheduling.model.protected_pods import PdbLimits


class MovedPod(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A pod that would move by a restart if its node left."""

    pod: str
    """`namespace/name`."""
    node: str
    workload: str = ""
    """Its Deployment in words."""
    within_s: float = msgspec.field(default=0.0, name="withinSeconds")
    """How long it would wait for that."""
    evicts: bool = False
    """True if it is evicted after that time."""
    problem: str = ""
    """The reason why its Deployment cannot be restarted, if there is one."""


class RolloutsInUse(DisruptionInput, frozen=True):
    """The pods of nodes in service that must not be evicted, by node and name."""

    moved: tuple[MovedPod, ...]

    recorded_as: ClassVar[str] = "rollouts"

    def limits(self, limits: PdbLimits) -> PdbLimits:
        """Let budgets keep no pod that a restart moves, and keep pods that are neither restarted nor evicted."""
        freed = {item.pod for item in self.moved if not item.problem}
        kept = {item.pod: item.problem for item in self.moved if item.problem and not item.evicts}
        by_pod = {pod: budgets for pod, budgets in limits.by_pod.items() if pod not in freed}
        return replace(limits, by_pod=by_pod, kept={**limits.kept, **kept})

"""Rollouts within decisions on disruption: pods that move by restarts keep no node, others that must not leave do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from shiplap.disruption.disruption_snapshot import DisruptionInput
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.scheduling.model.protected_pods import PdbLimits

RESTARTS_APART_S = 24 * 3600.0
"""So long after a restart consolidation leaves the nodes of a Deployment alone, in seconds.

The pods of a rollout that surge may open a node, which consolidation would find again when they are gone: in a
simulated cluster a Deployment of two large pods was restarted 48 times within four hours.
"""


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
    restarted_at: float = msgspec.field(default=0.0, name="restartedAt")
    """When its Deployment was last restarted for a node, in epoch seconds."""


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

    def kept_from_consolidation(self, now: float) -> Mapping[str, str]:
        """Return the nodes whose pods a restart would move again within a day."""
        return {
            item.node: f"{item.workload} was restarted at {rfc3339(item.restarted_at)} as a node left; consolidation "
            "restarts it once a day"
            for item in self.moved
            if item.restarted_at > 0 and now < item.restarted_at + RESTARTS_APART_S
        }

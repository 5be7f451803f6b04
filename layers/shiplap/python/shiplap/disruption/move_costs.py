"""Decides how much a command has to save, from the cost of moving a pod and the life that nodes still expect.

A command is worth it if its saving per hour, times the hours that its nodes were still expected to live, is more than
its moves cost, and what nodes and replacements cost while both run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.decision_clock import DecisionClock
from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.errors import InvalidInput
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.manifests.shiplap_annotations import MOVE_COST, node_pool_problem
from shiplap.manifests.times import seconds_or_never
from shiplap.scheduling.model.scheduling_plan import PlannedClaim

_HOUR_S = 3600.0
LIFE_STEPS_S = tuple(hours * _HOUR_S for hours in (1, 2, 4, 8, 16, 24))
"""The expected lives that are told apart: a decision changes with time only when a node reaches one of these ages."""

OVERLAP_S = 300.0
"""How long nodes and their replacements are both paid for, in seconds: a node starts, then the old ones are drained."""

_SHORTEST_S = 60.0


class MoveCosts(msgspec.Struct, frozen=True, eq=False):
    """The cost of moves and overlaps per hour of the time in which they have to pay.

    `lives_s` are the expected remaining lives of nodes by NodePool, in seconds.
    """

    settings: DisruptionSettings
    lives_s: Mapping[str, float]
    now: float

    def per_move(self, candidate: Candidate) -> float:
        """USD per hour that moving one pod of a node has to save."""
        if self.settings.least_saving_per_pod is not None:
            return self.settings.least_saving_per_pod
        return move_cost(candidate.pool, self.settings) * _HOUR_S / self.life_s(candidate)

    def moves(self, candidate: Candidate) -> float:
        """USD per hour that moving the pods of a node has to save; the same for each, whatever its priority."""
        return self.per_move(candidate) * len(candidate.pods)

    def least_saving(self, nodes: Sequence[Candidate], claims: Iterable[PlannedClaim]) -> float:
        """USD per hour that a command has to save for the pods that it moves and for the overlap."""
        return sum(map(self.moves, nodes)) + self.overlap(nodes, sum(claim.launch.price for claim in claims))

    def overlap(self, nodes: Iterable[Candidate], hourly: float) -> float:
        """USD per hour that replacements of this price have to save because they run beside the nodes for a while."""
        if self.settings.least_saving_per_pod is not None or not hourly:
            return 0.0
        return hourly * OVERLAP_S / min(map(self.life_s, nodes))

    def life_s(self, candidate: Candidate) -> float:
        """The expected remaining life of a node in seconds; it ends at the latest when the node expires."""
        life_s = self.lives_s.get(candidate.pool.metadata.name, LIFE_STEPS_S[-1])
        expires_s = seconds_or_never(candidate.expire_after)
        if expires_s is not None:
            life_s = min(life_s, candidate.born_at + expires_s - self.now)
        return max(life_s, _SHORTEST_S)


def move_cost(pool: NodePool, settings: DisruptionSettings) -> float:
    """USD that moving one pod of a node of this pool costs.

    Raises:
        InvalidInput: the annotation is not as validation wants it.
    """
    written = pool.metadata.annotations.get(MOVE_COST)
    if written is None:
        return settings.move_cost
    if wrong := node_pool_problem(MOVE_COST, written):
        raise InvalidInput("snapshot", f"NodePool {pool.metadata.name}: {MOVE_COST}: {wrong}")
    return float(written)


def expected_lives_s(claims: Iterable[NodeClaim], clock: DecisionClock) -> dict[str, float]:
    """Return the expected remaining life of nodes, in seconds by NodePool, learned from the ages of nodes in service.

    Where nodes come and go steadily, their ages and their remaining lives are distributed alike. So half of the nodes
    live on for at least the median age. It is rounded down to a step, and is an hour at least and a day at most.
    """
    lived_s: dict[str, list[float]] = {}
    for claim in claims:
        if claim.state is ClaimState.INITIALIZED:
            lived_s.setdefault(claim.plan.node_pool, []).append(_step(claim, clock))
    return {pool: sorted(known)[(len(known) - 1) // 2] for pool, known in lived_s.items()}


def _step(claim: NodeClaim, clock: DecisionClock) -> float:
    return max((step for step in LIFE_STEPS_S if clock.has_reached(claim.created_at + step)), default=LIFE_STEPS_S[0])

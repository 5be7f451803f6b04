"""Lets a policy remove nodes within a decision on disruption: its place in the decision, and what it may ask there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from shiplap.disruption.candidates import Candidate, CandidateNodes
from shiplap.disruption.commands import DisruptionProposal, Reason
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.model.protected_pods import PdbLimits


class DecisionProgress(Protocol):
    """One decision on disruption while it is being made. What goes uses up budgets and takes no moved pods."""

    snapshot: DisruptionSnapshot
    candidate_nodes: CandidateNodes
    pdb_limits: PdbLimits

    def budget_left(self, pool: NodePool, reason: Reason) -> tuple[int, str]:
        """Return how many more nodes of a pool may go, and which budget says so."""
        ...

    def backing_off(self, candidate: Candidate) -> str:
        """Return why a node is not tried again yet, or nothing."""
        ...

    def use_budget(self, candidates: Sequence[Candidate]) -> None:
        """Note that these nodes go."""
        ...

    def keep_within_budget(self, candidates: Sequence[Candidate], reason: Reason) -> None:
        """Note that a budget keeps these nodes."""
        ...

    def cordon(self, nodes: Sequence[str]) -> None:
        """Let no moved pod go to these nodes."""
        ...


class PolicyRemovals(msgspec.Struct, frozen=True):
    """The nodes that a policy removes.

    `leaving` names these, and those that would go, too, if budgets allowed: later methods leave them alone. `kept` says
    of other nodes why they stay. `rehearsed` names nodes that would go if it were in earnest.
    """

    commands: tuple[DisruptionProposal, ...] = ()
    leaving: frozenset[str] = frozenset()
    kept: dict[str, str] = {}
    rehearsed: tuple[str, ...] = ()


class RemovesNodes:
    """A `PolicyInput` that removes nodes by a reason of its own, after empty nodes and before all other ones."""

    __slots__ = ()

    @abstractmethod
    def removals(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> PolicyRemovals:
        """Choose among nodes that may be disrupted."""

    @abstractmethod
    def moments(self) -> Iterable[float]:
        """Return the epoch seconds at which time alone may change `removals`."""

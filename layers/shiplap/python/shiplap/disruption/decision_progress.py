"""One decision on disruption while its methods are asked, one after the other.

Nodes that go use up budgets and take no moved pods. Every other node gets a reason to stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from msgspec import UNSET

from shiplap.disruption.budgets import BudgetsLeft, OverBudget
from shiplap.disruption.candidates import Candidate, find_candidates, unconsolidatable
from shiplap.disruption.commands import Blocked, Decision, DisruptionProposal, Reason
from shiplap.disruption.current_prices import market_of
from shiplap.disruption.decision_clock import DecisionClock
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.disruption.node_history import backoff_until
from shiplap.disruption.rescheduling import Simulator, unsettled_nodes
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.scheduling.model.protected_pods import pdb_limits_of
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.model.snapshot import PolicyInput


class DecisionProgress:
    """What methods share. Methods read the inputs, use budgets and the simulator, and note what they find.

    `blocked` has the latest reason of each node that stays. Those in `outdated`, `kept_by_policies`, `overdue` and
    `refused` matter more, the last one most: of a node that has expired or drifted, users want to know why it is not
    replaced. `leaving` are nodes that later methods leave alone: a policy removes them, now or when budgets allow it.
    `drifted` are all nodes that have drifted, `rehearsed` nodes that would leave if it were in earnest. `policies`
    admit replacements; they count those of the commands so far.
    """

    def __init__(
        self, snapshot: DisruptionSnapshot, clock: DecisionClock, *, unsettled: Collection[str] | None = None
    ) -> None:
        """`unsettled` are nodes that take no moved pods, `unsettled_nodes` if not given. Raises as `planner.plan`."""
        self.snapshot = snapshot
        self.clock = clock
        self.market = market_of(snapshot.scheduling)
        self.pdb_limits = pdb_limits_of(snapshot.pod_disruption_budgets, snapshot.scheduling.view.pods)
        for policy in snapshot.policies:
            self.pdb_limits = policy.limits(self.pdb_limits)
        unsettled = unsettled_nodes(snapshot, clock) if unsettled is None else unsettled
        self.simulator = Simulator(snapshot.scheduling, unsettled)
        nominated = self.simulator.nominated
        self.candidate_nodes = find_candidates(snapshot, self.market, self.pdb_limits, nominated)
        self.budgets = BudgetsLeft(snapshot, self.candidate_nodes, clock)
        self.policies = snapshot.scheduling.policies
        self._kept_from_consolidation = {
            node: why for policy in snapshot.policies for node, why in policy.kept_from_consolidation(clock.now).items()
        }
        self.blocked: dict[str, str | OverBudget] = dict(self.candidate_nodes.excluded)
        self.outdated: dict[str, str | OverBudget] = {}
        self.kept_by_policies: dict[str, str] = {}
        self.overdue: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.leaving: frozenset[str] = frozenset()
        self.drifted: tuple[str, ...] = ()
        self.rehearsed: tuple[str, ...] = ()

    def left(self, commands: Iterable[DisruptionProposal]) -> list[Candidate]:
        """The candidates that neither these commands nor a policy takes."""
        taken = self.leaving.union(*(command.nodes for command in commands))
        return [candidate for candidate in self.candidate_nodes.candidates if candidate.name not in taken]

    def backing_off(self, candidate: Candidate) -> str:
        """Return why a node that would need a replacement is not tried again yet, or ""."""
        until = backoff_until(candidate.history)
        if candidate.empty or self.clock.has_reached(until):
            return ""
        ago_s = self.clock.now - candidate.history.undone_at
        return f"its last command was given up {ago_s:.0f} s ago: not before {rfc3339(until)}"

    def unconsolidatable(self, candidate: Candidate) -> str:
        """Return why a node cannot be removed for money, or ""."""
        if candidate.name in self.simulator.buffered:
            return "keeps room for a CapacityBuffer"
        return unconsolidatable(candidate, self.market, self.clock, self.snapshot.settings.settle_s)

    def may_consolidate(self, candidate: Candidate) -> bool:
        """True if the pool's policy lets a node be consolidated; if not, note the reason."""
        reason = self.unconsolidatable(candidate) or candidate.protected or self.backing_off(candidate)
        reason = reason or self._kept_from_consolidation.get(candidate.name, "")
        if reason:
            self.blocked[candidate.name] = reason
        return not reason

    def within_budgets(self, ordered: Sequence[Candidate], reason: Reason) -> list[Candidate]:
        """The first of these nodes that the budgets allow; for the others the budget is noted as the reason."""
        used: Counter[str] = Counter()
        allowed = []
        for candidate in ordered:
            name = candidate.pool.metadata.name
            if used[name] < self.budgets.left(candidate.pool, reason):
                used[name] += 1
                allowed.append(candidate)
            else:
                self.keep_within_budget([candidate], reason)
        return allowed

    def keep_within_budget(self, candidates: Sequence[Candidate], reason: Reason) -> None:
        """Note that a budget keeps these nodes. How many go beside them is known once all is decided."""
        self.blocked |= {candidate.name: self.budgets.over(candidate.pool, reason) for candidate in candidates}

    def keep_outdated(self, candidates: Iterable[Candidate]) -> None:
        """Note that the reasons why these expired or drifted nodes stay matter more than later ones."""
        self.outdated |= {item.name: self.blocked[item.name] for item in candidates if item.name in self.blocked}

    def use_budget(self, candidates: Sequence[Candidate]) -> None:
        """Note that these nodes go."""
        self.budgets.use(candidates)
        self.simulator.cordon([candidate.name for candidate in candidates])

    def ask_policies(self, commands: Sequence[DisruptionProposal]) -> tuple[dict[str, str], tuple[PolicyInput, ...]]:
        """Return nodes whose replacements a policy refuses, and the policies behind the commands that it admits."""
        refused: dict[str, str] = {}
        policies = self.policies
        for command in commands:
            why, after = self._admitted(policies, command.replacements)
            if why:
                refused |= dict.fromkeys(command.nodes, why)
            else:
                policies = after
        self.refused |= refused
        return refused, policies

    def _admitted(
        self, policies: Sequence[PolicyInput], claims: Sequence[PlannedClaim]
    ) -> tuple[str, tuple[PolicyInput, ...]]:
        """Return why these replacements may not be launched, or nothing, and the policies behind them."""
        after = []
        for policy in policies:
            why, changed = policy.admit(claims, self.snapshot.scheduling)
            if why:
                return why, ()
            after.append(changed)
        return "", tuple(after)

    def decision(self, commands: Sequence[DisruptionProposal], budgeted: Collection[str]) -> Decision:
        """The decision that these commands are; `budgeted` are their nodes that use up budgets."""
        gone = {node for command in commands for node in command.nodes}
        going = Counter(item.pool.metadata.name for item in self.candidate_nodes.candidates if item.name in budgeted)
        reasons = self.blocked | self.outdated | self.kept_by_policies | self.overdue | self.refused
        blocked = (
            Blocked(name, reason if isinstance(reason, str) else reason.words(going[reason.pool]))
            for name, reason in sorted(reasons.items())
            if name not in gone
        )
        overdue, kept = (tuple(sorted(some.keys() - gone)) for some in (self.overdue, self.kept_by_policies))
        rehearsed, awake = self.rehearsed or UNSET, kept or UNSET
        return Decision(tuple(commands), tuple(blocked), self.drifted, overdue, rehearsed, awake)

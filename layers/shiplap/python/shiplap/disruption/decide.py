"""The disruption decision: which nodes go now, what replaces them, and why every other node stays.

Methods in order: empty nodes, then those that policies remove, then expired and drifted ones, then consolidation, which
waits while the others act. All of them share the budgets of a NodePool.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from shiplap.disruption.budgets import allowance
from shiplap.disruption.candidates import (
    Candidate,
    CandidateNodes,
    disruption_cost,
    find_candidates,
    quiet_since,
    reschedulable_pods,
    unconsolidatable,
)
from shiplap.disruption.commands import Blocked, Decision, DisruptionProposal, Method, Reason
from shiplap.disruption.consolidation import BALANCED, Component, Consolidator, PoolTotals, components_of
from shiplap.disruption.current_prices import market_of
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.disruption.drift import drift_reason, expected_node_of
from shiplap.disruption.move_costs import MoveCosts, expected_lives_s
from shiplap.disruption.node_history import backoff_until
from shiplap.disruption.removing_policy import RemovesNodes
from shiplap.disruption.rescheduling import Simulator
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of, name_of_label
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.taints import is_disrupted
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.times import seconds_or_never
from shiplap.scheduling.model.planned_pods import is_initialized, reports_ready, running
from shiplap.scheduling.model.protected_pods import pdb_limits_of
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.model.snapshot import PolicyInput

_MOST_CLIMBS = 8
"""How many nodes of fallback tiers are tried in one decision."""

_CLIMB_TURN_S = 900.0
"""For so many seconds the same nodes of fallback tiers are tried, then the next ones, if there are more: several
decisions have to find a node, and no node that cannot climb may keep those behind it for ever."""

_MOST_SEARCHES = 3
"""How often consolidation is searched again without nodes whose replacements a policy refuses."""


class _OverBudget(msgspec.Struct, frozen=True):
    """A node of a NodePool stays because a budget, in words, lets no more go for a reason."""

    pool: str
    reason: Reason
    budget: str

    def words(self, going: int) -> str:
        """The reason beside so many nodes of the pool that go."""
        others = f"; {going} {'goes' if going == 1 else 'go'} now" if going else ""
        return f"no allowed disruptions for {self.reason}: {self.budget}{others}"


def decide(snapshot: DisruptionSnapshot) -> Decision:
    """Decide what to disrupt. A pure function of the snapshot.

    Raises:
        InvalidInput: as `planner.plan`.
    """
    return DisruptionDecider(snapshot).run()


class DisruptionDecider:
    """One decision. `run` makes it, once."""

    def __init__(self, snapshot: DisruptionSnapshot) -> None:
        self.snapshot = snapshot
        self.now = snapshot.scheduling.now
        self.market = market_of(snapshot.scheduling)
        pdb_limits = pdb_limits_of(snapshot.pod_disruption_budgets, snapshot.scheduling.view.pods)
        self.simulator = Simulator(snapshot.scheduling, self._unsettled_nodes())
        self.pdb_limits = pdb_limits
        self.candidate_nodes: CandidateNodes = find_candidates(
            snapshot, self.market, pdb_limits, self.simulator.nominated
        )
        self.blocked: dict[str, str | _OverBudget] = dict(self.candidate_nodes.excluded)
        self.policies = snapshot.scheduling.policies
        self.refused: dict[str, str] = {}
        self.totals, self.disrupting = _pool_counts(snapshot.scheduling.view.nodes, self.candidate_nodes, snapshot.busy)
        self.taken: Counter[str] = Counter()
        self.static_replacements: dict[str, set[str]] = {}
        self.receiving: set[str] = set()
        self.follows = True
        self.drifted: tuple[str, ...] = ()
        self.overdue: dict[str, str] = {}
        self.kept_by_policies: dict[str, str] = {}
        self.rehearsed: tuple[str, ...] = ()
        self.leaving: frozenset[str] = frozenset()

    def run(self) -> Decision:
        commands = self._scale_down()
        commands += self._emptiness(
            [candidate for candidate in self.candidate_nodes.candidates if not _in_commands(candidate, commands)]
        )
        left = [candidate for candidate in self.candidate_nodes.candidates if not _in_commands(candidate, commands)]
        commands += self._removed_by_policies(left)
        left = [candidate for candidate in left if candidate.name not in self.leaving]
        replaced = self._replace(left)
        commands += replaced
        left = [candidate for candidate in left if not _in_commands(candidate, replaced)]
        if not replaced:
            commands += self._consolidate(left) or self._climb_back(left)
        gone = {node for command in commands for node in command.nodes}
        # Later methods have other reasons, but none that matters more.
        self.blocked |= self.kept_by_policies | self.overdue
        self.blocked |= self.refused
        going = self._going_by_pool(commands)
        blocked = tuple(
            Blocked(name, reason if isinstance(reason, str) else reason.words(going[reason.pool]))
            for name, reason in sorted(self.blocked.items())
            if name not in gone
        )
        decision = Decision(tuple(commands), blocked, self.drifted, tuple(sorted(self.overdue.keys() - gone)))
        kept = tuple(sorted(self.kept_by_policies.keys() - gone))
        return replace(decision, rehearsed=self.rehearsed or UNSET, kept_awake=kept or UNSET)

    def _going_by_pool(self, commands: Sequence[DisruptionProposal]) -> Counter[str]:
        """Count the nodes of each NodePool that use up its budgets."""
        pools = {item.name: item.pool.metadata.name for item in self.candidate_nodes.candidates}
        counted = [command for command in commands if command.reason is not Reason.SCALED_DOWN]
        return Counter(pools[node] for command in counted for node in command.nodes)

    def _refused(self, commands: Sequence[DisruptionProposal]) -> tuple[dict[str, str], tuple[PolicyInput, ...]]:
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

    def _scale_down(self) -> list[DisruptionProposal]:
        """Surplus nodes of static pools. The user asked for fewer replicas, so no budget applies.

        While a node of the pool is being replaced, the pool has one node too many for a moment.
        """
        busy = {claim.plan.node_pool for claim in self.snapshot.scheduling.claims if claim.name in self.snapshot.busy}
        pools = [pool for pool in self.snapshot.scheduling.manifests.node_pools if pool.spec.replicas is not None]
        return [
            proposal
            for pool in sorted(pools, key=lambda item: item.metadata.name)
            if pool.metadata.name not in busy and not pool.metadata.deletion_timestamp
            for proposal in self._scale_down_pool(pool, pool.spec.replicas or 0)
        ]

    def _scale_down_pool(self, pool: NodePool, replicas: int) -> list[DisruptionProposal]:
        from shiplap.scheduling.packing.static_pools import (  # noqa: PLC0415 - few installs have static pools
            RemovableNode,
            in_order_of_removal,
            surplus_in_service,
        )

        view, name = self.snapshot.scheduling.view, pool.metadata.name
        candidates = {item.name: item for item in self.candidate_nodes.candidates if item.pool is pool}
        running_on = view.of_pods(running)
        staying = [
            node
            for node in view.nodes
            if node.metadata.labels.get(labels.NODE_POOL) == label_value_of(name)
            and node.metadata.name not in self.candidate_nodes.leaving
        ]
        removable = [RemovableNode(item.node, running_on.get(item.name, ())) for item in candidates.values()]
        ordered = in_order_of_removal(pool, removable, self.pdb_limits, self.now)
        going = [candidates[node.metadata.name] for node in ordered[: surplus_in_service(staying, replicas)]]
        self.simulator.cordon([item.name for item in going])
        why = f"NodePool {name} has more than {replicas} replicas"
        reason, method = Reason.SCALED_DOWN, Method.SCALE_DOWN
        return [
            DisruptionProposal(reason, method, (item.name,), (), (), item.price, len(item.pods), why) for item in going
        ]

    def _emptiness(self, candidates: Sequence[Candidate]) -> list[DisruptionProposal]:
        """All empty nodes that the budgets allow, in one command."""
        empty = [candidate for candidate in candidates if candidate.empty and self._may_consolidate(candidate)]
        allowed = self._within_budgets(sorted(empty, key=lambda item: (-item.price, item.name)), Reason.EMPTY)
        if not allowed:
            return []
        self.use_budget(allowed)
        names = tuple(sorted(candidate.name for candidate in allowed))
        savings = round(sum(candidate.price for candidate in allowed), 6)
        moved = sum(len(candidate.pods) for candidate in allowed)
        why = "no pod needs them" if not moved else "no pod that it costs anything to move needs them"
        return [DisruptionProposal(Reason.EMPTY, Method.EMPTINESS, names, (), (), savings, moved, why)]

    def _removed_by_policies(self, candidates: Sequence[Candidate]) -> list[DisruptionProposal]:
        """Nodes that policies remove, each policy among those that the one before it leaves alone."""
        commands: list[DisruptionProposal] = []
        for policy in self.snapshot.scheduling.policies:
            if isinstance(policy, RemovesNodes):
                left = [item for item in candidates if item.name not in self.leaving]
                removals = policy.removals(self, left)
                commands += removals.commands
                self.leaving |= removals.leaving
                self.kept_by_policies |= removals.kept
                self.rehearsed += removals.rehearsed
        return commands

    def _replace(self, candidates: Sequence[Candidate]) -> list[DisruptionProposal]:
        """Expired and drifted nodes, at any cost, each with its replacements."""
        reasons = self._outdated(candidates)
        self.drifted = tuple(sorted(name for name, (reason, _) in reasons.items() if reason is Reason.DRIFTED))
        movable = []
        for candidate in candidates:
            if candidate.name not in reasons:
                continue
            if candidate.protected and candidate.grace is None and not self._expires_anyway(reasons[candidate.name][0]):
                self.blocked[candidate.name] = self._protection(candidate, *reasons[candidate.name])
            elif why := self.backing_off(candidate):
                self.blocked[candidate.name] = why
            else:
                movable.append(candidate)
        movable.sort(key=lambda item: (not item.empty, item.history.drifted_at, item.born_at, item.name))
        proposals = []
        # Static pools first: their replacements are known, and then no moved pod goes to a node that is replaced.
        for static, reason in itertools.product((True, False), (Reason.EXPIRED, Reason.DRIFTED)):
            due = [item for item in movable if reasons[item.name][0] is reason]
            due = [item for item in due if (item.pool.spec.replicas is not None) is static]
            proposals += (
                self._replace_static(due, reason, reasons) if static else self._replace_dynamic(due, reason, reasons)
            )
        return proposals

    def _expires_anyway(self, reason: Reason) -> bool:
        return reason is Reason.EXPIRED and self.snapshot.settings.expire_protected

    def _protection(self, candidate: Candidate, reason: Reason, why: str) -> str:
        """Return what keeps a node that should be replaced, and note a node that has expired as overdue."""
        if reason is not Reason.EXPIRED:
            return candidate.protected
        self.overdue[candidate.name] = (
            f"has expired ({why}) and stays because {candidate.protected}: terminationGracePeriod of the NodePool, or "
            "disruption.expireProtected of the cluster, would end this"
        )
        return self.overdue[candidate.name]

    def _replace_static(
        self, due: Sequence[Candidate], reason: Reason, reasons: Mapping[str, tuple[Reason, str]]
    ) -> list[DisruptionProposal]:
        """One command for each of these nodes of static pools, each with a replacement of its pool."""
        number = Counter(item.pool.metadata.name for item in due)
        claims = {}
        for name in sorted(number):
            # Beside those that an earlier call asked for: limits hold for all of them.
            before = self.static_replacements.setdefault(name, set())
            pool = next(item.pool for item in due if item.pool.metadata.name == name)
            most = min(number[name], self.budget_left(pool, reason)[0])
            wanted = self.simulator.static_claims(name, len(before) + most) if most else ()
            claims[name] = [claim for claim in wanted if claim.name not in before]
        proposals = []
        for candidate in due:
            name = candidate.pool.metadata.name
            if not self.budget_left(candidate.pool, reason)[0]:
                self.keep_within_budget([candidate], reason)
                continue
            if not claims[name]:
                self.blocked[candidate.name] = f"NodePool {name} can launch no replacement now"
                continue
            claim = claims[name][0]
            method = Method.EXPIRATION if reason is Reason.EXPIRED else Method.STATIC_DRIFT
            savings = round(candidate.price - claim.launch.price, 6)
            why, moved = reasons[candidate.name][1], len(candidate.pods)
            proposal = DisruptionProposal(reason, method, (candidate.name,), (claim,), (), savings, moved, why)
            refused, left = self._refused([proposal])
            if refused:
                continue
            self.policies = left
            del claims[name][0]
            self.static_replacements[name].add(claim.name)
            self.use_budget([candidate])
            proposals.append(proposal)
        return proposals

    def _replace_dynamic(
        self, due: Sequence[Candidate], reason: Reason, reasons: Mapping[str, tuple[Reason, str]]
    ) -> list[DisruptionProposal]:
        """Commands for these nodes; a node whose pods have no place elsewhere stays and uses up no budget.

        Their needs add to those of an earlier call. Where that cannot be computed they wait for the next decision, as
        do nodes that will take moved pods.
        """
        waiting = [candidate for candidate in due if self.follows and candidate.name not in self.receiving]
        self.blocked |= {item.name: "pods of nodes that go now are moved first" for item in due if item not in waiting}
        while candidates := self._within_budgets(waiting, reason):
            relocation = self.simulator.without([candidate.name for candidate in candidates])
            if relocation.stuck:
                staying = relocation.stuck
            else:
                proposals = self._replacing(components_of(relocation, candidates), reason, reasons)
                staying, left = self._refused(proposals)
                if not staying:
                    self.policies = left
                    self.use_budget(candidates)
                    self.receiving.update(place for receiving in relocation.received.values() for place in receiving)
                    self.follows = self.simulator.follow(relocation)
                    return proposals
            self.blocked |= staying
            waiting = [candidate for candidate in waiting if candidate.name not in staying]
        return []

    def _replacing(
        self, parts: Sequence[Component], reason: Reason, reasons: Mapping[str, tuple[Reason, str]]
    ) -> list[DisruptionProposal]:
        return [
            DisruptionProposal(
                reason,
                Method.EXPIRATION if reason is Reason.EXPIRED else Method.DRIFT,
                tuple(candidate.name for candidate in part.nodes),
                part.claims,
                part.placements,
                round(part.paid - sum(claim.launch.price for claim in part.claims), 6),
                part.moved,
                "; ".join(sorted({reasons[candidate.name][1] for candidate in part.nodes})),
            )
            for part in parts
        ]

    def _outdated(self, candidates: Sequence[Candidate]) -> dict[str, tuple[Reason, str]]:
        """Nodes that have expired or drifted, and why."""
        expected = {}
        for pool in self.snapshot.scheduling.manifests.node_pools:
            mine = [item for item in candidates if item.pool is pool]
            if mine:
                expected[pool.metadata.name] = expected_node_of(pool, self.snapshot.scheduling, self.market, mine)
        reasons: dict[str, tuple[Reason, str]] = {}
        for candidate in candidates:
            name = candidate.pool.metadata.name
            expires_s = seconds_or_never(candidate.expire_after)
            if expires_s is not None and self.now - candidate.born_at > expires_s:
                reasons[candidate.name] = (Reason.EXPIRED, f"older than {candidate.expire_after}")
            elif name in self.snapshot.unsettled_pools:
                continue
            elif (
                why := drift_reason(candidate, self.market, expected[name], self.now) or candidate.history.said_to_drift
            ):
                reasons[candidate.name] = (Reason.DRIFTED, why)
        return reasons

    def _consolidate(self, candidates: Sequence[Candidate]) -> list[DisruptionProposal]:
        eligible = [item for item in candidates if not item.empty and self._may_consolidate(item)]
        allowed = {}
        for pool in self.snapshot.scheduling.manifests.node_pools:
            allowed[pool.metadata.name] = self.budget_left(pool, Reason.UNDERUTILIZED)[0]
        totals = self._pool_totals()
        settings = self.snapshot.settings
        costs = MoveCosts(settings, expected_lives_s(self.snapshot.scheduling.claims, self.now), self.now)
        proposals: Sequence[DisruptionProposal] = ()
        affordable = eligible
        for _ in range(_MOST_SEARCHES):
            found = Consolidator(self.simulator, self.market, totals, settings, costs, self.snapshot.policies).search(
                affordable, allowed
            )
            refused, left = self._refused(found.proposals)
            self.blocked.update(found.refused)
            proposals = [item for item in found.proposals if not refused.keys() & item.nodes]
            if not refused:
                break
            affordable = [item for item in affordable if item.name not in refused]
        self.policies = left
        taken = {node for proposal in proposals for node in proposal.nodes}
        going = Counter(item.pool.metadata.name for item in eligible if item.name in taken)
        for candidate in eligible:
            if candidate.name in taken or candidate.name in self.blocked:
                continue
            if going[candidate.pool.metadata.name] < allowed[candidate.pool.metadata.name]:
                self.blocked[candidate.name] = "removing it now saves less than what is done instead"
            else:
                self.keep_within_budget([candidate], Reason.UNDERUTILIZED)
        return list(proposals)

    def _climb_back(self, candidates: Sequence[Candidate]) -> list[DisruptionProposal]:
        """The first node of a fallback tier whose pods would all get a better tier of its pool now.

        It is replaced like a drifted node. One at a time, as little capacity may have come back.
        """
        after_s = self.snapshot.settings.climb_back_s
        fallen = [
            candidate
            for candidate in candidates
            if candidate.claim.plan.tier > 0 and not candidate.empty and self.now - candidate.born_at >= after_s
            if not self._unconsolidatable(candidate)
            if not candidate.protected
            and not self.backing_off(candidate)
            and self.budget_left(candidate.pool, Reason.DRIFTED)[0] > 0
        ]
        ordered = sorted(fallen, key=lambda item: (-item.claim.plan.tier, item.born_at, item.name))
        for item in self._whose_turn_it_is(ordered):
            relocation = self.simulator.without([item.name])
            claims = relocation.claims
            better = all(
                claim.node_pool == item.claim.plan.node_pool and claim.tier < item.claim.plan.tier for claim in claims
            )
            if not relocation.stuck and claims and better:
                (part,) = components_of(relocation, [item])
                savings = round(part.paid - sum(claim.launch.price for claim in claims), 6)
                best, now = min(claim.tier for claim in claims), item.claim.plan.tier
                why = f"tier {best} of NodePool {item.pool.metadata.name} has capacity again, the node is of tier {now}"
                reason, method, names = Reason.DRIFTED, Method.CLIMB_BACK, (item.name,)
                places, moved = part.placements, part.moved
                proposal = DisruptionProposal(reason, method, names, claims, places, savings, moved, why)
                if not self._refused([proposal])[0]:
                    return [proposal]
        return []

    def _whose_turn_it_is(self, fallen: Sequence[Candidate]) -> Sequence[Candidate]:
        """As many of the nodes as are tried in one decision; of more than that, others every quarter of an hour."""
        groups = max(-(-len(fallen) // _MOST_CLIMBS), 1)
        start = int(self.now // _CLIMB_TURN_S) % groups * _MOST_CLIMBS
        return fallen[start : start + _MOST_CLIMBS]

    def backing_off(self, candidate: Candidate) -> str:
        """Return why a node that would need a replacement is not tried again yet, or ""."""
        until = backoff_until(candidate.history)
        if self.now >= until or candidate.empty:
            return ""
        ago_s = self.now - candidate.history.undone_at
        return f"its last command was given up {ago_s:.0f} s ago: not before {rfc3339(until)}"

    def _may_consolidate(self, candidate: Candidate) -> bool:
        """True if the pool's policy lets a node be consolidated; if not, note the reason."""
        reason = self._unconsolidatable(candidate) or candidate.protected
        reason = reason or self.backing_off(candidate)
        if reason:
            self.blocked[candidate.name] = reason
        return not reason

    def _unconsolidatable(self, candidate: Candidate) -> str:
        if candidate.name in self.simulator.buffered:
            return "keeps room for a CapacityBuffer"
        return unconsolidatable(candidate, self.market, self.now, self.snapshot.settings.settle_s)

    def _unsettled_nodes(self) -> frozenset[str]:
        """Nodes that must not take moved pods: cordoned, not initialised, or with pods that have just changed.

        Hardly a pod tolerates the taint of a cordoned node, and one that does would have to move again. So room there
        is no room: counted, it would let replacements seem cheaper than they can be.
        """
        snapshot = self.snapshot
        pools = {label_value_of(pool.metadata.name): pool for pool in snapshot.scheduling.manifests.node_pools}
        histories = {history.node: history for history in snapshot.histories}
        fresh = set()
        for node in snapshot.scheduling.view.nodes:
            pool = pools.get(node.metadata.labels.get(labels.NODE_POOL, ""))
            if is_disrupted(node.spec.taints):
                fresh.add(node.metadata.name)
            if pool is None:
                continue
            if not is_initialized(node):
                fresh.add(node.metadata.name)
            after_s = seconds_or_never(pool.spec.disruption.consolidate_after)
            history = histories.get(node.metadata.name)
            if after_s and history is not None and self.now - quiet_since(history) < after_s:
                fresh.add(node.metadata.name)
        return frozenset(fresh)

    def budget_left(self, pool: NodePool, reason: Reason) -> tuple[int, str]:
        """Return how many more nodes of a pool may go, and which budget limits them."""
        name, label = pool.metadata.name, label_value_of(pool.metadata.name)
        limit = allowance(pool, reason, self.totals[label], self.disrupting[label], self.now)
        return max(limit.nodes - self.taken[name], 0), limit.blocking

    def _within_budgets(self, ordered: Sequence[Candidate], reason: Reason) -> list[Candidate]:
        """The first of these nodes that the budgets allow; for the others the budget is noted as the reason."""
        used: Counter[str] = Counter()
        allowed = []
        for candidate in ordered:
            name = candidate.pool.metadata.name
            if used[name] < self.budget_left(candidate.pool, reason)[0]:
                used[name] += 1
                allowed.append(candidate)
            else:
                self.keep_within_budget([candidate], reason)
        return allowed

    def keep_within_budget(self, candidates: Sequence[Candidate], reason: Reason) -> None:
        """Note that a budget keeps these nodes. How many go beside them is known once all is decided."""
        for candidate in candidates:
            blocking = self.budget_left(candidate.pool, reason)[1]
            self.blocked[candidate.name] = _OverBudget(candidate.pool.metadata.name, reason, blocking)

    def use_budget(self, candidates: Sequence[Candidate]) -> None:
        """Note that these nodes go."""
        self.taken.update(candidate.pool.metadata.name for candidate in candidates)
        self.simulator.cordon([candidate.name for candidate in candidates])

    def cordon(self, nodes: Sequence[str]) -> None:
        """Let no moved pod go to these nodes."""
        self.simulator.cordon(nodes)

    def _pool_totals(self) -> dict[str, PoolTotals]:
        """Of the Balanced pools: what all their nodes cost and what disrupting all of them would, candidates or not."""
        view = self.snapshot.scheduling.view
        pools = self.snapshot.scheduling.manifests.node_pools
        totals = {
            item.metadata.name: PoolTotals(0.0, 0.0)
            for item in pools
            if item.spec.disruption.consolidation_policy == BALANCED
        }
        if not totals:
            return totals
        held = view.of_pods(reschedulable_pods)
        for node in view.nodes:
            pool = name_of_label(node.metadata.labels.get(labels.NODE_POOL, ""), totals)
            if pool in totals:
                price, cost = self.market.price_of(pool, node), disruption_cost(held.get(node.metadata.name, ()))
                totals[pool] = PoolTotals(totals[pool].price + price, totals[pool].cost + cost)
        return totals


def _in_commands(candidate: Candidate, commands: Sequence[DisruptionProposal]) -> bool:
    return any(candidate.name in command.nodes for command in commands)


def _pool_counts(
    nodes: Sequence[Node], candidate_nodes: CandidateNodes, busy: frozenset[str]
) -> tuple[Counter[str], Counter[str]]:
    """Initialised nodes by the label of their NodePool, and how many of them are on their way out or not Ready.

    A node whose instance is being terminated, or is gone, neither counts nor uses up a budget.
    """
    total: Counter[str] = Counter()
    disrupting: Counter[str] = Counter()
    for node in nodes:
        pool = node.metadata.labels.get(labels.NODE_POOL, "")
        if not pool or not is_initialized(node) or node.metadata.name in candidate_nodes.ending:
            continue
        total[pool] += 1
        going = node.metadata.name in candidate_nodes.leaving or node.metadata.name in busy
        if going or not reports_ready(node):
            disrupting[pool] += 1
    return total, disrupting

"""Terminate first: an outdated node goes before its replacement is launched, where there is no room for both.

There is none in a static NodePool at `limits.nodes`, and in a capacity reservation or block that is full. Pods of such
a node may have no place until its replacement has joined. So a node goes only if a plan without it finds a place for
all of them, if that gap is as short as the NodePool allows, and one node of a NodePool at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import DisruptionProposal, Method, PlacementGap, Reason
from shiplap.disruption.decision_progress import DecisionProgress
from shiplap.disruption.methods.method import DisruptionMethod
from shiplap.disruption.methods.outdated_nodes import OutdatedNode, find_outdated
from shiplap.disruption.methods.without_node import homeless_without, is_reserved
from shiplap.kubernetes.pod_disruption_budgets import is_unhealthy
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import IN_FLIGHT
from shiplap.manifests.shiplap_annotations import TERMINATE_FIRST, terminate_first_s
from shiplap.manifests.times import seconds

FREE_S = 180.0
"""The time from the request to end an instance until a launch may take its room, in seconds: EC2 ends it and counts the
reservation anew, its Node is deleted, and the next minute begins."""

JOIN_S = 120.0
"""The time that a node needs to join where no node of the NodePool has shown it, in seconds."""

_JOINED_WITHIN_S = 1800.0
"""Nodes that seem to have taken longer were found, not launched."""

_GRACE_S = 30.0
"""The grace period of a pod that names none, in seconds."""

_SETTLED_S = 3600.0
"""A pod that has waited for longer, in seconds, does not wait for a node that went a moment ago."""

_MOST_TRIES = 8
"""How many nodes are planned without in one decision: each costs two plans."""


class TerminateFirst(DisruptionMethod):
    """Expired nodes go before drifted ones."""

    def commands(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> Sequence[DisruptionProposal]:
        """At most one command for each NodePool that allows a gap."""
        pools = progress.snapshot.scheduling.manifests.node_pools
        allowed = {pool.metadata.name: _most_gap_s(pool, progress) for pool in pools}
        allowing = {name for name, most_s in allowed.items() if most_s}
        mine = [item for item in candidates if item.pool.metadata.name in allowing]
        due = find_outdated(progress, mine) if mine else []
        proposals: list[DisruptionProposal] = []
        tries = 0
        for item in sorted(due, key=lambda item: item.reason is not Reason.EXPIRED):
            most_s = allowed[item.node.pool.metadata.name]
            if not _lacks_room(progress, item.node.pool, item.node):
                continue
            if not progress.budgets.left(item.node.pool, item.reason):
                progress.keep_within_budget([item.node], item.reason)
                continue
            why_not = most_s if isinstance(most_s, str) else _turn_of_others(progress, item.node.pool)
            if not why_not and tries >= _MOST_TRIES:
                why_not = f"{_MOST_TRIES} other nodes were tried in this decision"
            if why_not or isinstance(most_s, str):
                progress.blocked[item.node.name] = f"{_no_room(item.node)}: {why_not}"
                continue
            tries += 1
            found = _without(progress, item, most_s)
            if isinstance(found, DisruptionProposal):
                proposals.append(found)
                progress.use_budget([item.node])
            elif found:
                progress.blocked[item.node.name] = f"{_no_room(item.node)}: {found}"
        progress.keep_outdated(item.node for item in due)
        return proposals


def _most_gap_s(pool: NodePool, progress: DecisionProgress) -> float | str:
    """Return how long pods may have no place, 0 if they must have one, or why that cannot be read."""
    try:
        return terminate_first_s(pool, progress.snapshot.settings.terminate_first_s)
    except ValueError as error:
        return f"{TERMINATE_FIRST}: {error}"


def _no_room(node: Candidate) -> str:
    where = "its reservation" if is_reserved(node) else f"NodePool {node.pool.metadata.name}"
    return f"{where} has no room for a replacement, and it does not go first"


def _lacks_room(progress: DecisionProgress, pool: NodePool, node: Candidate) -> bool:
    """True if no replacement can be launched while the node is there."""
    if pool.spec.replicas is None:
        return is_reserved(node)
    return pool.metadata.name not in progress.simulator.lacking and not progress.simulator.static_claims(
        pool.metadata.name, 1
    )


def _turn_of_others(progress: DecisionProgress, pool: NodePool) -> str:
    """Return what has to be over before a node of this NodePool goes, or nothing."""
    name, scheduling = pool.metadata.name, progress.snapshot.scheduling
    if progress.budgets.going(pool):
        return "one node at a time, and another one is leaving or not Ready"
    if any(claim.plan.node_pool == name and claim.state in IN_FLIGHT for claim in scheduling.claims):
        return "one node at a time, and another one is on its way"
    if not progress.simulator.follows:
        return "pods of nodes that go now are moved first"
    waiting = {pod.uid for pod in progress.simulator.homeless}
    for pod in sorted(scheduling.view.unbound, key=lambda item: item.key):
        born = pod.metadata.creation_timestamp
        if pod.metadata.uid in waiting and not progress.clock.has_reached((epoch(born) if born else 0.0) + _SETTLED_S):
            return f"pod {pod.key} has no place either"
    return ""


def _without(progress: DecisionProgress, item: OutdatedNode, most_s: float) -> DisruptionProposal | str:
    """Return the command for a node, why it stays, or nothing if it can be replaced before it goes."""
    node = item.node
    if node.name in progress.simulator.receiving:
        return "it takes pods of nodes that go now"
    relocation = progress.simulator.without([node.name])
    if node.pool.spec.replicas is None and not relocation.stuck:
        return ""
    housed = sum(map(len, relocation.received.get(node.name, {}).values()))
    gap = _gap(progress, node, len(node.pods) - housed, most_s)
    if isinstance(gap, str):
        return gap
    if why := homeless_without(progress.snapshot.scheduling, node):
        return f"without it, too, {why}"
    detail = f"{item.why}; it goes first, as there is no room for its replacement: {_words(gap)}"
    return DisruptionProposal(
        item.reason, Method.TERMINATE_FIRST, (node.name,), moved=len(node.pods), detail=detail, gap=gap
    )


def _gap(progress: DecisionProgress, node: Candidate, homeless: int, most_s: float) -> PlacementGap | str:
    """Return the gap that these pods of a node would have, or why it is too long."""
    grace_s = seconds(node.grace) if node.grace is not None else None
    slow = _slow_pods(progress, node) if homeless else ""
    if slow and grace_s is None:
        return f"{slow}, and there is no terminationGracePeriod that would end this"
    longest = max((pod.spec.termination_grace_period_seconds or _GRACE_S for pod in node.pods), default=0.0)
    empty_s = float(longest if grace_s is None else grace_s if slow else min(longest, grace_s))
    gap = PlacementGap(homeless, empty_s, FREE_S, _joined_within_s(progress, node.pool), most_s)
    if homeless and gap.expected_s > most_s:
        return f"{_words(gap)}, and {TERMINATE_FIRST} allows {most_s:.0f} s"
    return gap


def _slow_pods(progress: DecisionProgress, node: Candidate) -> str:
    """Return which pods might not leave until others have a new place, or nothing."""
    if node.protected:
        return node.protected
    limits = progress.pdb_limits
    leaving = Counter(
        budget.key for pod in node.pods if not is_unhealthy(pod) for budget in limits.by_pod.get(pod.key, ())
    )
    for key, number in sorted(leaving.items()):
        if number > limits.counts[key].disruptions_allowed:
            return f"pdb {key} lets {limits.counts[key].disruptions_allowed} of its {number} pods leave at a time"
    return ""


def _joined_within_s(progress: DecisionProgress, pool: NodePool) -> float:
    """Return how long nodes of a NodePool took from their plan to being initialized, in the median."""
    histories = {history.node: history.initialized_at for history in progress.snapshot.histories}
    took = [
        took_s
        for claim in progress.snapshot.scheduling.claims
        if claim.plan.node_pool == pool.metadata.name and claim.created_at
        if 0 < (took_s := histories.get(claim.node_name, 0.0) - claim.created_at) <= _JOINED_WITHIN_S
    ]
    return round(median(took)) if took else JOIN_S


def _words(gap: PlacementGap) -> str:
    if not gap.pods:
        return "all its pods have a place meanwhile"
    number = "1 pod has" if gap.pods == 1 else f"{gap.pods} pods have"
    parts = f"{gap.empty_s:.0f} s to empty it, {gap.free_s:.0f} s until its room is free, {gap.join_s:.0f} s to join"
    return f"{number} no place for about {gap.expected_s:.0f} s ({parts})"

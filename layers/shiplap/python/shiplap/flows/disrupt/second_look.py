"""Lists the pods of nodes that are to be disrupted once more: before a command begins, and before it removes nodes.

A decision may have read a node's pods from the compact snapshot, which can be out of date. No protected pod may be
moved because of that, nor one that the decision did not count. Until a node is cordoned, new pods are bound to it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from shiplap.disruption.candidates import objection
from shiplap.disruption.commands import EACH_BY_ITSELF, DisruptionProposal, Reason
from shiplap.flows.claim_updates import grace_of
from shiplap.flows.context import FlowContext
from shiplap.flows.policies.active import NO_POLICIES, ActivePolicies
from shiplap.kubernetes.compact_pods import lean_pod
from shiplap.kubernetes.objects import Node, Pod
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)


def still_valid(
    cluster: str, proposals: Sequence[DisruptionProposal], seen: Iterable[Pod], context: FlowContext
) -> tuple[DisruptionProposal, ...]:
    """The proposals whose nodes hold no pod that the decision did not see just so.

    Empty and sleeping nodes go each for itself; of any other proposal the nodes go together or not at all. A pod that
    has gone meanwhile changes nothing, nor does how a pod is doing.

    Args:
        cluster: its name, for the log.
        proposals: about to be begun.
        seen: the pods of the cluster as the decision saw them.
        context: cluster and meter are used.

    Raises:
        ClusterError: the pods of a node cannot be listed; nothing has been begun.
    """
    if not proposals:
        return ()
    known = {pod.metadata.uid: pod for pod in seen}
    kept = []
    for proposal in proposals:
        changed = {node for node in proposal.nodes if not _as_seen(context.cluster.pods_on(node), known)}
        if changed:
            context.meter.count("ProposalsOutdated")
            about = {"cluster": cluster, "nodes": sorted(changed), "reason": str(proposal.reason)}
            _LOG.info("pods came meanwhile: proposed anew or not at all", extra=about)
        staying = tuple(node for node in proposal.nodes if node not in changed)
        if not changed:
            kept.append(proposal)
        elif staying and proposal.reason in EACH_BY_ITSELF:
            kept.append(replace(proposal, nodes=staying))
    return tuple(kept)


def objections(
    settings: ClusterSettings,
    reason: Reason,
    going: Sequence[NodeClaim],
    nodes: Mapping[str, Node],
    context: FlowContext,
    policies: ActivePolicies = NO_POLICIES,
) -> dict[str, str]:
    """By the names of claims, why their nodes must not be removed after all.

    Args:
        settings: the cluster.
        reason: of the command.
        going: claims whose nodes are cordoned and would be emptied now.
        nodes: by name, freshly read.
        context: cluster and meter are used.
        policies: of the cluster.

    Raises:
        ClusterError: the pods of a node cannot be listed; nothing has been removed.
    """
    reasons = {}
    for claim in going:
        node = nodes.get(claim.node_name)
        if node is None:
            continue
        grace = grace_of(claim, settings)
        goes_anyway = reason is Reason.EXPIRED and settings.disruption.expire_protected
        pods = context.cluster.pods_on(claim.node_name)
        why = objection(reason, node, pods, context.clock.now(), has_deadline=grace is not None or goes_anyway)
        why = why or policies.objection(reason, claim, pods)
        if why:
            reasons[claim.name] = why
            context.meter.count("NodesSpared")
            about = {"cluster": settings.name, "claim": claim.name, "node": claim.node_name, "reason": str(reason)}
            _LOG.warning("node is not removed after all: %s", why, extra=about)
    return reasons


def _as_seen(pods: Iterable[Pod], known: dict[str, Pod]) -> bool:
    return all(_same(pod, known.get(pod.metadata.uid)) for pod in pods)


def _same(pod: Pod, seen: Pod | None) -> bool:
    if seen is None:
        return False
    one, other = lean_pod(pod), lean_pod(seen)
    return one.metadata == other.metadata and one.spec == other.spec

"""The last look before a disruption is begun: at the pods of the nodes that are to go, listed fresh.

Decisions may have seen a node's pods as they were a moment ago (`standing`). What they promise about pods, that none
is moved which is protected or was not reckoned with, must not rest on that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from shiplap.disruption.commands import Proposal, Reason
from shiplap.kubernetes.lean import lean
from shiplap.kubernetes.objects import Pod
from shiplap.provisioning.world import World

_LOG = logging.getLogger(__name__)


def still_hold(cluster: str, proposals: Sequence[Proposal], seen: Iterable[Pod], world: World) -> tuple[Proposal, ...]:
    """The proposals whose nodes hold no pod that the decision did not see just so.

    Empty nodes go each for itself; of any other proposal the nodes go together or not at all. A pod that has gone
    meanwhile changes nothing, nor does how a pod is doing.

    Args:
        cluster: its name, for the log.
        proposals: about to be begun.
        seen: the pods of the cluster as the decision saw them.
        world: cluster and meter are used.

    Raises:
        ClusterError: the pods of a node cannot be listed; nothing has been begun.
    """
    if not proposals:
        return ()
    known = {pod.metadata.uid: pod for pod in seen}
    kept = []
    for proposal in proposals:
        changed = {node for node in proposal.nodes if not _as_seen(world.cluster.pods_on(node), known)}
        if changed:
            world.meter.count("ProposalsOutdated")
            about = {"cluster": cluster, "nodes": sorted(changed), "reason": str(proposal.reason)}
            _LOG.info("pods came meanwhile: proposed anew or not at all", extra=about)
        staying = tuple(node for node in proposal.nodes if node not in changed)
        if not changed:
            kept.append(proposal)
        elif staying and proposal.reason is Reason.EMPTY:
            kept.append(replace(proposal, nodes=staying))
    return tuple(kept)


def _as_seen(pods: Iterable[Pod], known: dict[str, Pod]) -> bool:
    return all(_same(pod, known.get(pod.metadata.uid)) for pod in pods)


def _same(pod: Pod, seen: Pod | None) -> bool:
    if seen is None:
        return False
    one, other = lean(pod), lean(seen)
    return one.metadata == other.metadata and one.spec == other.spec

"""Looks at clusters that share an invocation: whether a sweep, or a minute of disruption, could find anything to do.

A look changes nothing and costs little: clusters at rest, which are most of them most of the time, cost a request or
two. It asks the API server last or alone, so that one that hangs is found out.
"""

from __future__ import annotations

from shiplap.flows.context import FlowContext
from shiplap.settings import ClusterSettings

FULL_SWEEP_S = 300.0
"""So often a cluster at rest is swept all the same, in seconds: instances without a claim are only found by EC2."""


def check_answers(context: FlowContext) -> bool:
    """True. Raises ClusterError where the API server does not answer the smallest list."""
    context.cluster.pending_pods(most=1)
    return True


class IdleClusters:
    """Clusters that had neither claims nor commands at some epoch. Both are only added together with a step of it, so
    they have none as long as it stands: a request instead of nine. What others put into the table is found after
    FULL_SWEEP_S.
    """

    def __init__(self) -> None:
        self._since: dict[str, tuple[int, float]] = {}

    def holds(self, cluster: str, context: FlowContext) -> bool:
        """Whether there are neither claims nor commands. Raises StoreError."""
        epoch = context.state.epoch(cluster)  # before the others: what is added meanwhile moves it
        known_epoch, at = self._since.get(cluster, (-1, 0.0))
        if known_epoch == epoch and context.clock.now() < at + FULL_SWEEP_S:
            return True
        self._since.pop(cluster, None)
        if context.state.claims(cluster) or context.state.commands(cluster):
            return False
        self._since[cluster] = (epoch, context.clock.now())
        return True


def needs_sweep(settings: ClusterSettings, context: FlowContext, at_rest: IdleClusters) -> bool:
    """Whether pods wait, nodes are there or on their way, or are wanted without pods.

    Raises:
        ClusterError, StoreError: the cluster or the state cannot be read.
    """
    from shiplap.scheduling.supply.templates import may_launch_without_pods  # noqa: PLC0415 - only who plans needs numpy

    if settings.paused:
        return True
    waiting = context.cluster.pending_pods(most=1)
    return bool(waiting) or may_launch_without_pods(settings.manifests) or not at_rest.holds(settings.name, context)


def needs_disruption(settings: ClusterSettings, context: FlowContext, at_rest: IdleClusters) -> bool:
    """Whether there are nodes of ours, or commands under way. A cluster without is not asked.

    Raises:
        ClusterError, StoreError: the cluster or the state cannot be read.
    """
    return not at_rest.holds(settings.name, context) and check_answers(context)

"""Looks at clusters that share an invocation: whether a sweep, or a minute of disruption, could find anything to do.

A look changes nothing and costs little: clusters at rest, which are most of them most of the time, cost a request or
two. It asks the API server last or alone, so that one that hangs is found out.
"""

from __future__ import annotations

from shiplap.provisioning.world import World
from shiplap.settings import ClusterSettings

FULL_SWEEP_S = 300.0
"""So often a cluster at rest is swept all the same, in seconds: instances without a claim are only found by EC2."""


def answers(world: World) -> bool:
    """True. Raises ClusterError where the API server does not answer the smallest list."""
    world.cluster.pending_pods(most=1)
    return True


def needs_sweep(settings: ClusterSettings, world: World) -> bool:
    """Whether pods wait, nodes are there or on their way, or are wanted without pods.

    Raises:
        ClusterError, StoreError: the cluster or the state cannot be read.
    """
    from shiplap.scheduling.lanes import wants_nodes_anyway  # noqa: PLC0415 - only who plans needs numpy

    if settings.paused:
        return True
    waiting = world.cluster.pending_pods(most=1)
    return bool(waiting or world.state.claims(settings.name) or wants_nodes_anyway(settings.manifests))


def needs_disruption(settings: ClusterSettings, world: World) -> bool:
    """Whether there are nodes of ours, or commands under way. A cluster without is not asked.

    Raises:
        ClusterError, StoreError: the cluster or the state cannot be read.
    """
    if not world.state.claims(settings.name) and not world.state.commands(settings.name):
        return False
    return answers(world)

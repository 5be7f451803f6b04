"""Watches clusters for a while and tells the bus what that shows; while it cannot, the sweep does without."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from shiplap.cluster.snapshot_keeper import PodMemory
from shiplap.errors import UnknownCluster
from shiplap.flows.function_install import FunctionInstall, InvocationContext
from shiplap.flows.watch.watch import most_pods, watch_all

_LOG = logging.getLogger(__name__)

LONGEST_S = 14 * 60
"""One invocation watches no longer, in seconds: the next one has begun by then."""

RESERVE_S = 5.0
"""Time left for the end of the invocation, in seconds."""


def handle(event: Mapping[str, Any], context: InvocationContext, install: FunctionInstall) -> dict[str, int]:
    """`{"clusters": [names]}` or `{"cluster": name}` in, the number of events told out."""
    names = event.get("clusters", [event.get("cluster", "")])
    lasts_s = min(LONGEST_S, context.get_remaining_time_in_millis() / 1000 - RESERVE_S)
    with install.reporting(context.aws_request_id):
        contexts = {}
        for name in map(str, names):
            try:
                contexts[name] = install.context(install.served.cluster(name))
            except UnknownCluster as error:
                install.meter.count("UnknownClusters")
                _LOG.warning("dropped: %s", error)
        pods = PodMemory(most_pods(install.memory_mib, len(contexts)))
        live = [name for name in contexts if install.served.cluster(name).live_manifests]
        buffered = [name for name in contexts if install.served.cluster(name).manifests.capacity_buffers]
        deadline = install.clock.now() + lasts_s
        return {
            "told": watch_all(contexts, deadline=deadline, pause=install.pause, room=pods, live=live, buffered=buffered)
        }

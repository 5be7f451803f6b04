"""Watches clusters for a while and tells the bus what that shows; while it cannot, the sweep does without."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from shiplap.cluster.snapshot_keeper import PodMemory
from shiplap.errors import UnknownCluster
from shiplap.flows.install import Install
from shiplap.flows.watch.watch import most_pods, watch_all

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

LONGEST_S = 14 * 60
"""One invocation watches no longer, in seconds: the next one has begun by then."""

RESERVE_S = 5.0
"""Time left for the end of the invocation, in seconds."""


@cache
def install() -> Install:
    """The install as this function uses it, made at the first invocation and kept."""
    return Install.of_environment("watch")


def memory_mib() -> int:
    """The function's memory as Lambda tells it; much where nothing does."""
    return int(os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "4096"))


def handle(event: dict[str, Any], lambda_context: LambdaContext) -> dict[str, int]:
    """Lambda's entry point: `{"clusters": [names]}` or `{"cluster": name}` in, the number of events told out."""
    own = install()
    names = event.get("clusters", [event.get("cluster", "")])
    lasts_s = min(LONGEST_S, lambda_context.get_remaining_time_in_millis() / 1000 - RESERVE_S)
    with own.reporting(lambda_context.aws_request_id):
        contexts = {}
        for name in map(str, names):
            try:
                contexts[name] = own.context(own.served.cluster(name))
            except UnknownCluster as error:
                own.meter.count("UnknownClusters")
                own.logger.warning("dropped: %s", error)
        deadline, room = own.clock.now() + lasts_s, PodMemory(most_pods(memory_mib(), len(contexts)))
        return {"told": watch_all(contexts, deadline=deadline, pause=time.sleep, room=room)}

"""Every minute, per cluster: commands take their next step, and what has been seen twice is begun."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

from shiplap.disruption.standstill import LastDecision
from shiplap.errors import UnknownCluster
from shiplap.provisioning.disrupt import disrupt
from shiplap.provisioning.wiring import Install

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@cache
def install() -> Install:
    """What this function has, made at the first invocation and kept."""
    return Install.of_environment("disrupt")


_LAST: defaultdict[str, LastDecision] = defaultdict(LastDecision)
"""By cluster, while the function is warm."""


def handle(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Lambda's entry point: `{"cluster": name}` in, how many commands were begun, done and undone out."""
    own = install()
    with own.reporting(context.aws_request_id):
        try:
            settings = own.settings.cluster(str(event.get("cluster", "")))
        except UnknownCluster as error:
            own.meter.count("UnknownClusters")
            own.logger.warning("dropped: %s", error)
            return {"begun": 0, "done": 0, "undone": 0}
        report = disrupt(settings, own.world(settings), own.memory, decision_of=_LAST[settings.name])
        return {"begun": len(report.begun), "done": len(report.done), "undone": len(report.undone)}

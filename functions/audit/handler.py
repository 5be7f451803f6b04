"""Reads what CloudWatch Logs passes on of a cluster's audit log and tells the bus which pods wait for a node."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from shiplap.errors import InvalidMessage, UnknownCluster
from shiplap.flows.install import Install
from shiplap.flows.watch.audit import RecentPods, audit, read_delivery

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@cache
def install() -> Install:
    """The install as this function uses it, made at the first invocation and kept."""
    return Install.of_environment("audit")


@cache
def recent() -> RecentPods:
    """What this process has told lately."""
    return RecentPods()


def handle(event: dict[str, Any], lambda_context: LambdaContext) -> dict[str, int]:
    """Lambda's entry point: a delivery of CloudWatch Logs in, the number of pods told out.

    What cannot be read would come again as it is, so it is counted and dropped; what the bus refuses is raised.
    """
    own = install()
    with own.reporting(lambda_context.aws_request_id):
        try:
            delivery = read_delivery(event)
            if not delivery.lines:
                return {"told": 0}
            cluster = own.settings.cluster(delivery.cluster)
            return {"told": audit(delivery, cluster.claim_rules, own.context(cluster), recent())}
        except InvalidMessage as error:
            own.meter.count("MalformedMessages")
            own.logger.error("malformed message: %s", error)
        except UnknownCluster as error:
            own.meter.count("UnknownClusters")
            own.logger.warning("dropped: %s", error)
        return {"told": 0}

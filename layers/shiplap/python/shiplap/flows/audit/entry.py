"""Reads what CloudWatch Logs passes on of a cluster's audit log and tells the bus which pods wait for a node."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from shiplap.errors import InvalidMessage, UnknownCluster
from shiplap.flows.audit.audit import RecentPods, audit, read_delivery
from shiplap.flows.function_install import FunctionInstall, InvocationContext

_LOG = logging.getLogger(__name__)


def handle(event: Mapping[str, Any], context: InvocationContext, install: FunctionInstall) -> dict[str, int]:
    """A delivery of CloudWatch Logs in, the number of pods told out.

    What cannot be read would come again as it is, so it is counted and dropped; what the bus refuses is raised.
    """
    with install.reporting(context.aws_request_id):
        try:
            delivery = read_delivery(event)
            if not delivery.lines:
                return {"told": 0}
            cluster = install.settings.cluster(delivery.cluster)
            recent = install.warm.of(RecentPods)
            return {"told": audit(delivery, cluster.claim_rules, install.context(cluster), recent)}
        except InvalidMessage as error:
            install.meter.count("MalformedMessages")
            _LOG.error("malformed message: %s", error)
        except UnknownCluster as error:
            install.meter.count("UnknownClusters")
            _LOG.warning("dropped: %s", error)
        return {"told": 0}

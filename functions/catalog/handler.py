"""What EC2 sells and for how much, asked anew every hour, once per region that has a cluster."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from shiplap.provisioning.refresh import refresh
from shiplap.provisioning.wiring import Install

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@cache
def install() -> Install:
    """What this function has, made at the first invocation and kept."""
    return Install.of_environment("catalog")


def handle(_event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Lambda's entry point: whatever starts it, it returns how many types each region has."""
    own = install()
    with own.reporting(context.aws_request_id):
        regions = sorted({cluster.region for cluster in own.settings.clusters})
        return {
            region: len(refresh(own.catalog_source(region), own.catalog_store(region), own.meter).types)
            for region in regions
        }

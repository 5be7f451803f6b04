"""Refreshes the instance types and prices of each region that has a cluster, every hour; more often, it inspects
whether the EC2NodeClasses of every cluster can be launched from.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from shiplap.flows.catalog.refresh import inspect_all, refresh
from shiplap.flows.install import Install

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@cache
def install() -> Install:
    """The install as this function uses it, made at the first invocation and kept."""
    return Install.of_environment("catalog")


def handle(event: dict[str, Any], lambda_context: LambdaContext) -> dict[str, int]:
    """Lambda's entry point: it returns how many types each region has.

    An event `{"kind": "inspect"}` asks for the inspection alone, with the catalogue as it is.
    """
    own = install()
    with own.reporting(lambda_context.aws_request_id):
        known = {}
        for region in sorted({cluster.region for cluster in own.settings.clusters}):
            store = own.catalog_store(region)
            fresh = event.get("kind") != "inspect"
            known[region] = refresh(own.catalog_source(region), store, own.meter) if fresh else store.load()
        contexts = [(cluster, own.context(cluster)) for cluster in own.settings.clusters]
        inspect_all(contexts, known, own.status)
        return {region: len(catalog.types) for region, catalog in known.items()}

"""Refreshes the instance types and prices of each region that has a cluster, every hour; more often, it inspects
whether the EC2NodeClasses of every cluster can be launched from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shiplap.flows.catalog.refresh import inspect_all, refresh, refresh_commitments
from shiplap.flows.function_install import FunctionInstall, InvocationContext
from shiplap.flows.live_settings import stored_settings


def handle(event: Mapping[str, Any], context: InvocationContext, install: FunctionInstall) -> dict[str, int]:
    """How many types each region has.

    An event `{"kind": "inspect"}` asks for the inspection alone, with the catalogue as it is.
    """
    with install.reporting(context.aws_request_id):
        known = {}
        for region in sorted({cluster.region for cluster in install.settings.clusters}):
            store = install.catalog_store(region)
            fresh = event.get("kind") != "inspect"
            known[region] = refresh(install.catalog_source(region), store, install.meter) if fresh else store.load()
            if fresh:
                _refresh_commitments(install, region)
        contexts = [(cluster, install.context(cluster)) for cluster in install.settings.clusters]
        current = [(stored_settings(cluster, context), context) for cluster, context in contexts]
        inspect_all(current, known, install.status)
        return {region: len(catalog.types) for region, catalog in known.items()}


def _refresh_commitments(install: FunctionInstall, region: str) -> None:
    """Describe the account's commitments in a region, if one of its clusters counts on what AWS shows."""
    for cluster in install.settings.clusters:
        wanted, store = cluster.commitments, install.context(cluster).commitments
        if cluster.region == region and wanted is not None and wanted.share and store is not None:
            refresh_commitments(install.commitment_source(region), store, install.meter)
            return

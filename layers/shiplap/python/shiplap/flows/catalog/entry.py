"""Refreshes the instance types and prices of each region that has a cluster, every hour; more often, it inspects
whether the EC2NodeClasses of every cluster can be launched from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from shiplap.errors import AwsError, StoreError
from shiplap.flows.catalog.refresh import inspect_all, refresh, refresh_commitments
from shiplap.flows.function_install import FunctionInstall, InvocationContext
from shiplap.flows.live_settings import stored_settings
from shiplap.instances.catalog.ec2_catalog import Catalog

_LOG = logging.getLogger(__name__)


def handle(event: Mapping[str, Any], context: InvocationContext, install: FunctionInstall) -> dict[str, int]:
    """How many types each region has.

    An event `{"kind": "inspect"}` asks for the inspection alone, with the catalogue as it is. Each region is tried, and
    the clusters of those that have a catalogue are inspected, before the first error ends the invocation.
    """
    with install.reporting(context.aws_request_id):
        known: dict[str, Catalog] = {}
        failed: list[AwsError | StoreError] = []
        for region in sorted({cluster.region for cluster in install.settings.clusters}):
            store = install.catalog_store(region)
            if event.get("kind") == "inspect":
                with _kept(failed, region):
                    known[region] = store.load()
                continue
            with _kept(failed, region):
                known[region] = refresh(install.catalog_source(region), store, install.meter)
            with _kept(failed, region):
                _refresh_commitments(install, region)
        contexts = [(cluster, install.context(cluster)) for cluster in install.settings.clusters]
        current = [(stored_settings(cluster, context), context) for cluster, context in contexts]
        inspect_all(current, known, install.status)
        if failed:
            raise failed[0]
        return {region: len(catalog.types) for region, catalog in known.items()}


@contextmanager
def _kept(failed: list[AwsError | StoreError], region: str) -> Iterator[None]:
    """Keep an error for later, so that it keeps nothing else from being refreshed."""
    try:
        yield
    except (AwsError, StoreError) as error:
        _LOG.warning("not refreshed: %s", error, extra={"region": region, "error": type(error).__name__})
        failed.append(error)


def _refresh_commitments(install: FunctionInstall, region: str) -> None:
    """Describe the account's commitments in a region, if one of its clusters counts on any."""
    for cluster in install.settings.clusters:
        wanted, store = cluster.commitments, install.context(cluster).commitments
        if cluster.region == region and wanted is not None and store is not None:
            refresh_commitments(wanted, install.commitment_source(region), store, install.meter)
            return

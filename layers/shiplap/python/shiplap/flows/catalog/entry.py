"""Refreshes the instance types and prices of each region that has a cluster, every hour; more often, it inspects
whether the EC2NodeClasses of every cluster can be launched from. At last it ends identities that no node carries.

What is done is stored at once. What there was no time for, or AWS has not answered, is first the next time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from shiplap.errors import AwsError, AwsUnavailable, StoreError
from shiplap.flows.catalog.identity_sweep import sweep_identities
from shiplap.flows.catalog.inspections import inspect_all
from shiplap.flows.catalog.refresh import refresh, stored
from shiplap.flows.function_install import FunctionInstall, InvocationContext
from shiplap.flows.live_settings import stored_settings
from shiplap.flows.optional.optional_calls import limited
from shiplap.flows.policies import active
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.ports import CatalogStore

_LOG = logging.getLogger(__name__)

RESERVE_S = 25.0
"""Kept free at the end of an invocation, in seconds: for the last inspection (`inspect.INSPECTION_S`) and its store."""

INSPECTING_S = 60.0
"""Left to inspections by refreshes, in seconds: the next inspection is minutes later."""

LEAST_REFRESH_S = 30.0
"""No refresh begins with less time, in seconds: EC2 and the Pricing API take about fifteen to tell all."""

SWEEPING_S = 10.0
"""Of the reserve, for identities that no node carries, in seconds; no call of it may last longer."""


def handle(event: Mapping[str, Any], context: InvocationContext, install: FunctionInstall) -> dict[str, int]:
    """Return how many types each region has.

    An event `{"kind": "inspect"}` asks for the inspection alone, with the catalogue as it is. Each region is tried, and
    the clusters of those that have a catalogue are inspected, before the first error ends the invocation.
    """
    until = install.clock.now() + context.get_remaining_time_in_millis() / 1000 - RESERVE_S
    with install.reporting(context.aws_request_id):
        failed: list[AwsError | StoreError] = []
        stores = {region: install.catalog_store(region) for region in _regions(install)}
        known = _stored_catalogs(stores, failed, must_exist=event.get("kind") == "inspect")
        if event.get("kind") != "inspect":
            _refresh_all(install, stores, known, until - INSPECTING_S, failed)
        contexts = [(cluster, install.context(cluster)) for cluster in install.settings.clusters]
        current = [(stored_settings(cluster, context), context) for cluster, context in contexts]
        inspect_all(current, known, install.status, until=until)
        if event.get("kind") != "inspect":
            _sweep_identities(install, until + SWEEPING_S, failed)
        if failed:
            raise failed[0]
        return {region: len(catalog.types) for region, catalog in sorted(known.items())}


def _regions(install: FunctionInstall) -> list[str]:
    return sorted({cluster.region for cluster in install.settings.clusters})


def _stored_catalogs(
    stores: Mapping[str, CatalogStore], failed: list[AwsError | StoreError], *, must_exist: bool
) -> dict[str, Catalog]:
    """The catalogues that are stored, by region. None must exist before the first refresh."""
    known: dict[str, Catalog] = {}
    for region, store in stores.items():
        with _kept(failed, region):
            catalog = store.load() if must_exist else stored(store)
            if catalog is not None:
                known[region] = catalog
    return known


def _refresh_all(
    install: FunctionInstall,
    stores: Mapping[str, CatalogStore],
    known: dict[str, Catalog],
    until: float,
    failed: list[AwsError | StoreError],
) -> None:
    """Refresh the catalogues of all regions and what policies need, those first that were refreshed longest ago.

    Each region has its share of the time. `known` gets what is fresh; what is not refreshed stays in it.
    """
    regions = sorted(stores, key=lambda region: (known[region].refreshed_at if region in known else 0.0, region))
    for place, region in enumerate(regions):
        left_s = until - install.clock.now()
        limit_s = max(LEAST_REFRESH_S, left_s / (len(regions) - place))
        with _kept(failed, region):
            if place and left_s < LEAST_REFRESH_S:
                raise AwsUnavailable(f"no time is left to refresh region {region}: it is first the next time")
            source = limited(install.optional, install.catalog_source(region), limit_s)
            known[region] = refresh(source, stores[region], install.meter)
        with _kept(failed, region):
            active.refresh(install, region, LEAST_REFRESH_S)


def _sweep_identities(install: FunctionInstall, until: float, failed: list[AwsError | StoreError]) -> None:
    """End identities that no node carries. What is not looked at now is so an hour later."""
    for region in _regions(install):
        with _kept(failed, region):
            identities = limited(install.optional, install.node_identities(region), SWEEPING_S)
            kept = install.kept_identities(region)
            sweep_identities(identities, kept, install.clock, install.meter, until=until)


@contextmanager
def _kept(failed: list[AwsError | StoreError], region: str) -> Iterator[None]:
    """Keep an error for later, so that it keeps nothing else from being refreshed."""
    try:
        yield
    except (AwsError, StoreError) as error:
        _LOG.warning("not refreshed: %s", error, extra={"region": region, "error": type(error).__name__})
        failed.append(error)

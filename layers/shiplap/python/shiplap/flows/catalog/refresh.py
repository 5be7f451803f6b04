"""The catalog flow: ask AWS what it sells and for how much."""

from __future__ import annotations

import logging

from shiplap.errors import StoreError, StoreThrottled
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.ports import CatalogSource, CatalogStore, Meter

_LOG = logging.getLogger(__name__)


def refresh(source: CatalogSource, store: CatalogStore, meter: Meter) -> Catalog:
    """Fetch the catalogue anew and store it; what AWS would not tell this time is kept from the one before.

    Raises:
        AwsError: AWS refused; the stored catalogue stays.
        StoreError: the catalogue could not be stored.
    """
    catalog = source.fetch(stored(store))
    store.save(catalog)
    meter.count("CatalogTypes", len(catalog.types))
    _LOG.info("catalogue refreshed", extra={"region": catalog.region, "types": len(catalog.types)})
    return catalog


def stored(store: CatalogStore) -> Catalog | None:
    """The catalogue in the store, None before the first refresh. Raises StoreThrottled."""
    try:
        return store.load()
    except StoreThrottled:
        raise
    except StoreError as error:
        _LOG.info("no catalogue yet: %s", error)
        return None

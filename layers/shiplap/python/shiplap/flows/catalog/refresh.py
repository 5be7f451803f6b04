"""The catalog flow: ask AWS what it sells and for how much, and what of it is paid for already."""

from __future__ import annotations

import logging

from shiplap.errors import AwsError, StoreError, StoreThrottled
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.policies.commitments.account_commitments import CommitmentSettings
from shiplap.ports import CatalogSource, CatalogStore, CommitmentSource, CommitmentStore, Meter

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


def refresh_commitments(
    wanted: CommitmentSettings, source: CommitmentSource, store: CommitmentStore, meter: Meter
) -> None:
    """Describe the account's commitments anew; those known before stay if AWS refuses, and end when they are too old.

    Where only written plans are counted on, these are the account's other instances alone.

    Raises:
        StoreError: they could not be stored.
    """
    try:
        known = source.describe(others_alone=not wanted.share)
    except AwsError as error:
        meter.count("CommitmentsNotDescribed")
        _LOG.warning("commitments not described: %s", error, extra={"code": error.code})
        return
    store.save(known)
    _LOG.info(
        "commitments described",
        extra={
            "region": known.region,
            "savings_plans": len(known.savings_plans),
            "reserved_instances": len(known.reserved_instances),
            "instances_of_others": sum(use.count for use in known.others),
            "left_out": {item.id: item.reason for item in known.left_out},
        },
    )


def stored(store: CatalogStore) -> Catalog | None:
    """The catalogue in the store, None before the first refresh. Raises StoreThrottled."""
    try:
        return store.load()
    except StoreThrottled:
        raise
    except StoreError as error:
        _LOG.info("no catalogue yet: %s", error)
        return None

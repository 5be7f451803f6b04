"""The port CatalogSource: EC2 and the Pricing API, put together to one catalogue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

import msgspec

from shiplap.aws import describe, pricing
from shiplap.errors import AwsError
from shiplap.instances.catalog import Catalog, Ec2InstanceType, TypePrices, ZonePrice

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_pricing import PricingClient

_LOG = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class Ec2CatalogSource:
    """Of one region. `price_list` makes a Pricing client for a region; `clock` gives epoch seconds."""

    def __init__(
        self,
        region: str,
        *,
        ec2: EC2Client,
        price_list: Callable[[str], PricingClient],
        clock: Callable[[], float],
    ) -> None:
        self._region = region
        self._ec2 = ec2
        self._price_list = price_list
        self._clock = clock

    def fetch(self, previous: Catalog | None) -> Catalog:
        """A fresh catalogue. Prices that cannot be had now, or are missing, stay as they were.

        An isolated VPC or GovCloud reaches no Pricing API; types without any price are estimated by who reads them.

        Raises:
            AwsThrottled, AwsError: EC2 refused to describe its types or their zones.
        """
        now = self._clock()
        known = previous.prices if previous is not None else {}
        types = describe.instance_types(self._ec2)
        on_demand = _or_nothing("on-demand prices", self._on_demand)
        spot = _or_nothing("spot prices", lambda: describe.spot_prices(self._ec2, now))
        catalog = Catalog(
            region=self._region,
            types=types,
            zones=describe.zones_by_type(self._ec2),
            zone_ids=describe.zone_ids(self._ec2),
            prices=_merged(types, on_demand, spot, known),
        )
        digest = sha256(msgspec.msgpack.encode(catalog, order="deterministic")).hexdigest()
        return msgspec.structs.replace(
            catalog,
            refreshed_at=now,
            version=digest[:12],
            on_demand_at=now if on_demand else (previous.on_demand_at if previous else 0.0),
            spot_at=now if spot else (previous.spot_at if previous else 0.0),
        )

    def _on_demand(self) -> dict[str, float]:
        endpoint = pricing.endpoint_region(self._region)
        return pricing.on_demand_prices(self._price_list(endpoint), self._region) if endpoint else {}


def _or_nothing(what: str, fetch: Callable[[], Mapping[str, _Answer]]) -> Mapping[str, _Answer]:
    """Prices are worth having, not worth failing for: the last known ones do."""
    try:
        return fetch()
    except AwsError as error:
        _LOG.warning("no fresh %s: %s", what, error, extra={"code": error.code})
        return {}


def _merged(
    types: tuple[Ec2InstanceType, ...],
    on_demand: Mapping[str, float],
    spot: Mapping[str, tuple[ZonePrice, ...]],
    known: Mapping[str, TypePrices],
) -> dict[str, TypePrices]:
    """Prices by type. Fresh ones replace those of all zones of their type; a type without any keeps what was known."""
    prices = {}
    for name in (kind.instance_type for kind in types):
        before = known.get(name, TypePrices())
        fresh = on_demand.get(name)
        price = TypePrices(
            on_demand=before.on_demand if fresh is None else fresh,
            spot=spot.get(name, before.spot),
            estimated=before.estimated and fresh is None,
        )
        if price != TypePrices():
            prices[name] = price
    return prices

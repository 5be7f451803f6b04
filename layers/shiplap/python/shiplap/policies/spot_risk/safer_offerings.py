"""Decides which spot offerings of a launch list to ask for, once it is known how often each is interrupted.

EC2 chooses among the offerings of a launch by their price and by how much capacity there is, which it alone knows. So
the list is not put into an order. It is only shortened, as far as a choice is left: by what is dear, and by what is
surely interrupted more often than most although EC2 gives something as cheap that is not. All money is in millionths of
a dollar.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from shiplap.instances.offerings.spot_lists import LEAST_OFFERINGS, LEAST_ZONES
from shiplap.policies.spot_risk.risk_evidence import OfferingEvidence
from shiplap.policies.spot_risk.risk_rates import RiskRates
from shiplap.policies.spot_risk.spot_risk_settings import SpotRiskSettings
from shiplap.scheduling.model.scheduling_plan import OfferingRisk, RiskOfLaunch

MOST_SHARE_PER_CENT = 30
"""The share of a pool's spot nodes above which an offering is not preferred."""

DEAREST_PER_CENT = 10
"""The share of a list that is left out for its price. EC2 pays more where there is more capacity; what it does not pay
here makes up for what it pays to avoid interruptions. With fewer left it finds less capacity, and interrupts more."""

CHEAPER_PER_CENT, DEARER_PER_CENT = 1, 3
"""How much cheaper and dearer another offering may be that is as cheap as one that is avoided, in per cent, premiums
included. A cheaper one does not take its place: EC2 would have given it instead, had it had any."""

AS_USED_PER_CENT = 25
"""How many node-hours such an offering has at least, as a share of those of the one that is avoided: EC2 gives what it
has given before."""

BOOT_S = 180
"""Seconds for which a node that takes over from an interrupted one is paid for before pods run on it."""


class KnownSpotRisk(msgspec.Struct, frozen=True, omit_defaults=True):
    """The risk of spot as a decision knows it; `move_cost` is the cluster's, USD for a pod."""

    settings: SpotRiskSettings
    move_cost: float
    evidence: tuple[OfferingEvidence, ...] = ()


class SpotOffering(msgspec.Struct, frozen=True):
    """One spot offering of a launch list; `price_micros` is per hour."""

    instance_type: str
    zone: str
    zone_id: str
    price_micros: int

    @property
    def key(self) -> str:
        """`type/zone`, as claims name it."""
        return f"{self.instance_type}/{self.zone}"


def exposure_micros(move_cost: float, pods: int, price_micros: int) -> int:
    """Return the cost of one interruption: every pod moves at `move_cost` USD, and another node boots at this price."""
    return round(move_cost * 1e6) * pods + price_micros * BOOT_S // 3600


def premium_micros(rate: float, exposure: int, price_micros: int, settings: SpotRiskSettings) -> int:
    """Risk × exposure per hour, at most the stated share of the price."""
    return min(round(rate * exposure), int(settings.most_premium * price_micros))


class _Priced(msgspec.Struct, frozen=True):
    offering: SpotOffering
    rate: float
    least_rate: float
    premium: int
    node_hours: float

    @property
    def cost(self) -> int:
        return self.offering.price_micros + self.premium

    @property
    def order(self) -> tuple[int, str]:
        return self.cost, self.offering.key


def risk_of_launch(
    offerings: Iterable[SpotOffering],
    rates: RiskRates,
    *,
    pods: int,
    move_cost: float,
    settings: SpotRiskSettings,
) -> RiskOfLaunch | None:
    """Choose what to ask for of a launch list; None when it has no spot offering.

    Args:
        offerings: the available spot offerings of the list.
        rates: of all offerings.
        pods: how many pods an interruption moves.
        move_cost: USD for each of them.
        settings: the mode and the largest premium.
    """
    listed = sorted(
        (_priced(offering, rates, pods, move_cost, settings) for offering in offerings), key=lambda item: item.order
    )
    if not listed:
        return None
    avoided = _avoided(listed)
    kept = _kept(listed, avoided)
    left = frozenset(item.offering.key for item in kept)
    cheapest = min((item.offering.price_micros for item in avoided if item.offering.key not in left), default=None)
    return RiskOfLaunch(
        listed=len(listed),
        as_is=_shown(min(listed, key=lambda item: (item.offering.price_micros, item.offering.key)), listed),
        preferred=_shown(kept[0], kept),
        left_out=len(listed) - len(kept),
        observed=settings.mode != "prefer",
        offerings=tuple(sorted(left)) if len(kept) < len(listed) else (),
        bounded=tuple(
            sorted(item.offering.key for item in kept if cheapest is not None and item.offering.price_micros > cheapest)
        ),
    )


def most_of_pool(spot_nodes: int) -> int:
    """Return how many of a pool's spot nodes a preferred offering may have: its share, and one in any case."""
    return max(spot_nodes * MOST_SHARE_PER_CENT // 100, 1)


def _priced(
    offering: SpotOffering, rates: RiskRates, pods: int, move_cost: float, settings: SpotRiskSettings
) -> _Priced:
    rate = rates.of(offering.zone_id, offering.instance_type)
    exposure = exposure_micros(move_cost, pods, offering.price_micros)
    premium = premium_micros(rate, exposure, offering.price_micros, settings)
    place = (offering.zone_id, offering.instance_type)
    return _Priced(offering, rate, rates.at_least(*place), premium, rates.evidence(*place).total_node_hours)


def _avoided(listed: list[_Priced]) -> list[_Priced]:
    """Return the offerings that are surely interrupted more often than the median.

    For each of the offerings EC2 gives another one as cheap that is not.
    """
    median = sorted(item.rate for item in listed)[len(listed) // 2]
    feared = [item for item in listed if item.node_hours and item.least_rate > median]
    calm = [item for item in listed if item not in feared]
    return [item for item in feared if any(_can_replace(item, other) for other in calm)]


def _can_replace(item: _Priced, other: _Priced) -> bool:
    """True if EC2 probably gives another offering, at about the same cost, once it is not asked for this one."""
    as_cheap = (100 - CHEAPER_PER_CENT) * item.cost <= 100 * other.cost <= (100 + DEARER_PER_CENT) * item.cost
    return as_cheap and 100 * other.node_hours >= AS_USED_PER_CENT * item.node_hours


def _kept(listed: list[_Priced], avoided: list[_Priced]) -> list[_Priced]:
    """The shortened list, cheapest first. Nothing is left out that would leave less than a choice."""
    if len(listed) <= LEAST_OFFERINGS:
        return listed
    # The riskiest goes first, and the dear ones only once all that is to be avoided has gone.
    dearest = listed[len(listed) - len(listed) * DEAREST_PER_CENT // 100 :]
    going = sorted(avoided, key=lambda item: (-item.rate, item.order)) + [
        item for item in reversed(dearest) if item not in avoided
    ]
    left = {item.offering.key: item for item in listed}
    zones = len({item.offering.zone for item in listed})
    for item in going:
        if len(left) == LEAST_OFFERINGS:
            break
        others = {other.offering.zone for key, other in left.items() if key != item.offering.key}
        if len(others) >= min(LEAST_ZONES, zones):
            del left[item.offering.key]
    return list(left.values())


def _shown(item: _Priced, of: Sequence[_Priced]) -> OfferingRisk:
    mean = sum(other.rate for other in of) / len(of)
    return OfferingRisk(
        item.offering.key, item.offering.price_micros, item.premium, round(item.rate * 1e6), round(mean * 1e6)
    )

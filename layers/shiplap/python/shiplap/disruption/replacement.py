"""When replacements are worth it: what they may cost at most, so that no fallback turns a saving into a loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.market import Market
from shiplap.instances.types import Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import Requirements
from shiplap.scheduling.plan import LaunchChoice, PlannedClaim

SPOT_TYPES = 15
"""How many cheaper types a single spot node's replacement must be able to become: with fewer, spot capacity would be
chased down a ladder of prices, each step likelier to be interrupted (Karpenter's rule)."""

_CENT = 1e-9
"""USD per hour below which two prices are the same: sums of prices are not exact."""

_Options = Mapping[str, tuple[Offering, ...]]
"""The types a replacement may become, with what each may be bought as."""


class Refused(ValueError):
    """A replacement is not worth it; the text says why. Never leaves this package."""


def cheaper(
    claims: Sequence[PlannedClaim], removed: Sequence[Candidate], market: Market, *, spot_to_spot: bool
) -> tuple[PlannedClaim, ...]:
    """The claims reduced to types with which all of them together cost less than the removed nodes do.

    A type counts with the most it can cost: any of its offerings may be the one that has room. What the removed nodes
    cost beyond the cheapest choice is shared between the claims in proportion to their prices.

    Raises:
        Refused: no such choice is left.
    """
    paid = sum(candidate.price for candidate in removed)
    options = [_options(claim, market) for claim in claims]
    of_spot = all(candidate.node.metadata.labels.get(labels.CAPACITY_TYPE) == labels.SPOT for candidate in removed)
    from_spot = of_spot and any(_is_spot(offerings) for some in options for offerings in some.values())
    if from_spot and not spot_to_spot:
        raise Refused("spot nodes are not replaced by cheaper spot nodes here")
    least = sum(min(map(_worst, some.values()), default=paid) for some in options)
    if not least < paid - _CENT:
        raise Refused("can't replace with a cheaper node")
    same_again = _cheapest_of_same_type(options, removed) if len(claims) == 1 < len(removed) else None
    reduced = []
    for claim, some in zip(claims, options, strict=True):
        most = min(map(_worst, some.values())) * paid / least if least > 0 else paid
        left = {
            name: offerings
            for name, offerings in some.items()
            if _worst(offerings) < most - _CENT and (same_again is None or _worst(offerings) < same_again - _CENT)
        }
        if from_spot and len(removed) == 1:
            left = _enough_for_spot(claim, left)
        reduced.append(_with(claim, left))
    return tuple(reduced)


def _options(claim: PlannedClaim, market: Market) -> dict[str, tuple[Offering, ...]]:
    """The claim's types, cheapest first as it lists them; those bought on demand are dropped where others are spot.

    Otherwise a node could be replaced by the dearer fallback of a spot price that nobody gets.
    """
    wanted = Requirements.of(claim.requirements)
    found = {name: market.buyable(claim.node_pool, name, wanted) for name in claim.instance_types}
    spot = any(_is_spot(offerings) for offerings in found.values())
    return {name: offers for name, offers in found.items() if offers and (_is_spot(offers) or not spot)}


def _enough_for_spot(claim: PlannedClaim, left: _Options) -> dict[str, tuple[Offering, ...]]:
    if len(left) < SPOT_TYPES:
        raise Refused(f"spot-to-spot requires {SPOT_TYPES} cheaper instance type options, got {len(left)}")
    least = max((entry.min_values or 0 for entry in claim.requirements), default=0)
    by_price = sorted(left, key=lambda name: (left[name][0].price, name))
    return {name: left[name] for name in by_price[: max(SPOT_TYPES, least)]}


def _cheapest_of_same_type(options: Sequence[_Options], removed: Sequence[Candidate]) -> float | None:
    """The price of the cheapest removed node whose type is among the options: to buy that again would save nothing."""
    names = {name for some in options for name in some}
    same = [item.price for item in removed if item.node.metadata.labels.get(labels.INSTANCE_TYPE) in names]
    return min(same, default=None)


def _with(claim: PlannedClaim, left: _Options) -> PlannedClaim:
    """The claim for these types only. Raises Refused when none is left or minValues would be broken."""
    if not left:
        raise Refused("can't replace with a cheaper node")
    for entry in claim.requirements:
        if entry.key == labels.INSTANCE_TYPE and (entry.min_values or 0) > len(left):
            raise Refused(f"filtering by price leaves {len(left)} instance types, minValues is {entry.min_values}")
    names = tuple(name for name in claim.instance_types if name in left)
    kinds = tuple(sorted({offering.capacity_type for offerings in left.values() for offering in offerings}))
    narrowed = {labels.INSTANCE_TYPE: tuple(sorted(names)), labels.CAPACITY_TYPE: kinds}
    requirements = tuple(
        replace(entry, operator="In", values=narrowed[entry.key]) if entry.key in narrowed else entry
        for entry in claim.requirements
    )
    first = min(names, key=lambda name: (left[name][0].price, names.index(name)))
    best = left[first][0]
    return replace(
        claim,
        instance_types=names,
        requirements=requirements,
        launch=LaunchChoice(first, best.zone, best.capacity_type, best.price, best.reservation_id),
        relies_on_estimate=tuple(name for name in claim.relies_on_estimate if name in left),
    )


def _worst(offerings: Sequence[Offering]) -> float:
    return offerings[-1].price


def _is_spot(offerings: Sequence[Offering]) -> bool:
    return bool(offerings) and offerings[0].capacity_type == labels.SPOT

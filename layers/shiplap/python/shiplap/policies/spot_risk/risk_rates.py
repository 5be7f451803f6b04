"""Estimates how often spot interrupts an offering, from little evidence, with a hierarchical Gamma-Poisson model.

Interruptions of an offering are a Poisson process; its rate is drawn from a Gamma distribution around the rate of its
family in its zone, which is drawn from one around the rate of the account, which has the prior. So an offering without
evidence has the rate of its family, a family without evidence that of the account, and an account without evidence the
prior. How far rates differ within their group is estimated from the evidence by the method of moments (empirical
Bayes), with a stated weight for what is expected beforehand: where offerings differ no more than chance would have it,
all get nearly the same rate.

Spot takes the nodes of an offering back together rather than one by one, so that ten interruptions may tell no more
than one does. How far they come together is seen in how unevenly those of an offering fall on the parts of the day (the
dispersion of a quasi-Poisson model); evidence counts as much less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from shiplap.instances.offerings.node_prices import MONTH_HOURS
from shiplap.policies.spot_risk.risk_evidence import DAY_PARTS, OfferingEvidence, day_part, family_of_type

PRIOR_RATE = 0.05 / MONTH_HOURS
"""Interruptions per node-hour without any evidence: AWS says that less than 5 % of spot instances are interrupted."""

PRIOR_HOURS = 2_000.0
"""Node-hours that the prior counts as much as."""

REBALANCE_WEIGHT = 0.25
REFUSAL_WEIGHT = 0.1
"""Parts of an interruption that a rebalance recommendation and a refused launch stand for. Rates are scaled to
interruptions afterwards; the weights only say how much each tells offerings apart."""

EXPECTED_SPREAD = 0.5
"""The squared coefficient of variation of rates within a group that is expected beforehand, and how many expected
interruptions this counts as much as."""
_SPREAD_WEIGHT = 4.0
_LEAST_SPREAD, _MOST_SPREAD = 0.02, 4.0

DAY_WEIGHT = 4.0
"""Interruptions that a part of the day must have before its own rate counts as much as the rate of the whole day."""

LOOK_AHEAD_S = 6 * 3600.0
"""The seconds after a launch for which the time of day counts."""

ONE_ALONE_WEIGHT = 8.0
"""How many comparisons of a part of the day the expectation counts as that interruptions come one by one."""

SURE_DEVIATES = 1.2816
"""Standard deviates below the estimate of a rate that is surely larger: that of nine in ten."""

Counts = tuple[float, float]
"""Weighted events and node-hours."""


class RiskRates:
    """Interruptions per node-hour of every offering, at a time. Pure; equal evidence gives equal rates."""

    def __init__(self, evidence: Iterable[OfferingEvidence], now: float) -> None:
        """`now` is in epoch seconds: the time of day counts where evidence shows that it does."""
        self._known = {(known.zone_id, known.instance_type): known for known in evidence}
        self._now = now
        together = dispersion(self._known.values())
        self._counts = {
            key: (events / together, hours / together)
            for key, known in self._known.items()
            for events, hours in (_counts(known),)
        }
        self._families: dict[tuple[str, str], list[OfferingEvidence]] = {}
        for (zone_id, name), known in sorted(self._known.items()):
            self._families.setdefault((zone_id, family_of_type(name)), []).append(known)
        self._rates: dict[tuple[str, str], float] = {}

    def of(self, zone_id: str, instance_type: str) -> float:
        """Interruptions per node-hour that are to be expected."""
        key = (zone_id, instance_type)
        if key not in self._rates:
            self._rates[key] = self._estimate(zone_id, instance_type)
        return self._rates[key]

    def at_least(self, zone_id: str, instance_type: str) -> float:
        """Return the value that the rate exceeds nine times in ten.

        It uses Wilson's and Hilferty's approximation of a Gamma distribution.
        """
        events, _ = self._counts.get((zone_id, instance_type), (0.0, 0.0))
        shape = 1.0 / self._spread_of_types + events
        root = 1.0 - 1.0 / (9.0 * shape) - SURE_DEVIATES / (3.0 * math.sqrt(shape))
        return self.of(zone_id, instance_type) * max(root, 0.0) ** 3

    def evidence(self, zone_id: str, instance_type: str) -> OfferingEvidence:
        """Return the evidence on the offering itself."""
        return self._known.get((zone_id, instance_type)) or OfferingEvidence(zone_id, instance_type)

    def _estimate(self, zone_id: str, instance_type: str) -> float:
        family = (zone_id, family_of_type(instance_type))
        if family not in self._families:
            return self._account * self._scale
        within = self._family_rates[family]
        rate = _posterior(self._counts.get((zone_id, instance_type), (0.0, 0.0)), within, self._spread_of_types)
        return rate * self._scale * self._day_factors[family]

    @cached_property
    def _account(self) -> float:
        events, hours = _total(self._counts.values())
        return (events + PRIOR_RATE * PRIOR_HOURS) / (hours + PRIOR_HOURS)

    @cached_property
    def _scale(self) -> float:
        """Interruptions per weighted event."""
        interruptions = sum(known.total_interruptions for known in self._known.values())
        events, _ = _total(map(_counts, self._known.values()))
        return (interruptions + 1.0) / (events + 1.0)

    @cached_property
    def _family_rates(self) -> dict[tuple[str, str], float]:
        counts = {
            (zone_id, family): _total(self._counts[zone_id, known.instance_type] for known in members)
            for (zone_id, family), members in self._families.items()
        }
        spread = _spread((count, self._account) for count in counts.values())
        return {family: _posterior(count, self._account, spread) for family, count in counts.items()}

    @cached_property
    def _spread_of_types(self) -> float:
        """One for all families: few have evidence enough for one of their own."""
        return _spread(
            (count, self._family_rates[zone_id, family_of_type(name)])
            for (zone_id, name), count in sorted(self._counts.items())
        )

    @cached_property
    def _day_factors(self) -> dict[tuple[str, str], float]:
        return {family: day_factor(members, self._now) for family, members in self._families.items()}


def dispersion(evidence: Iterable[OfferingEvidence]) -> float:
    """Return how many interruptions show as much as one would if they came one by one; at least 1.

    Of independent ones, (count - expected)^2 / expected over the parts of a day adds up to one less than the parts. Of
    old evidence, which counts less, it is less: the estimate is a cautious one.
    """
    found = expected = ONE_ALONE_WEIGHT
    for known in evidence:
        counts = [one + other for one, other in zip(known.interruptions, known.held_back_interruptions, strict=True)]
        hours = [one + other for one, other in zip(known.node_hours, known.held_back_node_hours, strict=True)]
        parts = [(count, exposure) for count, exposure in zip(counts, hours, strict=True) if exposure > 0.0]
        total, exposed = sum(count for count, _ in parts), sum(exposure for _, exposure in parts)
        if total <= 0.0:
            continue
        for count, exposure in parts:
            mean = total * exposure / exposed
            found += (count - mean) ** 2 / mean
        expected += len(parts) - 1
    return max(found / expected, 1.0)


def day_factor(family: Sequence[OfferingEvidence], now: float) -> float:
    """By how much the rate of a family in a zone differs from that of the whole day in the hours to come.

    1 unless the rates of the parts of the day, learned from three quarters of the nodes, foretell the interruptions of
    the held-back quarter better than one rate does, by log loss.
    """
    learned_hours = _by_part(family, lambda known: known.node_hours)
    learned = _by_part(family, lambda known: known.interruptions)
    hours = _by_part(family, lambda known: known.held_back_node_hours)
    interruptions = _by_part(family, lambda known: known.held_back_interruptions)
    if not all(map(sum, (learned, learned_hours, hours, interruptions))):
        return 1.0
    rate = sum(learned) / sum(learned_hours)
    factors = [
        (count + DAY_WEIGHT) / (exposure * rate + DAY_WEIGHT)
        for count, exposure in zip(learned, learned_hours, strict=True)
    ]
    # What both get right cancels: the held-back quarter's own level says nothing about the time of day.
    level = sum(factor * exposure for factor, exposure in zip(factors, hours, strict=True)) / sum(hours)
    gain = sum(count * math.log(factor / level) for count, factor in zip(interruptions, factors, strict=True))
    if gain <= 0.0:
        return 1.0
    coming = [factors[day_part(now + step * 3600.0)] for step in range(int(LOOK_AHEAD_S // 3600))]
    return sum(coming) / len(coming)


def _by_part(
    family: Sequence[OfferingEvidence], of: Callable[[OfferingEvidence], tuple[float, ...]]
) -> tuple[float, ...]:
    return tuple(sum(of(known)[part] for known in family) for part in range(DAY_PARTS))


def _counts(known: OfferingEvidence) -> Counts:
    events = known.total_interruptions + REBALANCE_WEIGHT * known.rebalances + REFUSAL_WEIGHT * known.refusals
    return events, known.total_node_hours


def _total(counts: Iterable[Counts]) -> Counts:
    events, hours = 0.0, 0.0
    for some_events, some_hours in counts:
        events += some_events
        hours += some_hours
    return events, hours


def _posterior(count: Counts, mean: float, spread: float) -> float:
    """The mean of a Gamma distribution of this mean and squared coefficient of variation, given Poisson counts."""
    events, hours = count
    return (1.0 / spread + events) / (1.0 / (spread * mean) + hours)


def _spread(counts: Iterable[tuple[Counts, float]]) -> float:
    """The squared coefficient of variation of rates around their means, by moments, within stated bounds.

    Of a Gamma-Poisson count E with mean m, E[(E - m)^2] = m + spread * m^2.
    """
    above, expected = EXPECTED_SPREAD * _SPREAD_WEIGHT, _SPREAD_WEIGHT
    for (events, hours), mean in counts:
        m = mean * hours
        above += (events - m) ** 2 - m
        expected += m * m
    return min(max(above / expected, _LEAST_SPREAD), _MOST_SPREAD)

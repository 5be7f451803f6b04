from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.instances.offerings.spot_lists import LEAST_OFFERINGS, is_choice, may_get_more
from shiplap.manifests.decoding import decode
from shiplap.manifests.nodeclaim import PreferredSpot
from shiplap.policies.spot_risk.risk_evidence import DAY_PARTS, OfferingEvidence
from shiplap.policies.spot_risk.risk_rates import RiskRates
from shiplap.policies.spot_risk.safer_offerings import (
    SpotOffering,
    exposure_micros,
    most_of_pool,
    premium_micros,
    risk_of_launch,
)
from shiplap.policies.spot_risk.spot_risk_settings import SpotRiskSettings
from shiplap.scheduling.model.scheduling_plan import RiskOfLaunch
from tests.beyond_bounds import beyond_bounds

PREFER = SpotRiskSettings("prefer")
NO_EVIDENCE = RiskRates((), 0.0)


def offering(number: int, price: int = 100_000, zone: str = "") -> SpotOffering:
    zone = zone or "abc"[number % 3]
    return SpotOffering(f"f{number}.large", zone, f"az-{zone}", price)


def hot(*names: str, zone: str = "a") -> RiskRates:
    """Every offering was used as long as any other one; these were interrupted twenty times as often."""
    hours = (10_000.0,) * DAY_PARTS
    places = {(f"az-{place}", f"f{number}.large") for place in "abc" for number in range(31)}
    feared = {(f"az-{zone}", name) for name in names}
    return RiskRates(
        [OfferingEvidence(*place, hours, (20.0 if place in feared else 1.0,) * DAY_PARTS) for place in sorted(places)],
        0.0,
    )


def chosen(offerings: list[SpotOffering], rates: RiskRates = NO_EVIDENCE, **others: SpotRiskSettings) -> RiskOfLaunch:
    risk = risk_of_launch(offerings, rates, pods=10, move_cost=0.025, settings=others.get("settings", PREFER))
    assert risk is not None
    return risk


def test_the_premium_is_risk_times_moves_and_boot() -> None:
    exposure = exposure_micros(0.025, 10, 100_000)

    assert exposure == 250_000 + 5_000
    assert premium_micros(0.01, exposure, 100_000, PREFER) == 2_550
    assert premium_micros(0.5, exposure, 100_000, PREFER) == 15_000
    assert premium_micros(0.5, exposure, 100_000, SpotRiskSettings("prefer", 0.0)) == 0


def test_a_list_without_spot_has_no_risk() -> None:
    assert risk_of_launch((), NO_EVIDENCE, pods=1, move_cost=0.0, settings=PREFER) is None


def test_a_short_list_stays_as_it_is() -> None:
    risk = chosen([offering(number) for number in range(LEAST_OFFERINGS)], hot("f0.large"))

    assert (risk.offerings, risk.left_out, risk.listed) == ((), 0, LEAST_OFFERINGS)


def test_what_is_interrupted_often_is_left_out_where_something_as_cheap_is_not() -> None:
    offerings = [offering(number) for number in range(30)]

    risk = chosen(offerings, hot("f0.large", "f3.large"))

    assert not {"f0.large/a", "f3.large/a"} & set(risk.offerings)
    assert risk.as_is.offering == "f0.large/a"
    assert risk.as_is.interruptions_per_million > 2 * risk.preferred.interruptions_per_million


def test_what_is_interrupted_often_stays_where_all_else_is_dearer() -> None:
    offerings = [offering(0, 50_000), *(offering(number) for number in range(1, 30))]

    assert "f0.large/a" in chosen(offerings, hot("f0.large")).offerings


def test_what_is_interrupted_often_stays_where_ec2_gives_nothing_else_that_is_as_cheap() -> None:
    hours = (10_000.0,) * DAY_PARTS
    few = (2_000.0,) * DAY_PARTS
    offerings = [offering(0, 99_000), *(offering(number) for number in range(1, 30))]
    used = OfferingEvidence("az-a", "f0.large", hours, (20.0,) * DAY_PARTS)
    others = [OfferingEvidence(item.zone_id, item.instance_type, few, (0.2,) * DAY_PARTS) for item in offerings[1:]]
    more = OfferingEvidence("az-a", "f3.large", tuple(1.25 * part for part in few), (0.2,) * DAY_PARTS)

    assert "f0.large/a" in chosen(offerings, RiskRates([used, *others], 0.0)).offerings
    enough = RiskRates([used, *(more if item.instance_type == "f3.large" else item for item in others)], 0.0)
    assert "f0.large/a" not in chosen(offerings, enough).offerings


def test_what_may_be_interrupted_often_only_by_chance_stays() -> None:
    hours = (300.0,) * DAY_PARTS
    offerings = [offering(0, 99_000), *(offering(number) for number in range(1, 30))]
    evidence = [OfferingEvidence(item.zone_id, item.instance_type, hours) for item in offerings[1:]]
    once = OfferingEvidence("az-a", "f0.large", hours, (1.0, *(0.0,) * (DAY_PARTS - 1)))

    assert "f0.large/a" in chosen(offerings, RiskRates([once, *evidence], 0.0)).offerings


def test_without_evidence_only_dear_offerings_are_left_out() -> None:
    offerings = [offering(number, 100_000 + number) for number in range(40)]

    risk = chosen(offerings)

    assert set(risk.offerings) == {item.key for item in offerings[:36]}


def test_observing_says_what_would_have_been_asked_for() -> None:
    risk = chosen([offering(number) for number in range(30)], hot("f0.large"), settings=SpotRiskSettings("observe"))

    assert risk.observed
    assert "f0.large/a" not in risk.offerings


lists = st.lists(
    st.tuples(st.integers(1, 30), st.integers(1_000, 500_000), st.sampled_from("abc")),
    max_size=60,
    unique_by=lambda drawn: (drawn[0], drawn[2]),
)


@given(lists, st.sets(st.integers(1, 30)), st.integers(0, 50))
def test_a_choice_is_always_left(drawn: list[tuple[int, int, str]], feared: set[int], pods: int) -> None:
    offerings = [offering(*one) for one in drawn]
    rates = hot(*(f"f{number}.large" for number in sorted(feared)))

    risk = risk_of_launch(offerings, rates, pods=pods, move_cost=0.025, settings=PREFER)

    if risk is None:
        assert not offerings
        return
    keys = {item.key for item in offerings}
    left = set(risk.offerings) or keys
    assert left <= keys
    assert len(left) >= min(LEAST_OFFERINGS, len(keys))
    zones = {item.zone for item in offerings}
    assert len({key.partition("/")[2] for key in left}) >= min(2, len(zones))
    assert risk == risk_of_launch(offerings[::-1], rates, pods=pods, move_cost=0.025, settings=PREFER)
    assert risk.as_is.premium_micros <= 0.15 * risk.as_is.price_micros


def preferred(most: int, held: dict[str, int] | None = None, *, unbounded: int = 0) -> PreferredSpot:
    keys = tuple(sorted(offering(number).key for number in range(20)))
    return PreferredSpot(keys, keys[unbounded:], most, held or {})


def test_no_offering_gets_more_than_its_share_through_risk() -> None:
    assert may_get_more(preferred(3), 3, {}) == preferred(3).offerings
    assert "f0.large/a" not in may_get_more(preferred(3, {"f0.large/a": 1}), 3, {})
    assert "f1.large/b" not in may_get_more(preferred(3), 2, {"f1.large/b": 2})
    assert may_get_more(preferred(3), 4, {}) == ()


def test_an_offering_that_nothing_avoided_is_cheaper_than_is_not_bounded() -> None:
    (first, *_) = preferred(3).offerings

    assert first in may_get_more(preferred(3, {first: 3}, unbounded=1), 3, {})
    assert may_get_more(preferred(3, unbounded=20), 99, {}) == preferred(3).offerings


def test_what_avoided_offerings_are_cheaper_than_is_bounded() -> None:
    offerings = [offering(number, 100_000 + number) for number in range(30)]

    risk = chosen(offerings, hot("f3.large"))

    assert "f3.large/a" not in risk.offerings
    assert {"f0.large/a", "f1.large/b", "f2.large/c"} == set(risk.offerings) - set(risk.bounded)
    assert chosen(offerings).bounded == ()


def test_with_too_few_left_the_whole_list_is_asked_for() -> None:
    full = {offering(number).key: 3 for number in range(6)}

    assert may_get_more(preferred(3, full), 1, {}) == ()


@pytest.mark.parametrize(("nodes", "most"), [(0, 1), (3, 1), (6, 1), (7, 2), (100, 30)])
def test_the_share_of_an_offering_is_less_than_a_third(nodes: int, most: int) -> None:
    assert most_of_pool(nodes) == most


def test_a_choice_has_fifteen_offerings_in_two_zones_where_there_are_two() -> None:
    one_zone = [offering(number, zone="a").key for number in range(15)]

    assert is_choice(one_zone, one_zone)
    assert not is_choice(one_zone, [*one_zone, "f1.large/b"])
    assert not is_choice(one_zone[:14], one_zone)


def test_settings_are_checked() -> None:
    _, problems = decode({"mode": "always"}, SpotRiskSettings)
    assert [where for where, _ in problems] == [("mode",)]
    assert [where for where, _ in beyond_bounds(SpotRiskSettings("prefer", 1.5))] == [("mostPremium",)]
    assert not beyond_bounds(SpotRiskSettings())
    assert [SpotRiskSettings(mode).is_on for mode in ("off", "observe", "prefer")] == [False, True, True]

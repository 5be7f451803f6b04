"""The ledger of commitments: what is counted on, who uses it first, and that no dollar is used twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import (
    OLDEST_S,
    AccountCommitments,
    InstanceUse,
    ReservedInstances,
    SavingsPlan,
    merged,
)
from shiplap.policies.commitments.commitment_ledger import (
    CommitmentLedger,
    CommitmentRoom,
    RegionalRoom,
    ZonalRoom,
    counted_on,
    quarters_of,
    room_left,
    scope_of,
)
from shiplap.policies.commitments.commitment_settings import CommitmentSettings, WrittenPlan
from tests.beyond_bounds import beyond_bounds

NOW = 1_800_000_000.0
LATER = NOW + 30 * 24 * 3600
LISTED = {
    "m5.large": 100_000,
    "m5.xlarge": 200_000,
    "m5.2xlarge": 400_000,
    "c5.large": 80_000,
    "c5.xlarge": 160_000,
    "g5.xlarge": 1_000_000,
    "u7.metal": 9_000_000,
}
ZONES = ("eu-west-1a", "eu-west-1b")
SETTINGS = CommitmentSettings(counted_by="eu-west-1/shiplap", share="80%")


def plan(
    dollars: float, family: str = "", discount: float = 0.3, name: str = "sp", ends_at: float = LATER
) -> SavingsPlan:
    rates = {kind: round(price * (1 - discount)) for kind, price in LISTED.items()}
    return SavingsPlan(name, round(dollars * MICROS), ends_at, family, rates)


def account(*plans: SavingsPlan, reserved: tuple[ReservedInstances, ...] = (), at: float = NOW) -> AccountCommitments:
    return AccountCommitments("eu-west-1", at, plans, reserved)


@pytest.mark.parametrize(
    ("name", "quarters"),
    [
        ("t3.nano", 1),
        ("t3.micro", 2),
        ("m5.large", 16),
        ("m5.xlarge", 32),
        ("m5.12xlarge", 384),
        ("m7i.metal-24xl", 768),
        ("m5.metal", 0),
    ],
)
def test_sizes_have_normalised_units(name: str, quarters: int) -> None:
    assert quarters_of(name) == quarters


def test_regional_reserved_instances_are_of_a_family_unless_its_sizes_are_not_flexible() -> None:
    assert scope_of("m5.xlarge") == "m5"
    assert scope_of("g5.xlarge") == "g5.xlarge"
    assert scope_of("m5.metal") == "m5.metal"


def test_a_share_of_what_aws_shows_is_counted_on_until_it_ends() -> None:
    reserved = (
        ReservedInstances("zonal", "m5.large", 10, LATER, ZONES[0]),
        ReservedInstances("regional", "m5.xlarge", 5, LATER),
        ReservedInstances("over", "c5.xlarge", 5, NOW),
    )
    shown = account(plan(10), plan(4, "m5", name="m5"), plan(9, name="over", ends_at=NOW), reserved=reserved)
    room = counted_on(SETTINGS, shown, NOW)
    assert room.zonal == (ZonalRoom("m5.large", ZONES[0], 8),)
    assert room.regional == (RegionalRoom("m5", 128),)
    assert [(item.id, item.commitment) for item in room.savings_plans] == [("m5", 3_200_000), ("sp", 8_000_000)]


@pytest.mark.parametrize("zone", ["", ZONES[0]])
def test_what_has_ended_since_aws_was_asked_does_not_count(zone: str) -> None:
    ends_at = NOW - 60
    reserved = (ReservedInstances("over", "c5.xlarge", 5, ends_at, zone),)
    shown = account(plan(9, ends_at=ends_at), reserved=reserved, at=NOW - 3600)
    assert counted_on(SETTINGS, shown, NOW).is_empty
    assert not counted_on(SETTINGS, shown, ends_at - 1).is_empty


def test_what_aws_said_more_than_a_day_ago_does_not_count() -> None:
    assert not counted_on(SETTINGS, account(plan(1), at=NOW - OLDEST_S), NOW).is_empty
    assert counted_on(SETTINGS, account(plan(1), at=NOW - OLDEST_S - 1), NOW).is_empty
    assert counted_on(SETTINGS, None, NOW).is_empty


def test_plans_that_are_written_count_whole_until_their_last_day() -> None:
    written = WrittenPlan(dollars_per_hour=4.0, discount="25%", family="m5", end="2027-01-15")
    settings = CommitmentSettings(counted_by="eu-west-1/shiplap", written=(written,))
    (known,) = counted_on(settings, account(plan(9), at=written.ends_at - 1), written.ends_at - 1).savings_plans
    assert (known.commitment, known.rate("m5.large", 100_000), known.rate("c5.large", 80_000)) == (4_000_000, 75_000, 0)
    assert counted_on(settings, account(plan(9), at=written.ends_at), written.ends_at).is_empty


@pytest.mark.parametrize("share", ["", "80%"])
def test_plans_that_are_written_count_only_while_the_accounts_other_instances_are_known(share: str) -> None:
    written = WrittenPlan(dollars_per_hour=4.0, discount="25%", end="2028-01-15")
    settings = CommitmentSettings(counted_by="eu-west-1/shiplap", share=share, written=(written,))
    assert not counted_on(settings, account(at=NOW - OLDEST_S), NOW).is_empty
    assert counted_on(settings, account(at=NOW - OLDEST_S - 1), NOW).is_empty
    assert counted_on(settings, None, NOW).is_empty


def test_reserved_instances_come_before_savings_plans_and_those_of_a_family_before_compute_plans() -> None:
    room = CommitmentRoom(
        (ZonalRoom("m5.large", ZONES[0], 1),),
        (RegionalRoom("m5", 16),),
        (plan(0.06, "m5", 0.4, "m5"), plan(0.07, name="compute")),
    )
    ledger = CommitmentLedger(room)
    covers = [ledger.take("m5.large", ZONES[0], LISTED["m5.large"]) for _ in range(5)]
    assert [cover.uncovered for cover in covers] == [0, 0, 0, 0, 100_000]
    assert [cover.taken for cover in covers] == [100_000, 100_000, 60_000, 70_000, 0]
    assert [cover.zonal for cover in covers] == [True, False, False, False, False]
    assert ledger.room.is_empty


def test_an_instance_may_be_covered_in_part() -> None:
    half = CommitmentRoom(regional=(RegionalRoom("m5", 16),))
    assert CommitmentLedger(half).quote("m5.xlarge", "", 200_000).uncovered == 100_000
    third = CommitmentRoom(savings_plans=(plan(0.07),))
    assert CommitmentLedger(third).quote("m5.2xlarge", "", 400_000).uncovered == 300_000


def test_savings_plans_go_to_the_highest_saving_first() -> None:
    rates = {"m5.large": 90_000, "c5.large": 40_000}
    ledger = CommitmentLedger(CommitmentRoom(savings_plans=(SavingsPlan("sp", 40_000, LATER, rates=rates),)))
    uses = [InstanceUse("m5.large", "", 1), InstanceUse("c5.large", "", 1)]
    assert ledger.settle(uses, LISTED) == 100_000, "of the c5 half is saved, of the m5 a tenth"


def test_the_highest_saving_is_a_share_of_the_price_not_an_amount() -> None:
    """Of the 2xlarge 40,000 are saved, a tenth, and of the c5 24,000, three tenths."""
    rates = {"m5.2xlarge": 360_000, "c5.large": 56_000}
    ledger = CommitmentLedger(CommitmentRoom(savings_plans=(SavingsPlan("sp", 56_000, LATER, rates=rates),)))
    uses = [InstanceUse("m5.2xlarge", "", 1), InstanceUse("c5.large", "", 1)]
    assert ledger.settle(uses, LISTED) == 400_000


def test_reserved_instances_go_to_the_accounts_other_instances_before_ours() -> None:
    """The other install's large one takes them, so ours takes of the plan, which pays for no large ones."""
    rates = {"m5.xlarge": 140_000}
    counted = CommitmentRoom((), (RegionalRoom("m5", 16),), (SavingsPlan("sp", 200_000, LATER, rates=rates),))
    others, ours = [InstanceUse("m5.large", "", 1)], [InstanceUse("m5.xlarge", "", 1)]
    left = room_left(counted, others, ours, LISTED)
    assert [item.commitment for item in left.savings_plans] == [60_000]


def test_other_instances_of_the_account_use_commitments_first() -> None:
    counted = CommitmentRoom(savings_plans=(plan(0.21),))
    left = room_left(counted, [InstanceUse("m5.large", ZONES[0], 2)], [], LISTED)
    assert [item.commitment for item in left.savings_plans] == [70_000]
    assert room_left(counted, [InstanceUse("m5.large", ZONES[0], 2)], [InstanceUse("m5.large", "", 1)], LISTED).is_empty


@pytest.mark.parametrize(
    ("settings", "field", "fix"),
    [
        (CommitmentSettings(counted_by="eu-west-1/other", share="80%"), ("countedBy",), "leave `commitments` out"),
        (CommitmentSettings(counted_by="us-east-1/shiplap", share="80%"), ("countedBy",), "leave `commitments` out"),
        (CommitmentSettings(counted_by="eu-west-1/shiplap"), (), "give `share`"),
        (CommitmentSettings(counted_by="eu-west-1/shiplap", share="0.8"), ("share",), "such as 80%"),
        (CommitmentSettings(counted_by="eu-west-1/shiplap", share="180%"), ("share",), "at most 100%"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_with_the_fix(
    settings: CommitmentSettings, field: tuple[str, ...], fix: str
) -> None:
    ((where, reason),) = settings.problems("eu-west-1/shiplap")
    assert where == field
    assert fix in reason


@pytest.mark.parametrize(
    ("dollars", "discount", "family", "field"),
    [
        (0, "28%", "", "dollarsPerHour"),
        (1, "0.28", "", "discount"),
        (1, "100%", "", "discount"),
        (1, "28%", "M7g.", "family"),
    ],
)
def test_a_written_plan_that_cannot_be_meant_is_refused(dollars: float, discount: str, family: str, field: str) -> None:
    written = WrittenPlan(dollars_per_hour=dollars, discount=discount, family=family, end="2027-01-01")
    settings = CommitmentSettings(counted_by="eu-west-1/shiplap", written=(written,))
    found = beyond_bounds(settings) or settings.problems("eu-west-1/shiplap")
    assert [where for where, _ in found] == [("written", 0, field)]


_USES = st.lists(
    st.builds(InstanceUse, st.sampled_from(sorted(LISTED)), st.sampled_from((*ZONES, "")), st.integers(1, 5)),
    max_size=8,
).map(merged)
_PLANS = st.lists(
    st.tuples(st.floats(0.01, 2), st.sampled_from(("", "m5", "c5")), st.floats(0.1, 0.7)), max_size=3
).map(lambda drawn: tuple(plan(*item, name=f"sp-{number}") for number, item in enumerate(drawn)))
_ROOMS = st.builds(
    lambda zonal, regional, plans: CommitmentRoom(
        tuple(ZonalRoom("m5.large", zone, count) for zone, count in sorted(zonal.items())),
        tuple(RegionalRoom(scope, quarters) for scope, quarters in sorted(regional.items())),
        tuple(sorted(plans, key=lambda item: (not item.family, item.id))),
    ),
    st.dictionaries(st.sampled_from(ZONES), st.integers(1, 4)),
    st.dictionaries(st.sampled_from(("m5", "c5", "g5.xlarge")), st.integers(1, 200)),
    _PLANS,
)


def _committed(room: CommitmentRoom) -> int:
    return sum(item.commitment for item in room.savings_plans)


@given(_ROOMS, _USES)
def test_no_dollar_is_used_twice(room: CommitmentRoom, uses: tuple[InstanceUse, ...]) -> None:
    ledger = CommitmentLedger(room)
    unpaid = ledger.settle(uses, LISTED)
    left = ledger.room
    assert 0 <= unpaid <= sum(LISTED[use.instance_type] * use.count for use in uses)
    for before, after in zip(room.savings_plans, left.savings_plans, strict=False):
        assert after.commitment <= next(item.commitment for item in room.savings_plans if item.id == after.id)
        assert before.commitment > 0
    # A Savings Plan pays at most what its rates are worth, a Reserved Instance at most its units.
    zonal = sum(item.count for item in room.zonal) - sum(item.count for item in left.zonal)
    units = sum(item.quarters for item in room.regional) - sum(item.quarters for item in left.regional)
    covered = sum(LISTED[use.instance_type] * use.count for use in uses) - unpaid
    worth = (_committed(room) - _committed(left)) / 0.3 + zonal * LISTED["m5.large"] + units * LISTED["g5.xlarge"]
    assert covered <= worth + 1


@given(_ROOMS, _USES, _USES)
def test_whoever_comes_later_leaves_no_more_and_pays_no_less(
    room: CommitmentRoom, first: tuple[InstanceUse, ...], second: tuple[InstanceUse, ...]
) -> None:
    alone, together = CommitmentLedger(room), CommitmentLedger(room)
    paid = alone.settle(first, LISTED)
    both = together.settle(merged(first, second), LISTED)
    assert both >= paid - len(LISTED)
    assert _committed(together.room) <= _committed(alone.room)
    assert both <= paid + sum(LISTED[use.instance_type] * use.count for use in second) + len(LISTED)


@given(_ROOMS, st.sampled_from(sorted(LISTED)), st.sampled_from(ZONES), st.integers(1, 6))
def test_what_is_taken_is_what_was_quoted_and_is_gone(room: CommitmentRoom, name: str, zone: str, number: int) -> None:
    ledger = CommitmentLedger(room)
    for _ in range(number):
        before = ledger.room
        quoted = ledger.quote(name, zone, LISTED[name])
        assert ledger.room == before
        assert ledger.take(name, zone, LISTED[name]) == quoted
        assert quoted.taken <= LISTED[name]
        assert (ledger.room != before) == (quoted.covered > 0 or quoted.taken > 0)
        assert _committed(before) - _committed(ledger.room) <= quoted.taken


@pytest.mark.parametrize("rates", [{"rate_ppm": 700_000}, {"rates": {"m7g.large": 1, "m7gd.large": 1, "m7.large": 1}}])
def test_a_plan_of_a_family_pays_for_no_family_whose_name_begins_alike(rates: dict[str, Any]) -> None:
    of_m7g = SavingsPlan("sp", MICROS, 2e9, "m7g", **rates)
    paid = [name for name in ("m7g.large", "m7gd.large", "m7.large") if of_m7g.rate(name, MICROS)]
    assert paid == ["m7g.large"]
    listed = SavingsPlan("sp", MICROS, 2e9, rates={"m7g.large": 1})
    assert listed.rate("m7g.xlarge", MICROS) == 0, "a type without a rate is not covered"

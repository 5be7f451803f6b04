"""Tests the times and the prices of ledger postings, the claims that are closed, and the corrected counters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from shiplap.flows.context import FlowContext, TypesFor
from shiplap.flows.policies import ceilings_ledger
from shiplap.flows.policies.ceilings_ledger import keep_ledger
from shiplap.flows.policies.policy import SweptFacts
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.policies.ceilings.ceiling_use import ClusterSpending
from shiplap.policies.ceilings.ceilings import Ceiling
from shiplap.policies.ceilings.ceilings_settings import CeilingSettings
from shiplap.policies.policy_settings import chosen
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap.settings import ClusterSettings
from shiplap.spending.account_counters import CountedSpending
from shiplap.spending.ledger import HOUR_S, SpendingLedger
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.signals import FakeClock, FakeMeter
from shiplap_lab.fakes.state import FakeState
from tests.builders.claims import running_claim
from tests.builders.pods import pod
from tests.conformance.priced_pools import priced

START = int(datetime(2026, 11, 10, 9, tzinfo=UTC).timestamp())
LATER = START + HOUR_S
GIB = 1024**3
CEILING = Ceiling(hourly=10.0)
BELOW = chosen(CeilingSettings((CEILING,)))
claim = partial(
    running_claim,
    cluster="blue",
    zone="a",
    capacity_type="on-demand",
    hourly=0.36,
    most_hourly=1.0,
    created_at=START - 7200.0,
    changed_at=START - 7000.0,
)


def ended(end: float | None, name: str = "a") -> NodeClaim:
    """The claim, gone at `end` if it has one."""
    return claim(name) if end is None else claim(name, state=ClaimState.GONE, changed_at=end)


class _Ledgers:
    """A cluster with ceilings whose state holds these claims; its ledger is posted until START."""

    def __init__(self, *claims: NodeClaim, ledger: SpendingLedger | None = None, now: float = LATER) -> None:
        self.faults, self.clock, self.meter = Faults(), FakeClock(now), FakeMeter()
        self.state = FakeState(self.faults)
        self.adopt(*claims)
        if ledger is not None:
            assert self.state.post_ledger("blue", ledger)
        self.settings = ClusterSettings(name="blue", region="eu-west-1", policies=BELOW)
        self.faults.clear()

    def adopt(self, *claims: NodeClaim) -> None:
        for item in claims:
            assert self.state.adopt(item)

    def keep(
        self,
        types_for: TypesFor | None = None,
        pods: Sequence[Pod] = (),
        spending: ClusterSpending | None = None,
        settings: ClusterSettings | None = None,
    ) -> SpendingLedger:
        now = self.clock.now()
        view = ClusterView(pods=tuple(pods))
        facts = SweptFacts(self.state.read("blue", now), view, (), types_for)
        unused = dict.fromkeys(("cluster", "compute", "capacity", "catalog", "bus", "timers", "recorder"))
        ports: dict[str, Any] = {"clock": self.clock, "state": self.state, "meter": self.meter}
        keep_ledger(settings or self.settings, facts, spending, FlowContext(**(unused | ports)))
        kept = self.state.read("blue", self.clock.now()).ledger
        assert kept is not None
        return kept

    def open_claims(self) -> list[str]:
        return [item.name for item in self.state.ledger_claims("blue")]


def posted_until(at: int, **fields: Any) -> SpendingLedger:
    return SpendingLedger(version=1, posted_until=at, **fields)


@pytest.mark.parametrize(("seconds", "posts"), [(3599.9, 0), (3600, 1), (7199, 1), (7200, 2), (3 * 3600 + 1, 3)])
def test_an_hour_is_posted_as_soon_as_it_is_over_and_all_that_were_missed(seconds: float, posts: int) -> None:
    ledgers = _Ledgers(claim(), ledger=posted_until(START), now=START + seconds)
    kept = ledgers.keep()
    assert kept.hours == (360_000,) * posts
    assert kept.posted_until == START + posts * HOUR_S
    assert kept.version == 1 + bool(posts)
    assert ("before state.post_ledger" in ledgers.faults.points) == bool(posts)


def test_the_first_ledger_begins_at_the_last_full_hour() -> None:
    kept = _Ledgers(claim(), now=START + 1800.0).keep()
    assert (kept.posted_until, kept.version, kept.hours, kept.this_month.month) == (START, 1, (), "2026-11")


@pytest.mark.parametrize(
    ("end", "is_closed"),
    [(START - 1.0, True), (START + 1.0, True), (float(LATER), True), (LATER + 0.5, False), (None, False)],
)
def test_a_claim_is_closed_once_it_is_posted_to_its_end(end: float | None, is_closed: bool) -> None:
    ledgers = _Ledgers(ended(end), ledger=posted_until(START), now=LATER + 1)
    ledgers.keep()
    assert ledgers.open_claims() == ([] if is_closed else ["a"])


def test_only_claims_that_are_gone_are_closed() -> None:
    states = [state for state in ClaimState if state is not ClaimState.GONE]
    ledgers = _Ledgers(*(claim(state, state=state) for state in states), ledger=posted_until(LATER))
    ledgers.keep()
    assert "before state.close_claims" not in ledgers.faults.points


def test_what_one_sweep_does_not_close_a_later_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings_ledger, "MOST_CLOSED", 2)
    ledgers = _Ledgers(*(ended(START + 5.0, name) for name in "abc"), ledger=posted_until(LATER))
    ledgers.keep()
    assert ledgers.open_claims() == ["c"]
    ledgers.keep()
    assert ledgers.open_claims() == []


def test_a_sweep_that_was_late_closes_nothing_that_it_did_not_post() -> None:
    ledgers = _Ledgers(ended(START + 5.0), ended(START - 5.0, "b"), ledger=posted_until(START))
    rival = SpendingLedger(version=2, posted_until=START)
    ledgers.faults.on("before", "state.post_ledger", lambda: ledgers.state.post_ledger("blue", rival))
    assert ledgers.keep() == rival
    assert ledgers.open_claims() == ["a"]


def test_the_first_posting_closes_nothing_when_another_sweep_began_an_hour_earlier() -> None:
    ledgers = _Ledgers(ended(START + 1800.0))
    rival = SpendingLedger(version=1, posted_until=START)
    ledgers.faults.on("before", "state.post_ledger", lambda: ledgers.state.post_ledger("blue", rival))
    assert ledgers.keep() == rival
    assert ledgers.open_claims() == ["a"]
    assert ledgers.keep().hours == (180_000,)
    assert ledgers.open_claims() == []


def test_an_hour_that_ends_while_claims_are_read_waits_for_the_next_sweep() -> None:
    ledgers = _Ledgers(claim(), ledger=posted_until(START - HOUR_S), now=LATER - 1.0)

    def time_passes() -> None:
        ledgers.adopt(claim("late", created_at=LATER - 0.5))
        ledgers.clock.advance(2.0)

    ledgers.faults.on("after", "state.ledger_claims", time_passes)
    assert ledgers.keep().hours == (360_000,)
    assert ledgers.keep().hours == (360_000, 360_000 + 6_000)  # the first minute is billed in the hour it began in
    ledgers.clock.advance(HOUR_S)
    assert ledgers.keep().hours[-1] == 2 * 360_000 - 5_900


def sold(*offerings: tuple[str, str, float]) -> dict[str, InstanceType]:
    made = tuple(Offering(zone, capacity_type, price, available=False) for zone, capacity_type, price in offerings)
    return {"m5.large": InstanceType("m5.large", (), {}, {}, made)}


USUAL = sold(("a", "spot", 0.1), ("b", "spot", 0.2), ("a", "on-demand", 0.5), ("b", "on-demand", 0.7))


@pytest.mark.parametrize(
    ("fields", "types", "micros", "known"),
    [
        pytest.param({}, USUAL, 360_000, True, id="on demand at what it was launched for"),
        pytest.param({}, None, 360_000, True, id="without a catalogue"),
        pytest.param({"capacity_type": "spot"}, USUAL, 100_000, True, id="spot at its price of today"),
        pytest.param({"capacity_type": "spot", "zone": "b"}, USUAL, 200_000, True, id="spot in its own zone"),
        pytest.param({"capacity_type": "spot"}, None, 360_000, True, id="spot without a catalogue"),
        pytest.param({"capacity_type": "spot"}, {}, 360_000, True, id="spot that is not sold any more"),
        pytest.param({"capacity_type": "spot", "zone": "c"}, USUAL, 360_000, True, id="spot not sold in its zone"),
        pytest.param({"capacity_type": "spot", "hourly": 0.0}, USUAL, 100_000, True, id="spot without a record"),
        pytest.param(
            {"capacity_type": "spot", "zone": "c", "hourly": 0.0}, USUAL, 840_000, False, id="the dearest on demand"
        ),
        pytest.param({"hourly": 0.0}, USUAL, 600_000, False, id="a fifth more than the price in its zone"),
        pytest.param({"hourly": 0.0, "zone": ""}, USUAL, 840_000, False, id="the dearest where no zone is known"),
        pytest.param({"hourly": 0.0, "zone": "c"}, USUAL, 840_000, False, id="the dearest of other zones"),
        pytest.param({"hourly": 0.0}, {}, 1_200_000, False, id="the most that it may cost"),
        pytest.param({"hourly": 0.0}, None, 1_200_000, False, id="the most that it may cost, without a catalogue"),
        pytest.param({"hourly": 0.0, "instance_type": "c5.large"}, USUAL, 1_200_000, False, id="another type"),
        pytest.param({"hourly": 0.0, "most_hourly": 0.0}, {}, 60_000, False, id="its vCPUs"),
    ],
)
def test_what_an_hour_is_posted_at(
    fields: dict[str, Any], types: dict[str, InstanceType] | None, micros: int, known: bool
) -> None:
    ledgers = _Ledgers(claim(**fields), ledger=posted_until(START))
    kept = ledgers.keep(None if types is None else lambda _: types)
    assert kept.this_month.spent == micros
    assert kept.this_month.estimated == (0 if known else micros)


@pytest.mark.parametrize(
    ("allocatable", "pods", "parts"),
    [
        pytest.param((2000, 8), [("x", "1", "", "n")], {"x": 0.25}, id="a vCPU counts as 4 GiB"),
        pytest.param((2000, 8), [("x", "", "4Gi", "n")], {"x": 0.25}, id="4 GiB count as a vCPU"),
        pytest.param(
            (2000, 8),
            [("x", "1", "4Gi", "n"), ("y", "1", "", "n"), ("x", "500m", "", "n")],
            {"x": 0.625, "y": 0.25},
            id="pods of a namespace together",
        ),
        pytest.param((2000, 8), [("x", "8", "", "n"), ("y", "8", "", "n")], {"x": 0.5, "y": 0.5}, id="never above all"),
        pytest.param(
            (2000, 8), [("x", "1", "", "other"), ("x", "1", "", "")], {}, id="pods of other nodes, or of none"
        ),
        pytest.param((0, 0), [("x", "1", "", "n")], {}, id="a node of unknown size"),
        pytest.param((1000, 0), [("", "1", "", "n")], {"default": 1.0}, id="a pod that names no namespace"),
    ],
)
def test_namespaces_have_the_part_that_their_pods_request(
    allocatable: tuple[int, int], pods: list[tuple[str, str, str, str]], parts: dict[str, float]
) -> None:
    amounts = {"cpu": allocatable[0], "memory": allocatable[1] * GIB}
    ledgers = _Ledgers(claim(allocatable=amounts, node_name="n"), ledger=posted_until(START))
    bound = [
        pod(f"p{place}", cpu, memory, namespace=namespace, node=node)
        for place, (namespace, cpu, memory, node) in enumerate(pods)
    ]
    kept = ledgers.keep(pods=bound)
    assert kept.this_month.by_namespace == {name: int(360_000 * part) for name, part in parts.items()}


@pytest.mark.parametrize(("used", "warnings"), [(8_999_999, 0), (9_000_000, 1), (20_000_000, 1)])
def test_a_ceiling_that_is_reached_is_counted(used: int, warnings: int) -> None:
    ledgers = _Ledgers(ledger=posted_until(LATER))
    ledgers.keep(spending=ClusterSpending("2026-11", 1000, hourly={"default": used}))
    assert ledgers.meter.counts.get("CeilingsReached", 0) == warnings
    assert ledgers.meter.counts["CeilingUse"] == round(used / 100_000, 2)


@pytest.mark.parametrize(("staying", "warnings"), [(1_999_999, 0), (2_000_000, 1)])
def test_the_hourly_ceiling_of_a_node_pool_is_measured_without_nodes_that_leave(staying: int, warnings: int) -> None:
    ledgers = _Ledgers(ledger=posted_until(LATER))
    manifests = Manifests(node_pools=(priced("batch", max_hourly_price="2"), priced("other")))
    settings = ClusterSettings(name="blue", region="eu-west-1", policies=BELOW, manifests=manifests)
    spending = ClusterSpending("2026-11", 1000, hourly={"batch": 3_000_000}, staying={"batch": staying})
    ledgers.keep(spending=spending, settings=settings)
    assert ledgers.meter.counts.get("CeilingsReached", 0) == warnings
    assert [used for used, _ in ledgers.meter.seen["CeilingUse"]] == [30.0, round(staying / 20_000, 2)]


@pytest.mark.parametrize(
    ("of_account", "has_spending", "expected"),
    [(True, True, CountedSpending(1, "2026-11", 700, 70, LATER)), (False, True, None), (True, False, None)],
)
def test_counters_are_corrected_where_the_account_has_ceilings(
    of_account: bool, has_spending: bool, expected: CountedSpending | None
) -> None:
    ledgers = _Ledgers(ledger=posted_until(LATER))
    account = (CEILING,) if of_account else ()
    settings = ClusterSettings(name="blue", region="eu-west-1", policies=chosen(CeilingSettings((CEILING,), account)))
    spending = ClusterSpending("2026-11", 1000, spent={"p": 600}, reserved={"p": 100}, hourly={"p": 70})
    ledgers.keep(spending=spending if has_spending else None, settings=settings)
    assert ledgers.state.read("blue", LATER).counted == (expected or CountedSpending())
    ledgers.faults.clear()
    ledgers.keep(spending=spending if has_spending else None, settings=settings)
    assert "before state.count_spending" not in ledgers.faults.points

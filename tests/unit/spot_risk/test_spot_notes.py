"""Shiplap records spot facts once, of the right node, for the right hours, and never at the cost of anything else."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.errors import StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.policies.spot_risk_inputs import (
    count_day,
    read_evidence,
    record_end,
    record_interruption,
    record_rebalance,
    record_refusals,
)
from shiplap.instances.catalog.type_catalog import Offering
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.policies.spot_risk.risk_evidence import DAY_S, EvidenceChange
from shiplap.ports import OfferingFailure
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.signals import FakeClock, FakeMeter
from shiplap_lab.policies.spot_risk_fakes import FakeSpotEvidence
from tests.builders.claims import node_claim
from tests.conformance.catalogues import fake_type

TODAY = 20_000 * DAY_S
HOUR_S = 3600.0
QUIET = (0.0,) * 5
THREE_HOURS = (3.0,) * 8


class _Kept(FakeSpotEvidence):
    """Keeps the changes that it is given beside their sums."""

    def __init__(self) -> None:
        super().__init__(Faults())
        self.changes: list[EvidenceChange] = []
        self.counted: list[tuple[str, int]] = []

    def add(self, changes: Any, cluster: str = "", day: int = 0) -> bool:
        done = super().add(changes, cluster, day)
        self.changes += changes
        self.counted.append((cluster, day))
        return done


class _Notes:
    """The ports that notes about spot use."""

    def __init__(self, now: float = TODAY + 60, *, is_on: bool = True) -> None:
        self.store, self.meter, self.clock = _Kept(), FakeMeter(), FakeClock(now)
        unused = dict.fromkeys(("compute", "cluster", "state", "capacity", "catalog", "bus", "timers", "recorder"))
        evidence = {"spot_evidence": self.store} if is_on else {}
        ports: dict[str, Any] = {"clock": self.clock, "meter": self.meter, "policy_ports": evidence}
        self.context = FlowContext(**(unused | ports))

    @property
    def told(self) -> list[tuple[Any, ...]]:
        return [
            (item.zone_id, item.instance_type, item.node, item.interruptions, item.rebalances, item.refusals)
            for item in self.store.changes
        ]


def spot(name: str = "c", **fields: Any) -> NodeClaim:
    known = {
        "state": ClaimState.INITIALIZED,
        "instance_id": "i-1",
        "instance_type": "m5.large",
        "zone": "a",
        "zone_id": "az1",
        "capacity_type": "spot",
        "created_at": TODAY - DAY_S / 2,
    }
    return node_claim(cluster="blue", name=name, **known | fields)


def test_what_happens_to_a_node_is_told_of_its_offering_and_node() -> None:
    notes = _Notes()
    record_interruption(spot(), notes.context)
    record_rebalance(spot("d", instance_type="c5.large", zone_id="az2"), notes.context)
    assert notes.told == [("az1", "m5.large", "blue/c", 1, 0, 0), ("az2", "c5.large", "blue/d", 0, 1, 0)]
    assert [item.at for item in notes.store.changes] == [TODAY + 60] * 2
    assert [item.node_hours for item in notes.store.changes] == [(), ()]
    assert notes.store.counted == [("", 0)] * 2


@pytest.mark.parametrize(
    ("created_at", "now", "hours"),
    [
        (TODAY + HOUR_S, TODAY + 2 * HOUR_S, (1.0, 0.0, 0.0, *QUIET)),
        (TODAY, TODAY + 4 * HOUR_S, (3.0, 1.0, 0.0, *QUIET)),
        (TODAY - DAY_S, TODAY + 4 * HOUR_S, (3.0, 1.0, 0.0, *QUIET)),
        (TODAY + 2 * HOUR_S, TODAY + 7 * HOUR_S, (1.0, 3.0, 1.0, *QUIET)),
    ],
    ids=["an hour", "since midnight", "since yesterday", "in three parts"],
)
def test_a_node_that_ended_lived_since_midnight_or_its_launch(
    created_at: float, now: float, hours: tuple[float, ...]
) -> None:
    notes = _Notes(now)
    record_end(spot(created_at=created_at), notes.context)
    ((change,),) = [notes.store.changes]
    assert (change.node_hours, change.at, change.node) == (hours, now, "blue/c")


@pytest.mark.parametrize(
    "fields",
    [{"capacity_type": "on-demand"}, {"capacity_type": "reserved"}, {"zone_id": ""}],
    ids=["on demand", "reserved", "zone id not known"],
)
@pytest.mark.parametrize("record", [record_interruption, record_rebalance, record_end])
def test_only_spot_in_a_known_zone_is_evidence(record: Any, fields: dict[str, str]) -> None:
    notes = _Notes()
    record(spot(**fields), notes.context)
    count_day([spot(**fields)], "blue", notes.context)
    assert notes.store.faults.points == []


def test_without_the_port_nothing_is_written_or_read() -> None:
    notes = _Notes(is_on=False)
    for record in (record_interruption, record_rebalance, record_end):
        record(spot(), notes.context)
    count_day([spot()], "blue", notes.context)
    record_refusals([refused()], TYPES, notes.context)
    assert read_evidence(notes.context) == ()
    assert notes.meter.counts == {}


TYPES = {
    "m5.large": replace(
        fake_type("m5.large"),
        offerings=(Offering("a", "spot", 1.0, zone_id="az1"), Offering("b", "spot", 1.0, zone_id="az2")),
    ),
    "c5.large": replace(fake_type("c5.large"), offerings=(Offering("a", "spot", 1.0, zone_id="az1"),)),
}


def refused(
    name: str = "m5.large", zone: str = "a", *, kind: Any = "capacity", capacity_type: str = "spot"
) -> OfferingFailure:
    return OfferingFailure(
        instance_type=name, zone=zone, capacity_type=capacity_type, code="Refused", message="", kind=kind
    )


@pytest.mark.parametrize(
    ("failures", "told"),
    [
        ([refused()], [("az1", "m5.large")]),
        ([refused(zone="b")], [("az2", "m5.large")]),
        ([refused(), refused()], [("az1", "m5.large")]),
        (
            [refused(zone="b"), refused("c5.large"), refused()],
            [("az1", "c5.large"), ("az1", "m5.large"), ("az2", "m5.large")],
        ),
        ([refused(kind="quota")], []),
        ([refused(capacity_type="on-demand")], []),
        ([refused("m9.large"), refused(zone="z"), refused("c5.large")], [("az1", "c5.large")]),
    ],
    ids=["one", "another zone", "twice", "by zone and name", "a quota", "on demand", "unknown ones"],
)
def test_a_refusal_is_noted_once_for_each_offering_of_spot(
    failures: list[OfferingFailure], told: list[tuple[str, str]]
) -> None:
    notes = _Notes()
    record_refusals(failures, TYPES, notes.context)
    assert notes.told == [(*offering, "", 0, 0, 1) for offering in told]
    assert {item.at for item in notes.store.changes} <= {TODAY + 60}


@pytest.mark.parametrize(
    ("after_s", "looks"),
    [(0, True), (120, True), (121, False), (3599, False), (3600, True), (3720, True), (3721, False)],
)
def test_days_are_counted_at_the_beginning_of_each_hour(after_s: float, looks: bool) -> None:
    notes = _Notes(TODAY + after_s)
    count_day([spot()], "blue", notes.context)
    assert bool(notes.store.faults.points) is looks
    assert len(notes.store.changes) == looks


@pytest.mark.parametrize(
    ("fields", "hours"),
    [
        ({"created_at": TODAY - 2 * DAY_S}, THREE_HOURS),
        ({"created_at": TODAY - DAY_S}, THREE_HOURS),
        ({"created_at": TODAY - HOUR_S}, (0.0,) * 7 + (1.0,)),
        ({"created_at": TODAY}, None),
        ({"state": ClaimState.GONE}, None),
        ({"state": ClaimState.FAILED}, None),
        ({"state": ClaimState.DRAINING, "created_at": TODAY - DAY_S}, THREE_HOURS),
    ],
    ids=["before", "all day", "an hour", "today", "ended", "failed", "leaves"],
)
def test_of_yesterday_the_hours_of_nodes_that_still_run_are_counted(
    fields: dict[str, Any], hours: tuple[float, ...] | None
) -> None:
    notes = _Notes()
    count_day([spot(**fields)], "blue", notes.context)
    assert [item.node_hours for item in notes.store.changes] == ([] if hours is None else [hours])
    assert [(item.at, item.node) for item in notes.store.changes] == ([] if hours is None else [(TODAY, "blue/c")])
    assert bool(notes.store.faults.points) == (hours is not None)


def test_of_a_node_that_did_not_live_nothing_is_written() -> None:
    notes = _Notes()
    record_end(spot(created_at=notes.clock.now()), notes.context)
    assert notes.store.faults.points == []


def test_nodes_of_an_offering_are_counted_together_and_once_a_day() -> None:
    notes = _Notes()
    claims = [spot("a"), spot("b", zone_id="az2"), spot("c"), spot("d", instance_type="c5.large")]
    count_day(claims, "blue", notes.context)
    yesterday = int(TODAY // DAY_S) - 1
    assert [(told[:3]) for told in notes.told] == [
        ("az1", "c5.large", "blue/d"),
        ("az1", "m5.large", "blue/a"),
        ("az1", "m5.large", "blue/c"),
        ("az2", "m5.large", "blue/b"),
    ]
    assert notes.store.counted == [("blue", yesterday)] * 3
    notes.store.faults.clear()
    notes.clock.advance(HOUR_S)
    count_day(claims, "blue", notes.context)
    assert notes.store.faults.points == [f"{when} spot_evidence.counted_days" for when in ("before", "after")]
    count_day(claims, "green", notes.context)
    assert notes.store.counted == [("blue", yesterday)] * 3 + [("green", yesterday)] * 3
    notes.clock.advance(DAY_S)
    count_day(claims[:1], "blue", notes.context)
    assert notes.store.counted[-1] == ("blue", yesterday + 1)


def test_an_offering_that_was_counted_keeps_none_behind_it_from_being_counted() -> None:
    notes = _Notes()
    count_day([spot("a", instance_type="c5.large")], "blue", notes.context)
    count_day([spot("a", instance_type="c5.large"), spot("b")], "blue", notes.context)
    assert [told[2] for told in notes.told] == ["blue/a", "blue/b"]


@pytest.mark.parametrize("effect", ["counted_days", "add"])
def test_a_store_that_refuses_evidence_stops_nothing(effect: str) -> None:
    notes = _Notes()
    notes.store.faults.on("before", f"spot_evidence.{effect}", StoreError("not now"))
    count_day([spot()], "blue", notes.context)
    assert notes.store.changes == []
    assert notes.meter.counts == {"SpotEvidenceNotWritten": 1}
    count_day([spot()], "blue", notes.context)
    assert len(notes.store.changes) == 1


def test_evidence_that_cannot_be_read_is_none() -> None:
    notes = _Notes()
    record_interruption(spot(), notes.context)
    notes.store.faults.on("before", "spot_evidence.read", StoreError("not now"))
    assert read_evidence(notes.context) == ()
    assert notes.meter.counts == {"SpotEvidenceNotRead": 1}
    assert [item.total_interruptions for item in read_evidence(notes.context)] == [1.0]

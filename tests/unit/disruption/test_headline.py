"""A recorded decision in one line: what it does in figures, and what cannot be read."""

from __future__ import annotations

import zlib

import msgspec
from msgspec.structs import replace

from shiplap.disruption.commands import Decision, DisruptionProposal, Method, Reason
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.records import disruption_record as disruptions
from shiplap.records import scheduling_record as records
from shiplap.records.disruption_record import DisruptionRecord, Headline, headline
from shiplap.records.scheduling_record import SchedulingRecord
from shiplap.scheduling.model.scheduling_plan import (
    OfferingRisk,
    Placement,
    Plan,
    RiskOfLaunch,
    Unschedulable,
)
from shiplap.scheduling.model.snapshot import Snapshot
from tests.builders.claims import planned_claim, references

NOW = 1_700_000_000.0
PODS = references(*map(str, range(10)), namespace="web")
SNAPSHOT = Snapshot(cluster="blue", now=NOW, epoch=41)
A = planned_claim(name="a", node_pool="flex", price=0.14, pods=PODS[:2])
B = planned_claim(name="b", node_pool="flex", price=0.07, pods=PODS[:1])


def test_a_plan_on_commitments_says_what_they_pay() -> None:
    plan = Plan((replace(A, covered=0.14), replace(B, covered=0.0121)))
    assert scheduled(plan).text == "3 pods → 2 nodes, 0.21 USD/h, flex; commitments pay 0.15 USD/h"
    in_part = Plan((replace(A, covered=0.0), B))
    assert scheduled(in_part).text == "3 pods → 2 nodes, 0.21 USD/h, flex"


def scheduled(plan: Plan) -> Headline:
    document = records.encode(SchedulingRecord(SNAPSHOT, plan))
    return headline(document, records.record_id(SchedulingRecord(SNAPSHOT, plan), document))


def disrupted(*commands: DisruptionProposal) -> Headline:
    record = DisruptionRecord(DisruptionSnapshot(scheduling=SNAPSHOT), Decision(commands))
    document = disruptions.encode(record)
    return headline(document, disruptions.record_id(record, document))


def test_a_plan() -> None:
    plan = Plan(
        (A, B),
        (Placement("node", PODS[7:9]),),
        (Unschedulable(PODS[9], "too big"),),
    )
    found = scheduled(plan)
    assert (found.at, found.kind) == (int(NOW), "schedule")
    assert found.record.startswith("blue/2023-11-14/221320-41-")
    assert found.text == "3 pods → 2 nodes, 0.21 USD/h, flex; 2 pods on nodes that are there; 1 pod without a place"
    static = planned_claim(name="c", node_pool="static", price=0.25)
    both = Plan((planned_claim(node_pool="flex", price=0.5, pods=PODS[:1]), static))
    assert scheduled(both).text == "1 pod → 2 nodes, 0.75 USD/h, flex, static"
    assert scheduled(Plan()).text == "nothing to launch"
    assert scheduled(Plan((), plan.existing_nodes)).text == "2 pods on nodes that are there"
    assert scheduled(Plan((), (), plan.unschedulable)).text == "1 pod without a place"


def test_a_plan_that_weighed_the_risk_of_spot() -> None:
    offered = OfferingRisk("m5.large/a", 70_000, 10, 100)
    left_out = [RiskOfLaunch(40, offered, offered, left_out=number) for number in (12, 3)]
    plan = Plan(tuple(replace(B, name=name, spot_risk=risk) for name, risk in zip("ab", left_out, strict=True)))
    watched = Plan((replace(B, spot_risk=replace(left_out[0], observed=True)),))

    assert scheduled(plan).text == "2 pods → 2 nodes, 0.14 USD/h, flex; spot risk: 15 of 80 offerings left out"
    assert scheduled(watched).text.endswith("spot risk: 12 of 40 offerings would be left out")


def test_a_decision_to_disrupt() -> None:
    merged = DisruptionProposal(
        Reason.UNDERUTILIZED,
        Method.CONSOLIDATION,
        ("n1", "n2", "n3"),
        (planned_claim(pods=PODS[:3]),),
        savings_hourly=0.21,
    )
    found = disrupted(merged, DisruptionProposal(Reason.EMPTY, Method.EMPTINESS, ("n4",)))
    assert found.kind == "disrupt"
    assert "-disrupt-" in found.record
    assert found.text == "Underutilized: 3 nodes → 1, saves 0.21 USD/h; Empty: 1 node removed"
    assert disrupted().text == "nothing to disrupt"


def test_what_cannot_be_read_is_said() -> None:
    name = "blue/2023-11-14/221320-41-000000000000"
    other = zlib.compress(msgspec.msgpack.encode({"plan": {"nodeClaims": 7}}))
    for document in (b"no record", zlib.compress(b"\xc1"), other):
        found = headline(document, name)
        assert (found.at, found.record) == (int(NOW), name)
        assert "`shiplap explain decision` shows what can be read" in found.text

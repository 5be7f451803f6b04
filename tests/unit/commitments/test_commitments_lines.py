"""Tests the lines of commands about commitments: one line each, in numbers."""

from __future__ import annotations

from pathlib import Path

from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import InstanceUse, SavingsPlan
from shiplap.policies.commitments.commitment_input import CommitmentInput, CommitmentsInUse
from shiplap.policies.commitments.commitment_ledger import CommitmentRoom, RegionalRoom, ZonalRoom
from shiplap.policies.commitments.commitment_use import UsedCommitments
from shiplap.records.scheduling_record import SchedulingRecord, encode
from shiplap.scheduling.planner import plan
from shiplap_cli.policies.commitments_lines import commitment_lines, used_lines
from tests.builders.pods import pods
from tests.commands import Shiplap
from tests.conformance.commitments_savings import savings, snapshot_of
from tests.conformance.sold_reservations import APART

ROOM = CommitmentRoom(
    (ZonalRoom("m5.large", "eu-west-1a", 3),),
    (RegionalRoom("m5", 48),),
    (SavingsPlan("a", 1_250_000, 2e9, "m7g"), SavingsPlan("b", 250_000, 2e9)),
)


def test_nothing_is_said_where_none_are_counted_on() -> None:
    assert list(commitment_lines(None)) == list(used_lines(())) == []


def test_what_is_left_and_what_is_paid_is_said_in_a_line_each() -> None:
    left, *rest = commitment_lines(CommitmentInput(ROOM))
    assert not rest
    assert "$1.5000 an hour of Savings Plans; 12 units and 3 zonal of Reserved Instances left" in left
    assert list(commitment_lines(CommitmentInput(CommitmentRoom()))) == ["commitments: nothing left for new nodes"]
    snapshot = snapshot_of(*pods(3, cpu="3", **APART), room=savings(0.63 * 2))
    assert list(commitment_lines(snapshot.policy(CommitmentInput), plan(snapshot)))[1] == (
        "commitments pay $1.8000 of $2.7000 an hour, for 2 nodes"
    )


def test_what_is_used_is_said_with_what_it_saves() -> None:
    used = UsedCommitments(ROOM, (InstanceUse("m5.large", "eu-west-1a", 4),), {"m5.large": MICROS // 10})
    assert list(used_lines([CommitmentsInUse(used)])) == [
        "commitments pay $0.4000 of the $0.4000 an hour of 4 on-demand nodes"
    ]
    assert all(len(line) <= 80 for line in used_lines([CommitmentsInUse(used)]))


def test_a_recorded_decision_is_explained_with_its_commitments(tmp_path: Path, shiplap: Shiplap) -> None:
    snapshot = snapshot_of(*pods(3, cpu="3", **APART), room=savings(0.63 * 2))
    record = tmp_path / "record"
    record.write_bytes(encode(SchedulingRecord(snapshot, plan(snapshot))))
    said = [
        str(shiplap.json("explain", "pod", f"default/pod-{number}", "--record", str(record))) for number in range(3)
    ]
    assert sum("commitments pay $0.9000 of $0.9000 an hour" in each for each in said) == 2

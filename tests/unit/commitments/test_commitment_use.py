"""Notes of who uses commitments: two clusters never count one dollar, whatever order their functions run or die in."""

from __future__ import annotations

import random
from collections.abc import Generator

import msgspec
import pytest

from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import InstanceUse, SavingsPlan, merged
from shiplap.policies.commitments.commitment_ledger import CommitmentLedger, CommitmentRoom, RegionalRoom, room_left
from shiplap.policies.commitments.commitment_use import (
    FORGOTTEN_S,
    HELD_S,
    RENEWED_S,
    ClusterUse,
    SharedUse,
    UsedCommitments,
)

NOW = 1_800_000_000.0
LISTED = {"m5.large": 100_000, "m5.xlarge": 200_000, "c5.large": 80_000}


def use(count: int, name: str = "m5.large") -> tuple[InstanceUse, ...]:
    return (InstanceUse(name, "z1", count),)


def test_a_cluster_counts_what_the_others_have_noted() -> None:
    shared = SharedUse(3, {"blue": ClusterUse(NOW, use(2)), "green": ClusterUse(NOW, use(1)), "red": ClusterUse(0.0)})
    assert shared.of_others("blue", NOW) == use(1)
    assert shared.of_others("red", NOW) == use(3)
    assert shared.of_others("red", NOW + FORGOTTEN_S + 1) == ()


def test_a_note_is_written_when_something_has_changed_and_renewed_otherwise() -> None:
    shared = SharedUse().with_cluster("blue", ClusterUse(NOW, use(2)), NOW)
    assert shared.version == 1
    assert shared.noted("blue", use(2), (), NOW + HELD_S) is None
    assert shared.noted("blue", use(2), (), NOW + RENEWED_S) == ClusterUse(NOW + RENEWED_S, use(2))
    assert shared.noted("blue", use(2), use(1), NOW + 1) == ClusterUse(NOW + 1, use(3))


def test_what_was_noted_is_not_taken_back_before_it_can_be_seen() -> None:
    shared = SharedUse().with_cluster("blue", ClusterUse(NOW, use(2)), NOW)
    assert shared.noted("blue", (), (), NOW + HELD_S - 1) is None
    assert shared.noted("blue", (), (), NOW + HELD_S) == ClusterUse(NOW + HELD_S)


def test_clusters_that_have_left_the_install_are_forgotten() -> None:
    shared = SharedUse(1, {"gone": ClusterUse(NOW - FORGOTTEN_S - 1, use(9))})
    assert list(shared.with_cluster("blue", ClusterUse(NOW), NOW).clusters) == ["blue"]


def test_notes_of_ten_clusters_and_five_thousand_nodes_are_small() -> None:
    names = [f"{family}{generation}.{size}xlarge" for family in "cmrti" for generation in range(5) for size in (1, 2)]
    instances = tuple(InstanceUse(name, f"eu-west-1{zone}", 10) for name in names for zone in "abc")
    shared = SharedUse(1, {f"cluster-{number}": ClusterUse(NOW, instances) for number in range(10)})
    assert len(msgspec.json.encode(shared)) < 100_000


COVERING = CommitmentRoom(regional=(RegionalRoom("m5", 32),))


@pytest.mark.parametrize(
    ("running", "removed", "added", "idle"),
    [
        (use(2), use(1), (), 100_000),  # the other one is covered already
        (use(3), use(1), (), 0),  # the one that runs uncovered takes it over
        (use(2), use(1), use(1), 0),  # used again in the same command
        (use(1, "m5.xlarge"), use(1, "m5.xlarge"), use(1), 100_000),  # half of it is used again
        (use(2), use(1), use(1, "c5.large"), 100_000),  # 20,000 are saved by list, and 80,000 more are to be paid
        (use(2, "c5.large"), use(1, "c5.large"), (), 0),
    ],
)
def test_a_freed_commitment_counts_only_when_it_is_used_again(
    running: tuple[InstanceUse, ...], removed: tuple[InstanceUse, ...], added: tuple[InstanceUse, ...], idle: int
) -> None:
    assert UsedCommitments(COVERING, running, LISTED).idle(removed, added, LISTED) == idle


class InterleavedClusters:
    """Clusters whose functions take turns at random and may die; EC2 and the cluster show a launch a little later."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)  # noqa: S311 - drawn for a test
        self.now = NOW
        self.shared = SharedUse()
        self.committed: dict[str, list[InstanceUse]] = {f"c{number}": [] for number in range(self.draw.randint(2, 5))}
        self.epochs = dict.fromkeys(self.committed, 0)
        self.counted = CommitmentRoom(
            regional=(RegionalRoom("m5", 16 * self.draw.randint(1, 8)),),
            savings_plans=(SavingsPlan("sp", self.draw.randint(1, 9) * 70_000, NOW * 2, rate_ppm=700_000),),
        )

    def decision(self, cluster: str) -> Generator[None]:
        epoch, shared = self.epochs[cluster], self.shared
        running = merged(self.committed[cluster])
        yield
        room = room_left(self.counted, (), merged(shared.of_others(cluster, self.now), running), LISTED)
        ledger, planned = CommitmentLedger(room), []
        for _ in range(self.draw.randint(0, 4)):
            name = self.draw.choice(sorted(LISTED))
            if not ledger.take(name, "z1", LISTED[name]).uncovered:
                planned.append(InstanceUse(name, "z1", 1))
        yield
        note = shared.noted(cluster, running, planned, self.now)
        if note is not None:
            if shared.version != self.shared.version:
                return
            self.shared = self.shared.with_cluster(cluster, note, self.now)
        yield
        if planned and epoch == self.epochs[cluster]:
            self.epochs[cluster] += 1
            self.committed[cluster] += planned

    def play(self, steps: int) -> None:
        running: list[Generator[None]] = []
        for _ in range(steps):
            self.now += self.draw.choice((0.1, 1.0, 20.0))
            action = self.draw.random()
            cluster = self.draw.choice(sorted(self.committed))
            if action < 0.3:
                running.append(self.decision(cluster))
            elif action < 0.35 and running:
                running.pop(self.draw.randrange(len(running)))  # its function dies
            elif action < 0.4 and self.committed[cluster]:
                self.committed[cluster].pop(self.draw.randrange(len(self.committed[cluster])))
            elif running:
                place = self.draw.randrange(len(running))
                if next(running[place], "over") == "over":
                    running.pop(place)
            # No invocation pauses for as long as a note is held.
            self.check()

    def check(self) -> None:
        """Everything that was launched because commitments pay for it is paid for by them."""
        everything = merged(*self.committed.values())
        unpaid = CommitmentLedger(self.counted).settle(everything, LISTED)
        assert unpaid <= len(LISTED), f"{unpaid / MICROS} dollars an hour are counted twice"


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_no_dollar_is_counted_twice_whoever_decides_when(first: int) -> None:
    for seed in range(first, first + 20):
        InterleavedClusters(seed).play(60)

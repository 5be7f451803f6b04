"""The watch function itself in virtual time: hints, snapshots and handovers, while watches break and snapshots go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.cluster.snapshot_keeper import SnapshotKeeper
from shiplap.flows.planning.decision_inputs import BoundPods
from shiplap.kubernetes.compact_pods import PodTable
from shiplap.ports import WatchEvent
from shiplap_lab.faults.fault import Fault
from shiplap_lab.judge.promises import Promise
from shiplap_lab.scenarios.scenario import load
from shiplap_lab.simulation.campaign import run_seed
from shiplap_lab.simulation.run import RunOutcome, Simulation
from shiplap_lab.virtual_time.lasting_watches import ClusterWithWatches

pytestmark = pytest.mark.thorough

WATCHED = load("watched")


def run_with(*faults: Fault, seed: int = 5) -> RunOutcome:
    return Simulation(WATCHED, seed, faults, WATCHED.scenario.hours).play()


@pytest.mark.parametrize("seed", range(2))
def test_every_promise_holds_while_watches_break(seed: int) -> None:
    assert run_seed(WATCHED, seed).violations == ()


def test_the_same_seed_has_the_same_trace() -> None:
    assert run_seed(WATCHED, 11).lines == run_seed(WATCHED, 11).lines


@pytest.mark.parametrize(
    "fault",
    [
        Fault("watch-closed", at=1, minutes=20, amount=0.5),
        Fault("watch-gone", at=4, minutes=3),
        Fault("snapshot-corrupt", at=1, minutes=20),
        Fault("snapshot-lost", at=1, minutes=20),
        Fault("crash", at=2, target="watch", amount=9),
    ],
    ids=lambda fault: fault.kind,
)
def test_each_kind_of_fault_takes_effect_and_breaks_no_promise(fault: Fault) -> None:
    outcome = run_with(fault)
    assert outcome.violations == ()
    assert outcome.effects[fault.kind] > 0


def test_decisions_use_the_snapshot_and_watches_hand_over() -> None:
    simulation = Simulation(WATCHED, 5, (), WATCHED.scenario.hours)
    outcome = simulation.play()
    (install,) = simulation.installs.values()
    (access,) = install.access.values()
    told = [msgspec.json.decode(line) for line in outcome.lines]
    watches = {
        what: [fact["t"] for fact in told if fact["what"] == what and fact["invocation"].startswith("watch-")]
        for what in ("invoked", "ended")
    }
    assert outcome.violations == ()
    assert isinstance(access, ClusterWithWatches)
    assert access.looks_without_list > 50
    for begun, ended in zip(watches["invoked"][1:], watches["ended"], strict=False):
        assert begun < ended < begun + 35  # its predecessor retires as soon as it has seen the successor's snapshot


def test_hints_are_quicker_than_the_sweep() -> None:
    told = [msgspec.json.decode(line) for line in Simulation(WATCHED, 5, (), 0.1).play().lines]
    begun = [fact["t"] for fact in told if fact["what"] == "invoked" and fact["invocation"].startswith("schedule-")]
    assert begun[0] < 6  # the first sweep begins at seven seconds
    joined = next(fact["t"] for fact in told if fact["what"] == "node joined")
    lifecycle = [
        fact["t"] for fact in told if fact["what"] == "invoked" and fact["invocation"].startswith("lifecycle-")
    ]
    assert any(joined < moment < joined + 2 for moment in lifecycle)


def nothing(*_: Any) -> None:
    """Instead of what is forgotten."""


def _without_deletions(apply: Callable[[BoundPods, WatchEvent], None]) -> Callable[[BoundPods, WatchEvent], None]:
    def act(self: BoundPods, event: WatchEvent) -> None:
        apply(self, replace(event, type="BOOKMARK") if event.type == "DELETED" else event)

    return act


def test_deletions_that_are_not_applied_to_the_snapshot_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PodTable, "drop", nothing)
    assert run_with().violations[0].promise is Promise.SNAPSHOTS


def _without_changes(see: Callable[[SnapshotKeeper, WatchEvent], None]) -> Callable[[SnapshotKeeper, WatchEvent], None]:
    def act(self: SnapshotKeeper, event: WatchEvent) -> None:
        see(self, replace(event, type="BOOKMARK") if event.type == "MODIFIED" else event)

    return act


def test_pods_that_end_but_do_not_in_the_snapshot_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SnapshotKeeper, "_see", _without_changes(SnapshotKeeper._see))
    broken = [violation.promise for seed in range(3) for violation in run_with(seed=seed).violations[:1]]
    assert set(broken) == {Promise.SNAPSHOTS}


def test_deletions_that_decisions_do_not_apply_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundPods, "_apply", _without_deletions(BoundPods._apply))
    assert run_with().violations[0].promise is Promise.SNAPSHOTS


def test_a_relist_that_forgets_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PodTable, "clear", nothing)
    assert run_with(Fault("watch-gone", at=11, minutes=3)).violations[0].promise is Promise.SNAPSHOTS


def test_a_gap_after_which_the_keeper_goes_on_from_an_old_version_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It forgets its version and continues with changes from now on."""
    act = SnapshotKeeper._list

    def skip(self: SnapshotKeeper) -> None:
        if not self._listed_at:
            act(self)
        else:
            self._version = self._api.list_for_watch("pods")[1]

    monkeypatch.setattr(SnapshotKeeper, "_list", skip)
    assert run_with(Fault("watch-gone", at=11, minutes=3)).violations[0].promise is Promise.SNAPSHOTS

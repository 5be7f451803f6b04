"""The model accepts the writes of simulated runs to table `state` and their requests to EC2, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import pytest

from shiplap_lab.fakes.state import FakeState
from shiplap_lab.judge.raw_json import ClaimItem
from shiplap_lab.simulation.mutants import planted
from shiplap_lab.virtual_time.checked_fakes import CheckedState
from tests.model.recorded_run import SIZES, Operation, RecordedRun, operation_of, played, record, replay
from tests.model.spin import need_spin

SEEDS = (
    *(
        ("mixed", seed)
        for seed in (1094412833, 551702264, 1731909017, 86420971, 1290317756, 402668129, 977, 1836311903)
    ),
    *(("restored", seed) for seed in (733120958,)),
    *(("two-installs", seed) for seed in (271828182,)),
)


@pytest.mark.parametrize(("scenario", "seed"), SEEDS)
def test_the_operations_of_a_simulated_run_are_a_path_of_the_model(scenario: str, seed: int) -> None:
    need_spin()
    run = record(scenario, seed)

    assert run.unknown == []
    assert len(run.operations) > 20
    assert run.operations[-1].name == "rests"
    assert _refused(run, run.operations) == ""


@pytest.fixture(scope="module")
def recorded() -> RecordedRun:
    need_spin()
    return record("mixed", 1094412833)


def test_an_effect_that_the_model_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    effect: Callable[[FakeState, str], AbstractContextManager[None]] = FakeState._effect

    def renamed(state: FakeState, name: str) -> AbstractContextManager[None]:
        return effect(state, "state.erase" if name == "state.read" else name)

    monkeypatch.setattr(FakeState, "_effect", renamed)

    assert "state.erase" in record("mixed", 86420971).unknown


@pytest.mark.parametrize(
    ("before", "after", "operation"),
    [
        ("Planned", "Launching", "lease"),
        ("Launching", "Launching", "wait"),
        ("Initialized", "Initialized", "touch"),
        ("Failed", "Registered", "adopt"),
        ("Gone", "Registered", ""),
        ("Failed", "Launching", ""),
        ("Launched", "Planned", ""),
    ],
)
def test_writes_that_the_model_lacks_have_no_operation(before: str, after: str, operation: str) -> None:
    item = {"cluster": "c", "name": "n"}

    assert operation_of(ClaimItem(state=before, **item), ClaimItem(state=after, **item)) == operation


@pytest.mark.parametrize("left_out", ["commit", "lease", "assign", "start", "answer", "register", "moves"])
def test_a_run_without_one_of_its_operations_is_refused(recorded: RecordedRun, left_out: str) -> None:
    at = next(number for number, item in enumerate(recorded.operations) if item.name == left_out)

    assert _refused(recorded, recorded.operations[:at] + recorded.operations[at + 1 :]) != ""


@pytest.mark.parametrize("twice", ["commit", "answer", "start", "assign", "register", "moves"])
def test_a_run_with_one_of_its_operations_twice_is_refused(recorded: RecordedRun, twice: str) -> None:
    at = next(number for number, item in enumerate(recorded.operations) if item.name == twice)

    assert _refused(recorded, recorded.operations[: at + 1] + recorded.operations[at:]) != ""


def test_a_request_before_its_commit_is_refused(recorded: RecordedRun) -> None:
    at = next(number for number, item in enumerate(recorded.operations) if item.name == "create_fleet")
    early = [recorded.operations[at], *recorded.operations[:at], *recorded.operations[at + 1 :]]

    assert "create_fleet" in _refused(recorded, early)


def test_a_write_that_leaves_out_a_claim_of_the_launch_is_refused() -> None:
    need_spin()
    begun = [*BOTH, Operation("moves", 0, 0), Operation("lease", 0), Operation("lease", 1)]
    asked = [Operation("written", 0), Operation("create_fleet", 0), Operation("answer", 0), Operation("start", 0, 0)]
    settled = [Operation("assign", 0, 0), Operation("fail", 1), Operation("written", 0)]

    assert replay([*begun, *asked, *settled], 2, 1, 1) == ""
    assert "written" in replay([*begun, *asked, settled[0], settled[2]], 2, 1, 1)


BOTH = [Operation("commit", 0, 0), Operation("commit", 1, 0)]


def test_a_commit_that_does_not_move_its_epoch_is_refused() -> None:
    need_spin()

    assert replay([*BOTH, Operation("moves", 0, 0), Operation("moved", 0, 1)], 2, 1, 1) == ""
    assert replay(BOTH, 2, 1, 1) != ""
    assert "name='lease'" in replay([*BOTH, Operation("lease", 0)], 2, 1, 1)
    assert "name='moved'" in replay([*BOTH, Operation("moves", 0, 0), Operation("moved", 0, 0)], 2, 1, 1)


def test_a_commit_at_another_epoch_than_it_has_read_is_refused(recorded: RecordedRun) -> None:
    at = next(number for number, item in enumerate(recorded.operations) if item.name == "moves" and item.second > 0)
    stale = msgspec.structs.replace(recorded.operations[at], second=recorded.operations[at].second - 1)

    assert "name='moves'" in _refused(recorded, [*recorded.operations[:at], stale, *recorded.operations[at + 1 :]])


def test_a_table_whose_commits_move_no_epoch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    need_spin()
    commit: Callable[..., None] = FakeState._commit_group

    def standing_still(state: FakeState, cluster: str, epoch: int, items: Any, counted: Any) -> None:
        commit(state, cluster, epoch, items, counted)
        state._epochs[cluster] = epoch

    monkeypatch.setattr(FakeState, "_commit_group", standing_still)
    run, _ = played("mixed", 1094412833)

    assert "name='moved'" in _refused(run, run.operations)


def test_commits_that_do_not_compare_the_epoch_are_noticed() -> None:
    """The defect needs two functions that commit at once: about every second world of `races` has them."""
    need_spin()
    with planted("skips the epoch check"):
        runs = (played("races", seed)[0] for seed in range(1, 21))
        refusals = (_refused(run, run.operations) for run in runs)
        first = next(filter(None, refusals), "")

    assert "name='moves'" in first


def test_a_commit_by_somebody_who_has_not_read_the_epoch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CheckedState, "read", FakeState.read)
    monkeypatch.setattr(CheckedState, "epoch", FakeState.epoch)
    run, _ = played("mixed", 86420971)

    assert any("who has not read the epoch" in what for what in run.unknown)


def test_what_is_not_settled_at_the_end_is_refused(recorded: RecordedRun) -> None:
    *before, rests = recorded.operations
    unclaimed = [Operation("stray", recorded.size("instance"), recorded.size("launch"))]
    held = {item.first: item.second for item in before if item.name == "assign"}
    ended = {item.first for item in before if item.name in ("finish", "fail", "give_up")}
    lost = [Operation("lose", instance) for claim, instance in held.items() if claim not in ended]
    sizes = [recorded.size(kind) + 1 for kind in SIZES]

    assert rests.name == "rests"
    assert "name='rests'" in replay([*before, *unclaimed, rests], *sizes)
    assert lost
    assert "name='rests'" in replay([*before, lost[0], rests], *sizes)


def test_an_instance_that_was_in_service_is_no_garbage(recorded: RecordedRun) -> None:
    at = next(number for number, item in enumerate(recorded.operations) if item.name == "register")
    claim = recorded.operations[at].first
    instance = next(item.second for item in recorded.operations if item.name == "assign" and item.first == claim)
    ended = [*recorded.operations[: at + 1], Operation("terminate_garbage", instance)]

    assert "terminate_garbage" in _refused(recorded, ended)


def _refused(run: RecordedRun, operations: list[Operation]) -> str:
    return replay(operations, *map(run.size, SIZES))

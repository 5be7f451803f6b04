"""What simulated runs write to table `state` and ask of EC2 is possible in the model, and nothing else is accepted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from shiplap_lab.fakes.state import FakeState
from shiplap_lab.judge.raw_json import ClaimItem
from tests.model.recorded_run import Operation, RecordedRun, operation_of, record, replay
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


@pytest.mark.parametrize("left_out", ["commit", "lease", "assign", "start", "answer", "register"])
def test_a_run_without_one_of_its_operations_is_refused(recorded: RecordedRun, left_out: str) -> None:
    at = next(number for number, item in enumerate(recorded.operations) if item.name == left_out)

    assert _refused(recorded, recorded.operations[:at] + recorded.operations[at + 1 :]) != ""


@pytest.mark.parametrize("twice", ["commit", "answer", "start", "assign", "register"])
def test_a_run_with_one_of_its_operations_twice_is_refused(recorded: RecordedRun, twice: str) -> None:
    at = next(number for number, item in enumerate(recorded.operations) if item.name == twice)

    assert _refused(recorded, recorded.operations[: at + 1] + recorded.operations[at:]) != ""


def test_a_request_before_its_commit_is_refused(recorded: RecordedRun) -> None:
    at = next(number for number, item in enumerate(recorded.operations) if item.name == "create_fleet")
    early = [recorded.operations[at], *recorded.operations[:at], *recorded.operations[at + 1 :]]

    assert "create_fleet" in _refused(recorded, early)


def test_a_write_that_leaves_out_a_claim_of_the_launch_is_refused() -> None:
    need_spin()
    begun = [Operation("commit", 0, 0), Operation("commit", 1, 0), Operation("lease", 0), Operation("lease", 1)]
    asked = [Operation("written", 0), Operation("create_fleet", 0), Operation("answer", 0), Operation("start", 0, 0)]
    settled = [Operation("assign", 0, 0), Operation("fail", 1), Operation("written", 0)]

    assert replay([*begun, *asked, *settled], 2, 1, 1) == ""
    assert "written" in replay([*begun, *asked, settled[0], settled[2]], 2, 1, 1)


def test_an_instance_that_was_in_service_is_no_garbage(recorded: RecordedRun) -> None:
    at = next(number for number, item in enumerate(recorded.operations) if item.name == "register")
    claim = recorded.operations[at].first
    instance = next(item.second for item in recorded.operations if item.name == "assign" and item.first == claim)
    ended = [*recorded.operations[: at + 1], Operation("terminate_garbage", instance)]

    assert "terminate_garbage" in _refused(recorded, ended)


def _refused(run: RecordedRun, operations: list[Operation]) -> str:
    return replay(operations, run.size("claim"), run.size("instance"), run.size("launch"))

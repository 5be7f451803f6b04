"""Each step of a command, read off its claims, whatever happened to them meanwhile."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.progress import (
    READY_S,
    SCHEMA,
    CommandState,
    CommandStep,
    DisruptionCommand,
    advanced,
    fields_without,
    forgotten_at,
    next_step,
)
from shiplap.errors import ConditionFailed
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from tests.builders.claims import node_claim, with_fields

S = ClaimState
COMMAND = DisruptionCommand(
    cluster="c",
    name="command",
    reason=Reason.UNDERUTILIZED,
    method=Method.CONSOLIDATION,
    targets=("old-a", "old-b"),
    nodes=("node-a", "node-b"),
    replacements=("new",),
    created_at=1000.0,
)
REMOVING = replace(COMMAND, state=CommandState.REMOVING)


def in_states(**states: ClaimState | None) -> dict[str, NodeClaim]:
    known = {name.replace("_", "-"): state for name, state in states.items()}
    return {
        name: node_claim(cluster="c", name=name, node_pool="p", node_class="n", state=state, failure="no capacity")
        for name, state in known.items()
        if state is not None
    }


WAITING: dict[str, tuple[dict[str, NodeClaim], CommandStep]] = {
    "just begun": (
        in_states(old_a=S.INITIALIZED, old_b=S.INITIALIZED, new=S.PLANNED),
        CommandStep(CommandState.WAITING, (("old-a", S.DISRUPTING), ("old-b", S.DISRUPTING))),
    ),
    "half marked": (
        in_states(old_a=S.DISRUPTING, old_b=S.INITIALIZED, new=S.INITIALIZED),
        CommandStep(CommandState.WAITING, (("old-b", S.DISRUPTING),)),
    ),
    "waiting": (in_states(old_a=S.DISRUPTING, old_b=S.DISRUPTING, new=S.REGISTERED), CommandStep(CommandState.WAITING)),
    "replaced": (
        in_states(old_a=S.DISRUPTING, old_b=S.DISRUPTING, new=S.INITIALIZED),
        CommandStep(CommandState.REMOVING, (("old-a", S.DRAINING), ("old-b", S.DRAINING))),
    ),
    "replacement failed": (
        in_states(old_a=S.DISRUPTING, old_b=S.INITIALIZED, new=S.FAILED),
        CommandStep(CommandState.UNDONE, (("old-a", S.INITIALIZED),), "replacement new: no capacity"),
    ),
    "replacement forgotten": (
        in_states(old_a=S.DISRUPTING, old_b=S.DISRUPTING, new=None),
        CommandStep(
            CommandState.UNDONE, (("old-a", S.INITIALIZED), ("old-b", S.INITIALIZED)), "replacement new: it is gone"
        ),
    ),
    "one target interrupted": (
        in_states(old_a=S.DRAINING, old_b=S.DISRUPTING, new=S.INITIALIZED),
        CommandStep(CommandState.REMOVING, (("old-b", S.DRAINING),)),
    ),
    "all targets gone": (
        in_states(old_a=S.GONE, old_b=S.TERMINATING, new=S.LAUNCHED),
        CommandStep(CommandState.DONE, why="its nodes left on their own"),
    ),
}


@pytest.mark.parametrize(("known", "step"), WAITING.values(), ids=WAITING.keys())
def test_a_command_that_waits(known: dict[str, NodeClaim], step: CommandStep) -> None:
    assert next_step(COMMAND, known, 1001.0) == step


def test_a_command_whose_replacements_take_too_long_is_undone() -> None:
    known = in_states(old_a=S.DISRUPTING, old_b=S.DISRUPTING, new=S.LAUNCHED)
    assert next_step(COMMAND, known, 1000.0 + READY_S - 1).to is CommandState.WAITING
    late = next_step(COMMAND, known, 1000.0 + READY_S)
    assert late.to is CommandState.UNDONE
    assert dict(late.moves) == {"old-a": S.INITIALIZED, "old-b": S.INITIALIZED, "new": S.DRAINING}


PAIRED = replace(COMMAND, replacements=("new", "more"))
FAILED = {
    "the other runs": (S.INITIALIZED, CommandState.UNDONE, {"old-a": S.INITIALIZED, "more": S.DRAINING}),
    "the other has joined": (S.REGISTERED, CommandState.UNDONE, {"old-a": S.INITIALIZED, "more": S.DRAINING}),
    "the other is being launched": (S.LAUNCHING, CommandState.WAITING, {"old-b": S.DISRUPTING}),
    "the other is not asked for yet": (S.PLANNED, CommandState.WAITING, {"old-b": S.DISRUPTING}),
    "the other is going": (S.DRAINING, CommandState.UNDONE, {"old-a": S.INITIALIZED}),
}


@pytest.mark.parametrize(("other", "to", "moves"), FAILED.values(), ids=FAILED.keys())
def test_nodes_never_come_back_beside_what_was_to_replace_them(other: S, to: CommandState, moves: dict[str, S]) -> None:
    known = in_states(old_a=S.DISRUPTING, old_b=S.INITIALIZED, new=S.FAILED, more=other)
    step = next_step(PAIRED, known, 1001.0)
    assert (step.to, dict(step.moves)) == (to, moves)


def test_a_launch_without_an_outcome_does_not_keep_a_command_for_ever() -> None:
    known = in_states(old_a=S.DISRUPTING, old_b=S.DISRUPTING, new=S.FAILED, more=S.LAUNCHING)
    assert next_step(PAIRED, known, 1000.0 + READY_S).to is CommandState.UNDONE


@pytest.mark.parametrize(("new", "more"), [(S.INITIALIZED, S.REGISTERED), (S.REGISTERED, S.INITIALIZED)])
def test_a_command_waits_for_all_of_its_replacements(new: S, more: S) -> None:
    known = in_states(old_a=S.DISRUPTING, old_b=S.DISRUPTING, new=new, more=more)
    assert next_step(PAIRED, known, 1001.0) == CommandStep(CommandState.WAITING)
    ready = in_states(old_a=S.DISRUPTING, old_b=S.DISRUPTING, new=S.INITIALIZED, more=S.INITIALIZED)
    assert next_step(PAIRED, ready, 1001.0).to is CommandState.REMOVING


REMOVALS: dict[str, tuple[dict[str, NodeClaim], CommandStep]] = {
    "died before draining": (
        in_states(old_a=S.DISRUPTING, old_b=S.DRAINING),
        CommandStep(CommandState.REMOVING, (("old-a", S.DRAINING),)),
    ),
    "draining": (in_states(old_a=S.DRAINING, old_b=S.TERMINATING), CommandStep(CommandState.REMOVING)),
    "gone": (in_states(old_a=S.GONE), CommandStep(CommandState.DONE)),
}


@pytest.mark.parametrize(("known", "step"), REMOVALS.values(), ids=REMOVALS.keys())
def test_a_command_that_removes(known: dict[str, NodeClaim], step: CommandStep) -> None:
    assert next_step(REMOVING, known, 1e9) == step


SLEEPING: dict[str, tuple[dict[str, NodeClaim], CommandStep]] = {
    "both leave": (in_states(old_a=S.DRAINING, old_b=S.TERMINATING), CommandStep(CommandState.REMOVING)),
    "one is back": (
        in_states(old_a=S.INITIALIZED, old_b=S.DRAINING),
        CommandStep(CommandState.REMOVING, why="awake again", spared=("old-a",)),
    ),
    "one is back, the other has gone": (
        in_states(old_a=S.GONE, old_b=S.INITIALIZED),
        CommandStep(CommandState.DONE, why="awake again", spared=("old-b",)),
    ),
    "both are back": (
        in_states(old_a=S.INITIALIZED, old_b=S.INITIALIZED),
        CommandStep(CommandState.UNDONE, why="awake again"),
    ),
}


@pytest.mark.parametrize(("known", "step"), SLEEPING.values(), ids=SLEEPING.keys())
def test_a_command_of_sleep_gives_up_nodes_that_are_in_service_again(
    known: dict[str, NodeClaim], step: CommandStep
) -> None:
    asleep = replace(REMOVING, reason=Reason.ASLEEP, replacements=())
    assert next_step(asleep, known, 1e9) == step
    assert next_step(REMOVING, known, 1e9).spared == ()


def test_without_replacements_nothing_is_waited_for() -> None:
    deletion = replace(COMMAND, replacements=())
    begun = next_step(deletion, in_states(old_a=S.INITIALIZED, old_b=S.INITIALIZED), 1001.0)
    assert begun.moves == (("old-a", S.DISRUPTING), ("old-b", S.DISRUPTING))
    assert next_step(deletion, in_states(old_a=S.DISRUPTING, old_b=S.DISRUPTING), 1002.0).to is CommandState.REMOVING


@pytest.mark.parametrize(
    ("saved", "hourly", "left"),
    [(3.0, 1.25, 1.75), (3.0, 0.1234567, 2.876543), (1.0, 1.0, 0.0), (0.5, 2.0, 0.0), (0.4, 0.0, 0.4)],
)
def test_what_a_command_gives_up_is_taken_from_its_savings_down_to_nothing(
    saved: float, hourly: float, left: float
) -> None:
    known = {"old-a": with_fields(in_states(old_a=S.DISRUPTING)["old-a"], hourly=hourly)}
    assert fields_without(replace(COMMAND, savings_hourly=saved), {"old-a"}, known) == {
        "targets": ("old-b",),
        "nodes": ("node-b",),
        "savings_hourly": left,
    }


def test_an_ended_command_is_kept_for_a_week_after_its_last_change() -> None:
    for state in (CommandState.DONE, CommandState.UNDONE):
        assert forgotten_at(replace(COMMAND, state=state, changed_at=2000.0)) == 2000.0 + 604_800
    for state in (CommandState.WAITING, CommandState.REMOVING):
        assert forgotten_at(replace(COMMAND, state=state, changed_at=2000.0)) is None


def test_a_command_begins_waiting_and_has_not_been_written() -> None:
    assert (COMMAND.state, COMMAND.version, COMMAND.failure, COMMAND.newer) == (CommandState.WAITING, 0, "", False)
    bare = DisruptionCommand(
        cluster="c", name="n", reason=Reason.EMPTY, method=Method.EMPTINESS, targets=("t",), nodes=("node",)
    )
    assert (bare.savings_hourly, bare.created_at, bare.changed_at) == (0.0, 0.0, 0.0)
    assert bare.busy == {"t", "node"}
    assert replace(COMMAND, schema=COMMAND.schema + 1).newer
    assert COMMAND.busy == {"old-a", "old-b", "node-a", "node-b", "new"}


def test_each_write_of_a_command_counts_and_names_the_schema_that_it_is_in() -> None:
    older = replace(COMMAND, version=4, schema=SCHEMA - 1)
    after = advanced(older, CommandState.REMOVING, {"changed_at": 5.0, "failure": "why"})
    assert after == replace(older, state=CommandState.REMOVING, version=5, schema=SCHEMA, changed_at=5.0, failure="why")


@pytest.mark.parametrize("state", [CommandState.DONE, CommandState.UNDONE])
def test_a_command_that_is_over_or_of_a_newer_release_is_not_written(state: CommandState) -> None:
    with pytest.raises(ConditionFailed, match=f"it is {state}"):
        advanced(replace(COMMAND, state=state), CommandState.REMOVING, {})
    with pytest.raises(ConditionFailed, match="is newer than"):
        advanced(replace(COMMAND, schema=SCHEMA + 1), CommandState.REMOVING, {})


BOUNDED = replace(
    COMMAND, reason=Reason.DRIFTED, targets=("old",), nodes=("node",), replacements=(), empties_within_s=300.0
)


def emptied(state: ClaimState, since: float = 2000.0, failure: str = Reason.DRIFTED) -> dict[str, NodeClaim]:
    claim = node_claim(cluster="c", name="old", node_pool="p", node_class="n", state=state, failure=failure)
    return {"old": replace(claim, changed_at=since)}


def test_a_node_that_takes_too_long_to_empty_returns_to_service() -> None:
    removing = replace(BOUNDED, state=CommandState.REMOVING)
    assert next_step(removing, emptied(S.DRAINING), 2299.0) == CommandStep(CommandState.REMOVING)
    why = "not empty within 300 s, and its pods have no other place"
    assert next_step(removing, emptied(S.DRAINING), 2300.0) == CommandStep(
        CommandState.UNDONE, (("old", S.INITIALIZED),), why
    )
    assert next_step(removing, emptied(S.INITIALIZED), 2301.0) == CommandStep(CommandState.UNDONE, (), why)
    assert next_step(removing, emptied(S.TERMINATING), 9000.0) == CommandStep(CommandState.REMOVING)
    assert next_step(removing, emptied(S.GONE), 9000.0) == CommandStep(CommandState.DONE)


def test_who_died_before_the_command_said_that_it_removes_is_followed() -> None:
    assert next_step(BOUNDED, emptied(S.DRAINING), 2010.0) == CommandStep(CommandState.REMOVING)
    assert next_step(BOUNDED, emptied(S.DRAINING), 2300.0).to is CommandState.UNDONE
    interrupted = next_step(BOUNDED, emptied(S.DRAINING, failure="spot interruption"), 2010.0)
    assert interrupted.to is CommandState.DONE


def test_without_a_bound_nodes_empty_for_as_long_as_it_takes() -> None:
    unbounded = replace(BOUNDED, state=CommandState.REMOVING, empties_within_s=0.0)
    assert next_step(unbounded, emptied(S.DRAINING), 99_000.0) == CommandStep(CommandState.REMOVING)

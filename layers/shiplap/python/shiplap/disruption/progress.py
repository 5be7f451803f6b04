"""The progress of commands: the next step follows from the states of the command's claims.

Only the command and its claims are stored between steps. So any step may be repeated, and if a function dies between
two steps, the next one continues.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import TypedDict

import msgspec
from msgspec.structs import replace

from shiplap.disruption.commands import Method, Reason
from shiplap.errors import ConditionFailed
from shiplap.manifests.nodeclaim import FINAL, GOING_FOR_GOOD, SCHEMA, ClaimState, NodeClaim

READY_S = 15 * 60.0
"""How long replacements may take until they are initialised, in seconds, before a command is undone; longer where
instances may take longer to join.
"""

FORGET_AFTER_S = 7 * 24 * 3600.0
"""How long a command is kept after it ended, in seconds."""


class CommandState(StrEnum):
    """Waiting for its replacements, Removing its nodes, and then Done; or Undone, with its nodes back in service."""

    WAITING = "Waiting"
    REMOVING = "Removing"
    DONE = "Done"
    UNDONE = "Undone"


_COMING = frozenset({ClaimState.PLANNED, ClaimState.LAUNCHING})
_RUNNING = frozenset({ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED})

OVER = frozenset({CommandState.DONE, CommandState.UNDONE})


class DisruptionCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A proposal that has begun. Times are epoch seconds.

    `targets` are the claims whose nodes go, `replacements` those that have to be initialised first; `nodes` are the
    Nodes that go, `receiving` those that stay and take pods of theirs. `failure` says why it was undone.
    `empties_within_s` bounds how long its nodes may take to be emptied, in seconds; 0 without a bound.
    """

    cluster: str
    name: str
    reason: Reason
    method: Method
    targets: tuple[str, ...]
    nodes: tuple[str, ...]
    replacements: tuple[str, ...] = ()
    receiving: tuple[str, ...] = ()
    state: CommandState = CommandState.WAITING
    savings_hourly: float = 0.0
    created_at: float = 0.0
    changed_at: float = 0.0
    detail: str = ""
    failure: str = ""
    empties_within_s: float = 0.0
    version: int = 0
    schema: int = SCHEMA

    @property
    def newer(self) -> bool:
        """True if a newer release wrote it in a form that this release must not touch, see `nodeclaim.SCHEMA`."""
        return self.schema > SCHEMA

    @property
    def busy(self) -> frozenset[str]:
        """Names that no other command may touch: its nodes and its replacements."""
        return frozenset((*self.nodes, *self.targets, *self.replacements))


class CommandChanges(TypedDict, total=False):
    """Fields of DisruptionCommand that change while it is under way."""

    targets: tuple[str, ...]
    nodes: tuple[str, ...]
    savings_hourly: float
    changed_at: float
    failure: str


def advanced(command: DisruptionCommand, to: CommandState, changes: CommandChanges) -> DisruptionCommand:
    """The command after one conditional write, its version one higher.

    Raises:
        ConditionFailed: it is over, or a newer release wrote it in a form that is not to be written over.
    """
    if command.newer:
        raise ConditionFailed(f"command {command.name}: schema {command.schema} is newer than {SCHEMA}")
    if command.state in OVER:
        raise ConditionFailed(f"command {command.name}: it is {command.state}")
    return replace(command, **{**changes, "state": to, "version": command.version + 1, "schema": SCHEMA})


def forgotten_at(command: DisruptionCommand) -> float | None:
    """Epoch seconds after which an ended command may be deleted; None while it has not ended."""
    return command.changed_at + FORGET_AFTER_S if command.state in OVER else None


class CommandStep(msgspec.Struct, frozen=True):
    """The next step: state changes of claims, then of the command. `why` is the reason of an end.

    `spared` are targets that the command gives up.
    """

    to: CommandState
    moves: tuple[tuple[str, ClaimState], ...] = ()
    why: str = ""
    spared: tuple[str, ...] = ()


def next_step(
    command: DisruptionCommand, claims: Mapping[str, NodeClaim], now: float, ready_s: float = READY_S
) -> CommandStep:
    """The step that the states of the claims allow; without changes when there is nothing to do.

    A target that leaves on its own (an interruption, a person) needs no command any more and delays no other target.
    A command is not undone while a launch of a replacement has no outcome: its node would come beside those it
    replaces.

    Args:
        command: one that is not over.
        claims: those of the command, by name; a deleted claim is over.
        now: epoch seconds.
        ready_s: for how long it waits for its replacements, in seconds.
    """
    if command.state is CommandState.REMOVING or _has_begun_to_empty(command, claims):
        return _remove(command, claims, now)
    staying = [
        name for name in command.targets if not _is_over(claims.get(name)) and claims[name].state not in GOING_FOR_GOOD
    ]
    if not staying:
        return CommandStep(CommandState.DONE, why="its nodes left on their own")
    failed = [name for name in command.replacements if _is_over(claims.get(name))]
    coming = any(name in claims and claims[name].state in _COMING for name in command.replacements)
    if failed and not coming:
        reason = claims[failed[0]].failure if failed[0] in claims else "it is gone"
        return _undo(command, staying, claims, f"replacement {failed[0]}: {reason}")
    if not failed and all(claims[name].state is ClaimState.INITIALIZED for name in command.replacements):
        if all(claims[name].state is ClaimState.DISRUPTING for name in staying):
            return CommandStep(CommandState.REMOVING, _moves_to(staying, claims, ClaimState.DRAINING))
    elif now >= command.created_at + ready_s:
        return _undo(command, staying, claims, f"its replacements were not initialized within {ready_s:.0f} s")
    return CommandStep(CommandState.WAITING, _moves_to(staying, claims, ClaimState.DISRUPTING))


def reconsider_step(
    command: DisruptionCommand, step: CommandStep, claims: Mapping[str, NodeClaim], objections: Mapping[str, str]
) -> CommandStep:
    """The step that begins to remove nodes, after a check of their pods once the nodes are tainted.

    Without replacements each node is independent, and only nodes with an objection stay. With replacements all nodes go
    or none does: the replacements are for the pods of all of them.

    Args:
        command: one that waits.
        step: the one that would remove its nodes.
        claims: those of the command, by name.
        objections: for targets that must not go after all, why.
    """
    going = [name for name, _ in step.moves]
    kept = tuple(name for name in going if name in objections)
    if not kept:
        return step
    why = "; ".join(objections[name] for name in kept)
    if command.replacements or len(kept) == len(going):
        return _undo(command, going, claims, why)
    moves = tuple((name, ClaimState.INITIALIZED if name in objections else to) for name, to in step.moves)
    return CommandStep(CommandState.REMOVING, moves, why, kept)


def fields_without(
    command: DisruptionCommand, spared: Collection[str], claims: Mapping[str, NodeClaim]
) -> CommandChanges:
    """The fields of a command that change when it gives up some of its targets."""
    left = [(name, node) for name, node in zip(command.targets, command.nodes, strict=True) if name not in spared]
    unsaved = sum(claims[name].hourly for name in spared)
    return {
        "targets": tuple(name for name, _ in left),
        "nodes": tuple(node for _, node in left),
        "savings_hourly": round(max(0.0, command.savings_hourly - unsaved), 6),
    }


def _remove(command: DisruptionCommand, claims: Mapping[str, NodeClaim], now: float) -> CommandStep:
    left = [name for name in command.targets if not _is_over(claims.get(name))]
    if not left:
        return CommandStep(CommandState.DONE)
    late = tuple(name for name in left if _returns(claims[name], command, now))
    if command.empties_within_s and late:
        why = f"not empty within {command.empties_within_s:.0f} s, and its pods have no other place"
        return CommandStep(CommandState.UNDONE, _moves_to(late, claims, ClaimState.INITIALIZED), why)
    if command.reason is Reason.ASLEEP:  # a drain for sleep ends when all is awake
        back = tuple(name for name in left if claims[name].state is ClaimState.INITIALIZED)
        if back:
            is_all = len(back) == len(command.targets)
            to = CommandState.UNDONE if is_all else CommandState.DONE if len(back) == len(left) else command.state
            return CommandStep(to, why="awake again", spared=() if is_all else back)
    return CommandStep(CommandState.REMOVING, _moves_to(left, claims, ClaimState.DRAINING, but=GOING_FOR_GOOD))


def _undo(command: DisruptionCommand, staying: list[str], claims: Mapping[str, NodeClaim], why: str) -> CommandStep:
    """Its nodes return to service and its running replacements go: a limit may not allow both."""
    back = tuple((n, ClaimState.INITIALIZED) for n in staying if claims[n].state is ClaimState.DISRUPTING)
    vain = tuple((n, ClaimState.DRAINING) for n in command.replacements if n in claims and claims[n].state in _RUNNING)
    return CommandStep(CommandState.UNDONE, (*back, *vain), why)


def _moves_to(
    names: Iterable[str],
    claims: Mapping[str, NodeClaim],
    state: ClaimState,
    but: frozenset[ClaimState] = frozenset(),
) -> tuple[tuple[str, ClaimState], ...]:
    return tuple((n, state) for n in names if claims[n].state is not state and claims[n].state not in but)


def _has_begun_to_empty(command: DisruptionCommand, claims: Mapping[str, NodeClaim]) -> bool:
    """True if a node that returns to service when it empties too slowly is being emptied for this command.

    Whoever began that may have died before the command said so.
    """
    own = (claims[name] for name in command.targets if name in claims)
    return bool(command.empties_within_s) and any(
        claim.state is ClaimState.DRAINING and claim.failure == command.reason for claim in own
    )


def _returns(claim: NodeClaim, command: DisruptionCommand, now: float) -> bool:
    """True if a node takes too long to empty, or has been returned to service for that."""
    if claim.state is ClaimState.DRAINING:
        return now >= claim.changed_at + command.empties_within_s
    return claim.state is ClaimState.INITIALIZED


def _is_over(claim: NodeClaim | None) -> bool:
    return claim is None or claim.state in FINAL

"""Shows what sleeps, in one line each: for `plan`, `disrupt`, `explain` and `top`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shiplap.kubernetes.timestamps import rfc3339
from shiplap.policies.sleep.sleep_input import SleepInput
from shiplap.policies.sleep.sleep_state import SleepState


def sleep_lines(known: SleepInput | None, rehearsed: Sequence[str] = ()) -> Iterator[str]:
    """Nothing where nothing may sleep. `rehearsed` are the nodes that would leave if this were no rehearsal."""
    if known is None:
        return
    state = known.state
    if state.woken:
        yield f"sleep: somebody keeps all awake until {rfc3339(state.woken)}"
    for scope in state.scopes:
        what = f"{scope.kind} {scope.name}"
        if scope.rehearsal:
            yield f"sleep: {what} rehearses until {rfc3339(scope.until)}"
        else:
            yield f"sleep: {what} until {rfc3339(scope.until)}, woken {_ahead(scope.until - scope.wakes_at)}"
    if rehearsed:
        yield f"sleep: rehearsal, these nodes would leave: {', '.join(rehearsed)}"
    if any(not scope.rehearsal for scope in state.scopes):
        yield f"sleep: {state.nodes_left} more nodes may leave"
    for doubt in state.doubts:
        yield f"sleep in doubt: {doubt}"


def sleep_document(state: SleepState, rehearsed: Sequence[str]) -> dict[str, Any]:
    """The same in the fixed format of `shiplap plan -o json`."""
    return {
        "armed": list(state.armed),
        "nodesLeft": state.nodes_left,
        "awakeUntil": rfc3339(state.woken) if state.woken else "",
        "doubts": list(state.doubts),
        "rehearsed": list(rehearsed),
        "scopes": [
            {
                "kind": scope.kind,
                "name": scope.name,
                "until": rfc3339(scope.until),
                "wakesAt": rfc3339(scope.wakes_at),
                "rehearsal": scope.rehearsal,
            }
            for scope in state.scopes
        ],
    }


def _ahead(seconds: int) -> str:
    return f"{seconds / 60:.0f} min before"

"""Sleep on the command line: its notes, and what sleeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from shiplap.policies.sleep.sleep_input import SleepInput
from shiplap.policies.sleep.sleep_state import SleepNotes
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap_cli.policy_views import PolicyView, Unread
from shiplap_cli.render.sleep_lines import sleep_document, sleep_lines


class SleepView(PolicyView):
    """Takes a cluster whose notes cannot be read for one that has not slept yet."""

    unread: ClassVar[Mapping[str, Unread]] = {
        "sleep": Unread("notes of sleep", "all that would sleep is shown as rehearsed", SleepNotes())
    }

    def has_rehearsal(self, snapshot: Snapshot) -> bool:
        """Return True if a window is open that is rehearsed."""
        sleep = snapshot.policy(SleepInput)
        return sleep is not None and any(scope.rehearsal for scope in sleep.state.scopes)

    def lines(self, snapshot: Snapshot, rehearsed: Sequence[str]) -> Iterator[str]:
        """Yield what sleeps, in one line each."""
        return sleep_lines(snapshot.policy(SleepInput), rehearsed)

    def document(self, snapshot: Snapshot, plan: Plan, rehearsed: Sequence[str]) -> dict[str, Any] | None:  # noqa: ARG002 - before the plan
        """Return what sleeps."""
        sleep = snapshot.policy(SleepInput)
        return None if sleep is None else sleep_document(sleep.state, rehearsed)


VIEW = SleepView()

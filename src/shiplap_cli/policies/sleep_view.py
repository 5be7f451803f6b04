"""Sleep on the command line: its notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from shiplap.policies.sleep.sleep_state import SleepNotes
from shiplap_cli.policy_views import PolicyView, Unread


class SleepView(PolicyView):
    """Takes a cluster whose notes cannot be read for one that has not slept yet."""

    unread: ClassVar[Mapping[str, Unread]] = {
        "sleep": Unread("notes of sleep", "all that would sleep is shown as rehearsed", SleepNotes())
    }


VIEW = SleepView()

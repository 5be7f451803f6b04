"""What an install knows beside its cluster, looked up again and again.

Where it may not be read, that is said, and the rest is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import TypeVar

import msgspec

from shiplap.errors import AwsError, InvalidInput, StoreError
from shiplap_cli.hints import with_hint
from shiplap_cli.inputs.cluster_events import SourceProblem

EVERY_S = 5.0

Answer = TypeVar("Answer")


class PolledSource(msgspec.Struct, frozen=True):
    """What is looked at: its `kind` in troubles, and what to say while it cannot be seen."""

    kind: str
    unseen: str

    def trouble(self, why: str) -> SourceProblem:
        """It cannot be seen now."""
        return SourceProblem(self.kind, f"{self.unseen}: {why}")


def poll_once(subject: PolledSource, see: Callable[[], Answer], put: Callable[[Answer | SourceProblem], None]) -> None:
    """Once. Raises InvalidInput: there is no such install or cluster."""
    try:
        put(see())
    except (AwsError, StoreError) as error:
        put(subject.trouble(with_hint(error)))
    else:
        put(SourceProblem(subject.kind, ""))


def keep_polling(
    subject: PolledSource, see: Callable[[], Answer], put: Callable[[Answer | SourceProblem], None], ended: Event
) -> None:
    """Look again and again, in a thread that ends with the process at the latest."""

    def run() -> None:
        while not ended.wait(EVERY_S):
            try:
                poll_once(subject, see, put)
            except InvalidInput as error:  # the install has gone since it was looked up
                put(subject.trouble(str(error)))

    Thread(target=run, name=f"follow-{subject.kind}", daemon=True).start()

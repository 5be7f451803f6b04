"""Polls tables and records of an install. A source that may not be read is reported; the others are shown."""

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
    """A source: its `kind` in problems, and the text shown while it cannot be read."""

    kind: str
    unseen: str

    def trouble(self, why: str) -> SourceProblem:
        """It cannot be seen now."""
        return SourceProblem(self.kind, f"{self.unseen}: {why}")


def poll_once(subject: PolledSource, read: Callable[[], Answer], put: Callable[[Answer | SourceProblem], None]) -> None:
    """Once. Raises InvalidInput: there is no such install or cluster."""
    try:
        put(read())
    except (AwsError, StoreError) as error:
        put(subject.trouble(with_hint(error)))
    else:
        put(SourceProblem(subject.kind, ""))


def keep_polling(
    subject: PolledSource, read: Callable[[], Answer], put: Callable[[Answer | SourceProblem], None], ended: Event
) -> None:
    """Look again and again, in a thread that ends with the process at the latest."""

    def run() -> None:
        while not ended.wait(EVERY_S):
            try:
                poll_once(subject, read, put)
            except InvalidInput as error:  # the install has gone since it was looked up
                put(subject.trouble(str(error)))

    Thread(target=run, name=f"follow-{subject.kind}", daemon=True).start()

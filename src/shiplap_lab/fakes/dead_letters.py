"""Dead letters in memory."""

from __future__ import annotations

from shiplap_lab.fakes.faults import Faults


class FakeDeadLetters:
    """DeadLetters; `letters` holds each body with its reason, in order."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.letters: list[tuple[str, str]] = []

    def send(self, body: str, reason: str) -> None:
        with self.faults.effect("dead_letters.send"):
            self.letters.append((body, reason))

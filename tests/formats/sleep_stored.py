"""The items that sleep stores."""

from __future__ import annotations

from typing import Any

from shiplap.aws.policies.sleep_adapters import DynamoSleep
from shiplap.policies.sleep.sleep_state import SleepNotes


def write(client: Any, now: float) -> None:
    sleep = DynamoSleep(client, "state")
    at = int(now)
    sleep.save("blue", SleepNotes("digest", {"0": at + 60}, taken=3, taken_until=at + 100), now)
    sleep.wake("blue", at, at + 600)

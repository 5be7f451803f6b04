"""Sleep in a drawn install: its settings, and the notes of an earlier night."""

from __future__ import annotations

import time
from random import Random

from shiplap.aws import session
from shiplap.aws.policies.sleep_adapters import DynamoSleep
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.policies.sleep.sleep_state import SleepNotes, sleep_digest
from shiplap.settings import ClusterSettings


def settings(at: float) -> SleepSettings:
    """A window that has been open for two hours."""
    hours = [time.strftime("%H:%M", time.gmtime(at + 3600 * shift)) for shift in (-2, 3)]
    return SleepSettings(("default",), 5, (WindowSettings(f"daily {hours[0]}-{hours[1]} UTC"),))


def remember(install: ClusterSettings, at: float, draw: Random) -> None:
    """Store that the window was rehearsed, or not."""
    found = install.policy(SleepSettings)
    assert found is not None
    digest = sleep_digest(found, install.manifests.node_pools)
    notes = SleepNotes(digest, {"0": 1} if draw.random() < 0.5 else {})
    DynamoSleep(session.client("dynamodb"), "state").save("blue", notes, at)

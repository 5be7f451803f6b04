"""Functions about to run where a NodePool sleeps, on a stage on which optional calls may hang."""

from __future__ import annotations

from msgspec.structs import replace

from shiplap.policies.policy_settings import chosen
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from tests.integration.flows.hanging_plays import Played, sweeping


def sweeping_sleep() -> Played:
    """As `sweeping`, at an hour at which a pool sleeps."""
    played = sweeping()
    windows = (WindowSettings("daily 00:00-23:59 UTC"),)
    played.stage.settings = replace(played.stage.settings, policies=chosen(SleepSettings(("nobody",), 5, windows)))
    return played


STORIES = (sweeping_sleep,)

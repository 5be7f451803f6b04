"""The notes of sleep of a stage."""

from __future__ import annotations

from shiplap_lab.policies.sleep_fakes import FakeSleep
from tests.integration.flows.stage import Stage


def sleep_of(stage: Stage) -> FakeSleep:
    """Return the notes of sleep."""
    store = stage.policy_ports["sleep"]["sleep"]
    assert isinstance(store, FakeSleep)
    return store

"""Figures of sleep that users read in the docs are those that the code works with."""

from __future__ import annotations

from shiplap.policies.sleep import sleep_windows
from tests.documented import says


def test_the_shortest_sleep_that_a_node_leaves_for() -> None:
    assert says("sleep", "shortest sleep that a node leaves for | 15 minutes")
    assert sleep_windows.LEAST_SLEEP_S == 15 * 60

"""The arithmetic of rolling updates: bounds that hold at every step, and that it ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.kubernetes.related_objects import RollingUpdate, amount_of, surge_and_unavailable
from shiplap_lab.cluster_simulator.workloads.deployment_rollout import SetSize, next_sizes


@pytest.mark.parametrize(
    ("new", "old", "sizes"),
    [
        (SetSize("n", 0), [SetSize("o", 10, 10)], {"n": 3}),
        (SetSize("n", 3), [SetSize("o", 10, 10)], {"o": 8}),
        (SetSize("n", 3, 3), [SetSize("o", 8, 8)], {"n": 5}),
        (SetSize("n", 5, 3), [SetSize("o", 8, 8)], {"o": 5}),
        (SetSize("n", 5, 0), [SetSize("o", 8, 8)], {}),  # no new one is available yet
        (SetSize("n", 5, 5), [SetSize("o", 8, 8)], {"o": 3}),
        (SetSize("n", 10, 10), [SetSize("o", 3, 3)], {"o": 0}),
        (SetSize("n", 10, 10), [], {}),
        (SetSize("n", 12, 12), [], {"n": 10}),
        (SetSize("n", 3), [SetSize("a", 4, 0), SetSize("b", 6, 6)], {"a": 2}),  # what is broken goes first
        (SetSize("n", 13, 0), [SetSize("o", 3, 3)], {"n": 10}),
    ],
)
def test_the_next_sizes_of_ten_replicas(new: SetSize, old: list[SetSize], sizes: dict[str, int]) -> None:
    assert next_sizes(new, old, 10, surge=3, unavailable=2) == sizes


@given(
    st.integers(0, 40),
    st.lists(st.integers(0, 30), max_size=3),
    st.integers(0, 20),
    st.integers(0, 20),
    st.randoms(use_true_random=False),
)
def test_a_rollout_ends_and_keeps_its_bounds(
    replicas: int, before: list[int], surge: int, unavailable: int, chance: object
) -> None:
    """Pods become available at any moment, and none that is available goes while there are too few."""
    unavailable = unavailable or int(not surge)
    wanted = {"new": 0} | {f"old-{number}": size for number, size in enumerate(before)}
    ready = dict(wanted)
    for _ in range(400):
        new, *old = (SetSize(name, wanted[name], ready[name]) for name in wanted)
        sizes = next_sizes(new, old, replicas, surge=surge, unavailable=unavailable)
        total, available = sum(wanted.values()), sum(ready.values())
        wanted |= sizes
        ready = {name: min(ready[name], wanted[name]) for name in wanted}
        assert sum(wanted.values()) <= max(total, replicas + surge)
        assert sum(ready.values()) >= min(available, replicas - unavailable)
        unready = [name for name in wanted if ready[name] < wanted[name]]
        if not sizes and not unready:
            break
        for name in unready:
            ready[name] += chance.randint(0, wanted[name] - ready[name])  # type: ignore[attr-defined]
    assert wanted == {name: replicas if name == "new" else 0 for name in wanted}


def test_percentages_are_rounded_so_that_a_rollout_moves() -> None:
    assert (amount_of("25%", 3, up=True), amount_of("25%", 3, up=False), amount_of(2, 3, up=True)) == (1, 0, 2)
    assert surge_and_unavailable(RollingUpdate(0, "10%"), 3) == (0, 1)
    assert surge_and_unavailable(RollingUpdate("50%", 0), 3) == (2, 0)

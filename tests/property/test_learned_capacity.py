"""Whatever nodes turn out to yield, one look at each is enough."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shiplap.instances.capacity.learned_capacity import merged_capacity, shortfall, with_observation
from shiplap.instances.capacity.reported_amounts import DAY_S
from shiplap.instances.catalog.type_catalog import ImportedCapacity, LearnedCapacity, Observation
from tests.builders.node_classes import node_class
from tests.learned_amounts import smallest_allocatable, smallest_capacity
from tests.thoroughness import draws
from tests.unit.instances.given_instances import MIB, kind, resolved, yields

PROFILE = settings(derandomize=True, deadline=None, max_examples=draws(60))

NAMES = ("m5.large", "m5.4xlarge", "r5a.8xlarge", "c5.large", "t3.nano")


def report(name: str, share: float, at: float, node: str, kubelet: str) -> Observation:
    memory = int(kind(name).memory_info.size_in_mi_b * MIB * share)
    overhead = yields(name).overhead["memory"]
    return Observation("ami-amd", name, kubelet, {"memory": memory}, {"memory": memory - overhead}, at, "demo", node)


@PROFILE
@given(
    st.lists(st.tuples(st.floats(0, 1e7), st.integers(0, 30), st.integers(1, 2**40)), min_size=1, max_size=25),
    st.randoms(use_true_random=False),
    st.integers(0, 25),
)
@example([(0.0, 0, 1), (0.0, 0, 2)], Random(0), 1)  # noqa: S311 - a node that reports twice within a moment
def test_concurrent_observers_agree(reports: list[tuple[float, int, int]], shuffled: object, split: int) -> None:
    """In whatever order they report, and however their entries are merged, the smallest of sixty days is known."""
    observations = [
        Observation("ami", "t", "h", {"memory": memory}, {"memory": memory}, at, "demo", f"n{node}")
        for at, node, memory in reports
    ]
    shuffled.shuffle(observations)  # type: ignore[attr-defined]
    merged: LearnedCapacity | None = None
    for observation in observations:
        merged = with_observation(merged, observation)
    assert merged is not None
    newest = max(observation.observed_at for observation in observations)
    assert merged.recent[-1].observed_at == newest
    days = 60 * DAY_S
    lately = [each.capacity["memory"] for each in observations if each.observed_at // DAY_S >= (newest - days) // DAY_S]
    assert smallest_capacity(merged)["memory"] == smallest_allocatable(merged)["memory"] == min(lately)
    parts: list[LearnedCapacity | None] = [None, None]
    for place, observation in enumerate(observations):
        parts[place < split] = with_observation(parts[place < split], observation)
    one, other = (part or LearnedCapacity("ami", "t", "h") for part in parts)
    for both in (merged_capacity(one, other), merged_capacity(other, one)):
        assert msgspec.structs.replace(both, version=0, count=0) == msgspec.structs.replace(merged, version=0, count=0)
    assert len({each.node for each in merged.recent}) == len(merged.recent) <= 10


@PROFILE
@given(st.sampled_from(NAMES), st.lists(st.floats(0.875, 0.999), min_size=1, max_size=40), st.data())
def test_within_sixty_days_no_node_has_less_than_is_relied_on_twice(
    name: str, shares: list[float], data: st.DataObject
) -> None:
    """Each node's plan relies on what is known when it is launched; a repeated amount never misses."""
    learned: LearnedCapacity | None = None
    smallest = 1.0
    at = 0.0
    for number, share in enumerate(shares):
        at += data.draw(st.floats(0, 59 * DAY_S / len(shares)))
        if learned is not None and share >= smallest:
            relied_on = yields(name, node_class(), answered=resolved(), learned=(learned,)).allocatable["memory"]
            assert relied_on <= report(name, share, at, "next", "h").allocatable["memory"]
        kubelet = yields(name, node_class(), answered=resolved()).kubelet_hash
        learned = with_observation(learned, report(name, share, at, f"n{number}", kubelet))
        smallest = min(smallest, share)


@PROFILE
@given(st.sampled_from(NAMES), st.floats(0.3, 0.999))
def test_once_seen_a_type_is_never_promised_too_much_again(name: str, share: float) -> None:
    """A far report holds for all but a pilot at once, and for everything as soon as a second node agrees."""
    before = yields(name, node_class(), answered=resolved())
    truth = report(name, share, 1.0, "n1", before.kubelet_hash)
    learned = with_observation(None, truth)
    after = yields(name, node_class(), answered=resolved(), learned=(learned,))
    assert after.verified or share < 0.875
    assert after.careful_allocatable["memory"] <= truth.allocatable["memory"]
    learned = with_observation(learned, report(name, share, 2.0, "n2", before.kubelet_hash))
    after = yields(name, node_class(), answered=resolved(), learned=(learned,))
    assert after.verified
    assert (
        shortfall(
            after.allocatable,
            truth.allocatable | {r: after.allocatable[r] for r in ("cpu", "pods", "ephemeral-storage")},
        )
        == {}
    )


@PROFILE
@given(st.sampled_from(NAMES), st.sampled_from(NAMES), st.floats(0.875, 0.999), st.floats(0.875, 0.999))
def test_the_careful_bound_holds_for_every_overhead_of_an_eighth(
    seen_name: str, name: str, seen_share: float, share: float
) -> None:
    learned = with_observation(None, report(seen_name, seen_share, 1.0, "n1", "other"))
    made = yields(name, node_class(), answered=resolved(), learned=(learned,), beside=(seen_name,))
    truth = int(kind(name).memory_info.size_in_mi_b * MIB * share)
    assert made.careful["memory"] <= truth
    assert made.careful["memory"] <= made.capacity["memory"]
    assert not made.verified


def imported(name: str, kubelet: str, capacity: dict[str, int], allocatable: dict[str, int]) -> LearnedCapacity:
    return LearnedCapacity("ami-amd", name, kubelet, imported=ImportedCapacity(capacity, allocatable, 3))


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "ephemeral-storage", "nvidia.com/gpu", "other"]),
    st.one_of(st.integers(0, 2**50), st.integers(6 * 2**30, 9 * 2**30)),
)


@PROFILE
@given(st.sampled_from(NAMES), AMOUNTS, AMOUNTS, st.lists(st.floats(0.875, 0.999), max_size=2))
def test_an_import_never_raises_an_estimate(
    name: str, capacity: dict[str, int], allocatable: dict[str, int], shares: list[float]
) -> None:
    """Whatever a file says: estimates fall or stay, by no more than to the careful bound, and nothing is verified."""
    kubelet = yields(name, node_class(), answered=resolved()).kubelet_hash
    siblings = [
        with_observation(None, report(other, share, 1.0, f"n{n}", "h"))
        for n, (other, share) in enumerate(zip(("m5.large", "r5a.8xlarge"), shares, strict=False))
        if other != name
    ]
    travelled = imported(name, kubelet, capacity, allocatable)
    without = yields(name, node_class(), answered=resolved(), learned=tuple(siblings))
    found = yields(name, node_class(), answered=resolved(), learned=(*siblings, travelled))
    assert not found.verified
    assert found.capacity.keys() == without.capacity.keys()
    for resource, amount in without.allocatable.items():
        assert found.allocatable[resource] <= amount
        assert found.careful_allocatable[resource] <= without.careful_allocatable[resource]
        assert found.overhead.get(resource, 0) <= 2 * without.overhead.get(resource, 0)
        assert found.capacity[resource] >= min(without.careful.get(resource, 0), without.capacity[resource])


@PROFILE
@given(st.sampled_from(NAMES), AMOUNTS, AMOUNTS, st.floats(0.875, 0.999))
def test_the_first_report_here_takes_the_place_of_an_import(
    name: str, capacity: dict[str, int], allocatable: dict[str, int], share: float
) -> None:
    kubelet = yields(name, node_class(), answered=resolved()).kubelet_hash
    travelled = imported(name, kubelet, capacity, allocatable)
    reported = with_observation(None, report(name, share, 1.0, "n", kubelet))
    both = merged_capacity(travelled, with_observation(None, report(name, share, 1.0, "n", kubelet)))
    assert both.imported == travelled.imported
    with_both, with_report = (
        yields(name, node_class(), answered=resolved(), learned=(entry,)) for entry in (both, reported)
    )
    assert with_both == with_report
    assert with_both.verified

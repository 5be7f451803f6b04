"""Merging what nodes reported, and what it teaches about other types."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from shiplap.instances.capacity.learned_capacity import (
    RECENT,
    LearnedCapacityIndex,
    is_observed,
    merged_capacity,
    shortfall,
    with_observation,
)
from shiplap.instances.capacity.reported_amounts import DAY_S
from shiplap.instances.catalog.type_catalog import ImportedCapacity, LearnedCapacity, Minimum, ReportedAmounts
from tests.learned_amounts import smallest_allocatable, smallest_capacity
from tests.unit.instances.given_instances import GIB, MIB, known, seen


def test_the_first_observation() -> None:
    first = seen("m5.large", 7700 * MIB, cpu=2000)
    learned = with_observation(None, first)
    assert (learned.ami, learned.instance_type, learned.kubelet_hash) == ("ami-amd", "m5.large", "h")
    assert (learned.recent, learned.count, learned.version) == ((first,), 1, 1)
    capacity, allocatable = {"cpu": 2000, "memory": 7700 * MIB}, {"cpu": 2000, "memory": 7026 * MIB}
    assert learned.reported == (ReportedAmounts("demo", capacity, allocatable, 1000.0, ("n1",)),)


def test_the_smallest_of_the_recent_counts_per_resource() -> None:
    learned = with_observation(None, seen("m5.large", 7700 * MIB, node="a", at=1, pods=29))
    learned = with_observation(learned, seen("m5.large", 7690 * MIB, node="b", at=2, pods=110))
    learned = with_observation(learned, seen("m5.large", 7710 * MIB, node="c", at=3, pods=110))
    assert smallest_capacity(learned) == {"memory": 7690 * MIB, "pods": 29}
    assert smallest_allocatable(learned)["memory"] == (7690 - 674) * MIB
    assert (learned.count, learned.version) == (3, 3)


def test_twelve_larger_nodes_do_not_raise_it() -> None:
    learned = with_observation(None, seen("m5.large", 7000 * MIB, node="small", at=0))
    for index in range(12):
        learned = with_observation(learned, seen("m5.large", 7700 * MIB, node=f"n{index}", at=1 + index))
    assert (smallest_capacity(learned)["memory"], smallest_allocatable(learned)["memory"]) == (
        7000 * MIB,
        (7000 - 674) * MIB,
    )
    assert len(learned.recent) == RECENT
    assert learned.count == 13


def test_it_rises_once_the_smallest_is_older_than_sixty_days() -> None:
    learned = with_observation(None, seen("m5.large", 7000 * MIB, node="small", at=0))
    learned = with_observation(learned, seen("m5.large", 7100 * MIB, node="medium", at=30 * DAY_S))
    for index in range(RECENT):
        learned = with_observation(learned, seen("m5.large", 7700 * MIB, node=f"n{index}", at=60 * DAY_S))
    assert smallest_capacity(learned)["memory"] == 7000 * MIB
    learned = with_observation(learned, seen("m5.large", 7700 * MIB, node="later", at=61 * DAY_S))
    assert smallest_capacity(learned)["memory"] == 7100 * MIB, "the smallest of the last sixty days"
    learned = with_observation(learned, seen("m5.large", 7700 * MIB, node="last", at=91 * DAY_S))
    assert smallest_capacity(learned)["memory"] == 7700 * MIB


def test_seen_again_it_holds_for_sixty_days_more() -> None:
    learned = with_observation(None, seen("m5.large", 7000 * MIB, node="first", at=0))
    learned = with_observation(learned, seen("m5.large", 7000 * MIB, node="again", at=40 * DAY_S))
    assert [(report.seen_at, report.nodes) for report in learned.reported] == [(40 * DAY_S, ("again", "first"))]
    learned = with_observation(learned, seen("m5.large", 7700 * MIB, node="large", at=100 * DAY_S))
    assert smallest_capacity(learned)["memory"] == 7000 * MIB


def test_an_entry_without_minima_takes_them_from_its_observations() -> None:
    reports = [seen("m5.large", (7700 + at) * MIB, node=f"n{at}", at=at) for at in range(RECENT)]
    written_before = known(*reports)
    assert is_observed(written_before)
    assert smallest_capacity(written_before)["memory"] == 7700 * MIB
    learned = with_observation(written_before, seen("m5.large", 7800 * MIB, node="next", at=RECENT))
    assert reports[0] not in learned.recent
    assert smallest_capacity(learned)["memory"] == 7700 * MIB


def test_an_entry_of_an_older_release_is_read_and_written_in_the_new_form() -> None:
    """It sums up the smallest amounts of all clusters; those that it names a node for are counted once."""
    named = seen("m5.large", 10 * MIB, allocatable=10 * MIB, node="broken", at=3 * DAY_S)
    minima = {"memory": (Minimum(7600 * MIB, 2), Minimum(10 * MIB, 3))}
    older = msgspec.structs.replace(known(named), minimum_capacity=minima, minimum_allocatable=minima)
    amounts = {"memory": 7600 * MIB}
    assert is_observed(older)
    written = with_observation(older, seen("m5.large", 7700 * MIB, node="next", at=4 * DAY_S))
    assert (written.minimum_capacity, written.minimum_allocatable) == ({}, {})
    assert {(report.cluster, report.nodes) for report in written.reported} == {
        ("", ()),
        ("demo", ("broken",)),
        ("demo", ("next",)),
    }
    assert ReportedAmounts("", amounts, amounts, 2 * DAY_S) in written.reported


def test_merging_an_entry_brings_its_smallest_amounts() -> None:
    theirs = with_observation(None, seen("m5.large", 7000 * MIB, node="small", at=0))
    for index in range(RECENT):
        theirs = with_observation(theirs, seen("m5.large", 7700 * MIB, node=f"n{index}", at=1 + index))
    ours = with_observation(None, seen("m5.large", 7500 * MIB, node="ours", at=20))
    merged = merged_capacity(ours, theirs)
    assert smallest_capacity(merged)["memory"] == 7000 * MIB
    assert merged_capacity(merged, theirs) == merged, "nothing of it is new"


@pytest.mark.parametrize("field", ["minimum_capacity", "minimum_allocatable"])
@pytest.mark.parametrize(("day", "kept"), [(39, False), (40, True)])
def test_sixty_days_are_counted_from_the_newest_day_of_both_entries(field: str, day: int, kept: bool) -> None:
    key = ("ami-amd", "m5.large", "h")
    newer = LearnedCapacity(*key, **{field: {"cpu": (Minimum(2000, 100),)}})  # type: ignore[arg-type]
    older = LearnedCapacity(*key, minimum_capacity={"memory": (Minimum(GIB, day),)})
    for merged in (merged_capacity(newer, older), merged_capacity(older, newer)):
        assert smallest_capacity(merged).get("memory") == (GIB if kept else None)


def test_of_many_amounts_of_one_day_the_smallest_stays() -> None:
    learned = None
    for index in range(20):
        amount = (7000 + index * 7 % 20) * MIB
        learned = with_observation(learned, seen("m5.large", amount, node=f"n{index}", at=index))
    assert learned is not None
    assert smallest_capacity(learned)["memory"] == 7000 * MIB


@pytest.mark.parametrize("field", ["capacity", "allocatable", "predicted"])
def test_of_two_reports_of_one_moment_the_same_is_kept_whichever_came_first(field: str) -> None:
    one = seen("m5.large", 7700 * MIB)
    other = msgspec.structs.replace(one, **{field: {**getattr(one, field), "cpu": 7}})
    first = with_observation(with_observation(None, one), other)
    second = with_observation(with_observation(None, other), one)
    assert first.recent == second.recent


def test_an_observation_of_sixty_days_ago_is_kept() -> None:
    learned = with_observation(None, seen("m5.large", 7700 * MIB, node="old", at=0))
    learned = with_observation(learned, seen("m5.large", 7700 * MIB, node="new", at=60 * DAY_S))
    assert [each.node for each in learned.recent] == ["old", "new"]


def test_old_observations_are_forgotten() -> None:
    learned = with_observation(None, seen("m5.large", 7000 * MIB, node="old", at=0))
    learned = with_observation(learned, seen("m5.large", 7700 * MIB, node="new", at=61 * DAY_S))
    assert smallest_capacity(learned)["memory"] == 7700 * MIB
    assert with_observation(learned, seen("m5.large", 6000 * MIB, node="older", at=0)) == learned


def test_a_repeated_message_counts_once() -> None:
    first = with_observation(None, seen("m5.large", 7700 * MIB))
    again = with_observation(first, seen("m5.large", 7700 * MIB))
    assert again.recent == first.recent
    assert again.count == 1
    later = with_observation(again, seen("m5.large", 7600 * MIB, at=2000))
    assert smallest_capacity(later)["memory"] == 7600 * MIB
    stale = with_observation(later, seen("m5.large", 7700 * MIB, at=1500))
    assert smallest_capacity(stale)["memory"] == 7600 * MIB, "an older report of the same node arrives late"


def test_the_order_of_arrival_does_not_matter() -> None:
    reports = [seen("m5.large", (7700 - at) * MIB, node=f"n{at % 3}", at=at) for at in range(5)]
    merged = set()
    for order in itertools.permutations(reports):
        learned: LearnedCapacity | None = None
        for report in order:
            learned = with_observation(learned, report)
        assert learned is not None
        merged.add((tuple(each.observed_at for each in learned.recent), learned.count))
    assert merged == {((2.0, 3.0, 4.0), 3)}


def test_zeroes_of_device_plugins_are_not_learned() -> None:
    learned = with_observation(None, seen("g5.xlarge", 15 * GIB, **{"nvidia.com/gpu": 0, "hugepages-1Gi": 0}))
    assert smallest_capacity(learned) == {"memory": 15 * GIB}
    learned = with_observation(learned, seen("g5.xlarge", 15 * GIB, node="b", **{"nvidia.com/gpu": 1}))
    assert smallest_capacity(learned)["nvidia.com/gpu"] == 1


def test_a_miss_says_how_much_is_short() -> None:
    relied_on = {"cpu": 1000, "memory": 6800 * MIB, "pods": 3}
    assert shortfall(relied_on, {"cpu": 1930, "memory": 6760 * MIB, "pods": 29}) == {"memory": 40 * MIB}
    assert shortfall(relied_on, {"cpu": 1930, "memory": 6837 * MIB, "pods": 29}) == {}
    assert shortfall(relied_on, {"cpu": 1930, "pods": 2}) == {"memory": 6800 * MIB, "pods": 1}


@pytest.mark.parametrize("resource", ["cpu", "memory", "ephemeral-storage", "pods"])
def test_what_every_kubelet_reports_is_short_when_it_is_missing(resource: str) -> None:
    assert shortfall({resource: 3}, {}) == shortfall({resource: 3}, {resource: 0}) == {resource: 3}
    assert shortfall({resource: 3}, {resource: 3}) == {}


def test_ten_reports_are_kept_and_amounts_of_sixty_days_of_24_hours() -> None:
    day_s = 86_400
    learned = with_observation(None, seen("m5.large", 7000 * MIB, node="small", at=0))
    for index in range(11):
        learned = with_observation(learned, seen("m5.large", 7700 * MIB, node=f"n{index}", at=60 * day_s + index))
    assert [each.node for each in learned.recent] == [f"n{index}" for index in range(1, 11)]
    assert smallest_capacity(learned)["memory"] == 7000 * MIB
    learned = with_observation(learned, seen("m5.large", 7700 * MIB, node="later", at=61 * day_s))
    assert smallest_capacity(learned)["memory"] == 7700 * MIB


def test_nodes_of_one_name_in_two_clusters_are_two() -> None:
    first = seen("m5.large", 7700 * MIB)
    learned = with_observation(known(first), msgspec.structs.replace(first, cluster="other"))
    assert (len(learned.recent), learned.count) == (2, 2)


def test_a_device_that_is_not_up_yet_is_no_miss_but_too_few_are() -> None:
    assert shortfall({"nvidia.com/gpu": 2}, {}) == {}
    assert shortfall({"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 0}) == {}
    assert shortfall({"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 1}) == {"nvidia.com/gpu": 1}


NOMINAL = {
    "m5.large": 8 * GIB,
    "m5.xlarge": 16 * GIB,
    "m5.24xlarge": 384 * GIB,
    "r5.large": 16 * GIB,
    "t3.nano": GIB // 2,
}


def witness(name: str, share: float, **more: str) -> LearnedCapacity:
    return known(seen(name, int(NOMINAL[name] * share), **more))  # type: ignore[arg-type]


def inferred(name: str, *learned: LearnedCapacity, ami: str = "ami-amd", formula: int = 0) -> int | None:
    return LearnedCapacityIndex(learned, NOMINAL).inferred_memory(ami, name, NOMINAL[name], formula)


def test_nothing_to_infer_from() -> None:
    assert inferred("m5.large") is None
    assert inferred("m5.large", witness("m5.large", 0.9, ami="ami-other")) is None


def test_the_same_type_under_other_settings_is_the_best_witness() -> None:
    found = inferred("m5.xlarge", witness("m5.large", 0.90), witness("m5.xlarge", 0.95, kubelet="other"))
    assert found == int(16 * GIB * 0.95)


def test_the_smallest_share_of_the_family_counts() -> None:
    found = inferred("m5.24xlarge", witness("m5.large", 0.90), witness("m5.xlarge", 0.95), witness("r5.large", 0.5))
    assert found == 384 * GIB * int(8 * GIB * 0.90) // (8 * GIB)


def test_other_families_are_better_than_nothing() -> None:
    assert inferred("m5.24xlarge", witness("r5.large", 0.875)) == 336 * GIB


def test_larger_witnesses_never_raise_a_small_type_above_the_formula() -> None:
    assert inferred("m5.large", witness("m5.24xlarge", 0.98), formula=7 * GIB) == 7 * GIB
    assert inferred("m5.large", witness("m5.24xlarge", 0.84375), formula=7 * GIB) == 27 * GIB // 4


def test_one_witness_that_is_no_larger_is_enough_to_rise_above_the_formula() -> None:
    """The missing share shrinks as machines grow: only of a smaller or equal one it is no less than of the type."""
    larger, smaller = witness("m5.24xlarge", 0.98), witness("m5.large", 0.97)
    assert inferred("m5.xlarge", larger, smaller, formula=14 * GIB) == 16 * GIB * int(8 * GIB * 0.97) // (8 * GIB)
    assert inferred("m5.xlarge", larger, formula=14 * GIB) == 14 * GIB
    assert inferred("m5.large", larger, witness("r5.large", 0.5), formula=7 * GIB) == 7 * GIB


def test_a_witness_of_the_same_size_is_no_larger() -> None:
    alike = LearnedCapacityIndex([witness("m5.large", 0.97)], NOMINAL)
    found = alike.inferred_memory("ami-amd", "c6i.xlarge", NOMINAL["m5.large"], 7 * GIB)
    assert found == int(8 * GIB * 0.97)


def test_of_several_reports_on_the_same_type_the_smallest_counts() -> None:
    reports = [witness("m5.large", 0.95, kubelet="a"), witness("m5.large", 0.93, kubelet="b")]
    assert inferred("m5.large", *reports) == int(8 * GIB * 0.93)
    assert inferred("m5.large", *reversed(reports)) == int(8 * GIB * 0.93)


def test_extended_resources_are_learned_as_others_are() -> None:
    gpu = "nvidia.com/gpu"
    learned = with_observation(None, seen("m5.large", 7700 * MIB, node="a", at=1, **{gpu: 4}))
    learned = with_observation(learned, seen("m5.large", 7700 * MIB, node="b", at=2, **{gpu: 0}))
    learned = with_observation(learned, seen("m5.large", 7700 * MIB, node="c", at=3, **{gpu: 3}))
    assert smallest_capacity(learned)[gpu] == 3
    assert sorted(report.capacity.get(gpu, 0) for report in learned.reported) == [0, 3, 4]
    assert shortfall({gpu: 4}, {gpu: 3}) == {gpu: 1}
    assert shortfall({gpu: 4}, {gpu: 0}) == shortfall({gpu: 4}, {}) == {}


def test_the_worst_overhead_is_what_exceeds_the_fixed_part() -> None:
    assert LearnedCapacityIndex([], NOMINAL).worst_overhead_ratio("ami-amd") == 0.0
    tiny = LearnedCapacityIndex([known(seen("t3.nano", 400 * MIB))], NOMINAL)
    assert tiny.worst_overhead_ratio("ami-amd") == 0.0
    worse = LearnedCapacityIndex([known(seen("m5.large", 7 * GIB)), known(seen("m5.xlarge", 15 * GIB))], NOMINAL)
    assert worse.worst_overhead_ratio("ami-amd") == (1024 - 128) / 8192


def test_what_cannot_be_placed_teaches_nothing() -> None:
    empty = LearnedCapacity("ami-amd", "m5.large", "h")
    knowledge = LearnedCapacityIndex([empty, known(seen("x99.large", GIB))], NOMINAL)
    assert not knowledge.has_reports("ami-amd", "m5.large", "h")
    assert knowledge.inferred_memory("ami-amd", "m5.large", 8 * GIB, 0) is None


def test_what_cannot_be_placed_hides_nothing_behind_it() -> None:
    knowledge = LearnedCapacityIndex([known(seen("x99.large", GIB)), witness("m5.large", 0.9)], NOMINAL)
    assert knowledge.has_reports("ami-amd", "m5.large", "h")


def test_while_the_ami_is_not_known_the_smallest_import_of_any_counts() -> None:
    some = [
        LearnedCapacity(ami, "m5.large", "h", imported=ImportedCapacity({"memory": gib * GIB}, {"memory": GIB}, 1))
        for ami, gib in (("ami-1", 7), ("ami-2", 6))
    ]
    knowledge = LearnedCapacityIndex(some, NOMINAL)
    assert knowledge.imported("", "m5.large", "h") == ({"memory": 6 * GIB}, {"memory": GIB})
    assert knowledge.imported("ami-1", "m5.large", "h") == ({"memory": 7 * GIB}, {"memory": GIB})
    assert knowledge.imported("ami-3", "m5.large", "h") is None


def test_imports_keep_the_smaller_amounts_and_are_no_observation() -> None:
    one = LearnedCapacity("ami-amd", "t", "h", imported=ImportedCapacity({"memory": 5, "cpu": 2}, {"memory": 4}, 3))
    other = LearnedCapacity("ami-amd", "t", "h", imported=ImportedCapacity({"memory": 6}, {"memory": 3}, 1))
    merged = merged_capacity(merged_capacity(None, one), other)
    assert merged.imported == ImportedCapacity({"cpu": 2, "memory": 5}, {"memory": 3}, 3)
    assert merged_capacity(merged, other) is merged
    assert merged_capacity(merged_capacity(None, other), one).imported == merged.imported
    assert not is_observed(merged)
    assert is_observed(with_observation(merged, seen("t", 5)))
    assert smallest_capacity(merged) == smallest_allocatable(merged) == {}

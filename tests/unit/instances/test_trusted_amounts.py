"""Tests the clusters for which a report counts, and the time for which it counts."""

from __future__ import annotations

import pytest

from shiplap.instances.capacity.reported_amounts import DAY_S
from shiplap.instances.capacity.trusted_amounts import (
    FAR_COUNTS_S,
    AllowedAmounts,
    AllowedRange,
    TrustedAmounts,
    trusted_amounts,
    voices,
)
from shiplap.instances.catalog.type_catalog import ReportedAmounts
from tests.unit.instances.given_instances import MIB

GPU = "nvidia.com/gpu"
MEMORY = AllowedRange(7000 * MIB, 8192 * MIB)
ALLOWED = AllowedAmounts({"memory": MEMORY, GPU: AllowedRange(8, 8)}, {"memory": MEMORY, GPU: AllowedRange(8, 8)})
AT = 1_700_000_000.0


def reported(cluster: str, *nodes: str, at: float = AT, **amounts: int) -> ReportedAmounts:
    """Nodes of a cluster that have all of what they have to give to pods."""
    named = {name.replace("gpu", GPU): amount for name, amount in amounts.items()}
    return ReportedAmounts(cluster, named, named, at, nodes)


def seen_by(cluster: str, *reports: ReportedAmounts, now: float = AT) -> TrustedAmounts:
    return trusted_amounts(reports, cluster, ALLOWED, now)


def memory(mib: int, cluster: str, *nodes: str, at: float = AT) -> ReportedAmounts:
    return reported(cluster, *nodes, at=at, memory=mib * MIB)


@pytest.mark.parametrize("asking", ["blue", "green", ""])
def test_within_the_allowed_range_the_smallest_counts_for_everybody(asking: str) -> None:
    trusted = seen_by(asking, memory(7700, "blue", "a"), memory(7690, "blue", "b"))
    assert trusted == TrustedAmounts({"memory": 7690 * MIB}, {"memory": 7690 * MIB}, {}, {})


@pytest.mark.parametrize("mib", [1, 10, 6999])
def test_a_far_report_is_in_doubt_in_its_own_cluster_and_nothing_elsewhere(mib: int) -> None:
    broken = memory(mib, "blue", "a")
    assert seen_by("blue", broken) == TrustedAmounts({}, {}, {"memory": mib * MIB}, {"memory": mib * MIB})
    assert seen_by("blue", broken).in_doubt
    assert seen_by("green", broken) == TrustedAmounts({}, {}, {}, {})


@pytest.mark.parametrize("mib", [8193, 100_000])
def test_more_than_there_is_counts_for_nobody(mib: int) -> None:
    for asking in ("blue", "green"):
        assert seen_by(asking, memory(mib, "blue", "a")) == TrustedAmounts({}, {}, {}, {})


def test_a_second_node_of_the_cluster_confirms_a_far_report_there_alone() -> None:
    reports = (memory(4000, "blue", "a"), memory(4100, "blue", "b"))
    assert seen_by("blue", *reports).capacity == {"memory": 4000 * MIB}
    assert not seen_by("blue", *reports).in_doubt
    assert seen_by("green", *reports).capacity == {}


def test_two_far_reports_that_differ_confirm_nothing() -> None:
    trusted = seen_by("blue", memory(4000, "blue", "a"), memory(10, "blue", "b"))
    assert (trusted.capacity, trusted.doubted_capacity) == ({}, {"memory": 10 * MIB})


def test_a_node_that_reports_twice_does_not_confirm_itself() -> None:
    assert seen_by("blue", memory(4000, "blue", "a"), memory(4001, "blue", "a", at=AT + 1)).capacity == {}


def test_a_second_cluster_confirms_a_far_report_for_a_third() -> None:
    blue, green = memory(4000, "blue", "a", "b"), memory(4050, "green", "a", "b")
    assert seen_by("red", blue, green).capacity == {"memory": 4000 * MIB}
    assert seen_by("red", blue, memory(4050, "green", "a")).capacity == {}, "green itself has not confirmed it"


def test_more_than_half_of_the_nodes_decide() -> None:
    honest = memory(7700, "blue", "a", "b", "c")
    assert seen_by("blue", honest, memory(10, "blue", "x", "y")).capacity == {"memory": 7700 * MIB}
    assert seen_by("blue", honest, memory(10, "blue", "w", "x", "y", "z")).capacity == {"memory": 10 * MIB}


@pytest.mark.parametrize("other", [10, 90_000])
def test_of_as_many_on_both_sides_those_that_are_allowed_count(other: int) -> None:
    trusted = seen_by("blue", memory(7700, "blue", "a", "b"), memory(other, "blue", "x", "y"))
    assert trusted.capacity == {"memory": 7700 * MIB}
    assert not trusted.in_doubt


def test_a_cluster_has_one_vote_however_many_nodes_it_has() -> None:
    crowd = memory(7000, "hostile", *(f"n{number}" for number in range(8)))
    assert seen_by("red", crowd, memory(7700, "blue", "a")).capacity == {"memory": 7700 * MIB}
    assert seen_by("red", crowd, memory(7700, "blue", "a"), memory(7690, "green", "a")).capacity == {
        "memory": 7690 * MIB
    }


def test_a_cluster_relies_on_its_own_nodes_before_those_of_one_other() -> None:
    own = memory(7700, "blue", "a")
    assert seen_by("blue", own, memory(7100, "green", "a")).capacity == {"memory": 7700 * MIB}
    assert seen_by("blue", own, memory(7600, "green", "a")).capacity == {"memory": 7600 * MIB}, "near"
    two = (memory(7100, "green", "a"), memory(7120, "red", "a"))
    assert seen_by("blue", own, *two).capacity == {"memory": 7100 * MIB}, "confirmed"


def test_seven_of_eight_devices_are_in_doubt_and_eight_are_back_with_the_next_node() -> None:
    broken = reported("blue", "a", gpu=7)
    assert seen_by("blue", broken).doubted_capacity == {GPU: 7}
    assert seen_by("green", broken) == TrustedAmounts({}, {}, {}, {})
    assert seen_by("blue", broken, reported("blue", "b", gpu=8)).capacity == {GPU: 8}
    assert seen_by("blue", broken, reported("blue", "b", gpu=7)).capacity == {GPU: 7}


def test_a_device_plugin_that_is_late_or_counts_up_is_no_lie() -> None:
    late = ReportedAmounts("blue", {"memory": 7700 * MIB}, {"memory": 7700 * MIB}, AT, ("a",))
    counting = reported("blue", "a", gpu=3, memory=7700 * MIB)
    assert seen_by("blue", late, counting, reported("blue", "a", gpu=8, memory=7700 * MIB)).capacity[GPU] == 8


def test_slices_of_a_device_are_those_of_the_cluster() -> None:
    sliced, whole = reported("blue", "a", "b", gpu=56), reported("green", "a", "b", gpu=8)
    assert seen_by("blue", sliced, whole).capacity == {GPU: 56}
    assert seen_by("green", sliced, whole).capacity == {GPU: 8}
    assert seen_by("red", sliced, whole).capacity == {GPU: 8}


def test_what_ec2_does_not_describe_counts_at_once_where_it_is_and_elsewhere_with_a_second_cluster() -> None:
    fuse = "smarter-devices/fuse"
    one, other = (ReportedAmounts(name, {fuse: 20}, {fuse: 20}, AT, ("a",)) for name in ("blue", "green"))
    assert seen_by("blue", one).capacity == {fuse: 20}
    assert seen_by("red", one).capacity == {}
    assert seen_by("red", one, other).capacity == {fuse: 20}
    lie = ReportedAmounts("blue", {fuse: 1}, {fuse: 1}, AT, ("x",))
    more = ReportedAmounts("blue", {fuse: 20}, {fuse: 20}, AT, ("a", "b"))
    assert seen_by("blue", lie, more).capacity == {fuse: 20}


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 7])
def test_a_far_report_is_forgotten_the_later_the_more_nodes_confirm_it(nodes: int) -> None:
    far = memory(4000, "blue", *(f"n{number}" for number in range(nodes)))
    counts_s = FAR_COUNTS_S[min(nodes, 4) - 1]
    assert seen_by("blue", far, now=AT + counts_s) != TrustedAmounts({}, {}, {}, {})
    assert seen_by("blue", far, now=AT + counts_s + 1) == TrustedAmounts({}, {}, {}, {})
    assert seen_by("blue", far, now=0.0) != TrustedAmounts({}, {}, {}, {}), "from files nothing is forgotten"


def test_what_is_allowed_is_not_forgotten() -> None:
    assert seen_by("blue", memory(7700, "blue", "a"), now=AT + 452 * DAY_S).capacity == {"memory": 7700 * MIB}


def test_what_is_forgotten_does_not_outvote_what_is_seen_since() -> None:
    far = memory(4000, "blue", "x", "y", "z")
    later = AT + FAR_COUNTS_S[2] + 1
    assert seen_by("blue", far, memory(7700, "blue", "a", at=later), now=later).capacity == {"memory": 7700 * MIB}


def test_huge_pages_are_no_missing_memory() -> None:
    pages = {"hugepages-1Gi": 4096 * MIB}
    paged = ReportedAmounts("blue", {"memory": 7700 * MIB} | pages, {"memory": 3500 * MIB} | pages, AT, ("a",))
    assert seen_by("blue", paged).allocatable["memory"] == 7596 * MIB
    assert not seen_by("blue", paged).in_doubt


def test_from_files_nodes_of_one_name_in_two_clusters_are_two() -> None:
    assert seen_by("", memory(4000, "blue", "a"), memory(4000, "green", "a")).capacity == {"memory": 4000 * MIB}


def test_new_voices_are_nodes_of_the_cluster_and_clusters_that_are_new() -> None:
    assert voices((), "blue") == 0
    reports = (
        memory(7700, "blue", "a", "b"),
        memory(10, "blue", "c"),
        memory(10, "green", "a", "b"),
        memory(9, "green"),
    )
    assert (voices(reports, "blue"), voices(reports, "green"), voices(reports, "red")) == (4, 4, 2)

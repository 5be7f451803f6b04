"""Far amounts that are about equal are one finding, which counts from its latest report on for all of its nodes.

Nodes of a type that really has less than EC2 says differ a little, and join at different moments.
"""

from __future__ import annotations

from itertools import permutations

import pytest

from shiplap.instances.capacity.reported_amounts import DAY_S
from shiplap.instances.capacity.trusted_amounts import (
    FAR_COUNTS_S,
    AllowedAmounts,
    AllowedRange,
    FarStanding,
    far_reports,
    trusted_amounts,
)
from shiplap.instances.catalog.type_catalog import ReportedAmounts
from tests.unit.instances.given_instances import MIB

ALLOWED = AllowedAmounts({"memory": AllowedRange(7000 * MIB, 8192 * MIB)}, {})
AT = 1_700_000_000.0
HOUR_S = 3600
LATER_S = DAY_S // 2


def memory(mib: int, node: str, at: float = AT, cluster: str = "blue") -> ReportedAmounts:
    return ReportedAmounts(cluster, {"memory": mib * MIB}, {}, at, (node,))


def relied_on(now: float, *reports: ReportedAmounts, cluster: str = "blue") -> int | None:
    """MiB of memory that a cluster relies on; None while nothing is settled."""
    amount = trusted_amounts(reports, cluster, ALLOWED, now).capacity.get("memory")
    return None if amount is None else amount // MIB


def doubted(now: float, *reports: ReportedAmounts) -> bool:
    return trusted_amounts(reports, "blue", ALLOWED, now).in_doubt


@pytest.mark.parametrize("first", [4000, 4100])
def test_a_second_node_with_about_as_much_renews_the_first_report(first: int) -> None:
    """Two nodes count for a day, from the later one on, whichever has less."""
    reports = (memory(first, "a"), memory(8100 - first, "b", AT + LATER_S))
    ends_at = AT + LATER_S + FAR_COUNTS_S[1]

    for order in permutations(reports):
        assert relied_on(AT + FAR_COUNTS_S[1] + HOUR_S, *order) == 4000
        assert relied_on(ends_at, *order) == 4000
        assert relied_on(ends_at + 1, *order) is None
        assert not doubted(ends_at + 1, *order)


def test_nodes_with_about_as_much_count_for_as_long_as_all_of_them_together() -> None:
    """Three for a week, four for sixty days, though no two of them report the same."""
    reports = [memory(4000 + 10 * place, f"n{place}", AT + place * HOUR_S) for place in range(4)]

    for number, counts_s in ((3, FAR_COUNTS_S[2]), (4, FAR_COUNTS_S[3])):
        ends_at = AT + (number - 1) * HOUR_S + counts_s
        assert relied_on(ends_at, *reports[:number]) == 4000
        assert relied_on(ends_at + 1, *reports[:number]) is None


@pytest.mark.parametrize("mib", [10, 2000, 5500, 20_000])
def test_an_amount_that_is_not_alike_renews_nothing(mib: int) -> None:
    """Neither does one that is allowed, nor the report of another cluster."""
    reports = (memory(4000, "a"), memory(4100, "b"))
    ends_at = AT + FAR_COUNTS_S[1]

    for other in (memory(mib, "z", ends_at), memory(4050, "z", ends_at, cluster="green")):
        assert relied_on(ends_at, *reports, other) == 4000
        assert relied_on(ends_at + 1, *reports, other) is None


def test_people_are_shown_one_end_for_amounts_that_are_alike() -> None:
    reports = (memory(4000, "a"), memory(4100, "b", AT + LATER_S), memory(10, "c"))

    shown = {report.nodes: (report.standing, report.until) for report in far_reports(reports, ALLOWED, AT + LATER_S)}

    until = AT + LATER_S + FAR_COUNTS_S[1]
    assert shown == {
        ("a",): (FarStanding.CONFIRMED, until),
        ("b",): (FarStanding.CONFIRMED, until),
        ("c",): (FarStanding.FORGOTTEN, AT + FAR_COUNTS_S[0]),
    }

"""The parts that a search for consolidations is made of: which nodes are tried together, and what is worth it."""

from __future__ import annotations

import itertools

import pytest

from shiplap.disruption.commands import DisruptionProposal, Method, Reason
from shiplap.disruption.consolidation import (
    MOST_NODES,
    SINGLES,
    attempts_of,
    further_attempts,
    merged_proposals,
    sizes_between,
)


def proposal(*nodes: str) -> DisruptionProposal:
    return DisruptionProposal(
        Reason.UNDERUTILIZED, Method.CONSOLIDATION, nodes, (), (), round(0.1 * len(nodes), 6), 0, "words"
    )


def numbered(count: int, prefix: str = "n") -> tuple[str, ...]:
    return tuple(f"{prefix}{number:04d}" for number in range(count))


def test_nodes_without_replacements_go_together_in_commands_of_bounded_size() -> None:
    merged = merged_proposals([proposal(name) for name in reversed(numbered(MOST_NODES + 3))])
    assert [len(item.nodes) for item in merged] == [MOST_NODES, 3]
    assert [name for item in merged for name in item.nodes] == list(numbered(MOST_NODES + 3))
    assert merged[0].savings_hourly == pytest.approx(0.1 * MOST_NODES)


def test_a_proposal_that_is_larger_than_a_command_stays_whole() -> None:
    large = proposal(*numbered(MOST_NODES + 5))
    assert merged_proposals([large, proposal("z")]) == [large, proposal("z")]


@pytest.mark.parametrize("total", [1, 2, 3, SINGLES])
def test_of_a_few_candidates_all_prefixes_and_each_one_alone_are_tried(total: int) -> None:
    names = numbered(total)
    prefixes = [names[:size] for size in range(1, total + 1)]
    assert [tuple(item) for item in attempts_of(names, names)] == [*prefixes, *((name,) for name in names[1:])]  # type: ignore[arg-type]


def test_of_many_candidates_ever_fewer_prefixes_are_tried() -> None:
    total = 8 * SINGLES + 1
    sizes = [len(item) for item in attempts_of(numbered(total), ())]  # type: ignore[arg-type]
    powers = [2**exponent for exponent in range(total.bit_length())]
    assert sizes == sorted({*powers, total, total * 3 // 4})


def test_beside_the_best_prefix_each_node_is_tried_and_of_a_few_every_two() -> None:
    few, many = numbered(SINGLES), numbered(SINGLES + 1)
    tried = [tuple(item) for item in further_attempts(few)]  # type: ignore[arg-type]
    assert tried[:SINGLES] == [(name,) for name in few]
    assert set(tried[SINGLES:]) == set(itertools.combinations(few, 2))
    assert [tuple(item) for item in further_attempts(many)] == [(name,) for name in many]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("best", "tried", "expected"),
    [
        (8 * MOST_NODES, {4 * MOST_NODES, 8 * MOST_NODES, 16 * MOST_NODES}, [6 * MOST_NODES, 12 * MOST_NODES]),
        (24, {1, 21, 24, 27}, []),
        (24, {1, 20, 24, 28}, [22, 26]),
        (1, {1, 4 * MOST_NODES + 1}, [(4 * MOST_NODES + 2) // 2]),
        (8 * MOST_NODES, {8 * MOST_NODES}, []),
    ],
)
def test_the_search_goes_on_half_way_to_the_next_sizes(best: int, tried: set[int], expected: list[int]) -> None:
    assert sizes_between(best, tried) == expected

"""Tests the worth of nodes' room while other nodes go: the values of the linear program over fractional nodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.scheduling.model.resources import PLENTY, Floats
from shiplap.scheduling.search.room_values import USABLE, MovablePods, room_values, unit_values
from tests.thoroughness import draws


def movable(
    room: list[list[float]],
    price: list[float],
    moves: list[float],
    loads: list[float],
    net: list[list[float]],
    fresh: list[float],
) -> MovablePods:
    return MovablePods(*(np.array(some, np.float64) for some in (room, price, moves, loads, net, fresh)))


def test_room_is_worth_nothing_while_there_is_more_of_it_than_pods_need() -> None:
    pods = movable([[4.0], [4.0]], [1.0, 1.0], [0.0, 0.0], [-1.0], [[4.0]], [1.0])
    assert room_values(pods).tolist() == [0.0, 0.0]


def test_room_is_worth_at_most_what_new_nodes_with_as_much_cost() -> None:
    pods = movable([[4.0], [8.0]], [3.0, 3.0], [0.0, 0.0], [12.0], [[4.0], [8.0]], [1.0, 1.6])
    assert room_values(pods) == pytest.approx([USABLE * 0.8, USABLE * 1.6])


def test_room_is_worth_what_the_next_node_saves_that_would_go_for_it() -> None:
    """Four nodes of four units, eight units wanted: two go, those that save most, and the third would save 0.7."""
    pods = movable([[4.0]] * 4, [1.0, 0.9, 0.8, 0.7], [0.1] * 4, [8.0], [[4.0]], [10.0])
    assert room_values(pods) == pytest.approx([USABLE * 0.7] * 4, abs=0.1001)


def test_resources_that_no_new_node_offers_or_that_are_unlimited_are_worth_nothing() -> None:
    pods = movable([[4.0, 1.0, PLENTY]], [1.0], [0.0], [3.0, 1.0, 1.0], [[4.0, 0.0, PLENTY]], [2.0])
    assert room_values(pods) == pytest.approx([USABLE])


def dual(pods: MovablePods, values: Floats) -> float:
    """Return a lower bound of the linear program's cost, for any given values of all the wanted resources."""
    room = (pods.room / pods.wanted * values).sum(axis=1)
    return float(values.sum() + np.minimum(pods.price - room, pods.moves).sum())


amounts = st.integers(1, 40).map(float)


@settings(derandomize=True, deadline=None, max_examples=draws(200))
@given(st.data(), st.integers(1, 12), st.integers(1, 5))
def test_no_other_values_bound_the_cost_of_the_pods_from_below_more_closely(
    data: st.DataObject, nodes: int, rows: int
) -> None:
    def drawn(*shape: int) -> Floats:
        number = int(np.prod(shape))
        return np.array(data.draw(st.lists(amounts, min_size=number, max_size=number))).reshape(shape)

    pods = MovablePods(
        room=drawn(nodes, 2),
        price=drawn(nodes),
        moves=drawn(nodes),
        wanted=drawn(2) * nodes,
        net=drawn(rows, 2),
        fresh=drawn(rows),
    )
    net = pods.net / pods.wanted
    values = unit_values(pods.room / pods.wanted, net, pods)
    found, scale = (
        dual(pods, values),
        float((pods.fresh[net.argmax(axis=0)] / net.max(axis=0)).sum() + pods.price.sum()),
    )
    assert ((net * values).sum(axis=1) <= pods.fresh * 1.001).all()
    for direction, part in zip(drawn(8, 2), (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), strict=True):
        other = direction * part * (pods.fresh / (net * direction).sum(axis=1)).min()
        assert dual(pods, other) <= found + 2e-3 * scale

"""Values the room of nodes while other nodes go: pods that lose their node need it, or somebody pays for new nodes.

A linear program over fractional nodes: each node stays at its price, or goes for what moving its pods costs; all pods
have to find room on nodes that stay, or on new ones. Its dual is the value of a unit of each resource. A node is worth
removing as far as its price is more than the value of its whole room.

The nodes that stay at given values are one column of the program, so that it has a row per resource and one more.
"""

from __future__ import annotations

import msgspec
import numpy as np

from shiplap.scheduling.model.resources import PLENTY, Bools, Floats
from shiplap.scheduling.search.column_generation import ENTER, CoveringProgram
from shiplap.scheduling.search.effort import Effort

USABLE = 0.8
"""The part of the value that counts: whole pods leave gaps, and some find no place on a node that has room for them."""

_ROUNDS = 40
"""Columns of nodes that are added at most; they end when one would not enter a basis."""


class MovablePods(msgspec.Struct, frozen=True, eq=False):
    """Nodes that may go, and what may take their pods.

    `room` [nodes, resources] is what each node offers to pods, those that it has included, `price` [nodes] its USD per
    hour and `moves` [nodes] the USD per hour that moving its pods costs. `wanted` [resources] is what the pods of all
    these nodes ask for, less what is free on other nodes. New nodes offer `net` [rows, resources] for `fresh` [rows]
    USD per hour.
    """

    room: Floats
    price: Floats
    moves: Floats
    wanted: Floats
    net: Floats
    fresh: Floats


def room_values(pods: MovablePods) -> Floats:
    """USD per hour that the room of each node [nodes] is worth."""
    scarce: Bools = (pods.wanted > 0) & (pods.room < PLENTY).all(axis=0) & (pods.net > 0).any(axis=0)
    if not scarce.any():
        return np.zeros(len(pods.price))
    unit = pods.wanted[scarce]
    room, net = pods.room[:, scarce] / unit, pods.net[:, scarce] / unit
    worth: Floats = (room * unit_values(room, net, pods)).sum(axis=1)
    return np.round(USABLE * worth, 9)


def unit_values(room: Floats, net: Floats, pods: MovablePods) -> Floats:
    """The value of all that is wanted of each resource [resources], of which `room` and `net` are parts."""
    width, best = net.shape[1], net.argmax(axis=0)
    most = net.max(axis=0)
    # Of the nodes that are there one column is used, once: as much as all new nodes cost is added to each.
    once = (pods.fresh[best] / most).sum() + pods.moves.sum()
    # At first all of them go, and new nodes cover the rest.
    start = np.append(pods.fresh[best], pods.moves.sum() + once)
    program = CoveringProgram(np.ones(width + 1), np.diag(np.append(most, 1.0)), start)
    program.add(np.concatenate([net.T, np.zeros((1, len(net)))]), pods.fresh)
    for _ in range(_ROUNDS):
        program.solve(Effort(np.inf))
        values = np.maximum(program.duals[:width], 0.0)
        stays = pods.price - (room * values).sum(axis=1) < pods.moves
        column = np.append(room[stays].sum(axis=0), 1.0)
        cost = pods.price[stays].sum() + pods.moves[~stays].sum() + once
        if (column * np.append(values, program.duals[width])).sum() - cost <= ENTER * cost:
            break
        program.add(column[:, None], np.array([cost]))
    return values

"""Equal claims are asked once for the room that they have; answers stay right while claims fill."""

from __future__ import annotations

import numpy as np

from shiplap.scheduling.supply.room_by_state import ClaimStates, RoomByState


def test_claims_of_one_group_with_the_same_load_are_in_one_state() -> None:
    states = ClaimStates()
    numbers = [states.number(group, np.array([load, 0])) for group, load in ((1, 5), (1, 5), (2, 5), (1, 6), (1, 5))]
    assert numbers == [0, 0, 1, 2, 0]
    assert states.groups == [1, 2, 1]
    assert [load.tolist() for load in states.loads] == [[5, 0], [5, 0], [6, 0]]


def test_answers_outlast_the_growth_of_their_table() -> None:
    room = RoomByState()
    room.many[3], room.added[3] = 7, 0.25
    room.reach(1000)
    assert (room.many[3], room.added[3], room.many[999]) == (7, 0.25, -1)
    assert np.isnan(room.added[999])

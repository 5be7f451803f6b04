"""Pauses of the garbage collector end as they began, also when what is done meanwhile fails."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from shiplap.garbage_collection import garbage_collection_paused


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    was_on = gc.isenabled()
    yield
    (gc.enable if was_on else gc.disable)()


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_runs_again_after_a_pause_if_it_did_before(on: bool) -> None:
    (gc.enable if on else gc.disable)()
    with garbage_collection_paused():
        assert not gc.isenabled()
    assert gc.isenabled() is on


def test_a_failure_ends_the_pause() -> None:
    gc.enable()
    with pytest.raises(ZeroDivisionError), garbage_collection_paused():
        _ = 1 / 0
    assert gc.isenabled()


def test_a_pause_within_another_does_not_end_it() -> None:
    gc.enable()
    with garbage_collection_paused():
        with garbage_collection_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()

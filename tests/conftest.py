"""Holds the settings and fixtures that all tests share."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from shiplap.errors import ShiplapError
from tests.commands import Shiplap
from tests.own_logger import own_logger
from tests.registries import leave_out_if_not_built
from tests.thoroughness import draws

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("shiplap", deadline=None, max_examples=draws(100))
settings.load_profile("shiplap")

_OBJECTS_UNTIL_COLLECTED = 100_000


def pytest_sessionstart() -> None:
    """Collecting tests makes objects that stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """All tests and what they import stay to the end: a collector that looks at them again and again finds nothing."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(_OBJECTS_UNTIL_COLLECTED, *gc.get_threshold()[1:])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    """Layers are built by whatever fixture or test is the first to need them: none fails for want of a registry."""
    try:
        yield
    except ShiplapError as error:
        leave_out_if_not_built(error)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """As above."""
    try:
        yield
    except ShiplapError as error:
        leave_out_if_not_built(error)
        raise


@pytest.fixture(autouse=True)
def _no_width_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are as wide as where nothing says how wide: pytest's parallel workers are told a width of their own.

    GNU readline, which pytest imports, writes both into C's environment, where children find what `os.environ` lacks.
    """
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
        os.unsetenv(name)


@pytest.fixture(name="own_logger")
def _own_logger() -> Iterator[None]:
    with own_logger():
        yield


@pytest.fixture(autouse=True)
def _logging_stays_as_it_is() -> Iterator[None]:
    """A test that leaves a level or a handler behind changes what those after it read in logs."""
    logger = logging.getLogger("shiplap")
    before = (logger.level, tuple(logger.handlers))
    yield
    assert (logger.level, tuple(logger.handlers)) == before, "use the fixture own_logger"


@pytest.fixture
def shiplap(capsys: pytest.CaptureFixture[str]) -> Shiplap:
    return Shiplap(capsys)

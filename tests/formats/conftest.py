"""Holds the fixture that tests of formats share."""

from __future__ import annotations

import pytest

from tests.formats.golden import WRITING, Golden


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(writing=request.config.stash.get(WRITING, False))

"""Writes the golden files anew, on purpose: `python -m tests.formats.write [pytest's arguments]`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.formats.golden import WRITING


class Writing:
    """A plugin of pytest that makes goldens write instead of compare."""

    @staticmethod
    def pytest_configure(config: pytest.Config) -> None:
        config.stash[WRITING] = True


if __name__ == "__main__":
    sys.exit(pytest.main(["-n", "0", *(sys.argv[1:] or [str(Path(__file__).parent)])], plugins=[Writing()]))

"""Fixtures that several integration tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.live_install import LiveInstall, live_install


@pytest.fixture
def live(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveInstall]:
    with live_install(tmp_path, capsys, monkeypatch) as found:
        yield found

"""Fixtures that several integration tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shiplap.cluster.kubeconfig import Access
from shiplap.cluster.transport import Transport
from shiplap_cli.inputs import context_access
from tests.integration.live_install import LiveInstall, live_install


@pytest.fixture
def live(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveInstall]:
    with live_install(tmp_path, capsys, monkeypatch) as found:
        yield found


@pytest.fixture
def unpaused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands repeat a failed read as often as always, without the pauses in between."""
    enter = context_access.enter_context

    def enter_unpaused(access: Access, **given: Any) -> Transport:
        return enter(access, **given | {"sleep": lambda seconds: None})

    monkeypatch.setattr(context_access, "enter_context", enter_unpaused)

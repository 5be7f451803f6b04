"""Fixtures that several integration tests share."""

from __future__ import annotations

import logging
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


@pytest.fixture
def own_logger() -> Iterator[None]:
    """A new logger `shiplap`: Powertools leaves marks on it, which the next install would take for its own."""
    logger = logging.getLogger("shiplap")
    before = logger.__dict__ | {"handlers": logger.handlers[:]}
    for mark in logger.__dict__.keys() - logging.Logger("").__dict__.keys():
        delattr(logger, mark)
    logger.handlers = []
    yield
    logger.__dict__.clear()
    logger.__dict__.update(before)
    logger.setLevel(logger.level)

"""Tests the search for DynamoDB Local, and the message where it is missing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shiplap.errors import ShiplapError
from tests.dynamodb_local import server
from tests.dynamodb_local.server import DynamoDbLocal, DynamoDbMissing


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(server, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    return tmp_path / "cache"


def maven(monkeypatch: pytest.MonkeyPatch, code: int) -> list[Sequence[str]]:
    asked: list[Sequence[str]] = []

    def run(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, code, "", "no such artifact")

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_without_java_it_says_which_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(DynamoDbMissing, match="version 17 or newer"):
        server.find()
    with pytest.raises(DynamoDbMissing, match="apt-get install maven"):
        server.build()


def test_what_is_not_copied_is_not_found() -> None:
    with pytest.raises(DynamoDbMissing, match="make dynamodb-local"):
        server.find()


def test_it_is_copied_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = maven(monkeypatch, 0)
    assert server.main() == server.main() == 0
    assert len(asked) == 1
    assert capsys.readouterr().out.splitlines()[1] == str(server.find())


def test_a_copy_that_failed_is_no_copy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    maven(monkeypatch, 1)
    assert server.main() == 3
    assert "no such artifact" in capsys.readouterr().err
    with pytest.raises(DynamoDbMissing):
        server.find()


def test_a_server_that_ends_at_once_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(server, "find", lambda: tmp_path)
    if shutil.which("java") is None:
        pytest.skip("there is no Java")
    with pytest.raises(ShiplapError, match="DynamoDB Local ended"), DynamoDbLocal(tmp_path):
        pass

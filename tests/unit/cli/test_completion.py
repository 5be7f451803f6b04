"""Tests the completions of shells, played in the shells themselves where they are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from shiplap_cli.command_tree import commands
from shiplap_cli.main import COMMANDS, run
from tests.commands import Shiplap
from tools.command_reference import PAGE, text

BASH, ZSH, FISH = (shutil.which(name) for name in ("bash", "zsh", "fish"))


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(text: str, folder: Path, *words: str) -> list[str]:
    """Return the completions that bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    ask = f"{text}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shiplap; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    command = [str(BASH), "--norc", "-c", ask]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout.split()  # noqa: S603


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("shiplap", "pl"), ["plan"]),
        (("shiplap", "plan", "--cluster-s"), ["--cluster-state"]),
        (("shiplap", "plan", "-o", "j"), ["json"]),
        (("shiplap", "plan", "--cluster-state", "a.yaml", "--output", ""), ["table", "json", "yaml"]),
        (("shiplap", "capacity", "im"), ["import"]),
        (("shiplap", "capacity", "import", "stat"), ["state.yaml"]),
        (("shiplap", "plan", "--cluster-state", "st"), ["state.yaml"]),
        (("shiplap", "--ver"), ["--version"]),
    ],
)
def test_what_bash_offers(
    words: tuple[str, ...], offered: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state.yaml").touch()
    assert completed(script("bash", capsys), tmp_path, *words) == offered


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
def test_bash_offers_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(completed(script("bash", capsys), tmp_path, "shiplap", "")) == {*COMMANDS, "--help", "--version"}


@pytest.mark.parametrize(("shell", "binary", "check"), [("zsh", ZSH, "-n"), ("fish", FISH, "-n")], ids=["zsh", "fish"])
def test_other_shells_can_read_theirs(
    shell: str, binary: str | None, check: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script(shell, capsys)
    assert all(name in text for name in COMMANDS)
    if binary is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(text)
    subprocess.run([binary, check, str(tmp_path / "script")], check=True)  # noqa: S603 - the shell found above


def test_a_shell_there_is_none_for(shiplap: Shiplap) -> None:
    assert "tcsh" in shiplap.error("completion", "tcsh")


def test_the_command_reference_says_what_the_commands_say() -> None:
    assert PAGE.read_text() == text(), "`make docs` writes it anew"


def test_every_command_has_a_summary_and_every_option_a_help_text() -> None:
    found = commands()
    assert {command.name.partition(" ")[0] for command in found} == set(COMMANDS)
    silent = [
        f"{command.name} {item.name}"
        for command in found
        for item in command.parameters
        if item.names and not item.help
    ]
    assert silent == []
    assert [command.name for command in found if not command.help] == []

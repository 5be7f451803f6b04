"""Tests the completion of command lines: by the protocol of Typer's scripts, and in bash itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shiplap_cli.command_list import COMMANDS
from shiplap_cli.main import run

BASH = shutil.which("bash")


def offered(line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is offered for the last word of a line, as a script of bash asks."""
    words = line.split(" ")
    monkeypatch.setenv("_SHIPLAP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    with pytest.raises(SystemExit) as stop:
        run([])
    assert stop.value.code == 0
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("shiplap pl", ["plan"]),
        ("shiplap --ver", ["--version"]),
        ("shiplap --install", ["--install-completion"]),
        ("shiplap explain ", list(COMMANDS["explain"].inner)),
        ("shiplap status ", list(COMMANDS["status"].inner)),
        ("shiplap status f", ["fleet"]),
        ("shiplap status --red", ["--redrive"]),
        ("shiplap status fleet --on", ["--only"]),
        ("shiplap install ro", ["rollback"]),
        ("shiplap capacity im", ["import"]),
        ("shiplap plan --cluster-s", ["--cluster-state"]),
        ("shiplap plan --cluster-state a.yaml b.yaml --manif", ["--manifests"]),
        ("shiplap plan --prof", ["--profile"]),
        ("shiplap plan -o j", ["json"]),
        ("shiplap plan --cluster-state a.yaml --output ", ["table", "json", "yaml"]),
        ("shiplap migrate handover --to ", ["shiplap", "karpenter"]),
        ("shiplap learn ", list(COMMANDS)),
    ],
)
def test_what_is_offered(
    line: str, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert offered(line, capsys, monkeypatch) == words


def test_every_command_is_offered(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered("shiplap ", capsys, monkeypatch) == list(COMMANDS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_each_shell_has_a_script(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_SHIPLAP_COMPLETE", f"source_{shell}")
    with pytest.raises(SystemExit):
        run([])
    script = capsys.readouterr().out
    assert "_SHIPLAP_COMPLETE" in script
    assert f"complete_{shell}" in script


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("shiplap", "explain", "ins"), ["instance-types"]),
        (("shiplap", "plan", "--cluster-s"), ["--cluster-state"]),
        (("shiplap", "validate", ""), []),  # bash goes on with the names of files
    ],
)
def test_what_bash_offers(words: tuple[str, ...], found: list[str]) -> None:
    line = " ".join(f"'{word}'" for word in words)
    ask = f'COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shiplap_completion shiplap; echo "${{COMPREPLY[@]}}"'
    command = f'eval "$(_SHIPLAP_COMPLETE=source_bash shiplap)"; complete -p shiplap >&2; {ask}'
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    asked = [str(BASH), "--norc", "-c", command]
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(asked, check=True, capture_output=True, text=True, env=environment)  # noqa: S603
    assert done.stdout.split() == found
    assert done.stderr == "complete -o default -F _shiplap_completion shiplap\n"


@pytest.mark.parametrize(
    ("line", "modules"), [("shiplap pl", "[]"), ("shiplap status fleet --st", "['status', 'fleet']")]
)
def test_completing_imports_no_other_command(line: str, modules: str) -> None:
    """The shell waits at every tab."""
    seen = (
        "import sys, atexit; from shiplap_cli.main import main; "
        "atexit.register(lambda: print([name.split('.')[-1] for name in sys.modules"
        " if name.startswith('shiplap_cli.commands.')])); main()"
    )
    environment = {"_SHIPLAP_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", seen], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    assert done.stdout.splitlines()[-1] == modules

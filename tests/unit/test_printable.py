"""No control character of anybody's text leaves a command."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

import shiplap_cdk
import shiplap_cli
from shiplap.printable import printable, printable_json
from shiplap_cli.output import Format, SafeConsole, ask, confirm, emit, fail, note
from tests.odd_input import controls

HOSTILE = "a\x1b]0;owned\x07b\x9b2Jc\rd\x7fe\u202ef\x00"
SHOWN = "a\\x1b]0;owned\\x07b\\x9b2Jc\\rd\\x7fe\\u202ef\\x00"
NAMES = st.text(st.characters(categories=["Cc", "Cf", "Lu", "Sm"]), max_size=40)


def test_hidden_characters_are_written_out() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("zwölf ≥ 3\tvCPU\n") == "zwölf ≥ 3\tvCPU\n"


@settings(deadline=None, derandomize=True)
@given(NAMES)
def test_no_control_character_is_left(name: str) -> None:
    assert controls(printable(name)) == []
    assert json.loads(printable_json(json.dumps(name, ensure_ascii=False))) == name
    assert controls(printable_json(json.dumps(name, ensure_ascii=False))) == []


@settings(deadline=None, derandomize=True)
@given(NAMES)
def test_a_page_shows_none_in_texts_tables_and_titles(name: str) -> None:
    page = Table(name, title=Text(name), box=None)
    page.add_row(Text(name, style="bold"))
    drawn = io.StringIO()
    console = SafeConsole(file=drawn, width=200)
    console.print(page, Text(name))
    console.print(name, markup=False)
    assert controls(drawn.getvalue()) == []


@pytest.mark.parametrize("name", ["[/]", "[red]a[/red]", "[link=file:///etc]b[/link]", ":warning:"])
def test_a_name_is_no_markup(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = Table(name, title=name, box=None)
    page.add_row(name)
    emit({}, Format.TABLE, lambda: page)
    assert capsys.readouterr().out.count(name) == 3


def test_a_question_hides_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\nb\n"))
    monkeypatch.setattr("shiplap_cli.output.somebody_answers", lambda: True)
    confirm("test", HOSTILE)
    assert ask(HOSTILE) == "b"
    printed = capsys.readouterr()
    assert SHOWN in printed.err
    assert controls(printed.out + printed.err) == []


def test_a_terminal_still_gets_colours() -> None:
    drawn = io.StringIO()
    SafeConsole(file=drawn, force_terminal=True, color_system="standard", width=200, _environ={}).print(
        Text(HOSTILE, style="red")
    )
    shown = SHOWN.replace("\\x07", "").replace("\\r", "")  # Rich drops these itself
    assert drawn.getvalue() == f"\x1b[31m{shown}\x1b[0m\n"


@pytest.mark.parametrize("output", list(Format))
def test_every_format_hides_none(output: Format, capsys: pytest.CaptureFixture[str]) -> None:
    emit({HOSTILE: [HOSTILE]}, output, lambda: Text(HOSTILE))
    fail(HOSTILE)
    note(HOSTILE)
    printed = capsys.readouterr()
    assert controls(printed.out) == controls(printed.err) == []
    assert "owned" in printed.out
    if output is Format.JSON:
        assert json.loads(printed.out) == {HOSTILE: [HOSTILE]}


SOURCES = [path for package in (shiplap_cli, shiplap_cdk) for path in sorted(Path(package.__path__[0]).rglob("*.py"))]
DOORS = {"sys.stdout.write", "sys.stderr.write", "Console", "Text.from_markup"} | {
    f"{module}.{function}"
    for module in ("typer", "click")
    for function in ("confirm", "prompt", "echo", "secho", "style")
}
OWN_TEXT_ONLY = {"completion.py": "the script for a shell, made of names of commands", "layers.py": "names of layers"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_commands_write_through_one_module(path: Path) -> None:
    """Elsewhere nothing is written to stdout or stderr, and no console made, that would let a character through."""
    if path.name == "output.py" or path.name in OWN_TEXT_ONLY:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in DOORS, f"line {node.lineno}"
            if called == "print":
                assert "printable" in ast.unparse(node), f"line {node.lineno}"

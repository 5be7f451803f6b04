"""`shiplap` as people call it, for tests that look at what it prints and how it exits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from shiplap_cli.answer_schemas import answer_schema
from shiplap_cli.command_entry import CommandEntry
from shiplap_cli.command_list import COMMANDS
from shiplap_cli.main import run


class Shiplap:
    """Runs `shiplap` and checks the exit code; `always` are arguments behind those of each call."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *always: str | Path) -> None:
        self._capsys, self._always = capsys, always

    def __call__(self, *arguments: str | Path, code: int | None = 0) -> str:
        """Return the output; for a code of None the exit code means yes or no and does not matter."""
        assert run([*map(str, arguments), *map(str, self._always)]) in ((0, 1) if code is None else (code,))
        return self._capsys.readouterr().out

    def json(self, *arguments: str | Path, code: int | None = 0) -> Any:
        """Return the JSON output, which has the schema that the command prints."""
        answer = json.loads(self(*arguments, "-o", "json", code=code))
        has_schema([*map(str, arguments)], answer)
        return answer

    def page(self, *arguments: str | Path, code: int | None = 0) -> str:
        """The words of a page for people, however wide it is."""
        return " ".join(self(*arguments, code=code).split())

    def error(self, *arguments: str | Path, code: int = 2) -> str:
        """The one line on stderr of a command that prints nothing else."""
        (line,) = self.errors(*arguments, code=code)
        return line + "\n"

    def errors(self, *arguments: str | Path, code: int = 2) -> list[str]:
        """The lines on stderr of a command that prints nothing else."""
        assert run([*map(str, arguments), *map(str, self._always)]) == code
        printed = self._capsys.readouterr()
        assert printed.out == ""
        return printed.err.splitlines()


def has_schema(arguments: Sequence[str], answer: Any) -> None:
    """Fail if an answer is not what `--schema` says of the command, or has more fields."""
    _checker(_command(arguments)[0]).validate(answer)


def _command(arguments: Sequence[str]) -> tuple[str, CommandEntry]:
    entry = COMMANDS[arguments[0]]
    if len(arguments) > 1 and arguments[1] in entry.inner:
        return f"{arguments[0]} {arguments[1]}", entry.inner[arguments[1]]
    return arguments[0], entry


@cache
def _checker(words: str) -> jsonschema.Draft202012Validator:
    schema = answer_schema(*_command(words.split()))
    for part in schema["$defs"].values():
        if "properties" in part:
            part["additionalProperties"] = False
    return jsonschema.Draft202012Validator(schema)


def listed(*objects: Any) -> str:
    """Objects as kubectl prints several of them."""
    return json.dumps({"kind": "List", "apiVersion": "v1", "items": list(objects)})

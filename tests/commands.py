"""`shiplap` as people call it, for tests that look at what it prints and how it exits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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
        """Return the JSON output."""
        return json.loads(self(*arguments, "-o", "json", code=code))

    def page(self, *arguments: str | Path, code: int | None = 0) -> str:
        """The words of a page for people, however wide it is."""
        return " ".join(self(*arguments, code=code).split())

    def error(self, *arguments: str | Path, code: int = 2) -> str:
        """The one line on stderr of a command that prints nothing else."""
        assert run([*map(str, arguments), *map(str, self._always)]) == code
        printed = self._capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        return printed.err


def listed(*objects: Any) -> str:
    """Objects as kubectl prints several of them."""
    return json.dumps({"kind": "List", "apiVersion": "v1", "items": list(objects)})

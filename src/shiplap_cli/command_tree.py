"""All commands with their options as data: what completion and the command reference are made of."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import typer.main


class Parameter(msgspec.Struct, frozen=True):
    """An option or argument. `names` are empty for an argument; `kind` says what it takes, empty for a switch."""

    name: str
    names: tuple[str, ...]
    kind: str
    help: str
    default: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False
    repeated: bool = False


class CliCommand(msgspec.Struct, frozen=True):
    """A command as it is called, `explain pod` or `plan`; `help` is its whole text."""

    name: str
    help: str
    parameters: tuple[Parameter, ...] = ()


def commands() -> tuple[CliCommand, ...]:
    """Every command that can be called, by name."""
    from shiplap_cli.main import COMMANDS, application  # noqa: PLC0415 - main imports this module when it is asked to

    return tuple(
        command for name in COMMANDS for command in _callable_commands(name, typer.main.get_command(application(name)))
    )


def _callable_commands(name: str, command: Any) -> Iterator[CliCommand]:
    inner = getattr(command, "commands", {})
    if not inner:
        shown = (item for item in command.params if not item.hidden)
        yield CliCommand(name, _unwrapped_text(command.help or ""), tuple(map(_parameter_of, shown)))
    for word in sorted(inner):
        yield from _callable_commands(f"{name} {word}", inner[word])


def _parameter_of(item: Any) -> Parameter:
    option = item.param_type_name == "option"
    default = item.default() if callable(item.default) else item.default
    choices = tuple(str(entry.value) for entry in type(default)) if isinstance(default, Enum) else ()
    switch = option and item.is_flag
    return Parameter(
        name=item.name,
        names=(*item.opts, *item.secondary_opts) if option else (),
        kind="" if switch else item.metavar or "|".join(choices) or item.name.upper(),
        help=_unwrapped_text(item.help or ""),
        default=_default(default),
        choices=choices,
        required=item.required,
        repeated=item.multiple if option else item.nargs == -1,
    )


def _default(value: Any) -> str:
    """The default as text; an absolute path is left out, because it is of this machine."""
    if value in (None, "", ()) or value is False or (isinstance(value, Path) and value.is_absolute()):
        return ""
    return str(value.value) if isinstance(value, Enum) else str(value)


def _unwrapped_text(text: str) -> str:
    """Paragraphs on one line each."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")).strip()

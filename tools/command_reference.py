"""Writes docs/reference/commands.md: every command with its options, from the help texts the commands carry."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from shiplap_cli.lazy_commands import LazyCommand, LazyGroup, shiplap_command

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"


class Parameter(msgspec.Struct, frozen=True):
    """An option or argument. `names` are empty for an argument; `kind` says what it takes, empty for a switch."""

    name: str
    names: tuple[str, ...]
    kind: str
    help: str
    default: str = ""
    required: bool = False
    repeated: bool = False


class CliCommand(msgspec.Struct, frozen=True):
    """A command as it is called, `explain pod` or `plan`; `help` is its whole text."""

    name: str
    help: str
    parameters: tuple[Parameter, ...] = ()


def commands() -> tuple[CliCommand, ...]:
    """Every command that can be called, by name."""
    return tuple(map(_read_command, _leaves(shiplap_command())))


def _leaves(group: LazyGroup) -> Iterator[LazyCommand]:
    for inner in group.commands.values():
        if isinstance(inner, LazyCommand):
            yield inner
        elif isinstance(inner, LazyGroup):
            yield from [inner.own] if inner.own is not None else []
            yield from _leaves(inner)


def _read_command(command: LazyCommand) -> CliCommand:
    command.load()
    shown = (item for item in command.params if not getattr(item, "hidden", False))
    return CliCommand(command.path, _unwrapped_text(command.help or ""), tuple(map(_parameter_of, shown)))


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


def text() -> str:
    """The page."""
    found = commands()
    lines = [
        "# Commands",
        "",
        "Every command takes `--help`. Exit codes: 0 yes, 1 no, 2 bad input or a question that could not be asked.",
        "Errors are one line on stderr. `NO_COLOR` switches colours off.",
        "`shiplap --install-completion` lets the shell (bash, zsh, fish, PowerShell) complete what follows.",
        "",
        *(f"* [`shiplap {command.name}`](#shiplap-{command.name.replace(' ', '-')})" for command in found),
        "",
        "This page is written by `make docs`.",
    ]
    for command in found:
        lines += ["", *_section(command)]
    return "\n".join(lines) + "\n"


def _section(command: CliCommand) -> Iterator[str]:
    yield f"## shiplap {command.name}"
    yield ""
    arguments = [_argument(item) for item in command.parameters if not item.names]
    yield f"`{' '.join(['shiplap', command.name, '[OPTIONS]', *arguments])}`"
    for part in command.help.split("\n\n"):
        yield ""
        example, colon, what = part.partition(": ")
        yield f"Example: `{what}`" if example == "Example" and colon else part
    if command.parameters:
        yield ""
        yield "| | | default |"
        yield "|---|---|---|"
        yield from (_row(item) for item in command.parameters)


def _argument(item: Parameter) -> str:
    name = f"{item.kind}{'…' if item.repeated else ''}"
    return name if item.required else f"[{name}]"


def _row(item: Parameter) -> str:
    name = ", ".join(item.names) or _argument(item)
    kind = f" {item.kind}{'…' if item.repeated else ''}" if item.names and item.kind else ""
    shown = f"{name}{kind}".replace("|", "\\|")
    words = item.help.replace("|", "\\|")
    default = "required" if item.required and item.names else f"`{item.default}`" if item.default else ""
    return f"| `{shown}` | {words} | {default} |"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")

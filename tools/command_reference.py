"""Writes docs/reference/commands.md: every command with its options, from the help texts the commands carry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shiplap_cli.command_tree import CliCommand, Parameter, commands

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"


def text() -> str:
    """The page."""
    found = commands()
    lines = [
        "# Commands",
        "",
        "Every command takes `--help`. Exit codes: 0 yes, 1 no, 2 bad input or a question that could not be asked.",
        "Errors are one line on stderr. `NO_COLOR` switches colours off.",
        "`source <(shiplap completion bash)` (or `zsh`, `fish`) lets the shell complete what follows.",
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

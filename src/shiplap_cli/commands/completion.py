"""`shiplap completion`: scripts by which shells complete commands, options and their values.

The scripts hold every word, so completing starts no Python.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from shiplap_cli.command_tree import CliCommand, Parameter, commands


class Shell(StrEnum):
    """Shells there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]) -> int:
    """Print a script that lets the shell complete shiplap's commands and options.

    Example: source <(shiplap completion bash)

    Example: shiplap completion fish > ~/.config/fish/completions/shiplap.fish
    """
    tree = commands()
    sys.stdout.write(_fish_script(tree) if shell is Shell.FISH else _bash_script(tree, zsh=shell is Shell.ZSH))
    return 0


def _bash_script(tree: Sequence[CliCommand], *, zsh: bool) -> str:
    """A bash function; zsh understands it by bashcompinit. What is no option completes to files."""
    cases = [f"    {pattern}) words={shlex.quote(words)} ;;" for pattern, words in _words_after(tree)]
    values = [
        f"    {shlex.quote(f'{command.name} {name}')}) words={shlex.quote(' '.join(parameter.choices))} ;;"
        for command in tree
        for parameter in command.parameters
        if parameter.choices
        for name in parameter.names
    ]
    lines = [
        *(["autoload -U +X bashcompinit && bashcompinit"] if zsh else []),
        "_shiplap() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" place="" words="" word',
        '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        '    case "$word" in -*) break ;; *) place="${place:+$place }$word" ;; esac',
        "  done",
        '  case "$place $before" in',
        *values,
        "  esac",
        '  if [ -z "$words" ]; then case "$place" in',
        *cases,
        "  esac; fi",
        "  COMPREPLY=()",
        '  if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$current")); fi',
        '  if [ ${#COMPREPLY[@]} -eq 0 ]; then COMPREPLY=($(compgen -f -- "$current")); fi',
        "}",
        "complete -o filenames -F _shiplap shiplap",
    ]
    return "\n".join(lines) + "\n"


def _words_after(tree: Sequence[CliCommand]) -> list[tuple[str, str]]:
    """The words that may follow a command line so far: a shell pattern and the words."""
    firsts = sorted({command.name.partition(" ")[0] for command in tree})
    result = [("''", " ".join([*firsts, "--help", "--version"]))]
    for first in firsts:
        inner = sorted(command.name.partition(" ")[2] for command in tree if command.name.startswith(f"{first} "))
        if inner:
            result.append((shlex.quote(first), " ".join([*inner, "--help"])))
    result += [(f"{shlex.quote(item.name)}|{shlex.quote(item.name)}' '*", " ".join(_options(item))) for item in tree]
    return result


def _options(command: CliCommand) -> list[str]:
    return [*(name for parameter in command.parameters for name in parameter.names), "--help"]


def _fish_script(tree: Sequence[CliCommand]) -> str:
    lines = ["complete -c shiplap -f -n __fish_use_subcommand -l version -d 'Print the version.'"]
    described = set()
    for command in tree:
        first, _, second = command.name.partition(" ")
        if first not in described:
            described.add(first)
            summary = "" if second else command.help.partition("\n")[0]
            lines.append(f"complete -c shiplap -f -n __fish_use_subcommand -a {first} -d {_quoted(summary)}")
        seen = f"__fish_seen_subcommand_from {first}"
        if second:
            others = " ".join(other.name.partition(" ")[2] for other in tree if other.name.startswith(f"{first} "))
            condition = _quoted(f"{seen}; and not __fish_seen_subcommand_from {others}")
            lines.append(
                f"complete -c shiplap -f -n {condition} -a {second} -d {_quoted(command.help.partition(chr(10))[0])}"
            )
            seen = f"{seen}; and __fish_seen_subcommand_from {second}"
        lines += [line for parameter in command.parameters for line in _fish_option(seen, parameter)]
    return "\n".join(lines) + "\n"


def _fish_option(seen: str, parameter: Parameter) -> list[str]:
    words = [f"complete -c shiplap -n {_quoted(seen)}"]
    words += [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in parameter.names]
    if not parameter.names:
        return []
    if parameter.choices:
        words.append(f"-x -a {_quoted(' '.join(parameter.choices))}")
    elif parameter.kind:
        words.append("-r")
    return [" ".join([*words, f"-d {_quoted(parameter.help)}"])]


def _quoted(text: str) -> str:
    """Quoted for fish: only the backslash and the quote are special within single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

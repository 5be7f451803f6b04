"""The `shiplap` command: runs a command line and turns errors into exit codes.

0 is success, 1 a negative answer, 2 bad input or a question that could not be asked.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping

import typer

from shiplap.errors import InvalidInput, ShiplapError, each_problem
from shiplap_cli.command_entry import CommandEntry
from shiplap_cli.command_list import COMMANDS
from shiplap_cli.hints import with_hint
from shiplap_cli.lazy_commands import shiplap_command
from shiplap_cli.output import fail


def main() -> None:
    """Entry point; never prints a traceback for an error that a user can fix."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    if sys.stdout is None:  # closed by whoever started this process
        fail("the answer could not be written: standard output is closed")
        return 1
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that the terminal's encoding lacks is shown escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    return _answer(arguments)


def _answer(arguments: list[str]) -> int:
    """Run a command line; whatever goes wrong becomes an exit code, and a line for each problem."""
    try:
        code = _invoke(arguments or ["--help"])
        sys.stdout.flush()
        return code
    except ShiplapError as error:
        for problem in each_problem(error) if isinstance(error, InvalidInput) else (error,):
            fail(with_hint(problem))
        return 2
    except BrokenPipeError:  # the reader, for example `head`, has seen enough
        return _left()
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # as above: Rich has noticed it first
            return _left()
        raise
    except OSError as error:  # for example a full disk behind standard output
        # Clients of HTTP raise errors of this kind, too: they have no number, and standard output is in order.
        is_output = error.errno is not None and not error.filename
        where = "the answer could not be written: " if is_output else f"{error.filename}: " if error.filename else ""
        fail(where + (error.strerror or str(error)))
        if not is_output:
            return 2
        sys.stdout = None  # what is still buffered would fail once more at exit
        return 1


def _left() -> int:
    """Drop standard output, because the buffered rest would fail once more at exit."""
    sys.stdout = None
    return 0


def _invoke(arguments: list[str]) -> int:
    try:
        result = shiplap_command()(args=arguments, prog_name="shiplap", standalone_mode=False)
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        fail("interrupted")
        return 130
    except typer.TyperException as error:
        fail(f"{error.format_message().rstrip('.')}; see `{_command_in(arguments)} --help`")
        return 2
    return result if isinstance(result, int) else 0


def _command_in(arguments: list[str]) -> str:
    """Return the command that a command line names, as far as there is one."""
    words = ["shiplap"]
    below: Mapping[str, CommandEntry] = COMMANDS
    for word in arguments:
        if word not in below:
            break
        words.append(word)
        below = below[word].inner
    return " ".join(words)

"""The `shiplap` command: finds the subcommand and turns errors into exit codes.

0 is success, 1 a negative answer, 2 bad input or a question that could not be asked. Each command lives in a module of
its own that is imported only when it is used, so that `shiplap validate` does not wait for numpy.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Sequence
from copy import copy

import typer

from shiplap import __version__
from shiplap.errors import InvalidInput, ShiplapError
from shiplap_cli.aws_options import asking_aws
from shiplap_cli.hints import with_hint
from shiplap_cli.output import fail, write

COMMANDS = {
    "capacity": ("shiplap_cli.commands.capacity", "app", "The learned capacity: list, show, import, export, forget."),
    "completion": (
        "shiplap_cli.commands.completion",
        "completion",
        "A script by which bash, zsh or fish completes commands.",
    ),
    "deploy": (
        "shiplap_cli.deployment.deploy",
        "deploy",
        "Deploys a fleet's installs in waves; stops at the first alarm.",
    ),
    "dev": (
        "shiplap_cli.commands.dev",
        "dev",
        "The whole system on this machine, live: a scenario plays.",
    ),
    "disrupt": (
        "shiplap_cli.commands.disrupt",
        "disrupt",
        "What would be consolidated, drifted or expired, and why not.",
    ),
    "doctor": ("shiplap_cli.doctor.doctor", "doctor", "Checks a deployment and says how to fix each problem."),
    "explain": (
        "shiplap_cli.commands.explain",
        "app",
        "Why a pod, claim, node or pool is as it is.",
    ),
    "fleet": (
        "shiplap_cli.fleet.fleet",
        "fleet",
        "All clusters of all installs: nodes, dollars, what is wrong.",
    ),
    "handover": (
        "shiplap_cli.commands.handover",
        "handover",
        "Hands nodes from Karpenter to Shiplap, or back; no pod moves.",
    ),
    "init": (
        "shiplap_cli.first_install.init",
        "init",
        "Looks at an EKS cluster and writes first files that fit it.",
    ),
    "instance-types": (
        "shiplap_cli.commands.instance_types",
        "instance_types",
        "What each instance type yields, and why.",
    ),
    "migrate": (
        "shiplap_cli.commands.migrate",
        "migrate",
        "Converts what Karpenter or Cluster Autoscaler is told.",
    ),
    "plan": ("shiplap_cli.commands.plan", "plan", "What would be launched for a cluster with these manifests."),
    "replay": (
        "shiplap_cli.commands.replay",
        "replay",
        "A recorded decision made again, also with other manifests.",
    ),
    "rollback": (
        "shiplap_cli.commands.rollback",
        "rollback",
        "Moves all functions to an earlier release, or lists them.",
    ),
    "simulate": (
        "shiplap_cli.commands.simulate",
        "simulate",
        "A scenario in virtual time, with faults and invariants.",
    ),
    "spending": (
        "shiplap_cli.spending.spending_report",
        "spending",
        "What a cluster costs this month, by pool and namespace.",
    ),
    "status": (
        "shiplap_cli.commands.status",
        "status",
        "Node classes, pools, queues, functions, recent failures.",
    ),
    "template": (
        "shiplap_cli.deployment.template",
        "template",
        "Writes the stack as a plain CloudFormation template.",
    ),
    "top": (
        "shiplap_cli.top.top",
        "top",
        "A live view of a cluster: nodes, pods that wait, dollars.",
    ),
    "uninstall": (
        "shiplap_cli.commands.uninstall",
        "uninstall",
        "Ends an install step by step: launches, nodes, stack, data.",
    ),
    "validate": ("shiplap_cli.commands.validate", "validate", "Check manifests: file, line, field, reason."),
    "wake": ("shiplap_cli.waking.wake", "wake", "Ends the sleep of a cluster now, within a minute."),
}

_ASKING_AWS = frozenset(COMMANDS) - {"completion", "dev", "instance-types", "simulate", "template", "validate"}

_EXTRAS = {"deploy": "cdk", "template": "cdk"}
"""The extra of the wheel with the packages that a command needs; `dev` without."""

_OURS = ("shiplap", "shiplap_cdk", "shiplap_cli", "shiplap_lab")

_LISTS = {
    **dict.fromkeys(("disrupt", "explain", "plan"), ("--cluster-state", "-f", "--manifests")),
    "replay": ("--with",),
}
"""Options that take several values, as a shell writes them for `--manifests pools/*.yaml`."""


def main() -> None:
    """Entry point; never prints a traceback for an error that a user can fix."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    name = arguments[0] if arguments else "--help"
    if name not in (*COMMANDS, "--version", "-h", "--help", "help"):
        fail(f"no such command {name!r}; known are {', '.join(COMMANDS)}")
        return 2
    if sys.stdout is None:  # closed by whoever started this process
        fail("the answer could not be written: standard output is closed")
        return 1
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that the terminal's encoding lacks is shown escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    return _answer(name, arguments)


def _answer(name: str, arguments: list[str]) -> int:
    """Run a command that exists; whatever goes wrong becomes one line and an exit code."""
    try:
        code = _run(name, arguments[1:])
        sys.stdout.flush()
        return code
    except ShiplapError as error:
        fail(with_hint(error))
        return 2
    except BrokenPipeError:  # the reader, for example `head`, has seen enough
        return _left()
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # as above: Rich has noticed it first
            return _left()
        raise
    except OSError as error:  # for example a full disk behind standard output
        where = f"{error.filename}: " if error.filename else "the answer could not be written: "
        fail(where + (error.strerror or str(error)))
        if error.filename:
            return 2
        sys.stdout = None  # what is still buffered would fail once more at exit
        return 1


def _left() -> int:
    """Drop standard output, because the buffered rest would fail once more at exit."""
    sys.stdout = None
    return 0


def _run(name: str, arguments: list[str]) -> int:
    if name in COMMANDS:
        try:
            return _invoke(name, _spread(arguments, _LISTS.get(name, ())))
        except ModuleNotFoundError as missing:
            if missing.name is None or missing.name.partition(".")[0] in _OURS:
                raise
            extra = _EXTRAS.get(name, "dev")
            reason = f"needs {missing.name}, which is not installed: pip install 'shiplap[{extra}]'"
            raise InvalidInput(name, reason) from missing
    write(f"{_version()}\n" if name == "--version" else _overview())
    return 0


def _version() -> str:
    """The version; in an installed wheel also the commit it was built from."""
    from shiplap_cdk.shipped_files import is_installed, shipped  # noqa: PLC0415 - only where it is asked

    return f"{__version__} ({shipped('commit.txt').read_text().strip()})" if is_installed() else __version__


def _spread(arguments: list[str], options: Sequence[str]) -> list[str]:
    """`--option a b` as `--option a --option b`, which is how Typer takes a list; `-` alone is a value."""
    spread: list[str] = []
    current, taken = "", False
    for argument in arguments:
        if argument.startswith("-") and argument != "-":
            name, _, value = argument.partition("=")
            current = name if name in options else ""
            spread.append(argument)
            taken = bool(value)
        else:
            spread += [current, argument] if current and taken else [argument]
            taken = True
    return spread


def _invoke(name: str, arguments: list[str]) -> int:
    try:
        result = application(name)(args=arguments, prog_name=f"shiplap {name}", standalone_mode=False)
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        fail("interrupted")
        return 130
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)  # which only errors of usage have: it names the subcommand
        place = context.command_path if context is not None else f"shiplap {name}"
        fail(f"{error.format_message().rstrip('.')}; see `{place} --help`")
        return 2
    return result if isinstance(result, int) else 0


def application(name: str) -> typer.Typer:
    """The command as Typer knows it."""
    module, attribute, _ = COMMANDS[name]
    target = getattr(importlib.import_module(module), attribute)
    if isinstance(target, typer.Typer):
        return _with_aws_options(target) if name in _ASKING_AWS else target
    application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    application.command(name=name)(asking_aws(target) if name in _ASKING_AWS else target)
    return application


def _with_aws_options(application: typer.Typer) -> typer.Typer:
    """The same with the options at each of its commands. What its module has made stays as it is."""
    made = copy(application)
    made.registered_commands = [copy(command) for command in application.registered_commands]
    for command in made.registered_commands:
        command.callback = asking_aws(command.callback) if command.callback is not None else None
    return made


def _overview() -> str:
    lines = [f"  {name:<16}{summary}" for name, (_, _, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "Usage: shiplap COMMAND [OPTIONS]",
            "",
            "Event-driven, serverless nodes for Kubernetes on AWS.",
            "",
            "Commands:",
            *lines,
            "",
            "`shiplap COMMAND --help` explains a command, `shiplap --version` the version.",
            "",
        ]
    )

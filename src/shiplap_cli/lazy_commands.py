"""The commands of the list as Typer runs them: each is imported when it is used, and all show help in one plain style.

Help lists the options without a panel first, then the others under the heading of their panel.
"""

from __future__ import annotations

import importlib
import inspect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from shiplap import __version__
from shiplap.errors import InvalidInput
from shiplap_cdk.shipped_files import install_of
from shiplap_cli.aws_options import asking_aws
from shiplap_cli.command_entry import CommandEntry
from shiplap_cli.command_list import COMMANDS
from shiplap_cli.output import FURTHER, write, write_json

_OURS = ("shiplap", "shiplap_cdk", "shiplap_cli", "shiplap_lab")


class LazyCommand(TyperCommand):
    """A command whose function is imported when the command is used, completed or asked for help."""

    def __init__(self, path: str, entry: CommandEntry) -> None:
        """Args: path: the words that call it, without `shiplap`; entry: its line of the list."""
        super().__init__(path.rpartition(" ")[2], short_help=entry.summary, rich_markup_mode=None)
        self.path, self.entry = path, entry

    def load(self) -> None:
        """Take options, function and help from its module. Raises InvalidInput: a package of an extra is missing."""
        if self.callback is None:
            made = _typer_command(self.path, self.entry)
            self.params, self.callback, self.help = made.params, made.callback, made.help
            if self.entry.answers:
                self.params = [*self.params, self._schema_option()]

    def _schema_option(self) -> Any:
        """The option that prints the schema of the command's answers, as Typer makes options."""

        def show(wanted: bool) -> None:
            if wanted:
                from shiplap_cli.answer_schemas import schema_text  # noqa: PLC0415 - only where it is asked

                write_json(schema_text(self.path, self.entry))
                raise typer.Exit

        def command(**_: bool) -> None: ...

        option = typer.Option(
            "--schema",
            help="Print the JSON schema of -o json.",
            callback=show,
            is_eager=True,
            expose_value=False,
            rich_help_panel=FURTHER,
        )
        parameter = inspect.Parameter(
            "schema", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option]
        )
        command.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]  # what Typer looks at
        command.__annotations__ = {"schema": parameter.annotation}
        return _as_typer(command).params[0]

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **given: Any) -> Any:
        """Load it before its arguments are parsed. Its help says so where a package of its extra is missing."""
        try:
            self.load()
        except InvalidInput as missing:
            if not {"-h", "--help"} & {*args}:
                raise
            self.help = f"{self.entry.summary}\n\nIt {missing.reason}. Then this help lists its options."
        return super().make_context(info_name, args, parent, **given)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse its arguments, lists of files as a shell writes them for `--manifests pools/*.yaml`."""
        return super().parse_args(ctx, _spread(args, _lists_of_files(self.params)))

    def invoke(self, ctx: Any) -> Any:
        """Run it. Raises InvalidInput: a package of an extra is missing."""
        with _extra_told(self.path, self.entry):
            return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write its options under their headings."""
        _write_options(self.get_params(ctx), ctx, formatter)


class LazyGroup(TyperGroup):
    """Commands under one name. `own` is the command that runs where none of them is named."""

    def __init__(self, path: str, entry: CommandEntry) -> None:
        """Args: path: the words that call it, without `shiplap`; entry: its line of the list."""
        super().__init__(
            name=path.rpartition(" ")[2],
            commands={word: lazy_command(f"{path} {word}".strip(), each) for word, each in entry.inner.items()},
            short_help=entry.summary,
            help=entry.summary,
            subcommand_metavar="[COMMAND]" if entry.function else "COMMAND",
            rich_markup_mode=None,
        )
        self.own = LazyCommand(path, entry) if entry.function else None

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **given: Any) -> Any:
        """Return the context of its own function unless a command of the group, help or completions are asked for."""
        if self.own is not None and not (args and args[0] in self.commands):
            self.take_own()
            if not given.get("resilient_parsing") and not {"-h", "--help"} & {*args}:
                return self.own.make_context(info_name, args, parent, **given)
        return super().make_context(info_name, args, parent, **given)

    def take_own(self) -> None:
        """Show the options and the help of its own function."""
        if self.own is not None:
            self.own.load()
            self.params, self.help = self.own.params, self.own.help

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write its commands, then its options under their headings."""
        self.format_commands(ctx, formatter)
        _write_options(self.get_params(ctx), ctx, formatter)


def lazy_command(path: str, entry: CommandEntry) -> LazyCommand | LazyGroup:
    """The command that these words call, not imported yet."""
    return LazyGroup(path, entry) if entry.inner else LazyCommand(path, entry)


def shiplap_command() -> LazyGroup:
    """`shiplap` itself: all commands, `--version`, and Typer's options for completion in shells."""
    application = typer.Typer(rich_markup_mode=None)
    application.callback()(_shiplap)
    made = typer.main.get_command(application)
    whole = LazyGroup("", CommandEntry("Event-driven, serverless nodes for Kubernetes on AWS.", inner=COMMANDS))
    whole.params, whole.context_settings = made.params, {"help_option_names": ["-h", "--help"]}
    whole.epilog = "`shiplap COMMAND --help` explains a command."
    return whole


def _print_version(wanted: bool) -> None:
    """The version; in an installed wheel also the commit it was built from."""
    if wanted:
        from shiplap_cdk.shipped_files import is_installed, shipped  # noqa: PLC0415 - only where it is asked

        commit = f" ({shipped('commit.txt').read_text().strip()})" if is_installed() else ""
        write(f"{__version__}{commit}\n")
        raise typer.Exit


def _shiplap(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def _typer_command(path: str, entry: CommandEntry) -> TyperCommand:
    module, _, name = entry.function.partition(":")
    with _extra_told(path, entry):
        function = getattr(importlib.import_module(f"shiplap_cli.commands.{module}"), name)
    return _as_typer(asking_aws(function) if entry.asks_aws else function)


def _as_typer(function: Callable[..., Any]) -> TyperCommand:
    application = typer.Typer(add_completion=False, rich_markup_mode=None)
    application.command()(function)
    made = typer.main.get_command(application)
    assert isinstance(made, TyperCommand)  # noqa: S101 - an application of one function is no group
    return made


@contextmanager
def _extra_told(path: str, entry: CommandEntry) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] in _OURS:
            raise
        reason = f"needs {missing.name}, which is not installed: {install_of(entry.wheel_extra)}"
        raise InvalidInput(path, reason) from missing


def _write_options(parameters: Iterable[Any], ctx: Any, formatter: Any) -> None:
    """Arguments, options without a panel, then each panel, in the order in which they are declared."""
    sections: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for parameter in parameters:
        record = parameter.get_help_record(ctx)
        if record is not None:
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            sections[getattr(parameter, "rich_help_panel", None) or usual].append(record)
    first = [name for name in ("Arguments", "Options") if name in sections]
    for heading in [*first, *(name for name in sections if name not in first)]:
        with formatter.section(heading):
            formatter.write_dl(sections[heading])


def _lists_of_files(parameters: Iterable[Any]) -> Collection[str]:
    """The options that take several files, unless the command's arguments are a list, too."""
    if any(each.param_type_name == "argument" and each.nargs == -1 for each in parameters):
        return ()
    lists = (each for each in parameters if each.type_descriptor.annotation == list[Path])
    return {name for each in lists for name in each.opts}


def _spread(arguments: list[str], options: Collection[str]) -> list[str]:
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

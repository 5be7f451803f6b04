"""The output of every command: a table for people, JSON or YAML for programs, errors on one line of stderr."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from shiplap.errors import InvalidInput
from shiplap.printable import printable, printable_json

_UNWRAPPED = 10_000
"""Columns of a page that nobody looks at; no line of it is as long."""


class Printed(msgspec.Struct, frozen=True, rename="camel"):
    """Base of what commands print: resources as Kubernetes quantities, USD per hour, times as RFC 3339."""


class Format(StrEnum):
    """Output formats every command offers."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


FURTHER = "Further options"
"""The heading in help of options that are given seldom; the usual ones stand before it, at most twelve."""

Output = Annotated[Format, typer.Option("-o", "--output", help="Output format.", case_sensitive=False)]
"""The `-o` option, for use in a command's signature: `output: Output = Format.TABLE`."""


class SafeConsole(Console):
    """A console that shows texts as they are: they come from manifests, pods, API servers and AWS.

    No control character leaves it but its own, and square brackets and colons of a text are no markup.
    """

    def __init__(self, **options: Any) -> None:
        """Args: options: those of Rich's console."""
        super().__init__(markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of what is shown, each text of it printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def write(text: str) -> None:
    """Write text to stdout, as it is but for hidden characters."""
    sys.stdout.write(printable(text))


def write_json(text: str) -> None:
    """Write JSON to stdout, hidden characters of its strings in JSON's own notation."""
    sys.stdout.write(printable_json(text))


def note(text: str) -> None:
    """Write text to stderr, if there is one, as it is but for hidden characters."""
    if sys.stderr is not None:
        sys.stderr.write(printable(text))


def emit(value: object, output: Format, table: Callable[[], RenderableType]) -> None:
    """Print `value` (anything msgspec encodes) as JSON or YAML, or what `table` draws, to stdout."""
    if output is Format.JSON:
        write_json(msgspec.json.format(msgspec.json.encode(value, order=None), indent=2).decode() + "\n")
    elif output is Format.YAML:
        write(msgspec.yaml.encode(msgspec.to_builtins(value)).decode())
    else:
        _print(table())


def _fold(page: RenderableType) -> None:
    """Let words that are longer than their column go on in the next line, instead of cutting them off."""
    if isinstance(page, Group):
        for part in page.renderables:
            _fold(part)
    elif isinstance(page, Table):
        for column in page.columns:
            column.overflow = "fold"


def _print(page: RenderableType) -> None:
    """To a terminal as wide as it is; into a pipe or file without wrapping, and without blanks at the ends of lines."""
    _fold(page)
    console = SafeConsole()
    if console.is_terminal:
        console.print(page)
        return
    lines = io.StringIO()
    width = None if "COLUMNS" in os.environ else _UNWRAPPED
    SafeConsole(file=lines, width=width).print(page)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines.getvalue().split("\n")[:-1]))


def somebody_answers() -> bool:
    """True on a terminal, where a question makes sense."""
    return sys.stdin is not None and sys.stdin.isatty()


def confirm(asker: str, question: str, notes: Iterable[str] = (), *, dry_run: bool = False) -> None:
    """Ask on stderr whether to go on, after the notes; `dry_run` says that the asker has --dry-run, too.

    Raises:
        InvalidInput: nobody can answer what the asker, a command or an option, wants to know.
        typer.Abort: the answer is no.
    """
    if not somebody_answers():
        remedy = f"add --yes where nobody can answer{', or --dry-run' if dry_run else ''}"
        raise InvalidInput(asker, f"asks before anything changes; {remedy}: {question}")
    for text in notes:
        note(f"{text}\n")
    typer.confirm(printable(question), abort=True, err=True)


def ask(question: str) -> str:
    """Ask on stderr for a text."""
    answer: str = typer.prompt(printable(question), err=True)
    return answer


@contextmanager
def progress(text: str) -> Iterator[Callable[[str], None]]:
    """Shows a text while the command waits, on stderr and only on a terminal; the yielded function changes the text."""
    console = SafeConsole(stderr=True) if sys.stderr is not None else None
    if console is None or not console.is_terminal:
        yield lambda _: None
        return
    with console.status(Text(text)) as shown:
        yield lambda changed: shown.update(Text(changed))


def counted(number: int, noun: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def summary(names: Sequence[str], most: int = 5) -> str:
    """The first few names and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Names by their message, in the order of the first of each message."""
    names: dict[str, list[str]] = {}
    for said, name in pairs:
        names.setdefault(said, []).append(name)
    return names


def warning_line(text: str) -> Text:
    """A line about something that was not seen or is taken for granted."""
    return Text.assemble(("! ", "yellow bold"), (text, "yellow"))


def plain_table(*columns: str | Column, rows: Iterable[Sequence[str | Text]]) -> Table:
    """A table without a frame."""
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    return table


def titled_table(title: str, *columns: str | Column) -> Table:
    """A table without rows yet, under its title and without a frame."""
    return Table(*columns, title=title, title_justify="left", box=None, pad_edge=False)


def spaced(parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    """The parts of a page, with an empty line before each table but one at the top."""
    for place, part in enumerate(parts):
        if place and isinstance(part, Table):
            yield Text()
        yield part


def facts_table(facts: Iterable[tuple[str, str | Text]]) -> Table:
    """Names and what is known under each, without a head or a frame."""
    table = plain_table(rows=facts)
    table.show_header = False
    return table


def fail(message: str) -> None:
    """One line on stderr, if there is one."""
    note("shiplap: " + " ".join(message.split()) + "\n")


def yaml_text(documents: Iterable[Mapping[str, Any]]) -> str:
    """One YAML document each; texts of several lines as blocks, so that user data can be read."""
    import yaml  # noqa: PLC0415 - only where files are written

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - what is written twice is written out twice
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return yaml.dump_all([dict(item) for item in documents], Dumper=Dumper, sort_keys=False, allow_unicode=True)


HtmlFile = Annotated[
    Path | None, typer.Option("--html", help="Also write it as a web page, one file that needs no network.")
]
MarkdownFile = Annotated[
    Path | None,
    typer.Option("--markdown", help="Also write it as Markdown, for a pull request.", rich_help_panel=FURTHER),
]
CostLabel = Annotated[
    str,
    typer.Option(
        help="A label of pods: the page of --html shares out costs by its values, too.",
        metavar="KEY",
        rich_help_panel=FURTHER,
    ),
]


def write_page(path: Path, made: str) -> None:
    """Write a page. Raises OSError, which the command line reports with the file's name."""
    path.write_text(printable(made), encoding="utf-8")

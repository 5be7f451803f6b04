"""`shiplap validate`: every problem of the manifests, by file, line, document and field."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from shiplap.errors import InvalidInput
from shiplap.manifests.files.loading import ManifestReport, inspect_files
from shiplap_cli.output import Format, Output, counted, emit, fail


class _Problem(msgspec.Struct, frozen=True, rename="camel"):
    """`refused_by` is `api-server` for what an API server with Karpenter's CRDs refuses as well, else `shiplap`."""

    file: str
    line: int
    document: str
    field: str
    reason: str
    refused_by: str


class _Answer(msgspec.Struct, frozen=True):
    valid: bool
    documents: int
    problems: list[_Problem]


def validate(
    paths: Annotated[list[Path], typer.Argument(help="Files or folders of manifests; - reads standard input.")],
    replacing: Annotated[
        list[Path] | None,
        typer.Option(help="The same manifests as they are in the cluster: fields that cannot change are checked."),
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """Check manifests: file, line, field, reason of every problem. Exit code 0 when valid, 2 when not.

    Example: shiplap validate pools/
    """
    report = inspect_files(paths, replacing or ())
    if report.problems and not report.checked and output is Format.TABLE:
        raise report.problems[0]
    problems = [_problem_document(problem) for problem in report.problems]
    emit(_Answer(not problems, report.checked, problems), output, lambda: _lines(report))
    if problems:
        there = sum(problem.is_refused_by_api_server for problem in report.problems)
        also = f"; for {there} of them an API server refuses it, too" if there < len(problems) else ""
        fail(f"{counted(len(problems), 'problem')} in {counted(report.checked, 'manifest')}{also}")
        return 2
    return 0


def _problem_document(problem: InvalidInput) -> _Problem:
    refused_by = "api-server" if problem.is_refused_by_api_server else "shiplap"
    return _Problem(problem.source, problem.line, problem.document, problem.field, problem.reason, refused_by)


def _lines(report: ManifestReport) -> Text:
    """One line per problem, `file:line: document: field: reason`, as compilers print theirs and editors follow."""
    if report.problems:
        return Text("\n".join(map(str, report.problems)))
    skipped = f"; passed over {counted(report.skipped, 'object')} of other kinds" if report.skipped else ""
    return Text(f"{counted(report.checked, 'manifest')} valid{skipped}")

"""`shiplap validate`: every problem of the manifests, by file, line, document and field."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from shiplap.errors import InvalidInput
from shiplap.manifests.custom_resources import NodePool, PodTemplate
from shiplap.manifests.files.loading import ManifestReport, inspect_documents, no_manifest
from shiplap.manifests.files.manifest_folders import (
    SkippedInput,
    SkipReason,
    counted_skips,
    find_documents,
    skipped_document,
    unapplied_kustomizations,
)
from shiplap_cli.commands.validate.judged_settings import SETTINGS, JudgedSettings, judge_settings
from shiplap_cli.inputs.manifest_warnings import manifest_warnings
from shiplap_cli.labels_of_types import Supply
from shiplap_cli.output import Format, MarkdownFile, Output, counted, emit, fail, write_page
from shiplap_cli.policy_views import checked_by_features, warned_by_features
from shiplap_lab.catalogue import embedded


class _Problem(msgspec.Struct, frozen=True, rename="camel"):
    """`refused_by` is `api-server` for what an API server with Karpenter's CRDs refuses as well, else `shiplap`."""

    file: str
    line: int
    document: str
    field: str
    reason: str
    refused_by: str


class _Warning(msgspec.Struct, frozen=True):
    file: str
    line: int
    document: str
    field: str
    reason: str


class ValidationDocument(msgspec.Struct, frozen=True):
    """The output of the command."""

    valid: bool
    documents: int
    problems: list[_Problem]
    warnings: list[_Warning]
    skipped: tuple[SkippedInput, ...]


def validate(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Files or folders of manifests; - reads standard input; shiplap.yaml without."),
    ] = None,
    replacing: Annotated[
        list[Path] | None,
        typer.Option(help="The same manifests as they are in the cluster: fields that cannot change are checked."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 when there are warnings.")] = False,
    markdown: MarkdownFile = None,
    output: Output = Format.TABLE,
) -> int:
    """Check manifests: file, line, field, reason of every problem. Exit code 0 when valid, 2 when not.

    Of folders what is ours is checked, and the rest counted: values, charts, other kinds, EKS Auto Mode's manifests.
    Hidden folders are not looked into. Input without a single manifest is not valid. A shiplap.yaml is checked with the
    manifests of its clusters, as the synthesis checks it.

    Warnings are about what is legal and surely not meant: values that no instance type has, requirements that none
    meets, placeholders. They leave the exit code alone without --strict.

    Example: shiplap validate pools/
    """
    paths = paths or [_settings_here()]
    judged, found = judge_settings(paths, find_documents(paths))
    report = _with_objects_of_features(inspect_documents(found, find_documents(replacing or ())))
    report = _together(judged, report)
    if not report.checked and not report.problems:
        report = msgspec.structs.replace(report, problems=(no_manifest(paths, report),))
    if report.problems and not report.checked and output is Format.TABLE and markdown is None:
        raise report.problems[0]
    problems = [_problem_document(problem) for problem in report.problems]
    warnings = [*unapplied_kustomizations(report.others)] if report.checked else []
    warnings += _warnings(report) if report.sound else []
    warnings += judged.warnings
    answer = ValidationDocument(
        not problems, report.checked, problems, [_warning_document(warning) for warning in warnings], report.skipped
    )
    if markdown is not None:
        from shiplap_cli.render.markdown_reports import validation_markdown  # noqa: PLC0415 - asked for seldom

        write_page(markdown, validation_markdown(report.checked, report.problems, warnings))
    emit(answer, output, lambda: _lines(report, warnings, judged.files))
    if problems:
        fail(
            f"{counted(len(problems), 'problem')} in {', '.join(_looked_at(report, judged.files))}"
            f"{_also_refused(report.problems, judged.files)}"
        )
        return 2
    return 1 if strict and warnings else 0


def _also_refused(problems: Sequence[InvalidInput], settings: Sequence[Path]) -> str:
    """Say how many objects an API server refuses as well; nothing where it would never see what is wrong."""
    if any(Path(problem.source) in settings or not problem.document for problem in problems):
        return ""
    there = sum(problem.is_refused_by_api_server for problem in problems)
    return f"; an API server refuses {there or 'none'} of them" if there < len(problems) else ""


def _settings_here() -> Path:
    """Raises InvalidInput: nothing is named, and this folder has no shiplap.yaml."""
    if not Path(SETTINGS).exists():
        raise InvalidInput("PATHS", f"name files or folders of manifests; there is no {SETTINGS} here")
    return Path(SETTINGS)


def _together(judged: JudgedSettings, report: ManifestReport) -> ManifestReport:
    """The report of settings, of the manifests that they name, and of all others; a file of settings counts as one."""
    return msgspec.structs.replace(
        report,
        problems=(*judged.problems, *report.problems),
        checked=len(judged.files) + sum(each.checked for each in judged.reports) + report.checked,
        sound=(*(found for each in judged.reports for found in each.sound), *report.sound),
    )


def _with_objects_of_features(report: ManifestReport) -> ManifestReport:
    """Return the report with what optional features read among the objects of other kinds."""
    if not report.others:
        return report
    found = list(checked_by_features(report.others))
    skipped = list(report.skipped)
    for document, _ in found:
        skipped.remove(skipped_document(document, SkipReason.OTHER_KIND))
    return msgspec.structs.replace(
        report,
        problems=(*report.problems, *(problem for _, problem in found if problem is not None)),
        checked=report.checked + len(found),
        skipped=tuple(skipped),
    )


def _warnings(report: ManifestReport) -> list[InvalidInput]:
    catalog = embedded.load()
    warnings = manifest_warnings(report.sound, catalog)
    if report.others:
        pools = [found.manifest for found in report.sound if isinstance(found.manifest, NodePool)]
        beside = [found.document for found in report.sound if isinstance(found.manifest, PodTemplate)]
        warnings += warned_by_features([*report.others, *beside], pools, Supply(catalog, None))
    return warnings


def _warning_document(warning: InvalidInput) -> _Warning:
    return _Warning(warning.source, warning.line, warning.document, warning.field, warning.reason)


def _problem_document(problem: InvalidInput) -> _Problem:
    refused_by = "api-server" if problem.is_refused_by_api_server else "shiplap"
    return _Problem(problem.source, problem.line, problem.document, problem.field, problem.reason, refused_by)


def _lines(report: ManifestReport, warnings: Sequence[InvalidInput], settings: Sequence[Path]) -> Text:
    """One line per problem, `file:line: document: field: reason`, as compilers print theirs and editors follow."""
    lines = [*map(str, report.problems), *(warning.as_warning for warning in warnings)]
    if not report.problems:
        skipped = f"; passed over {counted_skips(report.skipped)}" if report.skipped else ""
        warned = f", {counted(len(warnings), 'warning')}" if warnings else ""
        lines.append(f"{', '.join(_looked_at(report, settings))} valid{warned}{skipped}")
    return Text("\n".join(lines))


def _looked_at(report: ManifestReport, settings: Sequence[Path]) -> list[str]:
    return [*map(str, settings), counted(report.checked - len(settings), "manifest")]

"""The files shiplap.yaml among what is validated: each is judged with the manifests of its clusters.

Manifests of one cluster belong together, those of two clusters may have the same names. So what a shiplap.yaml names is
left out of the check of all other files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from shiplap.errors import InvalidInput, each_problem
from shiplap.manifests.files.described_installs import KEY
from shiplap.manifests.files.documents import STDIN, Document
from shiplap.manifests.files.loading import ManifestReport
from shiplap.manifests.files.manifest_folders import FoundDocuments

SETTINGS = "shiplap.yaml"


class JudgedSettings(msgspec.Struct, frozen=True):
    """The files of settings that were found, their problems and warnings, and reports of the manifests they name."""

    files: tuple[Path, ...] = ()
    problems: tuple[InvalidInput, ...] = ()
    reports: tuple[ManifestReport, ...] = ()
    warnings: tuple[InvalidInput, ...] = ()


def judge_settings(paths: Iterable[Path], found: FoundDocuments) -> tuple[JudgedSettings, FoundDocuments]:
    """Judge the settings among what was found at paths, and return what is left to judge."""
    named_so = [path for path in paths if path.name == SETTINGS and path.is_file()]
    files = tuple(dict.fromkeys((*named_so, *_settings(found))))
    if not files:
        return JudgedSettings(), found
    from shiplap_cdk.install_document import inspect_install  # noqa: PLC0415 - only where there are settings

    problems: list[InvalidInput] = []
    warnings: list[InvalidInput] = []
    reports: list[ManifestReport] = []
    named = {str(file) for file in files}
    for file in files:
        try:
            read = inspect_install(file)
        except InvalidInput as problem:
            problems += each_problem(problem)
            continue
        problems += read.problems
        warnings += read.warnings
        for each in read.manifests:
            reports.append(each.report)
            named |= {document.source for document in each.documents}
            named |= {problem.source for problem in each.report.problems}
    return JudgedSettings(files, tuple(problems), tuple(reports), tuple(warnings)), _without(found, files, named)


def _settings(found: FoundDocuments) -> Iterator[Path]:
    """Yield files that are settings by their name or by their keys, but for descriptions of a fleet."""
    described = {document.source for document in found.others if KEY in document.data}
    by_keys = {document.source for document in found.others if _has_keys_of_settings(document)}
    for item in found.skipped:
        file = Path(item.file)
        if item.file not in described and file != STDIN and (file.name == SETTINGS or item.file in by_keys):
            yield file
            described.add(item.file)


def _has_keys_of_settings(document: Document) -> bool:
    return document.source != "stdin" and {"region", "clusters"} <= document.data.keys()


def _without(found: FoundDocuments, settings: tuple[Path, ...], named: Iterable[str]) -> FoundDocuments:
    """What was found without settings, and without the manifests in files that they name."""
    judged, files = {Path(source).resolve() for source in named}, set(map(str, settings))
    return FoundDocuments(
        tuple(document for document in found.ours if Path(document.source).resolve() not in judged),
        tuple(item for item in found.skipped if item.file not in files),
        tuple(problem for problem in found.problems if Path(problem.source).resolve() not in judged),
        tuple(document for document in found.others if document.source not in files),
    )

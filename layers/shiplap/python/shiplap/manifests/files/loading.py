"""From files to the manifests of one cluster: read, defaulted, validated, with all problems named at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.manifests.custom_resources import CapacityBuffer, Manifests, NodePool, PodTemplate
from shiplap.manifests.decoding import Problem, field_name
from shiplap.manifests.files.documents import Document, files_of, read_file
from shiplap.manifests.validation import nodepool_rules
from shiplap.manifests.validation.manifest_check import (
    MANIFEST_GROUPS,
    Manifest,
    check_object,
    group_and_version,
    is_manifest_kind,
    sorted_manifests,
)


class FoundManifest(NamedTuple):
    """A manifest and where it is written."""

    document: Document
    manifest: Manifest


class ManifestReport(msgspec.Struct, frozen=True):
    """The manifests and the problems found in files.

    `manifests` holds what could be typed, problems or not; `problems` come in the order of reading; `checked` counts
    the objects that are or ought to be manifests, `skipped` those of other API groups. `sound` are those without
    problems, in the order of reading.
    """

    manifests: Manifests
    problems: tuple[InvalidInput, ...]
    checked: int
    skipped: int
    sound: tuple[FoundManifest, ...] = ()


def load_manifests(paths: Sequence[Path]) -> Manifests:
    """The manifests in files and folders; objects of other API groups are passed over.

    Raises:
        InvalidManifests: with every problem of every file.
    """
    report = inspect_files(paths)
    if report.problems:
        raise InvalidManifests(report.problems)
    return report.manifests


def inspect_files(paths: Iterable[Path], replacing: Iterable[Path] = ()) -> ManifestReport:
    """Read and check files and folders; problems are reported, not raised.

    `replacing` holds the objects as they are in the cluster: some fields of theirs cannot change.
    """
    documents, problems = _read(paths)
    former, unread = _read(replacing)
    report = check_documents(documents, former)
    return msgspec.structs.replace(report, problems=(*problems, *unread, *report.problems))


def _read(paths: Iterable[Path]) -> tuple[list[Document], list[InvalidInput]]:
    documents: list[Document] = []
    problems: list[InvalidInput] = []
    for path in paths:
        try:
            files = files_of(path)
        except InvalidInput as problem:
            problems.append(problem)
            continue
        for file in files:
            try:
                documents += read_file(file)
            except InvalidInput as problem:
                problems.append(problem)
    return documents, problems


def check_documents(documents: Sequence[Document], replacing: Sequence[Document] = ()) -> ManifestReport:
    """Check objects that were read, each by itself, against the others and against those that they replace."""
    ours = [document for document in documents if not _is_foreign(document)]
    former = {document.name: check_object(document.data)[0] for document in replacing if not _is_foreign(document)}
    refused: list[tuple[Document, Problem]] = []
    wrong: list[tuple[Document, Problem]] = []
    found: list[FoundManifest] = []
    for document in ours:
        manifest, refusals, others = check_object(document.data)
        if manifest is not None:
            found.append(FoundManifest(document, manifest))
            refusals += _transition_problems(manifest, former.get(document.name))
        refused += [(document, problem) for problem in refusals]
        wrong += [(document, problem) for problem in others]
    wrong += [*_duplicates(found), *_missing_node_classes(ours, found)]
    unsound = {id(document) for document, _ in (*refused, *wrong)}
    place = {id(document): number for number, document in enumerate(ours)}
    located = [
        (place[id(document)], _located(document, problem, by_api_server))
        for by_api_server, some in ((True, refused), (False, wrong))
        for document, problem in some
    ]
    located.sort(key=lambda item: (item[0], item[1].line))
    return ManifestReport(
        manifests=sorted_manifests(manifest for _, manifest in found),
        problems=tuple(problem for _, problem in located),
        checked=len(ours),
        skipped=len(documents) - len(ours),
        sound=tuple(each for each in found if id(each.document) not in unsound),
    )


def _is_foreign(document: Document) -> bool:
    """An object that other tools read; one that does not say what it is, is not foreign but wrong."""
    said = all(isinstance(document.data.get(field), str) and document.data[field] for field in ("apiVersion", "kind"))
    group = group_and_version(document.data)[0]
    return said and group not in MANIFEST_GROUPS and not is_manifest_kind(group, document.data["kind"])


def _transition_problems(manifest: Manifest, before: Manifest | None) -> Iterator[Problem]:
    if isinstance(manifest, NodePool) and isinstance(before, NodePool):
        yield from nodepool_rules.transition_problems(manifest, before)


def _located(document: Document, problem: Problem, by_api_server: bool) -> InvalidInput:  # noqa: FBT001 - of a loop
    path, reason = problem
    return InvalidInput(
        document.source,
        reason,
        document=document.name,
        field=field_name(path),
        line=document.line_of(path),
        is_refused_by_api_server=by_api_server,
    )


def _duplicates(found: Sequence[FoundManifest]) -> Iterator[tuple[Document, Problem]]:
    first: dict[tuple[str, str, str], Document] = {}
    for document, manifest in found:
        namespace = manifest.metadata.namespace if isinstance(manifest, CapacityBuffer | PodTemplate) else ""
        earlier = first.setdefault((manifest.kind, namespace, manifest.metadata.name), document)
        if earlier is not document:
            reason = f"there is already one of this name, in {earlier.source}:{earlier.line_of(())}"
            yield document, (("metadata", "name"), reason)


def _missing_node_classes(
    documents: Sequence[Document], found: Sequence[FoundManifest]
) -> Iterator[tuple[Document, Problem]]:
    """Checked only when node classes are given, be they valid or not: they may as well be in the cluster."""
    known = {document.name for document in documents if document.data.get("kind") == "EC2NodeClass"}
    for document, manifest in found:
        if isinstance(manifest, NodePool) and known:
            name = manifest.spec.template.spec.node_class_ref.name
            if f"EC2NodeClass/{name}" not in known:
                path = ("spec", "template", "spec", "nodeClassRef", "name")
                yield (
                    document,
                    (path, f"there is no EC2NodeClass {name!r} among the manifests: {', '.join(sorted(known))}"),
                )

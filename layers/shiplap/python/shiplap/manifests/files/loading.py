"""From files to the manifests of one cluster: read, defaulted, validated, with all problems named at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.manifests.custom_resources import CapacityBuffer, Manifests, NodePool, PodTemplate
from shiplap.manifests.decoding import Problem, field_name
from shiplap.manifests.files.documents import STDIN, Document
from shiplap.manifests.files.manifest_folders import (
    FoundDocuments,
    SkippedInput,
    counted_skips,
    find_documents,
    likely_intention,
    sort_out,
)
from shiplap.manifests.validation import nodepool_rules
from shiplap.manifests.validation.manifest_check import (
    API_VERSIONS,
    Manifest,
    check_object,
    sorted_manifests,
)

_ANY = f"{', '.join([*API_VERSIONS][:-1])} or {[*API_VERSIONS][-1]}"


class FoundManifest(NamedTuple):
    """A manifest and where it is written."""

    document: Document
    manifest: Manifest


class ManifestReport(msgspec.Struct, frozen=True):
    """The manifests and the problems found in files.

    `manifests` holds what could be typed, problems or not; `problems` come in the order of reading; `checked` counts
    the objects that are or ought to be manifests, `skipped` are all others. `sound` are those without problems, in the
    order of reading. `others` as of FoundDocuments.
    """

    manifests: Manifests
    problems: tuple[InvalidInput, ...]
    checked: int
    skipped: tuple[SkippedInput, ...] = ()
    sound: tuple[FoundManifest, ...] = ()
    others: tuple[Document, ...] = ()


def load_manifests(paths: Sequence[Path]) -> Manifests:
    """The manifests in files and folders; objects of other API groups are passed over.

    Raises:
        InvalidManifests: with every problem of every file.
    """
    report = inspect_files(paths)
    if report.problems:
        raise InvalidManifests(report.problems)
    return report.manifests


def inspect_files(paths: Sequence[Path], replacing: Sequence[Path] = ()) -> ManifestReport:
    """Read and check files and folders; problems are reported, not raised.

    `replacing` holds the objects as they are in the cluster: some fields of theirs cannot change.
    """
    return inspect_documents(find_documents(paths), find_documents(replacing))


def inspect_documents(found: FoundDocuments, former: FoundDocuments) -> ManifestReport:
    """Check what was found in files, each object by itself, against the others and those that it replaces."""
    report = _checked(found, former.ours)
    return msgspec.structs.replace(report, problems=(*found.problems, *former.problems, *report.problems))


def no_manifest(paths: Iterable[Path], report: ManifestReport, lacks: str = _ANY) -> InvalidInput:
    """The error for files and folders that hold no manifest at all, or none of a kind: what to do instead."""
    passed_over = f" (passed over {counted_skips(report.skipped)})" if report.skipped else ""
    reason = f"there is no {lacks} in it{passed_over}: {likely_intention(report.skipped)}"
    return InvalidInput(", ".join("stdin" if path == STDIN else str(path) for path in paths), reason)


def check_documents(documents: Sequence[Document], replacing: Sequence[Document] = ()) -> ManifestReport:
    """Check objects that were read, each by itself, against the others and against those that they replace."""
    return _checked(sort_out(documents), sort_out(replacing).ours)


def _checked(given: FoundDocuments, replacing: Sequence[Document]) -> ManifestReport:
    ours = given.ours
    former = {document.name: check_object(document.data)[0] for document in replacing}
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
        skipped=given.skipped,
        sound=tuple(each for each in found if id(each.document) not in unsound),
        others=given.others,
    )


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

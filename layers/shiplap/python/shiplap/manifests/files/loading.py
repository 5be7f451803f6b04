"""From files to the manifests of one cluster: read, defaulted, validated, with all problems named at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.manifests.custom_resources import (
    CapacityBuffer,
    EC2NodeClass,
    Manifests,
    NodeOverlay,
    NodePool,
    PodTemplate,
)
from shiplap.manifests.decoding import Problem, decode, field_name
from shiplap.manifests.files.documents import Document, files_of, read_file
from shiplap.manifests.validation import buffer_rules, nodeclass_rules, nodeoverlay_rules, nodepool_rules

Manifest = NodePool | EC2NodeClass | NodeOverlay | CapacityBuffer | PodTemplate
BUFFERS = "autoscaling.x-k8s.io"


class _Kind(msgspec.Struct, frozen=True):
    version: str
    type: type[Manifest]
    rules: Callable[[Any, Mapping[str, Any]], Iterator[Problem]]


_KINDS = {
    ("karpenter.sh", "NodePool"): _Kind("v1", NodePool, nodepool_rules.problems_of),
    ("karpenter.k8s.aws", "EC2NodeClass"): _Kind("v1", EC2NodeClass, nodeclass_rules.problems_of),
    ("karpenter.sh", "NodeOverlay"): _Kind("v1alpha1", NodeOverlay, nodeoverlay_rules.problems_of),
    (BUFFERS, "CapacityBuffer"): _Kind("v1beta1", CapacityBuffer, buffer_rules.problems_of),
    ("", "PodTemplate"): _Kind("v1", PodTemplate, buffer_rules.template_problems),
}
_GROUPS = frozenset(group for group, _ in _KINDS if group)


class ManifestReport(msgspec.Struct, frozen=True):
    """What was found in files.

    `manifests` holds what could be typed, problems or not; `problems` come in the order of reading; `checked` counts
    the objects that are or ought to be manifests, `skipped` those of other API groups.
    """

    manifests: Manifests
    problems: tuple[InvalidInput, ...]
    checked: int
    skipped: int


def load_manifests(paths: Sequence[Path]) -> Manifests:
    """The manifests in files and folders; objects of other API groups are passed over.

    Raises:
        InvalidManifests: with every problem of every file.
    """
    report = inspect_files(paths)
    if report.problems:
        raise InvalidManifests(report.problems)
    return report.manifests


def inspect_files(paths: Iterable[Path]) -> ManifestReport:
    """Read and check files and folders; problems are reported, not raised."""
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
    report = check_documents(documents)
    return msgspec.structs.replace(report, problems=(*problems, *report.problems))


def check_documents(documents: Sequence[Document]) -> ManifestReport:
    """Check objects that were read, each by itself and against the others."""
    ours = [document for document in documents if not _is_foreign(document)]
    wrong: list[tuple[Document, Problem]] = []
    found: list[tuple[Document, Manifest]] = []
    for document in ours:
        manifest, problems = _check_one(document)
        wrong += [(document, problem) for problem in problems]
        if manifest is not None:
            found.append((document, manifest))
    wrong += [*_duplicates(found), *_missing_node_classes(ours, found)]
    place = {id(document): number for number, document in enumerate(ours)}
    located = [(place[id(document)], _located(document, problem)) for document, problem in wrong]
    located.sort(key=lambda item: (item[0], item[1].line))
    return ManifestReport(
        manifests=_sorted(manifest for _, manifest in found),
        problems=tuple(problem for _, problem in located),
        checked=len(ours),
        skipped=len(documents) - len(ours),
    )


def _group_and_version(document: Document) -> tuple[str, str]:
    api_version = document.data.get("apiVersion")
    group, _, version = api_version.rpartition("/") if isinstance(api_version, str) else ("", "", "")
    return group, version


def _is_foreign(document: Document) -> bool:
    """An object that other tools read; one that does not say what it is, is not foreign but wrong."""
    said = all(isinstance(document.data.get(field), str) and document.data[field] for field in ("apiVersion", "kind"))
    group = _group_and_version(document)[0]
    return said and group not in _GROUPS and (group, document.data["kind"]) not in _KINDS


def _check_one(document: Document) -> tuple[Manifest | None, list[Problem]]:
    missing = [field for field in ("apiVersion", "kind") if not isinstance(document.data.get(field), str)]
    if missing:
        return None, [((field,), "required field is missing or not text") for field in missing]
    group, version = _group_and_version(document)
    kind = _KINDS.get((group, document.data["kind"]))
    if kind is None:
        readable = ", ".join(sorted(name for known, name in _KINDS if known == group))
        return None, [(("kind",), f"{document.data['kind']} of {group} is not a manifest; {group} has {readable}")]
    if version != kind.version:
        return None, [(("apiVersion",), f"{group}/{version} is not read; write it as {group}/{kind.version}")]
    manifest, problems = decode(document.data, kind.type)
    if manifest is not None:
        problems += kind.rules(manifest, document.data)
    return manifest, problems


def _located(document: Document, problem: Problem) -> InvalidInput:
    path, reason = problem
    line = document.line_of(path)
    return InvalidInput(document.source, reason, document=document.name, field=field_name(path), line=line)


def _duplicates(found: Sequence[tuple[Document, Manifest]]) -> Iterator[tuple[Document, Problem]]:
    first: dict[tuple[str, str, str], Document] = {}
    for document, manifest in found:
        namespace = manifest.metadata.namespace if isinstance(manifest, CapacityBuffer | PodTemplate) else ""
        earlier = first.setdefault((manifest.kind, namespace, manifest.metadata.name), document)
        if earlier is not document:
            reason = f"there is already one of this name, in {earlier.source}:{earlier.line_of(())}"
            yield document, (("metadata", "name"), reason)


def _missing_node_classes(
    documents: Sequence[Document], found: Sequence[tuple[Document, Manifest]]
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


def _sorted(manifests: Iterable[Manifest]) -> Manifests:
    by_name = sorted(manifests, key=lambda manifest: (manifest.metadata.name, manifest.metadata.namespace))
    return Manifests(
        node_pools=tuple(manifest for manifest in by_name if isinstance(manifest, NodePool)),
        node_classes=tuple(manifest for manifest in by_name if isinstance(manifest, EC2NodeClass)),
        node_overlays=tuple(manifest for manifest in by_name if isinstance(manifest, NodeOverlay)),
        capacity_buffers=tuple(manifest for manifest in by_name if isinstance(manifest, CapacityBuffer)),
        pod_templates=tuple(manifest for manifest in by_name if isinstance(manifest, PodTemplate)),
    )

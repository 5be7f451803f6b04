"""Tells the manifests in files and folders from what other tools keep beside them: charts, values, other kinds.

What is not ours is skipped and counted. What is ours and not yet an object, a Helm template, is a problem: it would
otherwise be left out in silence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from shiplap.errors import InvalidInput, each_problem
from shiplap.manifests.files.documents import (
    RENDER_CHART,
    STDIN,
    TEMPLATE_SIGN,
    Document,
    files_of,
    helm_template,
    read_file,
    read_text,
    text_of,
)
from shiplap.manifests.validation.manifest_check import (
    API_VERSIONS,
    BUFFERS,
    MANIFEST_GROUPS,
    OTHER_KINDS,
    group_and_version,
    intended_api_version,
    is_manifest_kind,
)

AUTO_MODE = "eks.amazonaws.com"
"""The API group of EKS Auto Mode, whose NodePools name a NodeClass of it."""

_OURS = re.compile(
    rf"""\b(apiVersion["']?:\s*["']?(karpenter\.|{re.escape(BUFFERS)}/)|kind["']?:\s*["']?({"|".join(API_VERSIONS)})\b)"""
)
"""What an object of ours says, in text that need not be YAML."""

_KUSTOMIZATIONS = frozenset({"kustomization.yaml", "kustomization.yml", "Kustomization"})
_PATCHES = ("patches", "patchesJson6902", "patchesStrategicMerge")
_KUSTOMIZED = (
    "commonAnnotations",
    "commonLabels",
    "components",
    "labels",
    "namePrefix",
    "nameSuffix",
    *_PATCHES,
    "replacements",
    "transformers",
)
"""Fields by which a kustomization changes what it names. Namespace and images change no manifest of ours."""

_CHART = "Chart.yaml"


class SkipReason(StrEnum):
    """The reason why something is no manifest."""

    OTHER_KIND = "an object of another kind"
    NO_OBJECT = "no Kubernetes object"
    TEMPLATE = "a Helm template"
    PATCH = "a patch of a kustomization"
    AUTO_MODE = "of EKS Auto Mode"


class SkippedInput(msgspec.Struct, frozen=True):
    """Something beside the manifests; `line` is 0 and `document` empty where it is a whole file."""

    file: str
    line: int
    document: str
    reason: SkipReason


class FoundDocuments(msgspec.Struct, frozen=True):
    """The documents of files and folders: those that are or ought to be manifests, the others, what cannot be read.

    `others` are the documents among what is skipped, but for those of EKS Auto Mode.
    """

    ours: tuple[Document, ...]
    skipped: tuple[SkippedInput, ...] = ()
    problems: tuple[InvalidInput, ...] = ()
    others: tuple[Document, ...] = ()


def find_documents(paths: Iterable[Path]) -> FoundDocuments:
    """Read files and folders; problems are reported, not raised."""
    documents: list[Document] = []
    skipped: list[SkippedInput] = []
    problems: list[InvalidInput] = []
    paths = tuple(paths)
    for path in paths:
        try:
            files = files_of(path)
        except InvalidInput as problem:
            problems += each_problem(problem)
            continue
        for file in files:
            try:
                read = _read(file, is_named=file == path)
            except InvalidInput as problem:
                problems += each_problem(problem)
                continue
            if isinstance(read, SkippedInput):
                skipped.append(read)
            else:
                documents += read
    patches = _patches(documents) - set(map(Path.resolve, paths))
    if patches:
        skipped += [skipped_document(each, SkipReason.PATCH) for each in documents if _is_in(each, patches)]
        documents = [each for each in documents if not _is_in(each, patches)]
    sorted_out = sort_out(documents)
    return FoundDocuments(sorted_out.ours, (*skipped, *sorted_out.skipped), tuple(problems), sorted_out.others)


def _patches(documents: Iterable[Document]) -> set[Path]:
    """Return the files that kustomizations name as patches: each is a part of an object."""
    found: set[Path] = set()
    for document in documents:
        file = Path(document.source)
        if file.name in _KUSTOMIZATIONS:
            for field in _PATCHES:
                entries = document.data.get(field)
                for entry in entries if isinstance(entries, list) else ():
                    named = entry.get("path") if isinstance(entry, dict) else entry
                    if isinstance(named, str) and "\n" not in named:  # else it is the patch itself
                        found.add((file.parent / named).resolve())
    return found


def _is_in(document: Document, files: Container[Path]) -> bool:
    return Path(document.source).resolve() in files


def sort_out(documents: Iterable[Document]) -> FoundDocuments:
    """Tell the manifests among documents from the others."""
    ours: list[Document] = []
    others: list[Document] = []
    skipped: list[SkippedInput] = []
    for document in documents:
        reason = _skip_reason(document.data)
        if reason is None:
            ours.append(document)
        else:
            skipped.append(skipped_document(document, reason))
            if reason is not SkipReason.AUTO_MODE:
                others.append(document)
    return FoundDocuments(tuple(ours), tuple(skipped), others=tuple(others))


def skipped_document(document: Document, reason: SkipReason) -> SkippedInput:
    """Name a document that is no manifest."""
    return SkippedInput(document.source, document.line_of(()), document.name, reason)


def _read(file: Path, *, is_named: bool) -> tuple[Document, ...] | SkippedInput:
    """The documents of a file; of one that was not named but found in a folder, and is not ours, why it is skipped.

    Raises InvalidInput for what cannot be read, and for a Helm template of ours.
    """
    if file == STDIN:
        return read_file(file)
    text = text_of(file)
    is_ours = is_named or _OURS.search(text) is not None
    is_template = TEMPLATE_SIGN in text
    if is_template and _chart_of(file) is not None:
        return _template(file, text, is_ours=is_ours)
    try:
        return read_text(str(file), text)
    except InvalidInput:
        if is_template:
            return _template(file, text, is_ours=is_ours)
        if is_ours:
            raise
        return SkippedInput(str(file), 0, "", SkipReason.NO_OBJECT)


def _template(file: Path, text: str, *, is_ours: bool) -> SkippedInput:
    """Raises InvalidInput where the template may be one of ours."""
    if not is_ours:
        return SkippedInput(str(file), 0, "", SkipReason.TEMPLATE)
    raise helm_template(file, text, _chart_of(file))


def _chart_of(template: Path) -> Path | None:
    charts = (folder.parent for folder in template.parents if folder.name == "templates")
    return next((chart for chart in charts if (chart / _CHART).is_file()), None)


def _skip_reason(data: dict[str, Any]) -> SkipReason | None:
    """The reason why an object is other tools'; None for one that is, or was surely meant as, a manifest."""
    group, _ = group_and_version(data)
    api_version, kind = (data[field] if isinstance(data.get(field), str) else "" for field in ("apiVersion", "kind"))
    if group == AUTO_MODE or (kind == "NodePool" and _node_class_group(data) == AUTO_MODE):
        return SkipReason.AUTO_MODE
    if (group, kind) in OTHER_KINDS:
        return SkipReason.OTHER_KIND
    if group in MANIFEST_GROUPS or (kind in API_VERSIONS and not group) or intended_api_version(data):
        return None
    if api_version and kind:
        return None if is_manifest_kind(group, kind) else SkipReason.OTHER_KIND
    is_meant = all(isinstance(data.get(field), dict) for field in ("metadata", "spec"))
    return None if is_meant else SkipReason.NO_OBJECT


def _node_class_group(data: dict[str, Any]) -> Any:
    value: Any = data
    for field in ("spec", "template", "spec", "nodeClassRef", "group"):
        value = value.get(field) if isinstance(value, dict) else None
    return value


def counted_skips(skipped: Sequence[SkippedInput]) -> str:
    """`2 objects of other kinds, 1 Helm template; of EKS Auto Mode: NodeClass/default`, empty for none."""
    counts = Counter(item.reason for item in skipped)
    words = [
        f"{number} {noun}{'' if number == 1 else 's'}{rest}"
        for reason, noun, rest in (
            (SkipReason.OTHER_KIND, "object", " of other kinds"),
            (SkipReason.NO_OBJECT, "document", " without a Kubernetes object"),
            (SkipReason.TEMPLATE, "Helm template", ""),
            (SkipReason.PATCH, "patch file", " of kustomizations"),
        )
        if (number := counts[reason])
    ]
    if named := [item.document for item in skipped if item.reason is SkipReason.AUTO_MODE]:
        words.append(f"{', '.join(named)} of EKS Auto Mode")
    return ", ".join(words)


def unapplied_kustomizations(others: Iterable[Document]) -> tuple[InvalidInput, ...]:
    """Warnings about kustomizations that would change the manifests beside them: nobody has applied that."""
    found = []
    for document in others:
        path = Path(document.source)
        fields = [field for field in _KUSTOMIZED if path.name in _KUSTOMIZATIONS and document.data.get(field)]
        if fields:
            remedy = f"render it first, such as by `kubectl kustomize {path.parent}`"
            reason = f"{', '.join(fields)} not applied: {remedy}"
            found.append(InvalidInput(document.source, reason, line=document.line_of((fields[0],))))
    return tuple(found)


def likely_intention(skipped: Sequence[SkippedInput]) -> str:
    """The remedy for input without a manifest, by what it holds instead."""
    reasons, names = {item.reason for item in skipped}, {Path(item.file).name for item in skipped}
    if _KUSTOMIZATIONS & names:
        return "render the kustomization first, such as by `kubectl kustomize FOLDER`"
    if SkipReason.TEMPLATE in reasons or _CHART in names:
        return f"render the Helm chart first, {RENDER_CHART.format(chart='CHART')}"
    if SkipReason.AUTO_MODE in reasons:
        return "EKS Auto Mode launches its nodes itself; Shiplap's NodePools name an EC2NodeClass of karpenter.k8s.aws"
    if "shiplap.yaml" in names:
        return "`shiplap validate` checks shiplap.yaml; give the files or folders that it names as manifests"
    return "give files or folders with some" if skipped else "it is empty; give files or folders with some"

"""Annotations of gangs in files that stand where no pod gets them, such as on a JobSet and not its pod templates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shiplap.errors import InvalidInput
from shiplap.manifests.decoding import Path, field_name
from shiplap.manifests.files.documents import Document
from shiplap.policies.gangs.gang_membership import DEADLINE, MINIMUM

_DEEPEST = 12
"""Levels of an object that are looked at; the template of a pod is above that in every kind."""

_MOST_PLACES = 2
"""Right places that a warning names."""


def misplaced_annotations(documents: Sequence[Document]) -> Iterator[InvalidInput]:
    """Yield a warning for each such annotation of an object that somebody wrote, unless it is in a right place, too."""
    for document in documents:
        meta = document.data.get("metadata")
        if document.data.get("kind") == "Pod" or (isinstance(meta, dict) and meta.get("ownerReferences")):
            continue
        parts = list(_parts(document.data))
        templates = [path for path, part in parts if _is_template(part)]
        for key in (MINIMUM, DEADLINE):
            places = [(path, field) for path, part in parts for field in _holding(part, key)]
            if not any(path in templates and field == "annotations" for path, field in places):
                yield from (_warning(document, (*path, "metadata", field, key), templates) for path, field in places)


def _parts(data: object, path: Path = (), deep: int = _DEEPEST) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the mappings of an object, each with its path, but for those below the specification of pods."""
    if isinstance(data, dict):
        yield path, data
        inner = [(step, part) for step, part in data.items() if step != "spec" or not _is_template(data)]
    else:
        inner = list(enumerate(data)) if isinstance(data, list) else []
    for step, part in inner:
        if deep and isinstance(part, (dict, list)):
            yield from _parts(part, (*path, step), deep - 1)


def _is_template(part: dict[str, Any]) -> bool:
    spec = part.get("spec")
    return isinstance(spec, dict) and isinstance(spec.get("containers"), list)


def _holding(part: dict[str, Any], key: str) -> Iterator[str]:
    """Yield the fields of the metadata of a part that hold a key."""
    meta = part.get("metadata")
    if not isinstance(meta, dict):
        return
    for field in ("annotations", "labels"):
        if isinstance(held := meta.get(field), dict) and key in held:
            yield field


def _warning(document: Document, path: Path, templates: Sequence[Path]) -> InvalidInput:
    right = [field_name((*each, "metadata", "annotations")) for each in templates[:_MOST_PLACES]]
    where = " or ".join(right) if right else "metadata.annotations of the pods"
    why = f"has no effect here, since pods do not get it: write it at {where}"
    return InvalidInput(
        document.source, why, document=document.name, field=field_name(path), line=document.line_of(path)
    )

"""The objects of optional features that were listed with the caller's rights, in the place of the API server."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from shiplap.errors import ClusterDenied
from shiplap.ports import CustomKind, NamedObjects
from shiplap_cli.policy_views import FeatureObjects


class ObjectsForCaller:
    """The part of a ClusterApi that finds objects by name; `objects` is None where they may not be listed."""

    def __init__(self, objects: FeatureObjects | None) -> None:
        self._objects = objects

    def named_objects(self, kind: CustomKind, names: Collection[tuple[str, str]] | None) -> NamedObjects:
        """Return the objects of these namespaces and names, or all. Raises ClusterDenied."""
        if self._objects is None:
            raise ClusterDenied(f"you may not list {kind.plural}.{kind.group}", status=403)
        found = [
            kind.reader.one(msgspec.json.encode(document.data))
            for document in self._objects.documents
            if _group_of(document.data) == kind.group
            and document.data.get("kind") == kind.reader.name
            and (names is None or _name_of(document.data) in names)
        ]
        return NamedObjects(
            tuple(read.item for read in found if read.item is not None),
            tuple(read.unreadable for read in found if read.unreadable is not None),
        )


def _group_of(data: Mapping[str, Any]) -> str:
    group, slash, _ = str(data.get("apiVersion", "")).partition("/")
    return group if slash else ""


def _name_of(data: Mapping[str, Any]) -> tuple[str, str]:
    meta = data.get("metadata")
    fields = meta if isinstance(meta, Mapping) else {}
    return str(fields.get("namespace") or "default"), str(fields.get("name", ""))

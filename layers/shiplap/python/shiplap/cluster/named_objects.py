"""Finds objects by name whose kind may not be defined, in lists: to get each of them would be a request each.

A kind that is defined costs one list of the cluster, which ends where all names are found. Of a kind with very many
objects the namespaces of the names that are left are listed by themselves, so that one namespace hides no other's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import quote

from shiplap.cluster.list_pages import list_pages, read_page
from shiplap.cluster.transport import Transport
from shiplap.errors import ObjectNotFound, ResourceVersionGone
from shiplap.kubernetes.reading import Page, Unreadable
from shiplap.ports import CustomKind, NamedObjects

_PAGE = 500
_MOST_LISTED = 10_000
"""So many objects of the cluster, and then of each namespace, are looked through."""

_Name = tuple[str, str]


class NamedObjectFinder:
    """Finds objects by name, and remembers which version of a kind is served.

    Of a kind that was not defined, one version is asked for at each look, in turn: a definition that comes later is
    found within as many looks as there are versions.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._served: dict[tuple[str, str], str] = {}
        self._looks: dict[tuple[str, str], int] = {}

    def find(self, kind: CustomKind, names: Collection[_Name] | None) -> NamedObjects:
        """Return the objects of these namespaces and names, or all. Raises ClusterError."""
        key = kind.group, kind.plural
        for version in self._versions(key, kind.versions):
            search = _Search(self._transport, kind, version, names)
            try:
                found = search.run()
            except ObjectNotFound:
                continue
            self._served[key] = version
            self._looks.pop(key, None)
            return found
        self._served.pop(key, None)
        self._looks[key] = self._looks.get(key, -1) + 1
        return NamedObjects()

    def _versions(self, key: tuple[str, str], versions: tuple[str, ...]) -> tuple[str, ...]:
        if key in self._looks:
            return (versions[self._looks[key] % len(versions)],)
        return tuple(sorted(versions, key=lambda version: version != self._served.get(key)))


class _Search:
    def __init__(self, transport: Transport, kind: CustomKind, version: str, names: Collection[_Name] | None) -> None:
        self._transport, self._kind = transport, kind
        self._root = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
        self._missing = None if names is None else set(names)
        self._items: dict[_Name, Any] = {}
        self._unreadable: dict[_Name, Unreadable] = {}

    def run(self) -> NamedObjects:
        """Search the cluster, then one namespace after the other if the cluster has too many objects."""
        unlisted: tuple[_Name, ...] = ()
        is_whole = self._is_searched(f"{self._root}/{self._kind.plural}")
        if not is_whole and self._missing is not None:
            namespaces = sorted({namespace for namespace, _ in self._missing})
            whole = {each for each in namespaces if self._is_searched(self._path_in(each))}
            unlisted = tuple(sorted(name for name in self._missing if name[0] not in whole))
        items = tuple(item for _, item in sorted(self._items.items()))
        unreadable = tuple(sorted(self._unreadable.values()))
        return NamedObjects(items, unreadable, unlisted, more=self._missing is None and not is_whole)

    def _path_in(self, namespace: str) -> str:
        return f"{self._root}/namespaces/{quote(namespace, safe='')}/{self._kind.plural}"

    def _is_searched(self, path: str) -> bool:
        """Look through a list until nothing is missing; False if it is too long for that."""
        try:
            return self._look_through(path)
        except ResourceVersionGone:
            return self._look_through(path)

    def _look_through(self, path: str) -> bool:
        seen = 0
        for page in self._pages(path):
            for item in page.items:
                self._keep(self._items, (item.metadata.namespace, item.metadata.name), item)
            for about in page.unreadable:
                self._keep(self._unreadable, (about.namespace, about.name), about)
            seen += len(page.items) + len(page.unreadable)
            if self._missing is not None and not self._missing:
                return True
            if seen >= _MOST_LISTED and page.token:
                return False
        return True

    def _pages(self, path: str) -> Iterator[Page[Any]]:
        return list_pages(
            self._transport, lambda body: read_page(self._kind.reader, body, path), path, {}, most_objects=_PAGE
        )

    def _keep(self, kept: dict[_Name, Any], name: _Name, item: object) -> None:
        if self._missing is None:
            kept[name] = item
        elif name in self._missing:
            self._missing.discard(name)
            kept[name] = item

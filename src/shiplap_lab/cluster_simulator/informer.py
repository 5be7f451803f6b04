"""Typed copies of a cluster's objects, kept current from the server's log of changes, as controllers keep them."""

from __future__ import annotations

from collections.abc import Callable

from shiplap.errors import ResourceVersionGone
from shiplap.kubernetes.names import namespaced_name
from shiplap.kubernetes.objects import DaemonSet, Node, Pod
from shiplap_lab.api_server.changelog import Change
from shiplap_lab.api_server.server import ApiServer

_KINDS: dict[str, type[Pod | Node | DaemonSet]] = {"pods": Pod, "nodes": Node, "daemonsets": DaemonSet}

Store = dict[str, Pod] | dict[str, Node] | dict[str, DaemonSet]
Kept = Pod | Node | DaemonSet
Listener = Callable[[str, str, Kept | None, Kept | None], object]
"""Called with the kind, the key, what was known before (None: nothing) and what is known now (None: it is gone)."""


class Informer:
    """`pods` and `daemon_sets` by `namespace/name`, `nodes` by name; all of them as of the last `refresh`.

    Attributes:
        listeners: called with each change, in their order.
    """

    def __init__(self, server: ApiServer, *listeners: Listener) -> None:
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.daemon_sets: dict[str, DaemonSet] = {}
        self.listeners = list(listeners)
        self._server = server
        self._versions = dict.fromkeys(_KINDS, "")

    def refresh(self) -> bool:
        """Catch up; whether anything had changed."""
        if set(self._versions.values()) == {self._server.resource_version}:
            return False
        changed = [self._catch_up(plural, self._store(plural)) for plural in _KINDS]
        return any(changed)

    def _store(self, plural: str) -> Store:
        return {"pods": self.pods, "nodes": self.nodes, "daemonsets": self.daemon_sets}[plural]  # type: ignore[return-value]

    def _catch_up(self, plural: str, store: Store) -> bool:
        stale: dict[str, Kept] = {}
        try:
            changes, version = self._server.changes(plural, self._versions[plural])
        except ResourceVersionGone:
            stale = dict(store)
            changes, version = self._server.changes(plural, "")
        self._versions[plural] = version
        for change in changes:
            metadata = change.object["metadata"]
            key = metadata["name"] if plural == "nodes" else namespaced_name(metadata["namespace"], metadata["name"])
            stale.pop(key, None)
            self._keep(plural, store, key, change)
        for key in stale:
            self._forget(plural, store, key)
        return bool(changes or stale)

    def _keep(self, plural: str, store: Store, key: str, change: Change) -> None:
        if change.type == "DELETED":
            self._forget(plural, store, key)
            return
        before, now = store.get(key), self._server.typed(change.object, _KINDS[plural])
        store[key] = now  # type: ignore[assignment]
        for tell in self.listeners:
            tell(plural, key, before, now)

    def _forget(self, plural: str, store: Store, key: str) -> None:
        before = store.pop(key, None)
        for tell in self.listeners if before is not None else ():
            tell(plural, key, before, None)

"""Typed copies of a cluster's objects, kept current from the server's log of changes, as controllers keep them."""

from __future__ import annotations

import msgspec

from shiplap.errors import ResourceVersionGone
from shiplap.kubernetes.objects import DaemonSet, Node, Pod
from shiplap.twins.kube.server import ApiServer

_KINDS: dict[str, type[Pod | Node | DaemonSet]] = {"pods": Pod, "nodes": Node, "daemonsets": DaemonSet}


class Informer:
    """`pods` and `daemon_sets` by `namespace/name`, `nodes` by name; all of them as of the last `refresh`."""

    def __init__(self, server: ApiServer) -> None:
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.daemon_sets: dict[str, DaemonSet] = {}
        self._server = server
        self._versions = dict.fromkeys(_KINDS, "")

    def refresh(self) -> bool:
        """Catch up; whether anything had changed."""
        if all(version == self._server.resource_version for version in self._versions.values()):
            return False
        changed = [self._catch_up(plural, self._store(plural)) for plural in _KINDS]
        return any(changed)

    def _store(self, plural: str) -> dict[str, Pod] | dict[str, Node] | dict[str, DaemonSet]:
        return {"pods": self.pods, "nodes": self.nodes, "daemonsets": self.daemon_sets}[plural]  # type: ignore[return-value]

    def _catch_up(self, plural: str, store: dict[str, Pod] | dict[str, Node] | dict[str, DaemonSet]) -> bool:
        try:
            changes, version = self._server.changes(plural, self._versions[plural])
        except ResourceVersionGone:
            store.clear()
            changes, version = self._server.changes(plural, "")
        self._versions[plural] = version
        for change in changes:
            metadata = change.object["metadata"]
            key = metadata["name"] if plural == "nodes" else f"{metadata['namespace']}/{metadata['name']}"
            if change.type == "DELETED":
                store.pop(key, None)
            else:
                store[key] = msgspec.convert(change.object, _KINDS[plural])  # type: ignore[assignment]
        return bool(changes)

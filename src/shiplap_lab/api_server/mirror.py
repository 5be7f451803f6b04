"""A typed list kept current from the log of changes: what a list costs is what has changed since the last one."""

from __future__ import annotations

from threading import Lock
from typing import Generic, TypeVar

import msgspec

from shiplap.errors import ResourceVersionGone
from shiplap_lab.api_server.changelog import Change
from shiplap_lab.api_server.server import ApiServer, ListOptions

Typed = TypeVar("Typed", bound=msgspec.Struct)


class Mirror(Generic[Typed]):
    """The objects of one kind that match a selection, in the order of lists."""

    def __init__(self, server: ApiServer, plural: str, kind: type[Typed], selection: ListOptions) -> None:
        self._server, self._plural, self._kind, self._selection = server, plural, kind, selection
        self._lock = Lock()
        self._version = ""
        self._stored: dict[str, Typed] = {}
        self._unsorted = False
        self._listed: tuple[Typed, ...] = ()

    def items(self) -> tuple[Typed, ...]:
        """All of them as of now."""
        with self._lock:
            try:
                changes, self._version = self._server.changes(self._plural, self._version, self._selection)
            except ResourceVersionGone:
                self._stored.clear()
                self._listed = ()
                changes, self._version = self._server.changes(self._plural, "", self._selection)
            for change in changes:
                self._keep(change)
            if changes or not self._listed:
                if self._unsorted:
                    self._stored = dict(sorted(self._stored.items()))
                    self._unsorted = False
                self._listed = tuple(self._stored.values())
            return self._listed

    def _keep(self, change: Change) -> None:
        metadata = change.object["metadata"]
        key = f"{metadata.get('namespace', '')}/{metadata['name']}"
        if change.type == "DELETED":
            self._stored.pop(key, None)
            return
        self._unsorted = self._unsorted or key not in self._stored
        self._stored[key] = self._server.typed(change.object, self._kind)

"""The log that watches read: every write in order, until it is compacted."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition
from typing import Any

import msgspec

from shiplap.errors import ClusterUnreachable, ResourceVersionGone
from shiplap_lab.api_server.queries import Test

Object = dict[str, Any]
"""An API object as raw JSON; never changed in place once stored, so that readers may keep it."""


class Change(msgspec.Struct, frozen=True):
    """One write. `type` is ADDED, MODIFIED or DELETED; `previous` is the object before it, None when it is new."""

    resource_version: int
    type: str
    plural: str
    object: Object
    previous: Object | None = None


class ChangeLog:
    """Changes numbered without gaps. The number of the newest is the store's resourceVersion.

    Attributes:
        on_write: called with each change: its type, the plural and the object.
    """

    def __init__(self, limit: int) -> None:
        self.on_write: list[Callable[[str, str, Object], object]] = []
        self._limit = limit
        self._compacted = 1
        self._changes: list[Change] = []
        self._grown = Condition()

    @property
    def newest(self) -> int:
        """The resourceVersion everything written so far stands for."""
        return self._compacted + len(self._changes)

    def append(self, kind: str, plural: str, item: Object, previous: Object | None) -> None:
        """Record the next change and wake those who wait; twice the limit of changes is cut back to the limit."""
        with self._grown:
            self._changes.append(Change(self.newest + 1, kind, plural, item, previous))
            if len(self._changes) > 2 * self._limit:
                self.compact(keep=self._limit)
            self._grown.notify_all()
        for listener in self.on_write:
            listener(kind, plural, item)

    def compact(self, keep: int = 0) -> None:
        """Forget all but the newest changes."""
        with self._grown:
            drop = max(0, len(self._changes) - keep)
            del self._changes[:drop]
            self._compacted += drop

    def since(self, resource_version: int) -> list[Change]:
        """Changes after a version.

        Raises:
            ResourceVersionGone: changes after it have been compacted.
            ClusterUnreachable: status 504, the version lies in the future.
        """
        with self._grown:
            if resource_version < self._compacted:
                raise ResourceVersionGone(
                    f"too old resource version: {resource_version} ({self._compacted})", status=410
                )
            if resource_version > self.newest:
                raise ClusterUnreachable(f"Too large resource version: {resource_version}", status=504)
            return self._changes[resource_version - self._compacted :]

    def wait(self, resource_version: int, timeout_s: float) -> bool:
        """Block until something newer than the version is written; False when the timeout passes first."""
        with self._grown:
            return self._grown.wait_for(lambda: self.newest > resource_version, timeout_s)


def as_seen(change: Change, test: Test) -> Change | None:
    """The change as a watch with a selector sees it: entering the selection adds, leaving it deletes.

    The object that leaves is reported as it last matched, under the new resourceVersion.
    """
    matches = test(change.object) and change.type != "DELETED"
    matched = change.previous is not None and test(change.previous)
    if matches:
        kind = change.type if matched or change.type == "ADDED" else "ADDED"
        return change if kind == change.type else msgspec.structs.replace(change, type=kind)
    if not matched or change.previous is None:
        return None
    if change.type == "DELETED":
        return change
    metadata = {**change.previous["metadata"], "resourceVersion": str(change.resource_version)}
    return msgspec.structs.replace(change, type="DELETED", object={**change.previous, "metadata": metadata})

"""The previous version: the fields of records and messages that it does not know, and so neither reads nor writes.

An alias moves forward while messages and claims are under way, and moves back when something is wrong. Both versions
then work on the same table and the same queues for a while. A new field of a stored record is listed here until the
next release, so that the simulation covers that release.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from shiplap.disruption.progress import DisruptionCommand
from shiplap.manifests.nodeclaim import NodeClaim

NEW_FIELDS: dict[type[NodeClaim | DisruptionCommand], tuple[str, ...]] = {
    NodeClaim: ("answered_at", "change_at", "cordoned", "event_id", "first_event_at", "security_groups", "subnet"),
    DisruptionCommand: ("detail", "receiving"),
}
"""Fields that the previous version does not know."""

_NEW_IN_DETAILS = ("id", "pods", "providerID", "reason", "time")
_FOREIGN = "ofAnotherVersion"
"""A field that no version reads."""


_Record = TypeVar("_Record", NodeClaim, DisruptionCommand)


def as_previous_version(record: _Record) -> _Record:
    """A record as the previous version writes it."""
    known: dict[str, Any] = msgspec.to_builtins(record)
    kept = {name: value for name, value in known.items() if name not in NEW_FIELDS[type(record)]}
    return msgspec.json.decode(msgspec.json.encode({**kept, _FOREIGN: True}), type=type(record))


def message_of_previous_version(body: str) -> str:
    """A message as the previous version sends it, with a field that only that version knows."""
    message = json.loads(body)
    if "detail" in message:
        detail = {name: value for name, value in message["detail"].items() if name not in _NEW_IN_DETAILS}
        message["detail"] = {**detail, _FOREIGN: True}
    return json.dumps({**message, _FOREIGN: True})

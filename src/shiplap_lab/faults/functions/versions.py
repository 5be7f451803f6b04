"""The previous version: the fields of records and messages that it does not know, and so neither reads nor writes.

An alias moves forward while messages and claims are under way, and moves back when something is wrong. Both versions
then work on the same table and the same queues for a while. A new field of a stored record is listed here until the
next release, so that the simulation covers that release.
"""

from __future__ import annotations

import json
import zlib
from typing import TypeVar

from shiplap.disruption.progress import DisruptionCommand
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import read_claim, read_command, written_claim, written_command

NEW_FIELDS: dict[type[NodeClaim | DisruptionCommand], tuple[str, ...]] = {
    NodeClaim: (
        "atomic",
        "most_hourly",
        "object_name",
        "object_uid",
        "preferred_spot",
        "reboot_boot_id",
        "reboot_cause",
        "reboot_ended_at",
        "reboot_sent_at",
        "reboots_at",
        "requested_from",
        "schema",
        "zone_id",
    ),
    DisruptionCommand: ("empties_within_s", "schema"),
}
"""Fields of stored records that the previous version does not know."""

_NEW_IN_DETAILS = ("id", "pods", "providerID", "reason", "time")
_FOREIGN = "ofAnotherVersion"
"""A field that no version reads."""


_Record = TypeVar("_Record", NodeClaim, DisruptionCommand)


def as_previous_version(record: _Record) -> _Record:
    """A record as the previous version writes it."""
    if isinstance(record, NodeClaim):
        stored = written_claim(record)
        return read_claim(_without(stored if isinstance(stored, str) else zlib.decompress(stored), NodeClaim))
    return read_command(_without(written_command(record), DisruptionCommand))


def _without(stored: str | bytes, kind: type[NodeClaim | DisruptionCommand]) -> str:
    """A stored document without the fields that the previous version does not know, and with one of its own."""
    kept = {name: value for name, value in json.loads(stored).items() if name not in NEW_FIELDS[kind]}
    return json.dumps({**kept, _FOREIGN: True})


def message_of_previous_version(body: str) -> str:
    """A message as the previous version sends it, with a field that only that version knows."""
    message = json.loads(body)
    if "detail" in message:
        detail = {name: value for name, value in message["detail"].items() if name not in _NEW_IN_DETAILS}
        message["detail"] = {**detail, _FOREIGN: True}
    return json.dumps({**message, _FOREIGN: True})

"""Conditions in the status of a workload."""

from __future__ import annotations

from typing import Any

from shiplap.kubernetes.timestamps import rfc3339
from shiplap_lab.api_server.changelog import Object

Condition = dict[str, Any]


def condition_of(item: Object, kind: str) -> Condition | None:
    """The condition of a type that an object has."""
    conditions = (item.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), None)


def renewed(
    item: Object, kind: str, status: str, reason: str, message: str, now: float, *, updated: bool | None = None
) -> Condition:
    """A condition that remembers since when it has its status, True or False.

    Unless `updated` is None, it also tells when it changed last, which is now if `updated`.
    """
    before, moment = condition_of(item, kind) or {}, rfc3339(now)
    since = before.get("lastTransitionTime", moment) if before.get("status") == status else moment
    built = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
    if updated is not None:
        same = not updated and all(before.get(name) == built[name] for name in ("status", "reason", "message"))
        built["lastUpdateTime"] = before.get("lastUpdateTime", moment) if same else moment
    return built

"""Time zones by their IANA names, for the schedules that people write in their own time."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_OF_THE_MACHINE = frozenset({"localtime", "posixrules", "Factory"})
"""Names that some machines have a file for, each with another meaning."""


def zone_named(name: str) -> ZoneInfo:
    """The time zone of this name, such as `Europe/Berlin`. Raises ValueError, with the reason, when there is none."""
    try:
        if name not in _OF_THE_MACHINE:
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise ValueError(f"{name!r} is not a time zone, such as Europe/Berlin")

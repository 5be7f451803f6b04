"""One fault of a run, as scenarios write it."""

from __future__ import annotations

import msgspec


class Fault(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Something that goes wrong from `at` on, for so many `minutes`; both in minutes of virtual time.

    The module of its kind describes `target` (mostly a glob) and `amount`.
    """

    kind: str
    at: float = 0.0
    minutes: float = 0.0
    target: str = "*"
    amount: float = 1.0

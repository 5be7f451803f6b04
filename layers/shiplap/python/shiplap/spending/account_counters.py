"""The counters of an account: what all clusters of an install have spent and reserved this month, and cost per hour.

Each cluster adds to them what has changed since it last did, together with a note of what it has added by then, in one
transaction that fails if the note has changed. So a write that is doubled or lost counts nothing twice. The clusters'
notes always add up to the counters.
"""

from __future__ import annotations

import msgspec


class CountedSpending(msgspec.Struct, frozen=True, omit_defaults=True):
    """The dollars that one cluster has added to the account's counters, in millionths.

    `total` went to the counter of `month`.
    `version` counts its writes, the last one `at` an epoch second.
    """

    version: int = 0
    month: str = ""
    total: int = 0
    hourly: int = 0
    at: int = 0


class AccountSpending(msgspec.Struct, frozen=True, omit_defaults=True):
    """The counters, in millionths of a dollar: spent and reserved by month, and what all instances cost per hour."""

    totals: dict[str, int] = {}
    hourly: int = 0

    def after(self, change: CountChange) -> AccountSpending:
        """The counters after a change."""
        month = change.after.month
        totals = {**self.totals, month: self.totals.get(month, 0) + change.more_total}
        return AccountSpending(dict(sorted(totals.items())), self.hourly + change.more_hourly)

    def allows(self, change: CountChange) -> bool:
        """True if the counters do not exceed the most that the change allows."""
        total_fits = change.most_total is None or self.totals.get(change.after.month, 0) <= change.most_total
        return total_fits and (change.most_hourly is None or self.hourly <= change.most_hourly)


class CountChange(msgspec.Struct, frozen=True):
    """A cluster's note before and after, and what the counters may be at most before the change; None for anything."""

    before: CountedSpending
    after: CountedSpending
    most_total: int | None = None
    most_hourly: int | None = None

    @property
    def more_total(self) -> int:
        """The amount to add to the month's counter. The counter of another month keeps its amount."""
        return self.after.total - (self.before.total if self.before.month == self.after.month else 0)

    @property
    def more_hourly(self) -> int:
        """The amount to add to the counter of prices per hour."""
        return self.after.hourly - self.before.hourly


def change_to(before: CountedSpending, month: str, total: int, hourly: int, at: float = 0.0) -> CountChange:
    """The change after which a cluster's part of the counters is `total` of a month, and `hourly`."""
    return CountChange(before, CountedSpending(before.version + 1, month, total, hourly, int(at)))

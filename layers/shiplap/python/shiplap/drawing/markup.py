"""Text into markup: escaping, and numbers as people read them.

Names of pods and nodes are written by users of a cluster, so every text gets into a page through `text`.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from shiplap.instances.offerings.node_prices import MONTH_HOURS

NOTHING = "\N{EN DASH}"
"""Stands for a missing number."""

_GIB = 2**30
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROL = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127, *_DIRECTIONS), "\N{REPLACEMENT CHARACTER}")


def text(value: str) -> str:
    """A string as text or as a quoted attribute's value; characters that no page may hold, or
    that change the direction of what follows, are replaced.
    """
    return escape(value.translate(_CONTROL).encode("utf-8", "replace").decode(), quote=True)


def short(value: str, most: int = 60) -> str:
    """A string of at most so many characters, not escaped yet; what is cut off is marked."""
    return value if len(value) <= most else f"{value[: most - 1]}…"


def number(value: float) -> str:
    """At most one decimal, and a separator of thousands."""
    return f"{value:,.1f}".removesuffix(".0")


def cores(millicores: int) -> str:
    """`250m` below one processor, else `1.5`."""
    return f"{millicores}m" if 0 < millicores < 1000 else number(millicores / 1000)


def memory(amount_bytes: int) -> str:
    """`512 MiB` below one GiB, else `1.5 GiB`."""
    return f"{amount_bytes / 2**20:.0f} MiB" if 0 < amount_bytes < _GIB else f"{number(amount_bytes / _GIB)} GiB"


def dollars(hourly: float, *, estimated: bool = False) -> str:
    """`$0.0042`, `$12.3000`, as tables on the terminal have them; `~$0.0042` when it is estimated."""
    return f"{'~' if estimated else ''}${hourly:,.4f}"


def monthly(hourly: float, *, estimated: bool = False) -> str:
    """A month at this price: `$1,235`, below 100 dollars `$70.08`; `~$1,200`, with two digits, when it is estimated."""
    month = hourly * MONTH_HOURS
    if not estimated:
        return f"${month:,.2f}" if month < 100 else f"${month:,.0f}"
    rounded = float(f"{month:.2g}")
    return f"~${rounded:,.0f}" if rounded >= 10 or rounded < 0.01 else f"~${rounded:g}"


def percent(part: float, whole: float) -> str:
    """`83 %`; a dash of nothing."""
    return f"{100 * part / whole:.0f} %" if whole else NOTHING


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60 % 60, whole // 3600 % 24, whole // 86400
    if whole < 3600:
        return f"{minutes} min"
    if not days:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{days} d {hours} h" if hours else f"{days} d"


def counted(count: int, noun: str) -> str:
    """`1 pod`, `1,200 pods`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    stacks: bool = False,
) -> str:
    """A table of plain texts, which are escaped here; the columns at `numbers` are aligned to the right.

    Columns in which no row has anything are left out.

    One that `stacks` becomes a list on a phone; another is scrolled sideways.
    """
    kinds = dict.fromkeys(numbers, " class=num")
    shown = [place for place in range(len(head)) if any(row[place] for row in rows)]
    heads = "".join(f"<th{kinds.get(place, '')}>{text(head[place])}</th>" for place in shown)

    def cell(place: int, value: str) -> str:
        of = f' data-of="{text(head[place])}"' if stacks else ""
        return f"<td{kinds.get(place, '')}{of}>{text(value)}</td>"

    body = "".join(f"<tr>{''.join(cell(place, row[place]) for place in shown)}</tr>" for row in rows)
    kind = " class=stack" if stacks else ""
    return f"<div class=wide><table{kind}><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"

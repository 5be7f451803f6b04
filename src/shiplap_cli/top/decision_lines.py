"""The decisions of an install as lines: the latest below the nodes, and all of them on a screen of their own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from textwrap import wrap

from rich.cells import cell_len
from rich.text import Text

from shiplap.disruption.record import Headline
from shiplap_cli.top.cells import cut, plain, when

_STYLES = {"schedule": "cyan", "disrupt": "magenta", "interrupt": "yellow"}
_HALF_A_DAY_S = 12 * 3600.0
_INDENT = 19
_UNASKED = "Name an install to see what it decides: --cluster, --stack or --dev."
_NONE = "Nothing was decided in the last 24 hours."
_HOW = "shiplap replay RECORD makes one again; shiplap explain claim NAME shows its history."


def decision_line(line: Headline, now: float, width: int) -> Text:
    """One decision; with the id of its record where there is room, without cluster and day where there is little."""
    text = _decision_text(line, now)
    room = width - cell_len(text.plain) - 2
    names = (line.record, line.record.rpartition("/")[2])
    name = next((name for name in map(plain, names) if name and cell_len(name) <= room), "")
    if name:
        text.append(name.rjust(width - cell_len(text.plain)), "dim")
    return cut(text, width)


def decision_screen(
    decisions: Sequence[Headline] | None, missing: Sequence[str], scroll: int, now: float, width: int
) -> list[Text]:
    """All decisions, the newest first, from one on; ids in full, on a line of their own where need be.

    What is missing of the picture comes first: no decision may mean that none could be read.
    """
    if decisions is None:
        return [cut(Text(_UNASKED), width)]
    told = [Text(row, "red") for text in missing for row in wrap(plain(text), width)]
    if not decisions:
        return told or [cut(Text(_NONE), width)]
    lines = [*told, cut(Text(_HOW, "dim"), width)]
    first = min(scroll, len(decisions) - 1)
    for line in list(reversed(decisions))[first:]:
        text = _decision_text(line, now)
        fits = cell_len(text.plain) + 2 + len(line.record) <= width
        if fits:
            lines.append(decision_line(line, now, width))
            continue
        lines.append(cut(text, width))
        if line.record:
            lines.append(
                cut(Text(" " * min(_INDENT, max(width - len(line.record), 0)) + plain(line.record), "dim"), width)
            )
    return lines


def _decision_text(line: Headline, now: float) -> Text:
    moment = when(line.at)
    if now - line.at > _HALF_A_DAY_S:
        moment = datetime.fromtimestamp(line.at, UTC).strftime("%d %b").ljust(8)
    text = Text(f"{moment} ", "dim")
    text.append(f"{line.kind:<9} ", _STYLES.get(line.kind, ""))
    return text.append(plain(line.text))

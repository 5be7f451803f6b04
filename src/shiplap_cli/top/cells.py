"""What lines of a frame are put together of: texts that fit, bars, times, amounts."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.cells import cell_len, set_cell_size
from rich.text import Text

_EIGHTHS = "▏▎▍▌▋▊▉█"


def rule(title: str, width: int) -> Text:
    """A line across with a title."""
    return Text(set_cell_size(f"── {title} " + "─" * width, width), "dim")


def bar(part: float, size: int) -> Text:
    """A bar of `size` cells and the percentage behind it."""
    size = max(size, 1)
    eighths = round(part * size * 8)
    full, rest = divmod(eighths, 8)
    filled = "█" * full + (_EIGHTHS[rest - 1] if rest else "")
    # Plain blue cannot be read on black. Only the bar is coloured: figures are for everybody's eyes.
    text = Text().append(filled, "cyan" if part < 0.85 else "magenta")
    text.append("░" * (size - cell_len(filled)), "dim")
    return text.append(f" {part:>4.0%}")


def sized(text: Text, size: int) -> Text:
    """Exactly so many cells."""
    text = cut(text, size)
    text.pad_right(size - cell_len(text.plain))
    return text


def cut(text: Text, width: int) -> Text:
    """At most so many cells."""
    text.truncate(width, overflow="ellipsis")
    return text


def plain(text: str) -> str:
    """Without control characters: names come from a cluster, and a terminal obeys what it is sent."""
    return "".join(char if char.isprintable() else "�" for char in text)


def when(at: float) -> str:
    """The time of day, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def age(seconds: float) -> str:
    """A time that has passed, in its largest unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def gib(amount: int) -> str:
    """An amount of memory."""
    return f"{amount / 2**30:.1f}Gi"

"""Keys as they are pressed, from a terminal that is told not to wait for a line."""

from __future__ import annotations

import os
import select
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

_SEQUENCES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "pageup",
    "\x1b[6~": "pagedown",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x03": "q",
}
_LONGEST = max(map(len, _SEQUENCES))


@contextmanager
def raw(terminal: int) -> Iterator[None]:
    """Keys come one by one and are not echoed; the terminal is as before afterwards, whatever happens."""
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSANOW)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def pressed(terminal: int, timeout_s: float) -> list[str]:
    """The keys pressed until now; waits at most so long, in seconds, for a first one."""
    ready, _, _ = select.select([terminal], [], [], timeout_s)
    return parse(os.read(terminal, 1024).decode(errors="ignore")) if ready else []


def parse(text: str) -> list[str]:
    """Names of keys in what a terminal sends; sequences of unknown keys are left out."""
    keys: list[str] = []
    while text:
        size = next((size for size in range(min(_LONGEST, len(text)), 0, -1) if text[:size] in _SEQUENCES), 0)
        if size:
            unknown = text[:1] == "\x1b" and size == 1 and text[1:2] in ("[", "O")
            if unknown:
                text = _after_unknown(text)
                continue
            keys.append(_SEQUENCES[text[:size]])
        elif text[0].isprintable():
            keys.append(text[0])
        text = text[max(size, 1) :]
    return keys


def _after_unknown(text: str) -> str:
    """The text behind a control sequence, which is parameters and one final letter or tilde."""
    end = next((n for n, char in enumerate(text[2:], 2) if char.isalpha() or char == "~"), len(text) - 1)
    return text[end + 1 :]

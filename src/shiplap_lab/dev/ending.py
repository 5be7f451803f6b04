"""Signals that end a run: a closed terminal and `kill` take it down in order, as Ctrl-C does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """The first of these signals raises KeyboardInterrupt, or SystemExit with 128 + its number; then they are ignored.

    One that the process ignores already, as under `nohup`, stays ignored. Only the main thread may use it.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}
    for number in before:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> None:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # the cleanup must not be interrupted
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if number == signal.SIGHUP:
        _redirect_to_devnull()
    raise SystemExit(128 + number)


def _redirect_to_devnull() -> None:
    """Redirect output: writing to a closed terminal fails and would end the cleanup."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)

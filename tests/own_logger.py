"""The logger of the product, as a new process has it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def own_logger() -> Iterator[None]:
    """A new logger `shiplap`: Powertools leaves marks on it, which the next install would take for its own."""
    logger = logging.getLogger("shiplap")
    before = logger.__dict__ | {"handlers": logger.handlers[:]}
    for mark in logger.__dict__.keys() - logging.Logger("").__dict__.keys():
        delattr(logger, mark)
    logger.handlers = []
    logger.setLevel(logging.NOTSET)
    try:
        yield
    finally:
        logger.__dict__.clear()
        logger.__dict__.update(before)
        logger.setLevel(logger.level)  # forgets which levels were on

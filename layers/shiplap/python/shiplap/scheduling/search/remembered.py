"""A search is made once for the same question: a warm function comes to it again with its next decision.

Disruption looks a second time at what it proposes, and anew now and then at what has not changed, so most of what it
searches it has searched before. The search is a pure function of its arguments, so nothing but time is saved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from threading import Lock

import numpy as np

from shiplap.scheduling.parcels import Filling, Parcel
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.improve import improve, worth

_MOST = 256
"""Searches that are remembered, of some kilobytes each; one decision about a cluster makes a few dozen."""

_KNOWN: dict[bytes, tuple[tuple[Filling | None, ...], float]] = {}
"""By digest of the question: what was found, None where nothing was better, and the effort left; the oldest first."""

_LOCK = Lock()


def improved(parcels: Sequence[Parcel], fillings: Sequence[Filling], effort: Effort) -> tuple[Filling, ...]:
    """As `improve`, which uses up as much of the effort whether or not it is known what it comes to."""
    if effort.spent:
        return tuple(fillings)
    granted = min(effort.left, worth(parcels))
    asked = _digest((*parcels, *fillings), granted)
    with _LOCK:
        known = _KNOWN.pop(asked, None)
        if known is not None:
            _KNOWN[asked] = known
    if known is None:
        part = Effort(granted)
        found = improve(parcels, fillings, part)
        better = tuple(new if new is not old else None for new, old in zip(found, fillings, strict=True))
        known = (better, part.left)
        with _LOCK:
            _KNOWN[asked] = known
            while len(_KNOWN) > _MOST:
                del _KNOWN[next(iter(_KNOWN))]
    effort.left -= granted - known[1]
    return tuple(old if new is None else new for new, old in zip(known[0], fillings, strict=True))


def forget() -> None:
    """As a new process begins: for those who measure."""
    with _LOCK:
        _KNOWN.clear()


def _digest(parts: Iterable[Parcel | Filling], granted: float) -> bytes:
    digest = hashlib.blake2b(repr(granted).encode(), digest_size=16)
    for part in parts:
        for field in part.__struct_fields__:
            array: np.ndarray = getattr(part, field)
            digest.update(f"{field}{array.shape}{array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.digest()

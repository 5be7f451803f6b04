"""Bounded retries with full jitter."""

from __future__ import annotations

import random

from shiplap.aws.failures import attempts


def test_pauses_come_between_attempts_and_stay_within_their_growing_bounds() -> None:
    pauses: list[float] = []
    random.seed(7)
    assert list(attempts(6, first_s=0.1, longest_s=0.5, sleep=pauses.append)) == [0, 1, 2, 3, 4, 5]
    assert len(pauses) == 5
    assert all(0 <= pause <= bound for pause, bound in zip(pauses, [0.2, 0.4, 0.5, 0.5, 0.5], strict=True))
    assert len(set(pauses)) == 5


def test_the_first_attempt_does_not_wait() -> None:
    pauses: list[float] = []
    assert next(iter(attempts(3, sleep=pauses.append))) == 0
    assert pauses == []

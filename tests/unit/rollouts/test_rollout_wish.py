"""What annotations of pods and NodePools wish of rollouts."""

from __future__ import annotations

import pytest

from shiplap.kubernetes.compact_pods import lean_pod
from shiplap.policies.rollouts.rollout_wish import RolloutWish, wish_of
from tests.builders.pods import pod

KEY, WITHIN = "shiplap.dev/rollout", "shiplap.dev/rollout-within"


@pytest.mark.parametrize(
    ("of_pod", "of_pool", "expected"),
    [
        ({}, {}, None),
        ({"shiplap.dev/rolling": "evict"}, {}, None),
        ({KEY: "never"}, {KEY: "evict"}, None),
        ({WITHIN: "1m"}, {}, None),
        ({KEY: "evict"}, {}, RolloutWish(evicts=True, within_s=900.0)),
        ({KEY: "stay"}, {KEY: "evict"}, RolloutWish(evicts=False, within_s=900.0)),
        ({}, {KEY: "evict", WITHIN: "1h"}, RolloutWish(evicts=True, within_s=3600.0)),
        ({WITHIN: "90s"}, {KEY: "stay", WITHIN: "1h"}, RolloutWish(evicts=False, within_s=90.0)),
        ({WITHIN: "0s"}, {KEY: "evict"}, RolloutWish(evicts=True, within_s=0.0)),
    ],
)
def test_a_pod_counts_more_than_its_pool(
    of_pod: dict[str, str], of_pool: dict[str, str], expected: RolloutWish | None
) -> None:
    assert wish_of(pod(annotations=of_pod), of_pool, 900.0) == expected
    assert wish_of(lean_pod(pod(annotations=of_pod)), of_pool, 900.0) == expected


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({KEY: "Evict"}, f"annotation {KEY}: 'Evict' is none of evict, stay, never"),
        ({KEY: "evict", WITHIN: "soon"}, f"annotation {WITHIN}: 'soon' is not a duration"),
        ({KEY: "evict", WITHIN: "-1m"}, f"annotation {WITHIN}: '-1m' must not be negative"),
    ],
)
def test_what_cannot_be_read_keeps_the_pod(written: dict[str, str], problem: str) -> None:
    wish = wish_of(pod(annotations=written), {}, 900.0)
    assert wish is not None
    assert (wish.evicts, wish.within_s) == (False, 900.0)
    assert wish.problem.startswith(problem)

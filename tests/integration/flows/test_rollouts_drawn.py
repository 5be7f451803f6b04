"""All nodes drift under Deployments that are drawn: with rollouts no second passes without a ready endpoint.

Pods take 20 seconds to be Ready and 30 to end. Beside it the same drift without rollouts: nodes have a
terminationGracePeriod, so that PodDisruptionBudgets that allow no eviction do not keep them for ever.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.integration.flows.rollouts_stage import ON, RolloutStage

_TIGHT: tuple[dict[str, Any], ...] = ({"maxUnavailable": 0}, {"minAvailable": "100%"}, {"maxUnavailable": "0%"})
_ROLLING: tuple[dict[str, Any], ...] = (
    {},
    {"maxSurge": 1, "maxUnavailable": 0},
    {"maxSurge": "50%"},
    {"maxSurge": 2, "maxUnavailable": "25%"},
)
DEPLOYMENTS = 6


def drawn(seed: int, *, on: bool) -> RolloutStage:
    """A cluster with Deployments of one pod, or of several with a budget that allows no eviction; all nodes drift."""
    random = Random(seed)  # noqa: S311 - repeatable chance
    stage = RolloutStage(ON if on else None, budget=random.choice(("100%", "50%", "1")))
    stage.limit("10m")
    for number in range(DEPLOYMENTS):
        name, replicas = f"app-{number}", random.choice((1, 1, 1, 2, 3))
        if replicas > 1 or random.random() < 0.3:
            stage.guard(name, **random.choice(_TIGHT))
        stage.deploy(
            name,
            replicas,
            cpu=random.choice(("100m", "500m", "900m", "1500m")),
            annotations={"shiplap.dev/rollout": random.choice(("stay", "evict"))},
            minReadySeconds=random.choice((0, 0, 5)),
            strategy={"type": "RollingUpdate", "rollingUpdate": random.choice(_ROLLING)},
        )
    stage.settle()
    stage.old = {instance.id for instance in stage.compute.alive()}
    stage.launched = {name: claim for name, claim in stage.launched.items() if name in stage.old}
    stage.drift()
    return stage


def judge(seed: int) -> tuple[int, int]:
    """Return the seconds without a ready endpoint, with rollouts and without."""
    stage, without = drawn(seed, on=True), drawn(seed, on=False)
    stage.settle(240)
    without.settle(240)
    alive = {instance.id for instance in stage.compute.alive()}
    assert stage.old.isdisjoint(alive)
    left = len(stage.launched.keys() - alive)
    assert all(stage.restarts(f"app-{number}") <= left for number in range(DEPLOYMENTS))
    assert not any(without.restarts(f"app-{number}") for number in range(DEPLOYMENTS))
    return stage.missing.total(), without.missing.total()


@pytest.mark.parametrize("seed", range(2))
def test_no_deployment_is_missing_for_a_second(seed: int) -> None:
    seconds, without = judge(seed)
    assert seconds == 0
    assert without >= 20


@pytest.mark.thorough
def test_no_deployment_of_many_is_missing_for_a_second() -> None:
    found = [judge(seed) for seed in range(2, 20)]
    assert [seconds for seconds, _ in found] == [0] * len(found)
    assert sum(without for _, without in found) >= 20 * len(found)

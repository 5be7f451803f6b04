"""A kubelet that lies or a machine that is broken: it costs its own cluster little, and other clusters nothing."""

from __future__ import annotations

import pytest

from shiplap.kubernetes.quantity import MEMORY
from tests.builders.pools import family_pool
from tests.integration.flows.stage import Stage

POOLS = (family_pool("any", ("m6i",), sizes=("large",)),)
HOUR_S = 3600


def with_allocatable(stage: Stage, number: int, **amounts: str) -> None:
    """A Node whose kubelet reports so much, whatever it has."""
    shown = stage.server.list("nodes").items[number]
    for field in ("capacity", "allocatable"):
        shown["status"][field].update({name.replace("_", "-"): amount for name, amount in amounts.items()})
    stage.server.patch("nodes", shown["metadata"]["name"], {"status": shown["status"]}, subresource="status")


def broken(pod_memory: str = "3Gi", **amounts: str) -> tuple[Stage, Stage]:
    """Two clusters of an install; the first node of the first one, for a pod of so much memory, reports so much."""
    first = Stage(POOLS)
    second = Stage(POOLS, beside=first)
    first.add_pods(1, cpu="500m", memory=pod_memory, prefix="early")
    first.prove_pending_kinds()
    assert len(first.schedule().launched) == 1
    first.join()
    with_allocatable(first, 0, **amounts)
    first.attend()
    return first, second


LIES = [{"memory": "10Mi"}, {"memory": "1"}, {"cpu": "1m"}, {"pods": "1"}, {"ephemeral_storage": "1Mi"}, {"cpu": "400"}]


@pytest.mark.parametrize("lie", LIES)
def test_other_clusters_launch_as_if_there_was_no_such_node(lie: dict[str, str]) -> None:
    alone = Stage(POOLS)
    _, other = broken(**lie)
    for stage in (alone, other):
        stage.add_pods(6, cpu="500m", memory="3Gi", prefix="web")
        stage.prove_pending_kinds()
        stage.play_on()
    assert len(other.claims()) == len(alone.claims())
    assert (other.pending(), sum(claim.missed for claim in other.claims())) == (0, 0)


@pytest.mark.parametrize("lie", LIES)
def test_its_own_cluster_goes_on_with_a_pilot_and_heals_with_the_next_node(lie: dict[str, str]) -> None:
    stage, _ = broken(**lie)
    stage.add_pods(6, cpu="500m", memory="3Gi", prefix="web")
    stage.prove_pending_kinds("web")
    stage.play_on(90)
    assert stage.pending() == 0
    assert sum(claim.missed for claim in stage.claims()) <= 1


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("lie", [*LIES[:4], {"memory": "3Gi"}])
def test_pods_whose_node_was_broken_are_launched_again_within_two_hours(lie: dict[str, str], share: float) -> None:
    """Only they wait, whatever part of the estimate they need, and no second node reports anything meanwhile."""
    least, most = (
        getattr(Stage(POOLS).types["m6i.large"], name)[MEMORY] for name in ("careful_allocatable", "allocatable")
    )
    stage, _ = broken(pod_memory=str(int(least + (most - least) * share)), **lie)
    started = stage.clock.now()
    while stage.pending() and stage.clock.now() < started + 2 * HOUR_S:
        stage.sweep()
        stage.join()
        stage.attend()
        stage.bind()
        stage.clock.advance(60)
    assert stage.pending() == 0
    assert len(stage.compute.launches) <= 2


def test_a_type_that_really_has_so_little_costs_its_cluster_two_nodes_in_a_day() -> None:
    """The second node confirms the first one; then plans hold what both have shown."""
    stage = Stage(POOLS, true_memory=lambda _, nominal: nominal // 2)
    size = str(int(stage.types["m6i.large"].careful_allocatable[MEMORY]))
    for number in range(4):
        stage.add_pods(1, cpu="500m", memory=size, prefix=f"batch-{number}")
        stage.prove_pending_kinds()
        for _ in range(30):
            stage.sweep()
            stage.join()
            stage.attend()
            stage.bind()
            stage.clock.advance(60)
    assert sum(claim.missed for claim in stage.claims()) <= 2

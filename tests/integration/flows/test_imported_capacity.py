"""Learned capacity of another install: what it says may be wrong, and no node misses because of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shiplap.instances.capacity.learned_capacity import is_observed
from shiplap.instances.catalog.type_catalog import ImportedCapacity, LearnedCapacity
from shiplap.kubernetes.quantity import CPU, MEMORY
from tests.builders.pools import family_pool
from tests.integration.flows.stage import Stage, share

POOLS = (family_pool("any", ("c7i", "m6i", "r6i")),)


def played(imported: Callable[[int], int] | None, *, true_share: float) -> Stage:
    """Pods that fit a c7i.large by its estimate and not by its careful bound.

    `imported` says what a file has of a type of so much nominal memory, bytes.
    """
    stage = Stage(POOLS, true_memory=share(true_share))
    small = stage.types["c7i.large"]
    wanted = (small.allocatable[MEMORY] + small.careful_allocatable[MEMORY]) // 2
    stage.add_pods(1, cpu="500m", memory=str(wanted))
    stage.prove_pending_kinds()
    if imported is not None:
        (kubelet_hash,) = {claim.known_instance.kubelet_hash for claim in played(None, true_share=true_share).claims()}
        for name, nominal in stage.nominal.items():
            amounts = {MEMORY: imported(nominal), CPU: 64_000}
            travelled = ImportedCapacity(amounts, amounts)
            stage.capacity.merge(LearnedCapacity("ami-twin", name, kubelet_hash, imported=travelled))
    stage.play_on()
    assert stage.pending() == 0
    return stage


def missed(stage: Stage) -> int:
    return sum(claim.missed for claim in stage.claims())


def launched(stage: Stage) -> list[str]:
    return sorted(claim.known_instance.type for claim in stage.claims())


@pytest.mark.parametrize("true_share", [0.95, 0.88])
def test_a_poisoned_import_makes_no_node_miss(true_share: float) -> None:
    without = played(None, true_share=true_share)
    poisoned = played(lambda nominal: 100 * nominal, true_share=true_share)
    assert launched(poisoned) == launched(without)
    assert missed(poisoned) == missed(without)


def test_an_import_that_is_true_spares_the_miss() -> None:
    assert missed(played(None, true_share=0.88)) == 1
    assert missed(played(lambda nominal: int(nominal * 0.88), true_share=0.88)) == 0


def test_an_import_of_nothing_leaves_the_careful_bound() -> None:
    stage = played(lambda _: 1, true_share=0.95)
    assert missed(stage) == 0
    assert "c7i.large" not in launched(stage)  # by the careful bound no pod fits
    small = next(kind for kind in launched(stage))
    assert small.endswith(".large")


def test_the_first_node_of_a_type_is_a_pilot_in_spite_of_an_import() -> None:
    stage = played(lambda nominal: int(nominal * 0.94), true_share=0.95)
    assert stage.faults.points.count("after capacity.acquire_pilot") > 0
    assert "c7i.large" in launched(stage)
    assert [entry.instance_type for entry in stage.capacity.all() if is_observed(entry)]

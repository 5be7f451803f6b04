"""An upgrade with running nodes: hashes of the version before are renewed, drift nobody, and still notice a change."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from shiplap.errors import ConditionFailed
from shiplap.flows.disrupt.renew_hashes import MOST_WRITES
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.manifests.template_hash import (
    FIRST_VERSION,
    HASH_VERSION,
    NODE_CLASS_HASH,
    NODE_CLASS_HASH_VERSION,
    POOL_HASH,
    POOL_HASH_VERSION,
    first_node_class_hashes,
    first_pool_hashes,
)
from tests.builders.claims import changes
from tests.integration.flows.disrupted import Disrupted
from tests.integration.flows.stage import Stage


def before_the_upgrade(pods: int = 12) -> Disrupted:
    """Nodes in service whose claims carry what version shiplap-1 wrote."""
    stage = Disrupted()
    stage.compute.cluster_ca = "b25l"
    stage.add_pods(pods, cpu="1200m", memory="2Gi")
    stage.play_on()
    stage.run_pods()
    stage.clock.advance(600)
    (pool,), (node_class,) = stage.settings.manifests.node_pools, stage.settings.manifests.node_classes
    first = {
        POOL_HASH: min(first_pool_hashes(pool)),
        POOL_HASH_VERSION: FIRST_VERSION,
        NODE_CLASS_HASH: min(first_node_class_hashes(node_class, "AL2023")),
        NODE_CLASS_HASH_VERSION: FIRST_VERSION,
    }
    for claim in stage.claims():
        stage.state.advance(claim, claim.state, **changes(claim, annotations={**claim.plan.annotations, **first}))
    stage.faults.clear()
    return stage


def change_pool(stage: Disrupted) -> None:
    (pool,) = stage.settings.manifests.node_pools
    plain = msgspec.to_builtins(pool)
    plain["spec"]["template"]["metadata"] = {"labels": {"team": "a"}}
    manifests = msgspec.structs.replace(stage.settings.manifests, node_pools=(msgspec.convert(plain, type(pool)),))
    stage.settings = msgspec.structs.replace(stage.settings, manifests=manifests)


def change_class(stage: Disrupted) -> None:
    (known,) = stage.settings.manifests.node_classes
    changed = msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, user_data="echo hello"))
    manifests = msgspec.structs.replace(stage.settings.manifests, node_classes=(changed,))
    stage.settings = msgspec.structs.replace(stage.settings, manifests=manifests)


def change_ca(stage: Disrupted) -> None:
    stage.compute.cluster_ca = "dHdv"


def versions(stage: Stage) -> set[str]:
    alive = [claim for claim in stage.claims() if claim.state is ClaimState.INITIALIZED]
    return {claim.plan.annotations[key] for claim in alive for key in (POOL_HASH_VERSION, NODE_CLASS_HASH_VERSION)}


def renewed(stage: Stage) -> float:
    return stage.meter.counts.get("HashesRenewed", 0)


def ids(stage: Stage) -> set[str]:
    return {instance.id for instance in stage.compute.alive()}


CHANGES = [pytest.param(change_pool, id="NodePool"), pytest.param(change_class, id="EC2NodeClass")]


def test_an_upgrade_replaces_no_node_and_renews_all_hashes() -> None:
    stage = before_the_upgrade()
    before = ids(stage)
    stage.minutes(6)
    assert ids(stage) == before
    assert versions(stage) == {HASH_VERSION}
    assert renewed(stage) == len(before)
    stage.minutes(2)
    assert renewed(stage) == len(before)


@pytest.mark.parametrize("change", [*CHANGES, pytest.param(change_ca, id="certificate authority")])
def test_a_change_after_the_upgrade_replaces_them_all(change: Callable[[Disrupted], None]) -> None:
    stage = before_the_upgrade()
    before = ids(stage)
    stage.minutes(2)
    change(stage)
    stage.minutes(12)
    assert ids(stage).isdisjoint(before)
    assert stage.pending() == 0


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_with_the_upgrade_replaces_them_all(change: Callable[[Disrupted], None]) -> None:
    stage = before_the_upgrade()
    before = ids(stage)
    change(stage)
    stage.minutes(12)
    assert ids(stage).isdisjoint(before)
    assert versions(stage) == {HASH_VERSION}


def points() -> list[str]:
    stage = before_the_upgrade()
    stage.disrupt()
    return list(stage.faults.points)


@pytest.mark.parametrize("number", range(len(points())))
def test_a_function_that_dies_at_any_effect_drifts_nobody_and_the_next_goes_on(number: int) -> None:
    stage = before_the_upgrade()
    before = ids(stage)
    stage.faults.crash_at(number)
    assert stage.dies(stage.disrupt)
    stage.faults.clear()
    stage.minutes(4)
    assert ids(stage) == before
    assert versions(stage) == {HASH_VERSION}


def test_a_claim_that_somebody_else_writes_meanwhile_waits_for_the_next_look() -> None:
    stage = before_the_upgrade()
    stage.faults.on("before", "state.advance", ConditionFailed("another function was faster"))
    stage.disrupt()
    assert FIRST_VERSION in versions(stage)
    stage.faults.clear()
    stage.minutes(2)
    assert versions(stage) == {HASH_VERSION}


def test_one_look_writes_a_bounded_number_of_claims() -> None:
    stage = before_the_upgrade(8 * MOST_WRITES)
    number = len(ids(stage))
    assert MOST_WRITES < number <= 2 * MOST_WRITES
    stage.disrupt()
    assert renewed(stage) == MOST_WRITES
    stage.disrupt()
    assert renewed(stage) == number

"""A rebalance recommendation is advice: a NodePool says whether it is ignored, cordons the node, or replaces it."""

from __future__ import annotations

import msgspec

from shiplap.flows import claim_events
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.manifests.shiplap_annotations import REBALANCE as POLICY
from tests.integration.flows.leaving import (
    ONLY_LARGE,
    REBALANCE,
    claim_now,
    evicted,
    first,
    kubelets_end_pods,
    play_out,
    seconds_pass,
    serving,
    warning,
)
from tests.integration.flows.stage import Stage


def heeding(policy: str) -> tuple[NodePool, ...]:
    (plain,) = ONLY_LARGE
    metadata = msgspec.structs.replace(plain.metadata, annotations={POLICY: policy})
    return (msgspec.structs.replace(plain, metadata=metadata),)


def tainted(stage: Stage, node: str) -> bool:
    taints = stage.server.get("nodes", node)["spec"].get("taints", ())
    return any(taint["key"] == labels.DISRUPTED_TAINT for taint in taints)


def test_it_is_told_and_ignored_where_the_pool_says_so() -> None:
    stage = serving(pools=heeding("ignore"))
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id, REBALANCE))
    assert claim_now(stage, claim) == claim
    assert len(stage.bus.of_type(claim_events.INTERRUPTED)) == 1


def test_a_cordoned_node_keeps_its_pods_and_takes_no_others() -> None:
    stage = serving(pools=heeding("cordon"))
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id, REBALANCE))
    stage.attend_timers()
    assert claim_now(stage, claim).state is ClaimState.INITIALIZED
    assert tainted(stage, claim.node_name)
    assert labels.EXCLUDE_BALANCERS not in stage.server.get("nodes", claim.node_name)["metadata"]["labels"]
    for _ in range(3):
        seconds_pass(stage, 40)
        stage.sweep()
    assert evicted(stage) == []
    stage.add_pods(1, cpu="100m", memory="100Mi", prefix="small")  # there is room on the node
    (launched,) = stage.schedule().launched
    replacement = stage.compute.launches[-1]
    assert (replacement.instance_type, replacement.zone) != (instance.instance_type, instance.zone)
    assert launched != claim.name


def test_the_same_advice_twice_has_one_effect() -> None:
    stage = serving(pools=heeding("cordon"))
    claim, instance = first(stage)
    for _ in range(2):
        stage.interrupt(warning(stage, instance.id, REBALANCE))
    assert claim_now(stage, claim).version == claim.version + 1
    assert len(stage.bus.of_type(claim_events.INTERRUPTED)) == 1


def test_a_lost_reminder_to_cordon_is_made_up_for_by_the_sweep() -> None:
    stage = serving(pools=heeding("cordon"))
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id, REBALANCE))
    stage.timers.reminders.clear()
    stage.sweep()
    stage.attend_timers()
    assert tainted(stage, claim.node_name)
    stage.sweep()
    assert stage.timers.reminders == []


def test_a_node_that_is_advised_against_before_it_joined_is_cordoned_once_it_has() -> None:
    stage = Stage(heeding("cordon"), spot=True)
    stage.add_pods(1, cpu="1200m", memory="2Gi")
    stage.schedule()
    (claim,) = stage.claims()
    stage.interrupt(warning(stage, claim.instance_id, REBALANCE))
    stage.attend_timers()
    stage.join()
    stage.attend()
    assert tainted(stage, claim_now(stage, claim).node_name)


def test_replacing_leaves_pods_where_they_are_until_their_new_node_is_ready() -> None:
    stage = serving(pools=heeding("replace"))
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id, REBALANCE))
    assert (claim_now(stage, claim).state, claim_now(stage, claim).deadline_at) == (ClaimState.DRAINING, 0.0)
    stage.attend_timers()
    assert len(stage.schedule().launched) == 1
    for _ in range(5):
        seconds_pass(stage, 60)
        stage.sweep()
        assert evicted(stage) == []  # nothing presses
    stage.join()
    stage.attend()
    seconds_pass(stage, 60)
    stage.sweep()
    stage.attend_timers()
    assert evicted(stage) == ["web-000"]
    kubelets_end_pods(stage)
    play_out(stage)
    assert claim_now(stage, claim).state is ClaimState.GONE
    assert len(stage.compute.launches) == 2


def test_a_warning_after_the_advice_starts_the_clock() -> None:
    for policy in ("cordon", "replace"):
        stage = serving(pools=heeding(policy))
        claim, instance = first(stage)
        stage.interrupt(warning(stage, instance.id, REBALANCE))
        stage.interrupt(warning(stage, instance.id))
        known = claim_now(stage, claim)
        assert (known.state, known.deadline_at) == (ClaimState.DRAINING, stage.clock.now() + 120)
        stage.interrupt(warning(stage, instance.id, REBALANCE))  # late
        assert claim_now(stage, claim) == known


def test_a_pool_that_is_gone_has_no_policy() -> None:
    stage = serving(pools=heeding("replace"))
    claim, instance = first(stage)
    stage.settings = msgspec.structs.replace(stage.settings, manifests=Manifests())
    stage.interrupt(warning(stage, instance.id, REBALANCE))
    assert claim_now(stage, claim) == claim

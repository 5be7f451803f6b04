"""Nodes in service whose claims are lost, as after table `state` was restored: they get their claims back, once."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.manifests.template_hash import NODE_CLASS_HASH, POOL_HASH
from shiplap.ports import Instance
from shiplap_lab.fakes.faults import Crash
from shiplap_lab.fakes.state import FakeState
from tests.builders.claims import flat
from tests.integration.flows.leaving import first, serving
from tests.integration.flows.stage import Stage

SAME = (
    *("cluster", "name", "node_pool", "node_class", "state", "token", "node_name"),
    *("instance_id", "instance_type", "zone", "capacity_type", "ami", "subnet", "security_groups"),
)


def restored(stage: Stage, keep: int = 0) -> tuple[NodeClaim, ...]:
    """The table is as it was before all claims but the first few were written; what they were."""
    lost = stage.claims()
    stage.state = FakeState(stage.faults)
    stage.context = msgspec.structs.replace(stage.context, state=stage.state)
    for claim in lost[:keep]:
        assert stage.state.adopt(claim)
    stage.clock.advance(600)
    stage.faults.clear()
    return lost


def look(stage: Stage) -> None:
    stage.sweep()
    stage.attend_timers()


def test_nodes_in_service_are_adopted_with_what_their_claims_said() -> None:
    stage = serving(3)
    before = restored(stage, keep=1)
    look(stage)
    after = stage.claims()
    assert len(stage.compute.alive()) == 3
    assert stage.meter.counts["NodesAdopted"] == 2
    for field in SAME:
        now, then = ([getattr(flat(claim), field) for claim in claims] for claims in (after, before))
        assert now == then, field
    for claim, old in zip(after, before, strict=True):
        assert claim.plan.instance_types == (claim.known_instance.type,)
        assert claim.plan.allocatable
        assert abs(claim.created_at - old.created_at) < 60, "the instance is a moment younger than its claim"
        for key in (POOL_HASH, NODE_CLASS_HASH):
            assert claim.plan.annotations.get(key) == old.plan.annotations.get(key)
    versions = [claim.version for claim in after]
    look(stage)
    assert [claim.version for claim in stage.claims()] == versions
    assert stage.meter.counts["NodesAdopted"] == 2
    assert stage.meter.counts.get("InstancesWithoutClaim") == 2, "seen once, by the first sweep"


def test_a_node_that_was_not_complete_is_adopted_as_registered_and_goes_on() -> None:
    stage = serving()
    claim, _ = first(stage)
    stage.server.patch("nodes", claim.node_name, {"metadata": {"labels": {labels.INITIALIZED: None}}})
    restored(stage)
    look(stage)
    (adopted,) = stage.claims()
    assert (adopted.state, adopted.version) == (ClaimState.INITIALIZED, 1), "adopted, then initialised"


def test_the_claim_of_an_adopted_node_ends_with_its_instance_like_any_other() -> None:
    stage = serving()
    restored(stage)
    look(stage)
    claim, instance = first(stage)
    stage.compute.terminate(stage.name, instance.id)
    stage.server.delete("nodes", claim.node_name)
    stage.clock.advance(200)
    look(stage)
    assert stage.state.claims(stage.name) == ()
    assert stage.state.claim(stage.name, claim.name).state is ClaimState.GONE


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_function_that_dies_at_the_write_leaves_one_claim(when: str) -> None:
    stage = serving()
    restored(stage)
    stage.sweep()
    due = stage.due()

    def die() -> None:
        raise Crash

    stage.faults.on(when, "state.adopt", die)
    stage.dies(lambda: stage.attend(*due))
    look(stage)
    assert len(stage.claims()) == len(stage.compute.alive()) == 1


def test_a_claim_that_appears_meanwhile_keeps_the_instance() -> None:
    """As when items of the backup are copied back while Shiplap runs."""
    stage = serving()
    (lost,) = restored(stage)
    stage.sweep()
    due = stage.due()
    stage.faults.on("before", "state.adopt", lambda: stage.state.adopt(lost))
    stage.attend(*due)
    assert stage.claims() == (lost,)
    assert "NodesAdopted" not in stage.meter.counts
    other = msgspec.structs.replace(lost, name="of-another-name")
    restored(stage)
    stage.sweep()
    assert stage.state.adopt(other)
    stage.attend_timers()
    assert stage.claims() == (other,)


def test_a_node_whose_claim_failed_by_the_restored_table_is_adopted() -> None:
    stage = serving()
    (lost,) = restored(stage)
    failed = msgspec.structs.replace(lost, state=ClaimState.FAILED, instance=None, node_name="")
    assert stage.state.adopt(failed)
    look(stage)
    assert [(claim.name, claim.state, claim.instance_id) for claim in stage.claims()] == [
        (lost.name, ClaimState.INITIALIZED, lost.instance_id)
    ]
    assert stage.claims()[0].version == failed.version + 1, "each write counts once"


@pytest.mark.parametrize("state", [ClaimState.INITIALIZED, ClaimState.GONE])
def test_a_node_whose_name_another_claim_has_by_now_gets_a_claim_of_another_name(state: ClaimState) -> None:
    """In a restored table an epoch comes again, and with it the names of its claims."""
    stage = serving()
    (lost,) = restored(stage)
    other = msgspec.structs.replace(lost.known_instance, id="i-0fffffffffffffff0")
    taken = msgspec.structs.replace(lost, state=state, instance=other, node_name="elsewhere")
    assert stage.state.adopt(taken)
    look(stage)
    (adopted,) = (claim for claim in stage.claims() if claim.instance_id == lost.instance_id)
    assert adopted.name == f"{lost.plan.node_pool}-{lost.instance_id}"
    assert adopted.state is ClaimState.INITIALIZED
    assert stage.meter.counts["NodesAdopted"] == 1
    look(stage)
    assert len([claim for claim in stage.claims() if claim.instance_id == lost.instance_id]) == 1


def test_nodes_of_others_and_of_pools_that_are_not_known_are_left_alone() -> None:
    stage = serving(3)
    lost = restored(stage)
    others, unknown, plain = lost
    known = {instance.id: instance for instance in stage.compute.alive()}
    theirs: Instance = known[others.instance_id]
    stage.compute.add(msgspec.structs.replace(theirs, install="another"))
    stage.server.patch("nodes", unknown.node_name, {"metadata": {"labels": {labels.NODE_POOL: "gone"}}})
    stage.server.patch("nodes", plain.node_name, {"metadata": {"labels": {labels.REGISTERED: None}}})
    look(stage)
    assert stage.claims() == ()
    assert len(stage.compute.alive()) == 3
    assert stage.meter.counts["NodesWithoutClaim"] == 2

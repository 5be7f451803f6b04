"""Tests the effects of `kubectl delete` of a NodeClaim, a NodePool or a Node, and the effects that it does not have."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from shiplap.errors import ClusterDenied, StoreError
from shiplap.manifests.live.nodeclaim_objects import FINALIZER, INSTALL_LABEL, TERMINATION_TIMESTAMP
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap_lab.fakes.faults import Crash, When
from tests.integration.flows.live_stage import LiveStage, lease

DEFINITION = "nodeclaims.karpenter.sh"


@pytest.fixture
def stage() -> LiveStage:
    """Two nodes in service, whose objects are there."""
    stage = LiveStage()
    stage.add_pods(4, cpu="3")
    stage.play_on()
    stage.minute()
    stage.minute()
    assert len(stage.claims()) >= 2
    return stage


def states(stage: LiveStage) -> set[ClaimState]:
    return {claim.state for claim in stage.claims()}


def play_out(stage: LiveStage) -> int:
    """Evicted pods end, and the cloud's controller deletes Nodes of ended instances. How often a function died."""
    deaths = 0
    for _ in range(40):
        deaths += stage.dies(stage.minute)
        stage.attend(*stage.due())
        for pod in stage.server.list("pods").items:
            if pod["metadata"].get("deletionTimestamp"):
                stage.server.delete("pods", pod["metadata"]["name"], grace_s=0)
        alive = {instance.id for instance in stage.compute.alive()}
        for name, node in stage.objects("nodes").items():
            ended = node["spec"]["providerID"].rpartition("/")[2] not in alive
            if ended and not node["metadata"].get("deletionTimestamp"):
                stage.server.delete("nodes", name)
    return deaths


def delete_claim(stage: LiveStage, claim: NodeClaim) -> None:
    stage.server.delete("nodeclaims", claim.name)


def delete_node(stage: LiveStage, claim: NodeClaim) -> None:
    stage.server.delete("nodes", claim.node_name)


class TestDraining:
    @pytest.mark.parametrize("delete", [delete_claim, delete_node])
    def test_the_node_is_drained_and_both_objects_go(
        self, stage: LiveStage, delete: Callable[[LiveStage, NodeClaim], None]
    ) -> None:
        claim, *others = stage.claims()
        delete(stage, claim)
        assert claim.name in stage.objects()
        assert claim.node_name in stage.objects("nodes")
        stage.minute()
        now = stage.state.claim(stage.name, claim.name)
        assert now is not None
        assert (now.state, now.failure) == (ClaimState.DRAINING, "ObjectDeleted")
        play_out(stage)
        assert claim.instance_id not in {instance.id for instance in stage.compute.alive()}
        assert claim.name not in stage.objects()
        assert claim.node_name not in stage.objects("nodes")
        assert {other.name for other in others} <= {known.name for known in stage.claims()}

    def test_a_memory_that_cannot_be_read_keeps_no_node_from_being_drained(self, stage: LiveStage) -> None:
        before = stage.objects()
        delete_claim(stage, stage.claims()[0])
        stage.faults.on("before", "memory.load", StoreError("the bucket says no"))
        stage.minute()
        assert ClaimState.DRAINING in states(stage)
        assert stage.meter.counts["StatusesNotWritten"] == 1
        assert stage.objects().keys() == before.keys()

    def test_a_drained_claim_shows_it_and_its_deadline(self, stage: LiveStage) -> None:
        claim = stage.claims()[0]
        stage.server.patch("nodeclaims", claim.name, {"spec": {"terminationGracePeriod": "1h"}})
        delete_claim(stage, claim)
        for _ in range(3):  # the status and the annotations are written one after the other
            stage.minute()
        item = stage.objects()[claim.name]
        assert {each["type"]: each["status"] for each in item["status"]["conditions"]}["Drained"] == "Unknown"
        assert item["metadata"]["annotations"][TERMINATION_TIMESTAMP]

    def test_its_pods_leave_by_eviction(self, stage: LiveStage) -> None:
        claim = stage.claims()[0]
        own = [pod for pod in stage.server.list("pods").items if pod["spec"].get("nodeName") == claim.node_name]
        delete_claim(stage, claim)
        play_out(stage)
        assert own
        assert stage.meter.counts["PodsEvicted"] == len(own)

    def test_a_deleted_pool_takes_its_nodes_along_even_the_last_one(self, stage: LiveStage) -> None:
        """As kube-controller-manager does: the NodeClaims of an owner that is gone are deleted."""
        for pool in ("flex", "fallback"):
            stage.server.delete("nodepools", pool)
        for name in stage.objects():
            stage.server.delete("nodeclaims", name)
        play_out(stage)
        assert stage.compute.alive() == ()
        assert stage.objects() == stage.objects("nodes") == {}

    def test_its_termination_grace_period_counts_from_the_deletion(self, stage: LiveStage) -> None:
        claim = stage.claims()[0]
        stage.server.patch("nodeclaims", claim.name, {"spec": {"terminationGracePeriod": "1h30m"}})
        deleted_at = stage.clock.now()
        delete_claim(stage, claim)
        stage.minute()
        now = stage.state.claim(stage.name, claim.name)
        assert now is not None
        assert now.deadline_at == deleted_at + 5400

    def test_repeated_looks_change_nothing(self, stage: LiveStage) -> None:
        claim = stage.claims()[0]
        delete_claim(stage, claim)
        stage.minute()
        told = len(stage.bus.of_type("NodeClaimInterrupted"))
        stage.minute()
        stage.minute()
        assert len(stage.bus.of_type("NodeClaimInterrupted")) == told == 1

    @pytest.mark.parametrize(
        ("when", "effect", "nth"),
        [
            ("after", "cluster.ending_definitions", 1),
            ("before", "state.advance", 1),
            ("after", "state.advance", 1),
            ("after", "bus.publish", 2),
            ("after", "bus.publish", 3),
            ("after", "timers.remind", 1),
            ("before", "cluster.set_finalizers", 1),
            ("after", "cluster.set_finalizers", 1),
            ("after", "cluster.set_finalizers", 2),
        ],
    )
    def test_a_function_that_dies_between_steps_is_made_up_for(
        self, stage: LiveStage, when: When, effect: str, nth: int
    ) -> None:
        claim, *others = stage.claims()
        delete_claim(stage, claim)
        stage.faults.clear()
        stage.faults.on(when, effect, Crash(), nth=nth)
        assert play_out(stage) == 1
        assert claim.instance_id not in {instance.id for instance in stage.compute.alive()}
        assert claim.name not in stage.objects()
        assert claim.node_name not in stage.objects("nodes")
        assert {other.name for other in others} <= {known.name for known in stage.claims()}


class TestNothingEnds:
    def unharmed(self, stage: LiveStage) -> None:
        alive = stage.compute.alive()
        for _ in range(3):
            stage.minute()
            stage.attend(*stage.due())
        assert stage.compute.alive() == alive
        assert states(stage) == {ClaimState.INITIALIZED}

    def test_by_an_object_that_is_gone(self, stage: LiveStage) -> None:
        for name in stage.objects():
            stage.server.patch("nodeclaims", name, {"metadata": {"finalizers": []}})
            stage.server.delete("nodeclaims", name)
        assert stage.objects() == {}
        self.unharmed(stage)
        assert set(stage.objects()) == {claim.name for claim in stage.claims()}

    def test_by_a_list_that_is_refused(self, stage: LiveStage) -> None:
        delete_claim(stage, stage.claims()[0])
        for number in range(1, 9):
            stage.faults.on("before", "cluster.node_claim_objects", ClusterDenied("no", status=403), nth=number)
        self.unharmed(stage)

    def test_while_the_cluster_is_paused(self, stage: LiveStage) -> None:
        stage.deployed = replace(stage.deployed, paused=True)
        delete_claim(stage, stage.claims()[0])
        self.unharmed(stage)
        stage.deployed = replace(stage.deployed, paused=False)
        stage.minute()
        assert ClaimState.DRAINING in states(stage)

    def test_while_definitions_go(self, stage: LiveStage) -> None:
        finalizers = ["customresourcecleanup.apiextensions.k8s.io"]
        stage.server.create("customresourcedefinitions", {"metadata": {"name": DEFINITION, "finalizers": finalizers}})
        stage.server.delete("customresourcedefinitions", DEFINITION)
        for name in stage.objects():
            stage.server.delete("nodeclaims", name)
        self.unharmed(stage)
        assert stage.meter.counts["ClustersSuspended"] == 3

    def test_beside_karpenter_and_nothing_is_written(self, stage: LiveStage) -> None:
        stage.server.create("leases", lease(stage.clock.now() + 7200))
        delete_claim(stage, stage.claims()[0])
        delete_node(stage, stage.claims()[1])
        before = stage.objects(), {name: item["metadata"] for name, item in stage.objects("nodes").items()}
        self.unharmed(stage)
        assert before == (stage.objects(), {name: item["metadata"] for name, item in stage.objects("nodes").items()})

    def test_beside_karpenter_without_any_pool(self, stage: LiveStage) -> None:
        """Without NodePools deleted NodeClaims are drained, but not those that Karpenter sees as well."""
        for pool in ("flex", "fallback"):
            stage.server.delete("nodepools", pool)
        stage.server.create("leases", lease(stage.clock.now() + 7200))
        for name in stage.objects():
            stage.server.delete("nodeclaims", name)
        before = stage.objects()
        self.unharmed(stage)
        assert stage.objects() == before

    def test_by_a_label_that_a_user_put_on_another_claim(self, stage: LiveStage) -> None:
        metadata = {"name": "theirs", "labels": {INSTALL_LABEL: stage.settings.install}, "finalizers": [FINALIZER]}
        instance = stage.claims()[0].instance_id
        status = {"providerID": f"aws:///eu-west-1a/{instance}"}
        stage.server.create("nodeclaims", {"kind": "NodeClaim", "metadata": metadata, "spec": {}, "status": status})
        stage.server.delete("nodeclaims", "theirs")
        self.unharmed(stage)
        assert "theirs" not in stage.objects()


class TestFinalizers:
    def test_claims_and_their_nodes_have_them(self, stage: LiveStage) -> None:
        for items in (stage.objects(), stage.objects("nodes")):
            assert items
            for item in items.values():
                assert item["metadata"]["finalizers"] == [FINALIZER]
                assert item["metadata"]["labels"][INSTALL_LABEL] == stage.settings.install

    def test_whoever_removes_them_from_both_is_rid_of_them(self, stage: LiveStage) -> None:
        for plural in ("nodeclaims", "nodes"):
            for item in stage.server.list(plural).items:
                stage.server.patch(plural, item["metadata"]["name"], {"metadata": {"finalizers": []}})
        for _ in range(3):
            stage.minute()
        for item in (*stage.objects().values(), *stage.objects("nodes").values()):
            assert not item["metadata"].get("finalizers")

    def test_a_node_in_service_without_a_claim_keeps_it(self, stage: LiveStage) -> None:
        """The table was restored to a moment before: the claim is about to be adopted."""
        claim = stage.claims()[0]
        node = stage.objects("nodes")[claim.node_name]
        stage.server.patch("nodes", claim.node_name, {"spec": {"providerID": "aws:///eu-west-1a/i-0unknown"}})
        stage.server.patch("nodes", claim.node_name, {"metadata": {"labels": {"karpenter.sh/nodeclaim": "unknown"}}})
        stage.minute()
        assert stage.objects("nodes")[claim.node_name]["metadata"]["finalizers"] == node["metadata"]["finalizers"]

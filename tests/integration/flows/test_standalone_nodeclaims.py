"""NodeClaims that users write, without a NodePool: what is launched for them, and how their nodes end."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.errors import AwsError, AwsUnavailable, ClusterDenied
from shiplap.flows.schedule.launch import LEASE_S
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.live.nodeclaim_objects import FINALIZER, INSTALL_LABEL
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.records.scheduling_record import decode
from shiplap.scheduling.planner import plan
from shiplap_lab.fakes.faults import Crash, When
from shiplap_lab.fakes.state import FakeState
from tests.integration.flows.live_stage import LiveStage, lease, written
from tests.integration.flows.stage import FLEX_FIRST

ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}


@pytest.fixture
def stage() -> LiveStage:
    """A cluster without any NodePool."""
    stage = LiveStage()
    for pool in ("flex", "fallback"):
        stage.server.delete("nodepools", pool)
    return stage


def write(stage: LiveStage, name: str = "mine", **changes: Any) -> dict[str, Any]:
    """`kubectl create` of a NodeClaim."""
    spec = {
        "nodeClassRef": {
            "group": "karpenter.k8s.aws",
            "kind": "EC2NodeClass",
            "name": changes.pop("node_class", "default"),
        },
        "requirements": [ON_DEMAND],
        **changes.pop("spec", {}),
    }
    metadata = {"name": name, "creationTimestamp": rfc3339(stage.clock.now()), **changes.pop("metadata", {})}
    return stage.server.create("nodeclaims", {"kind": "NodeClaim", "metadata": metadata, "spec": spec, **changes})


def known(stage: LiveStage, name: str = "mine") -> dict[str, Any] | None:
    return next((item for item in stage.server.list("nodeclaims").items if item["metadata"]["name"] == name), None)


def condition(item: dict[str, Any], type_: str) -> str:
    return next((entry["status"] for entry in item["status"]["conditions"] if entry["type"] == type_), "")


def in_service(stage: LiveStage) -> NodeClaim:
    """Minutes until the node of the only claim is complete."""
    for _ in range(4):
        stage.minute()
        stage.join()
        stage.attend()
    stage.minute()
    (claim,) = stage.claims()
    assert claim.state is ClaimState.INITIALIZED
    return claim


def play_out(stage: LiveStage, minutes: int = 20) -> None:
    for _ in range(minutes):
        stage.minute()
        stage.attend(*stage.due())
        alive = {instance.id for instance in stage.compute.alive()}
        for name, node in stage.objects("nodes").items():
            ended = node["spec"]["providerID"].rpartition("/")[2] not in alive
            if ended and not node["metadata"].get("deletionTimestamp"):
                stage.server.delete("nodes", name)


class TestLaunch:
    def test_one_node_is_launched_and_shown(self, stage: LiveStage) -> None:
        write(stage)
        claim = in_service(stage)
        assert (claim.name, claim.plan.node_pool, claim.plan.object_name) == ("mine", "", "mine")
        assert claim.instance is not None
        assert claim.instance.type == "c7i-flex.large"
        item = known(stage)
        assert item is not None
        assert item["status"]["providerID"].endswith(claim.instance_id)
        assert [condition(item, type_) for type_ in ("Launched", "Registered", "Initialized", "Ready")] == ["True"] * 4
        assert item["metadata"]["finalizers"] == [FINALIZER]
        assert item["metadata"]["labels"][INSTALL_LABEL] == stage.settings.install
        assert len(stage.compute.alive()) == 1

    def test_classes_have_their_statuses_without_any_pool(self, stage: LiveStage) -> None:
        stage.minute()
        (item,) = stage.server.list("ec2nodeclasses").items
        assert condition(item, "Ready") in ("True", "Unknown")

    def test_its_requests_choose_the_type(self, stage: LiveStage) -> None:
        write(stage, spec={"resources": {"requests": {"cpu": "3", "memory": "11Gi"}}})
        assert in_service(stage).known_instance.type == "m6i.xlarge"

    def test_the_node_has_what_the_object_says(self, stage: LiveStage) -> None:
        taint = {"key": "team", "value": "ml", "effect": "NoSchedule"}
        metadata = {"labels": {"team": "ml"}, "annotations": {"note": "mine"}}
        item = write(stage, metadata=metadata, spec={"taints": [taint], "startupTaints": []})
        claim = in_service(stage)
        node = stage.objects("nodes")[claim.node_name]
        assert node["metadata"]["labels"]["team"] == "ml"
        assert "karpenter.sh/nodepool" not in node["metadata"]["labels"]
        assert node["metadata"]["annotations"]["note"] == "mine"
        assert taint in node["spec"]["taints"]
        assert node["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodeClaim",
                "name": "mine",
                "uid": item["metadata"]["uid"],
                "blockOwnerDeletion": True,
            }
        ]

    def test_labels_that_no_pool_may_give_stay_off_the_node(self, stage: LiveStage) -> None:
        marks = {"kubernetes.io/hostname": "mine", "karpenter.k8s.aws/ec2nodeclass": "default", "team": "ml"}
        applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
        write(stage, metadata={"labels": marks, "annotations": applied})
        claim = in_service(stage)
        node = stage.objects("nodes")[claim.node_name]
        assert "kubernetes.io/hostname" not in node["metadata"]["labels"]
        assert node["metadata"]["labels"]["team"] == "ml"
        assert not applied.keys() & node["metadata"]["annotations"].keys()

    def test_beside_pods_and_pools(self) -> None:
        stage = LiveStage()
        stage.add_pods(2)
        write(stage)
        stage.play_on()
        stage.minute()
        assert sorted(bool(claim.plan.node_pool) for claim in stage.claims()) == [False, True]

    def test_the_recorded_decision_says_the_same_again(self, stage: LiveStage) -> None:
        write(stage)
        stage.minute()
        (document,) = stage.recorder.records.values()
        record = decode(document)
        assert [claim.name for claim in record.plan.node_claims] == ["mine"]
        assert plan(record.snapshot) == record.plan

    def test_pods_wait_all_the_same_where_there_is_no_pool(self, stage: LiveStage) -> None:
        stage.add_pods(1)
        write(stage)
        stage.minute()
        assert len(stage.claims()) == 1
        assert stage.meter.counts["PodsUnschedulable"] >= 1

    @pytest.mark.parametrize(
        "metadata",
        [
            {"labels": {INSTALL_LABEL: "another"}},
            {"labels": {"karpenter.sh/nodepool": "default"}},
            {"ownerReferences": [{"kind": "NodePool", "name": "default", "uid": "1"}]},
        ],
    )
    def test_not_for_what_another_provisioner_wrote(self, stage: LiveStage, metadata: dict[str, Any]) -> None:
        write(stage, metadata=metadata)
        stage.minute()
        assert stage.claims() == ()
        assert known(stage) is not None

    def test_not_for_one_that_has_an_instance(self, stage: LiveStage) -> None:
        write(stage, status={"providerID": "aws:///eu-west-1a/i-0123"})
        stage.minute()
        assert stage.claims() == ()
        assert known(stage) is not None

    def test_not_for_classes_of_other_providers(self, stage: LiveStage) -> None:
        write(stage, spec={"nodeClassRef": {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"}})
        stage.minute()
        assert stage.claims() == ()
        assert known(stage) is not None

    def test_not_beside_karpenter(self, stage: LiveStage) -> None:
        write(stage)
        write(stage, "futile", node_class="none")
        stage.server.create("leases", lease(stage.clock.now() + 7200))
        for _ in range(3):
            stage.minute()
        assert stage.claims() == ()
        assert known(stage, "futile") is not None

    def test_not_while_paused(self, stage: LiveStage) -> None:
        stage.deployed = replace(stage.deployed, paused=True)
        write(stage)
        stage.minute()
        assert stage.claims() == ()

    def test_a_list_that_is_refused_keeps_no_pod_waiting(self) -> None:
        stage = LiveStage()
        stage.add_pods(1)
        stage.faults.on("before", "cluster.node_claim_objects", ClusterDenied("no", status=403))
        stage.sweep()
        assert len(stage.claims()) == 1
        assert stage.meter.counts["NodeClaimsNotRead"] == 1

    @pytest.mark.parametrize(
        ("when", "effect"),
        [
            ("after", "state.commit"),
            ("before", "compute.launch"),
            ("after", "compute.launch"),
            ("after", "state.advance_all"),
            ("before", "cluster.set_finalizers"),
            ("after", "cluster.set_finalizers"),
        ],
    )
    def test_a_function_that_dies_launches_no_second_node(self, stage: LiveStage, when: When, effect: str) -> None:
        write(stage)
        stage.faults.on(when, effect, Crash())
        deaths = sum(stage.dies(stage.minute) for _ in range(8))
        assert deaths == 1
        in_service(stage)
        assert len(stage.compute.alive()) == 1

    def test_an_unknown_outcome_launches_no_second_node(self, stage: LiveStage) -> None:
        write(stage)
        stage.faults.on("after", "compute.launch", AwsUnavailable("no answer", code=""))
        for _ in range(6):
            stage.minute()
        in_service(stage)
        assert len(stage.compute.alive()) == 1

    @pytest.mark.parametrize("standalone", [True, False])
    def test_an_instance_that_was_launched_before_a_freeze_is_adopted_with_all_its_labels(
        self, stage: LiveStage, *, standalone: bool
    ) -> None:
        """Although no NodePool uses its EC2NodeClass any more."""
        if standalone:
            write(stage)
        else:
            stage.server.create("nodepools", written(FLEX_FIRST[0]))
            stage.add_pods(1)
        stage.faults.on("after", "compute.launch", Crash())
        assert stage.dies(stage.minute)
        if not standalone:
            stage.server.delete("nodepools", FLEX_FIRST[0].metadata.name)
        stage.state.freeze([stage.name], stage.clock.now())
        stage.clock.advance(LEASE_S + 1)
        stage.sweep()
        (claim,) = stage.claims()
        assert claim.state is ClaimState.LAUNCHED
        assert claim.plan.labels["karpenter.k8s.aws/instance-size"] == claim.known_instance.type.split(".")[1]
        assert len(stage.compute.launches) == 1


class TestLostTable:
    def test_a_node_in_service_gets_its_claim_back(self, stage: LiveStage) -> None:
        write(stage)
        claim = in_service(stage)
        stage.state = FakeState(stage.faults)
        stage.context = replace(stage.context, state=stage.state)
        stage.clock.advance(600)
        for _ in range(6):
            stage.minute()
            stage.attend(*stage.due())
        (again,) = stage.claims()
        assert (again.name, again.instance_id, again.state) == (claim.name, claim.instance_id, ClaimState.INITIALIZED)
        assert (again.plan.object_name, again.plan.object_uid) == ("mine", claim.plan.object_uid)
        item = known(stage)
        assert item is not None
        assert not item["metadata"].get("deletionTimestamp")
        stage.server.delete("nodeclaims", "mine")
        play_out(stage)
        assert stage.compute.alive() == ()


class TestFutile:
    def test_without_its_class_it_is_deleted_with_an_event(self, stage: LiveStage) -> None:
        write(stage, node_class="none")
        stage.sweep()
        assert known(stage) is not None  # the class may be applied a moment later
        stage.minute()
        assert known(stage) is None
        (event,) = [item for item in stage.server.list("events").items if item["reason"] == "LaunchFailed"]
        assert "no EC2NodeClass none" in event["message"]
        about = event["involvedObject"]
        assert (about["kind"], about["apiVersion"], about["name"]) == ("NodeClaim", "karpenter.sh/v1", "mine")
        assert stage.meter.counts["NodeClaimsRefused"] == 1

    def test_with_a_class_that_is_not_ready_it_is_deleted(self, stage: LiveStage) -> None:
        ready = {"type": "Ready", "status": "False", "reason": "Testing", "message": "not ready"}
        stage.server.patch("ec2nodeclasses", "default", {"status": {"conditions": [ready]}}, subresource="status")
        write(stage)
        stage.minute()
        assert known(stage) is None
        assert stage.claims() == ()

    def test_with_a_class_that_is_not_allowed_it_is_deleted(self, stage: LiveStage) -> None:
        stage.server.patch("ec2nodeclasses", "default", {"spec": {"role": "admin"}})
        write(stage)
        stage.minute()
        assert known(stage) is None
        assert stage.compute.alive() == ()

    @pytest.mark.parametrize(
        "spec",
        [
            {"resources": {"requests": {"cpu": "4000"}}},
            {"resources": {"requests": {"cpu": "many"}}},
            {"requirements": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["x"]}]},
            {"requirements": [{"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["x9"]}]},
        ],
    )
    def test_what_no_type_can_be_is_deleted(self, stage: LiveStage, spec: dict[str, Any]) -> None:
        write(stage, spec=spec)
        stage.minute()
        assert known(stage) is None
        assert stage.claims() == ()

    def test_one_that_does_not_join_is_deleted(self, stage: LiveStage) -> None:
        write(stage)
        for _ in range(3):
            stage.minute()
        assert known(stage) is not None
        play_out(stage, 30)
        assert stage.compute.alive() == ()
        assert known(stage) is None

    def test_one_that_ec2_refuses_is_deleted_although_no_label_was_set_yet(self, stage: LiveStage) -> None:
        write(stage)
        stage.compute.refusals["default"] = AwsError("not allowed to pass the role", code="UnauthorizedOperation")
        stage.sweep()
        assert known(stage) is None
        (event,) = [item for item in stage.server.list("events").items if item["reason"] == "LaunchFailed"]
        assert "its node could not be launched" in event["message"]

    def test_a_refused_deletion_is_tried_again(self, stage: LiveStage) -> None:
        write(stage, node_class="none")
        stage.faults.on("before", "cluster.delete_node_claim", ClusterDenied("no", status=403))
        stage.minute()
        assert known(stage) is not None
        stage.minute()
        assert known(stage) is None


class TestEnd:
    def test_a_deleted_object_drains_its_node(self, stage: LiveStage) -> None:
        write(stage)
        claim = in_service(stage)
        stage.server.delete("nodeclaims", "mine")
        play_out(stage)
        assert stage.compute.alive() == ()
        assert known(stage) is None
        assert claim.node_name not in stage.objects("nodes")

    def test_a_deleted_node_takes_its_object_along(self, stage: LiveStage) -> None:
        write(stage)
        stage.server.delete("nodes", in_service(stage).node_name)
        play_out(stage)
        assert stage.compute.alive() == ()
        assert known(stage) is None

    def test_an_object_that_is_gone_drains_its_node(self, stage: LiveStage) -> None:
        write(stage)
        in_service(stage)
        stage.server.patch("nodeclaims", "mine", {"metadata": {"finalizers": []}})
        stage.server.delete("nodeclaims", "mine")
        play_out(stage)
        assert stage.compute.alive() == ()

    def test_one_deleted_before_it_was_marked_ends(self, stage: LiveStage) -> None:
        write(stage)
        stage.sweep()
        stage.server.delete("nodeclaims", "mine")
        play_out(stage)
        assert stage.compute.alive() == ()

    def test_it_expires_by_its_own_age_limit(self, stage: LiveStage) -> None:
        write(stage, spec={"expireAfter": "1h"})
        in_service(stage)
        for _ in range(40):
            stage.minute()
        assert len(stage.compute.alive()) == 1
        play_out(stage, 30)
        assert stage.compute.alive() == ()
        assert known(stage) is None

    def test_disruption_leaves_it_alone(self) -> None:
        stage = LiveStage()
        write(stage, spec={"expireAfter": "Never"})
        in_service(stage)
        for _ in range(30):
            stage.clock.advance(3600)
            stage.disrupt()
            stage.sweep()
        assert [claim.state for claim in stage.claims()] == [ClaimState.INITIALIZED]

    def test_another_object_of_the_same_name_gets_another_node(self, stage: LiveStage) -> None:
        write(stage)
        first = in_service(stage)
        stage.server.delete("nodeclaims", "mine")
        play_out(stage)
        item = write(stage)
        second = in_service(stage)
        assert second.instance_id != first.instance_id
        assert (second.plan.object_name, second.plan.object_uid) == ("mine", item["metadata"]["uid"])
        assert second.name.startswith("mine-")
        assert known(stage) is not None

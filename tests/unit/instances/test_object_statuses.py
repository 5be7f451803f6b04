"""The statuses of upstream's objects, judged by upstream's CRDs."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.instances.catalog.resolved_nodeclass import (
    BLOCK_TAIL_S,
    LEAST_DRAIN_S,
    Ami,
    CapacityReservation,
    NodeClassProblem,
    SecurityGroup,
    Subnet,
)
from shiplap.instances.readiness.nodeclass_status import (
    AMIS,
    ClusterStatus,
    NodeClassStatus,
    conditions,
    manifest_digest,
)
from shiplap.instances.readiness.object_statuses import (
    NODES_UP_TO_DATE,
    BufferCapacity,
    PoolNodes,
    StatusUpdate,
    merge_patch,
    status_updates,
    uninspected,
)
from shiplap.kubernetes.objects import Node
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.manifests.live.live_manifests import LiveManifests
from shiplap.manifests.validation.live_objects import check_live_object, live_manifests
from tests.builders.nodes import node as any_node
from tests.crds.schema_judge import violations
from tests.crds.schemas import status_schema_of
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, NODE_OVERLAY, NODE_POOL, changed

NOW = 1_800_000_000.0
BUFFER: dict[str, Any] = {
    "apiVersion": "autoscaling.x-k8s.io/v1beta1",
    "kind": "CapacityBuffer",
    "metadata": {"name": "warm", "namespace": "shop"},
    "spec": {"podTemplateRef": {"name": "small"}, "replicas": 2},
}
RESERVATIONS = (
    CapacityReservation("cr-0a", "m5.large", "eu-west-1a", "123456789012"),
    CapacityReservation(
        "cr-0b", "p5.48xlarge", "eu-west-1a", "123456789012", "targeted", "capacity-block", ends_at=NOW + 60
    ),
)
EVERYTHING = (NODE_POOL, EC2_NODE_CLASS, NODE_OVERLAY, BUFFER)


def stored(data: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    about = {"uid": f"uid-{data['metadata']['name']}", "resourceVersion": "1", "generation": 3, **metadata}
    return {**data, "metadata": {**data["metadata"], **about}}


node = partial(any_node, cpu="4", memory="16Gi", pods="58")


class Cluster:
    """Objects, and what is known of them."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.objects = [stored(item) for item in objects]
        self.nodes: Sequence[Node] = ()
        self.problems: Sequence[NodeClassProblem] = ()
        self.inspected = True
        self.buffers: Sequence[BufferCapacity] = ()
        self.pool_nodes: Mapping[str, PoolNodes] = {}
        self.reservations, self.drain_s = RESERVATIONS, LEAST_DRAIN_S
        self.amis = (Ami("ami-0a", "al2023", "2026", requirements=(("kubernetes.io/arch", "In", ("amd64",)),)),)

    @property
    def live(self) -> LiveManifests:
        return live_manifests(check_live_object(item, AllowedResources(node_roles=("node",))) for item in self.objects)

    @property
    def status(self) -> ClusterStatus | None:
        if not self.inspected:
            return None
        classes = tuple(
            NodeClassStatus(
                item.metadata.name,
                manifest_digest(item),
                conditions(self.problems),
                subnets=(Subnet("subnet-0a", "eu-west-1a", "euw1-az1", 200),),
                security_groups=(SecurityGroup("sg-0123abcd", "nodes"),),
                amis=self.amis,
                capacity_reservations=self.reservations,
                drain_s=self.drain_s,
                instance_profile="shiplap-profile",
            )
            for item in self.live.manifests.node_classes
        )
        return ClusterStatus("demo", "eu-west-1", NOW, classes)

    def updates(self, now: float = NOW) -> list[StatusUpdate]:
        known = (self.status, self.nodes, now, self.buffers, self.pool_nodes)
        return list(status_updates(self.objects, self.live, *known))

    def write(self, now: float = NOW) -> None:
        """As an API server merges the patches."""
        for update in self.updates(now):
            item = next(each for each in self.objects if each["kind"] == update.kind)
            status = item.setdefault("status", {})
            for field, value in update.status.items():
                if isinstance(value, dict):
                    merged = {**status.get(field, {}), **value}
                    status[field] = {key: each for key, each in merged.items() if each is not None}
                else:
                    status[field] = value

    def conditions(self, kind: str) -> dict[str, tuple[str, str]]:
        self.write()
        item = next(each for each in self.objects if each["kind"] == kind)
        return {each["type"]: (each["status"], each["reason"]) for each in item["status"]["conditions"]}


class TestByUpstreamsSchema:
    @pytest.mark.parametrize("inspected", [True, False], ids=["inspected", "new"])
    @pytest.mark.parametrize("kind", [item["kind"] for item in EVERYTHING])
    def test_what_is_written_is_accepted(self, kind: str, inspected: bool) -> None:
        cluster = Cluster(*EVERYTHING)
        cluster.nodes = (node("a", pool="default"), node("b", pool="default"))
        cluster.inspected = inspected
        update = next(each for each in cluster.updates() if each.kind == kind)
        schema = status_schema_of(kind)
        assert violations(schema, copy.deepcopy(update.status)) == set()
        known = set(schema["properties"])
        assert set(update.status) <= known

    @pytest.mark.parametrize("kind", ["NodePool", "EC2NodeClass", "NodeOverlay"])
    def test_every_field_is_written(self, kind: str) -> None:
        """A field that a new release of upstream adds shows here; TestCapacityBuffer has those of a buffer."""
        update = next(each for each in Cluster(*EVERYTHING).updates() if each.kind == kind)
        assert set(update.status) == set(status_schema_of(kind)["properties"])

    def test_of_what_is_refused_too(self) -> None:
        cluster = Cluster(
            changed(NODE_POOL, "spec.template.spec.expireAfter", "soon"),
            changed(EC2_NODE_CLASS, "spec.role", "other"),
            changed(NODE_OVERLAY, "spec.requirements", [{"key": "a", "operator": "Is"}]),
            changed(BUFFER, "spec.replicas", -1),
        )
        for update in cluster.updates():
            assert violations(status_schema_of(update.kind), copy.deepcopy(update.status)) == set()
            assert "False" in {each["status"] for each in update.status["conditions"]}

    def test_of_what_is_refused_for_more_reasons_than_a_message_holds(self) -> None:
        wrong = [{"key": f"{'k' * 80}{number}", "operator": "Is"} for number in range(400)]
        update = Cluster(changed(NODE_OVERLAY, "spec.requirements", wrong)).updates()[0]
        assert violations(status_schema_of("NodeOverlay"), copy.deepcopy(update.status)) == set()
        assert {len(each["message"]) for each in update.status["conditions"]} == {32_768}


class TestNodePool:
    def test_ready_with_its_resources(self) -> None:
        cluster = Cluster(*EVERYTHING)
        cluster.nodes = (node("a", pool="default"), node("b", pool="default", cpu="2"), node("c", pool="another"))
        assert cluster.conditions("NodePool") == {
            "NodeClassReady": ("True", "NodeClassReady"),
            "NodeRegistrationHealthy": ("True", "NodeRegistrationHealthy"),
            "Ready": ("True", "Ready"),
            "ValidationSucceeded": ("True", "ValidationSucceeded"),
        }
        status = cluster.objects[0]["status"]
        assert status["nodes"] == 2
        assert status["resources"] == {"cpu": "6", "memory": "32Gi", "nodes": "2", "pods": "116"}

    def test_resources_that_are_gone_are_taken_away(self) -> None:
        cluster = Cluster(*EVERYTHING)
        cluster.nodes = (node("a", pool="default"),)
        cluster.write()
        cluster.nodes = ()
        cluster.write()
        assert cluster.objects[0]["status"]["resources"] == {"nodes": "0"}
        assert cluster.updates() == []

    def test_without_its_class(self) -> None:
        found = Cluster(NODE_POOL).conditions("NodePool")
        assert found["NodeClassReady"] == found["Ready"] == ("False", "NodeClassNotFound")

    def test_with_a_class_that_is_not_ready(self) -> None:
        cluster = Cluster(*EVERYTHING)
        cluster.problems = (NodeClassProblem(AMIS, "AMINotFound", "no image"),)
        assert cluster.conditions("NodePool")["Ready"] == ("False", "NodeClassNotReady")

    def test_with_a_class_that_is_refused(self) -> None:
        found = Cluster(NODE_POOL, changed(EC2_NODE_CLASS, "spec.role", "other")).conditions("NodePool")
        assert found["Ready"] == ("False", "NodeClassNotReady")

    def test_with_a_class_that_nobody_has_inspected(self) -> None:
        cluster = Cluster(*EVERYTHING)
        cluster.inspected = False
        assert cluster.conditions("NodePool")["Ready"] == ("Unknown", "NodeClassReadinessUnknown")
        assert uninspected(cluster.live, None) == ("default",)

    def test_that_does_not_validate(self) -> None:
        cluster = Cluster(changed(NODE_POOL, "spec.template.spec.expireAfter", "soon"), EC2_NODE_CLASS)
        assert cluster.conditions("NodePool")["Ready"] == ("False", "NodePoolValidationFailed")
        valid = next(each for each in cluster.objects[0]["status"]["conditions"] if each["type"] == "Ready")
        assert valid["message"].startswith("spec.template.spec.expireAfter: ")


def holding(*types: str, status: str = "True", message: str = "", reason: str = "") -> list[dict[str, Any]]:
    """Conditions of now, of the third generation."""
    return [
        {
            "type": name,
            "status": status,
            "reason": reason or name,
            "message": message,
            "lastTransitionTime": "2027-01-15T08:00:00Z",
            "observedGeneration": 3,
        }
        for name in types
    ]


class TestWholeStatuses:
    """All that `kubectl get -o yaml` shows of objects with nothing wrong, and of what is wrong with others."""

    def of(self, kind: str, cluster: Cluster) -> dict[str, Any]:
        return next(update.status for update in cluster.updates() if update.kind == kind)

    def test_of_a_pool(self) -> None:
        cluster = Cluster(*EVERYTHING)
        cluster.nodes = (node("a", pool="default"),)
        assert self.of("NodePool", cluster) == {
            "resources": {"cpu": "4", "memory": "16Gi", "pods": "58", "nodes": "1"},
            "nodes": 1,
            "nodeClassObservedGeneration": 3,
            "conditions": holding("NodeClassReady", "NodeRegistrationHealthy", "Ready", "ValidationSucceeded"),
        }

    def test_of_a_pool_without_nodes_nobody_knows_whether_they_register(self) -> None:
        (healthy,) = [
            each
            for each in self.of("NodePool", Cluster(*EVERYTHING))["conditions"]
            if each["type"] == "NodeRegistrationHealthy"
        ]
        assert [healthy] == holding("NodeRegistrationHealthy", status="Unknown", reason="AwaitingReconciliation")

    def test_of_a_class(self) -> None:
        shared = {"availabilityZone": "eu-west-1a", "ownerID": "123456789012", "interruptible": False}
        assert self.of("EC2NodeClass", Cluster(*EVERYTHING)) == {
            "subnets": [{"id": "subnet-0a", "zone": "eu-west-1a", "zoneID": "euw1-az1"}],
            "securityGroups": [{"id": "sg-0123abcd", "name": "nodes"}],
            "amis": [
                {
                    "id": "ami-0a",
                    "name": "al2023",
                    "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
                }
            ],
            "capacityReservations": [
                shared
                | {
                    "id": "cr-0a",
                    "instanceType": "m5.large",
                    "instanceMatchCriteria": "open",
                    "reservationType": "default",
                    "state": "active",
                },
                shared
                | {
                    "id": "cr-0b",
                    "instanceType": "p5.48xlarge",
                    "instanceMatchCriteria": "targeted",
                    "reservationType": "capacity-block",
                    "state": "expiring",
                    "endTime": "2027-01-15T08:01:00Z",
                },
            ],
            "instanceProfile": "shiplap-profile",
            "conditions": holding(
                "AMIsReady",
                "CapacityReservationsReady",
                "InstanceProfileReady",
                "PlacementGroupReady",
                "Ready",
                "SecurityGroupsReady",
                "SubnetsReady",
                "ValidationSucceeded",
            ),
        }

    @pytest.mark.parametrize(("drain_s", "state"), [(LEAST_DRAIN_S, "active"), (1800, "expiring")])
    def test_a_block_expires_when_its_nodes_begin_to_be_emptied(self, drain_s: int, state: str) -> None:
        cluster = Cluster(*EVERYTHING)
        block = replace(RESERVATIONS[1], ends_at=NOW + BLOCK_TAIL_S + 1200)
        cluster.reservations, cluster.drain_s = (block,), drain_s
        (shown,) = self.of("EC2NodeClass", cluster)["capacityReservations"]
        assert shown["state"] == state

    def test_of_what_only_validates(self) -> None:
        ready = holding("Ready", "ValidationSucceeded")
        assert self.of("NodeOverlay", Cluster(*EVERYTHING)) == {"conditions": ready}
        buffers = self.of("CapacityBuffer", Cluster(*EVERYTHING))
        assert buffers == {"conditions": holding("ReadyForProvisioning")}

    def test_of_a_class_that_nobody_has_inspected(self) -> None:
        cluster = Cluster(*EVERYTHING)
        cluster.inspected = False
        soon = holding(
            "Ready", status="Unknown", reason="AwaitingReconciliation", message="the next inspection looks at it"
        )
        assert self.of("EC2NodeClass", cluster) == {"conditions": soon}

    def test_what_is_wrong_with_its_class_is_what_is_wrong_with_a_pool(self) -> None:
        cluster = Cluster(*EVERYTHING)
        cluster.problems = (NodeClassProblem(AMIS, "AMINotFound", "no image"),)
        found = self.of("NodePool", cluster)["conditions"]
        wrong = {"status": "False", "reason": "NodeClassNotReady", "message": "no image"}
        assert [each for each in found if each["status"] == "False"] == [
            *holding("NodeClassReady", **wrong),
            *holding("Ready", **wrong),
        ]


def test_a_status_is_patched_to_just_what_is_wanted() -> None:
    present = {"conditions": [1], "gone": 1, "resources": {"cpu": "1", "nodes": "2"}, "number": 1}
    wanted = {"conditions": [2], "resources": {"nodes": "1"}, "number": {"a": 1}}
    patched = {"gone": None, "conditions": [2], "resources": {"cpu": None, "nodes": "1"}, "number": {"a": 1}}
    assert merge_patch(present, wanted) == patched
    assert merge_patch("odd", wanted) == merge_patch({}, wanted) == wanted


@pytest.mark.parametrize("kind", ["NodePool", "EC2NodeClass"])
def test_what_is_being_deleted_says_so(kind: str) -> None:
    """It is not among the manifests any more, although nothing is wrong with it."""
    cluster = Cluster(NODE_POOL, EC2_NODE_CLASS)
    place = [item["kind"] for item in cluster.objects].index(kind)
    cluster.objects[place] = changed(cluster.objects[place], "metadata.deletionTimestamp", "2027-01-15T08:00:00Z")
    assert cluster.conditions(kind)["Ready"] == ("Unknown", "AwaitingReconciliation")
    ready = next(each for each in cluster.objects[place]["status"]["conditions"] if each["type"] == "Ready")
    assert ready["message"] == f"the {kind} is being deleted"
    refused = Cluster(changed(NODE_POOL, "spec.template.spec.expireAfter", "soon"))
    assert refused.conditions("NodePool")["NodeClassReady"] == ("Unknown", "AwaitingReconciliation")
    found = {each["type"]: each["message"] for each in refused.objects[0]["status"]["conditions"]}
    assert found["NodeClassReady"] == "the NodePool does not validate"


class TestNodeClass:
    def test_ready_with_what_was_found(self) -> None:
        cluster = Cluster(EC2_NODE_CLASS)
        assert cluster.conditions("EC2NodeClass")["Ready"] == ("True", "Ready")
        status = cluster.objects[0]["status"]
        assert status["subnets"] == [{"id": "subnet-0a", "zone": "eu-west-1a", "zoneID": "euw1-az1"}]
        assert status["securityGroups"] == [{"id": "sg-0123abcd", "name": "nodes"}]
        arch = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
        assert status["amis"] == [{"id": "ami-0a", "name": "al2023", "requirements": [arch]}]
        assert status["instanceProfile"] == "shiplap-profile"
        known = [(each["id"], each["state"], each.get("endTime")) for each in status["capacityReservations"]]
        assert known == [("cr-0a", "active", None), ("cr-0b", "expiring", "2027-01-15T08:01:00Z")]
        assert uninspected(cluster.live, cluster.status) == ()

    def test_edited_since_it_was_inspected(self) -> None:
        cluster = Cluster(EC2_NODE_CLASS)
        before = cluster.status
        cluster.objects = [stored(changed(EC2_NODE_CLASS, "spec.detailedMonitoring", True))]
        assert uninspected(cluster.live, before) == ("default",)

    def test_a_deprecated_image_is_shown_as_such(self) -> None:
        cluster = Cluster(EC2_NODE_CLASS)
        cluster.amis = (Ami("ami-0a", "al2023", "2026", deprecated=True), Ami("ami-0b", "al2023", "2026"))
        cluster.write()
        assert [each.get("deprecated") for each in cluster.objects[0]["status"]["amis"]] == [True, None]

    def test_with_another_clusters_role(self) -> None:
        found = Cluster(changed(EC2_NODE_CLASS, "spec.role", "other")).conditions("EC2NodeClass")
        assert found == dict.fromkeys(("Ready", "ValidationSucceeded"), ("False", "EC2NodeClassValidationFailed"))

    @pytest.mark.parametrize(
        ("family", "kubelet", "reason"),
        [
            ("AL2023", {"imageGCLowThresholdPercent": -10}, "InvalidKubeletConfiguration"),
            ("AL2023", {"kubeReserved": 3}, "InvalidKubeletConfiguration"),
            ("AL2023", {"maxPods": "min(110,"}, "KubeletExpressionInvalid"),
            ("AL2023", {"kubeReserved": {"cpu": "vcpus *"}}, "KubeletExpressionInvalid"),
            ("Bottlerocket", {"registryPullQPS": 10}, "UnsupportedKubeletConfiguration"),
        ],
    )
    def test_with_kubelet_settings_that_are_refused(self, family: str, kubelet: dict[str, Any], reason: str) -> None:
        terms = [{"alias": f"{family.lower()}@latest"}]
        written = changed(changed(EC2_NODE_CLASS, "spec.kubelet", kubelet), "spec.amiSelectorTerms", terms)
        found = Cluster(written).conditions("EC2NodeClass")
        assert found == dict.fromkeys(("Ready", "ValidationSucceeded"), ("False", reason))


class TestWrites:
    def test_nothing_is_written_twice(self) -> None:
        cluster = Cluster(*EVERYTHING)
        cluster.nodes = (node("a", pool="default"),)
        cluster.write()
        assert cluster.updates(NOW + 3600) == []

    def test_a_time_changes_only_with_its_condition(self) -> None:
        cluster = Cluster(*EVERYTHING)
        cluster.write()
        cluster.problems = (NodeClassProblem(AMIS, "AMINotFound", "no image"),)
        cluster.write(NOW + 3600)
        times = {each["type"]: each["lastTransitionTime"] for each in cluster.objects[1]["status"]["conditions"]}
        assert times["AMIsReady"] > times["SubnetsReady"]

    def test_what_a_user_edits_is_written_again(self) -> None:
        cluster = Cluster(*EVERYTHING)
        cluster.write()
        cluster.objects[0]["status"]["conditions"] = "gone"
        cluster.objects[1]["status"] = None
        assert [each.kind for each in cluster.updates()] == ["NodePool", "EC2NodeClass"]

    def test_an_update_names_the_version_it_is_made_from(self) -> None:
        update = Cluster(BUFFER).updates()[0]
        assert (update.kind, update.namespace, update.name, update.resource_version) == (
            "CapacityBuffer",
            "shop",
            "warm",
            "1",
        )


class TestCapacityBuffer:
    def planned(self, found: BufferCapacity, *objects: dict[str, Any]) -> Cluster:
        cluster = Cluster(*(objects or (BUFFER,)))
        cluster.buffers = (found,)
        cluster.write()
        assert violations(status_schema_of("CapacityBuffer"), copy.deepcopy(cluster.objects[0]["status"])) == set()
        return cluster

    def reasons(self, cluster: Cluster) -> dict[str, tuple[str, str]]:
        listed = cluster.objects[0]["status"]["conditions"]
        return {each["type"]: (each["status"], each["reason"]) for each in listed}

    def test_room_on_nodes_that_exist_is_provisioned(self) -> None:
        template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "small", "namespace": "shop"}}
        cluster = self.planned(BufferCapacity("shop", "warm", replicas=2), BUFFER, template)
        assert self.reasons(cluster) == {
            "Provisioning": ("True", "FitsExistingCapacity"),
            "ReadyForProvisioning": ("True", "Resolved"),
        }
        status = cluster.objects[0]["status"]
        assert (status["replicas"], status["podTemplateRef"], status["podTemplateGeneration"]) == (
            2,
            {"name": "small"},
            3,
        )
        assert set(status) == set(status_schema_of("CapacityBuffer")["properties"])
        assert status["provisioningStrategy"] == "buffer.x-k8s.io/active-capacity"

    @pytest.mark.parametrize(
        "found", [BufferCapacity("shop", "warm", 2, new=1), BufferCapacity("shop", "warm", 2, 0, 1)]
    )
    def test_room_that_is_not_there_yet_is_not(self, found: BufferCapacity) -> None:
        assert self.reasons(self.planned(found))["Provisioning"] == ("False", "RequiresNewCapacity")

    def test_a_buffer_of_no_pods_is_empty(self) -> None:
        cluster = self.planned(BufferCapacity("shop", "warm"))
        assert self.reasons(cluster)["Provisioning"] == ("False", "BufferEmpty")
        assert cluster.objects[0]["status"]["replicas"] == 0

    @pytest.mark.parametrize(
        ("spec", "problem", "reason"),
        [
            ({"podTemplateRef": {"name": "small"}}, "PodTemplate small not found", "PodTemplateNotFound"),
            (
                {"scalableRef": {"kind": "Deployment", "name": "web"}},
                "Deployment web not found",
                "ScalableRefNotFound",
            ),
            ({"podTemplateRef": {"name": "small"}}, "its limits hold any number", "ResolutionFailed"),
        ],
    )
    def test_what_has_no_pods_says_why(self, spec: dict[str, Any], problem: str, reason: str) -> None:
        buffer = {**BUFFER, "spec": {**spec, "replicas": 2}}
        cluster = self.planned(BufferCapacity("shop", "warm", reason=problem), buffer)
        assert self.reasons(cluster) == {
            "Provisioning": ("False", "NotReadyForProvisioning"),
            "ReadyForProvisioning": ("False", reason),
        }

    def test_one_that_no_plan_has_seen_keeps_its_status(self) -> None:
        cluster = self.planned(BufferCapacity("shop", "warm", replicas=2))
        cluster.buffers = ()
        assert cluster.updates() == []
        template = stored({"kind": "PodTemplate", "metadata": {"name": "small", "namespace": "shop"}})
        cluster.objects += [template, stored(NODE_POOL)]
        assert [update.kind for update in cluster.updates()] == ["NodePool"]

    def test_each_has_its_own_template(self) -> None:
        """A template that has been deleted since the plan has no generation."""
        other = {**BUFFER, "metadata": {"name": "cold", "namespace": "shop"}}
        other["spec"] = {"podTemplateRef": {"name": "large"}, "replicas": 2}
        cluster = Cluster(BUFFER, other, {"kind": "PodTemplate", "metadata": {"name": "small", "namespace": "shop"}})
        cluster.buffers = (BufferCapacity("shop", "warm", replicas=2), BufferCapacity("shop", "cold", replicas=2))
        found = [update.status for update in cluster.updates()]
        templates = [(each["podTemplateRef"]["name"], each["podTemplateGeneration"]) for each in found]
        assert templates == [("small", 3), ("large", 0)]

    @pytest.mark.parametrize("is_new", [True, False])
    def test_one_that_is_being_deleted_keeps_its_status(self, is_new: bool) -> None:
        """The last plan has seen it; a finalizer keeps it for a while."""
        cluster = self.planned(BufferCapacity("shop", "warm", replicas=2))
        status = cluster.objects[0]["status"]
        cluster.objects[0] = changed(cluster.objects[0], "metadata.deletionTimestamp", "2027-01-15T08:00:00Z")
        if is_new:
            cluster.objects[0]["status"] = {}
        cluster.write()
        assert cluster.objects[0]["status"] == ({"conditions": holding("ReadyForProvisioning")} if is_new else status)

    def test_one_that_no_longer_validates_says_so_at_once(self) -> None:
        cluster = self.planned(BufferCapacity("shop", "warm", replicas=2))
        cluster.objects[0] = changed(cluster.objects[0], "spec.replicas", -1)
        cluster.write()
        assert self.reasons(cluster)["ReadyForProvisioning"][0] == "False"


class TestCountsOfNodePools:
    def pool(self) -> Cluster:
        cluster = Cluster(*(item for item in EVERYTHING if item["kind"] in ("NodePool", "EC2NodeClass")))
        cluster.nodes = (node("a", pool="default"),)
        return cluster

    def shown(self, cluster: Cluster, counted: PoolNodes | None, now: float = NOW) -> dict[str, Any] | None:
        """The condition after a write, None if nothing was to write."""
        cluster.pool_nodes = {"default": counted} if counted else {}
        if not [update for update in cluster.updates(now) if update.kind == "NodePool"]:
            return None
        cluster.write(now)
        item = next(each for each in cluster.objects if each["kind"] == "NodePool")
        return next((each for each in item["status"]["conditions"] if each["type"] == "NodesUpToDate"), None)

    @pytest.mark.parametrize(
        ("counted", "status", "reason", "message"),
        [
            (PoolNodes(3), "True", "NodesUpToDate", "0 of 3 nodes drifted, 0 blocked, 0 joining, 0 leaving"),
            (
                PoolNodes(21, 7, 1, 2, (("annotation x", 1), ("budgets[0]", 2))),
                "False",
                "RolloutInProgress",
                "7 of 21 nodes drifted, 3 blocked (1 by annotation x, 2 by budgets[0]), 1 joining, 2 leaving",
            ),
            (
                PoolNodes(2, 2, blocked=(("budgets[0]", 2),)),
                "False",
                "RolloutBlocked",
                "2 of 2 nodes drifted, 2 blocked (2 by budgets[0]), 0 joining, 0 leaving",
            ),
        ],
    )
    def test_a_condition_has_the_numbers_and_the_reasons(
        self, counted: PoolNodes, status: str, reason: str, message: str
    ) -> None:
        condition = self.shown(self.pool(), counted)
        assert condition is not None
        assert (condition["status"], condition["reason"], condition["message"]) == (status, reason, message)

    def test_it_is_written_when_it_changes_and_kept_while_nobody_has_counted(self) -> None:
        cluster = self.pool()
        first = self.shown(cluster, PoolNodes(3, 1))
        assert self.shown(cluster, PoolNodes(3, 1), NOW + 60) is None
        assert self.shown(cluster, None, NOW + 120) is None
        later = self.shown(cluster, PoolNodes(3, 2), NOW + 180)
        assert first is not None
        assert later is not None
        assert later["message"] != first["message"]
        assert later["lastTransitionTime"] == first["lastTransitionTime"]

    def test_the_columns_for_kubectl_name_it(self) -> None:
        names, paths = (Path(__file__).parents[3] / "docs" / "nodepool-columns.txt").read_text().splitlines()
        assert len(names.split()) == len(paths.split())
        assert paths.count(f'(@.type=="{NODES_UP_TO_DATE}")') == 2

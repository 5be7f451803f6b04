"""Deletion costs are written after decisions, so that a Deployment that is scaled down empties nodes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from shiplap.errors import ClusterDenied, ClusterError, ClusterUnreachable, ObjectConflict
from shiplap.policies.deletion_costs.deletion_costs_settings import ANNOTATED, REMOVE, DeletionCostSettings
from shiplap.policies.policy_settings import chosen
from tests.integration.flows.deployment_stage import DeploymentStage

COST = "controller.kubernetes.io/pod-deletion-cost"
WRITTEN = "shiplap.dev/written-deletion-cost"
ASKS = {"shiplap.dev/deletion-cost": "managed"}
ON = DeletionCostSettings(mode=ANNOTATED)


def running(
    settings: DeletionCostSettings | None = ON,
    *names: str,
    replicas: int = 12,
    annotations: Mapping[str, str] = ASKS,
    cpu: str = "1500m",
) -> DeploymentStage:
    """A stage on which Deployments run on several nodes that are not consolidated while they have pods."""
    stage = DeploymentStage(settings)
    (pool,) = stage.settings.manifests.node_pools
    disruption = replace(pool.spec.disruption, consolidation_policy="WhenEmpty")
    pool = replace(pool, spec=replace(pool.spec, disruption=disruption))
    stage.settings = replace(stage.settings, manifests=replace(stage.settings.manifests, node_pools=(pool,)))
    for name in names or ("web",):
        stage.deploy(name, replicas // 2, annotations=annotations, cpu=cpu)
    stage.settle()
    for name in names or ("web",):
        stage.server.patch("deployments", name, {"spec": {"replicas": replicas}}, "default")
    stage.settle()
    return stage


def switch(stage: DeploymentStage, settings: DeletionCostSettings) -> None:
    """Deploy other settings."""
    stage.settings = replace(stage.settings, policies=chosen(settings))


def costs(stage: DeploymentStage) -> dict[str, set[str | None]]:
    """The costs of the pods of each node."""
    found: dict[str, set[str | None]] = {}
    for pod in stage.server.list("pods").items:
        written = pod["metadata"].get("annotations", {})
        assert written.get(COST) == written.get(WRITTEN)
        found.setdefault(pod["spec"].get("nodeName", ""), set()).add(written.get(COST))
    return found


def writes(stage: DeploymentStage) -> int:
    return int(stage.meter.counts.get("DeletionCostsWritten", 0))


def halve(stage: DeploymentStage, name: str = "web", replicas: int = 6) -> int:
    """Scale a Deployment down; return how many nodes are left."""
    stage.server.patch("deployments", name, {"spec": {"replicas": replicas}}, "default")
    stage.settle()
    return len(stage.compute.alive())


def test_a_deployment_that_is_scaled_down_empties_nodes_and_without_costs_it_does_not() -> None:
    stage, without = running(), running(None)
    nodes = len(stage.compute.alive())
    assert nodes == len(without.compute.alive()) > 2
    by_node = costs(stage)
    assert all(len(values) == 1 and None not in values for values in by_node.values())
    assert len(set().union(*by_node.values())) == nodes
    assert set().union(*costs(without).values()) == {None}
    assert halve(stage) < halve(without)


def test_a_cluster_in_which_nothing_changes_is_not_written_to() -> None:
    stage = running()
    assert writes(stage) == 12
    stage.seconds(600)
    assert writes(stage) == 12


def test_nobody_else_is_written() -> None:
    stage = running(annotations={})
    assert set().union(*costs(stage).values()) == {None}
    assert writes(stage) == 0


def test_the_annotation_of_a_node_pool_is_of_all_its_pods() -> None:
    stage = running(annotations={})
    (pool,) = stage.settings.manifests.node_pools
    pool = replace(pool, metadata=replace(pool.metadata, annotations=ASKS))
    stage.settings = replace(stage.settings, manifests=replace(stage.settings.manifests, node_pools=(pool,)))
    stage.seconds(120)
    assert None not in set().union(*costs(stage).values())


def test_what_a_person_sets_or_takes_away_stays() -> None:
    stage = running()
    theirs, removed, *_ = stage.objects("pods")
    stage.server.patch("pods", theirs, {"metadata": {"annotations": {COST: "7"}}}, "default")
    stage.server.patch("pods", removed, {"metadata": {"annotations": {COST: None}}}, "default")
    for settings in (ON, DeletionCostSettings(mode=REMOVE)):
        switch(stage, settings)
        stage.seconds(180)
        found = {
            name: stage.server.get("pods", name, "default")["metadata"]["annotations"] for name in (theirs, removed)
        }
        assert (found[theirs][COST], found[removed].get(COST)) == ("7", None)


def test_no_more_pods_are_written_in_a_decision_than_the_settings_allow_and_those_that_go_first_before() -> None:
    stage = running(DeletionCostSettings(mode=ANNOTATED, most_writes=5), annotations={})
    (pool,) = stage.settings.manifests.node_pools
    pool = replace(pool, metadata=replace(pool.metadata, annotations=ASKS))
    stage.settings = replace(stage.settings, manifests=replace(stage.settings.manifests, node_pools=(pool,)))
    seen = []
    for _ in range(4):
        stage.disrupt()
        seen.append(writes(stage))
    assert seen == [5, 10, 12, 12]


def test_costs_are_removed_when_they_are_switched_off() -> None:
    stage = running()
    switch(stage, DeletionCostSettings(mode=REMOVE, most_writes=5))
    for left in (7, 2, 0, 0):
        stage.disrupt()
        found = [pod["metadata"].get("annotations", {}) for pod in stage.server.list("pods").items]
        assert sum(WRITTEN in item for item in found) == left
        assert sum(COST in item for item in found) == left
    assert writes(stage) == 24


def test_a_node_that_must_stay_has_its_costs_removed() -> None:
    stage = running()
    kept = sorted(costs(stage))[0]
    stage.server.patch("nodes", kept, {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}})
    stage.seconds(120)
    assert {name: None in values for name, values in costs(stage).items()} == {
        name: name == kept for name in costs(stage)
    }


def test_without_the_right_nothing_is_written_and_the_remedy_is_said(caplog: pytest.LogCaptureFixture) -> None:
    stage = running(annotations={})
    stage.faults.always("cluster.annotate_pod", ClusterDenied("PATCH: forbidden", status=403))
    stage.deploy("asks", 2, annotations=ASKS)
    stage.settle()
    assert stage.meter.counts["DeletionCostsDenied"] > 0
    assert writes(stage) == 0
    assert "apply docs/rbac-deletion-costs.yaml" in caplog.text


@pytest.mark.parametrize(
    ("error", "metric", "others"),
    [
        (ObjectConflict("409"), "", 11),
        (ClusterError("a webhook refuses it", status=400), "DeletionCostsFailed", 11),
        (ClusterUnreachable("no answer"), "DeletionCostsFailed", 0),
    ],
)
def test_what_cannot_be_written_now_is_written_later(error: ClusterError, metric: str, others: int) -> None:
    stage = running(DeletionCostSettings(mode=REMOVE))
    switch(stage, ON)
    stage.faults.on("before", "cluster.annotate_pod", error)
    report = stage.disrupt()
    assert report.begun == ()
    assert writes(stage) == others
    assert not metric or stage.meter.counts[metric] == 1
    stage.disrupt()
    assert writes(stage) == 12

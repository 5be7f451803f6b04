"""Pods that must not be missing move by restarts of their Deployments; what cannot be restarted is said and kept."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.errors import ClusterDenied, ClusterError, ClusterUnreachable, ObjectConflict
from shiplap.kubernetes.related_objects import ScalableName
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.policies.rollouts.rollouts_settings import RolloutSettings
from tests.integration.flows.leaving import SPOT, first, warning
from tests.integration.flows.rollouts_stage import ON, RolloutStage

STAYS = {"shiplap.dev/rollout": "stay"}
GOES = {"shiplap.dev/rollout": "evict"}


def running(
    *names: str, annotations: dict[str, str] = STAYS, stage: RolloutStage | None = None, **spec: Any
) -> RolloutStage:
    """A stage on which Deployments are in service."""
    stage = stage or RolloutStage()
    for name in names or ("web",):
        stage.deploy(name, annotations=annotations, **spec)
    stage.settle()
    return stage


def change(stage: RolloutStage, name: str = "web", **spec: Any) -> None:
    """A user changes a Deployment."""
    stage.server.patch("deployments", name, {"spec": spec}, "default")


def draining(stage: RolloutStage) -> list[str]:
    return [claim.node_name for claim in stage.claims() if claim.state is ClaimState.DRAINING]


def begin_drift(stage: RolloutStage) -> None:
    """Let all nodes drift until the first one leaves."""
    stage.drift()
    for _ in range(600):
        if draining(stage):
            return
        stage.seconds(1)
    raise AssertionError(stage.summary())


# Moves


def test_a_deployment_of_one_pod_moves_without_a_second_without_it() -> None:
    stage = running()
    before = stage.nodes_of("web")
    stage.drift()
    stage.settle()
    assert stage.nodes_of("web").isdisjoint(before)
    assert stage.missing["web"] == 0
    assert stage.restarts("web") == 1
    assert stage.told("RolloutStarted") == [
        "Its node leaves (Drifted): Deployment default/web replaces the pod by a restart; the pod stays until then",
        "Restarted so that their pods leave this node: Deployment default/web",
    ]


@pytest.mark.parametrize(("settings", "annotations"), [(None, STAYS), (ON, {}), (ON, {"shiplap.dev/rollout": "never"})])
def test_without_the_feature_it_is_missing_for_its_start(
    settings: RolloutSettings | None, annotations: dict[str, str]
) -> None:
    stage = running(annotations=annotations, stage=RolloutStage(settings))
    stage.drift()
    stage.settle()
    assert stage.missing["web"] >= 20
    assert stage.restarts("web") == 0


def test_a_node_pool_speaks_for_its_pods() -> None:
    stage = RolloutStage()
    (pool,) = stage.settings.manifests.node_pools
    pool = replace(pool, metadata=replace(pool.metadata, annotations=STAYS))
    stage.settings = replace(stage.settings, manifests=replace(stage.settings.manifests, node_pools=(pool,)))
    running(annotations={}, stage=stage)
    stage.drift()
    stage.settle()
    assert (stage.missing["web"], stage.restarts("web")) == (0, 1)


@pytest.mark.parametrize("spec", [{"minAvailable": 3}, {"maxUnavailable": 0}, {"minAvailable": "100%"}])
def test_a_budget_that_allows_none_holds_nobody_back(spec: dict[str, Any]) -> None:
    stage = RolloutStage()
    stage.guard("api", **spec)
    running("api", annotations=GOES, stage=stage, replicas=3)
    before = stage.nodes_of("api")
    stage.drift()
    stage.settle()
    assert stage.nodes_of("api").isdisjoint(before)
    assert (stage.missing["api"], stage.restarts("api")) == (0, 1)


def test_one_restart_serves_all_nodes_that_leave() -> None:
    stage = RolloutStage()
    stage.guard("api", maxUnavailable=0)
    anti = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "api"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [anti]}}
    running("api", stage=stage, replicas=3, template_spec={"affinity": affinity})
    before = stage.nodes_of("api")
    assert len(before) == 3
    stage.drift()
    stage.settle()
    assert stage.nodes_of("api").isdisjoint(before)
    assert (stage.missing["api"], stage.restarts("api")) == (0, 1)


def test_two_replicas_on_one_node_do_not_leave_together() -> None:
    stage = running(annotations=GOES, replicas=2)
    assert len(stage.nodes_of("web")) == 1
    stage.drift()
    stage.settle()
    assert (stage.missing["web"], stage.restarts("web")) == (0, 1)


def test_many_deployments_of_a_node_are_restarted_a_few_at_once() -> None:
    names = [f"web-{number}" for number in range(5)]
    stage = running(*names, stage=RolloutStage(replace(ON, at_once=2)), cpu="100m")
    assert len({node for name in names for node in stage.nodes_of(name)}) == 1
    begin_drift(stage)
    most = 0
    for _ in range(600):
        stage.seconds(1)
        pods = [pod for pod in stage.server.list("pods").items if not pod["metadata"].get("deletionTimestamp")]
        most = max(most, len(pods) - len(names))
    stage.settle()
    assert most == 2
    assert [stage.restarts(name) for name in names] == [1] * 5
    assert not stage.missing.total()
    assert any("2 others are restarted for this node" in text for text in stage.told("RolloutAwaited"))


def test_another_cluster_is_left_alone() -> None:
    stage, other = running(), running()
    stage.drift()
    stage.settle()
    other.seconds(600)
    assert (stage.restarts("web"), other.restarts("web")) == (1, 0)


def test_a_deployment_that_was_scaled_meanwhile_keeps_its_size() -> None:
    stage = running()
    begin_drift(stage)
    while not stage.restarts("web"):
        stage.seconds(1)
    change(stage, replicas=3)
    stage.settle()
    assert len(stage.server.list("pods").items) == 3
    assert (stage.missing["web"], stage.restarts("web")) == (0, 1)


# What cannot be restarted


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"paused": True}, "it is paused"),
        ({"strategy": {"type": "Recreate", "rollingUpdate": None}}, "its strategy is Recreate"),
        ({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}, "its maxSurge is 0"),
    ],
)
def test_what_cannot_be_restarted_keeps_its_node_until_it_can(spec: dict[str, Any], why: str) -> None:
    stage = running()
    before = stage.nodes_of("web")
    change(stage, **spec)
    stage.drift()
    stage.seconds(1800)
    assert stage.nodes_of("web") == before
    assert draining(stage) == []
    assert (stage.missing["web"], stage.restarts("web"), len(stage.compute.alive())) == (0, 0, 1)
    assert why in stage.kept()
    rolling = {"maxSurge": 1, "maxUnavailable": 0}
    change(stage, paused=None, strategy={"type": "RollingUpdate", "rollingUpdate": rolling})
    stage.settle()
    assert stage.nodes_of("web").isdisjoint(before)
    assert stage.missing["web"] == 0


def test_what_is_paused_after_its_node_began_to_leave_is_said() -> None:
    stage = running()
    before = stage.nodes_of("web")
    begin_drift(stage)
    change(stage, paused=True)
    stage.seconds(1800)
    assert (stage.nodes_of("web"), draining(stage)) == (before, list(before))
    assert stage.told("RolloutImpossible") == [
        "Its node leaves (Drifted): Deployment default/web is not restarted, it is paused; the pod stays until then"
    ]
    change(stage, paused=None)
    stage.settle()
    assert (stage.missing["web"], stage.restarts("web")) == (0, 1)


def test_after_its_time_a_pod_is_evicted_if_it_may_be() -> None:
    stage = running(annotations={**GOES, "shiplap.dev/rollout-within": "5m"})
    before = stage.nodes_of("web")
    begin_drift(stage)
    change(stage, paused=True)
    stage.seconds(240)
    assert stage.nodes_of("web") == before
    stage.seconds(240)
    assert stage.nodes_of("web").isdisjoint(before)
    assert stage.missing["web"] >= 20
    assert stage.told("RolloutImpossible") == [
        "Its node leaves (Drifted): Deployment default/web is not restarted, it is paused; after 300 s it is evicted"
    ]


def test_without_permission_nothing_is_restarted_and_the_file_is_named() -> None:
    stage = running()
    before = stage.nodes_of("web")
    stage.faults.always("cluster.annotate_template", ClusterDenied("PATCH: forbidden", status=403))
    stage.drift()
    stage.seconds(900)
    assert stage.nodes_of("web") == before
    (text,) = stage.told("RolloutImpossible")
    assert "apply docs/rbac-rollouts.yaml" in text
    stage.faults.clear()
    stage.settle()
    assert (stage.missing["web"], stage.restarts("web")) == (0, 1)


def test_owners_that_may_not_be_read_keep_their_pods() -> None:
    stage = running()
    stage.faults.always("cluster.workload", ClusterDenied("GET: forbidden", status=403))
    stage.drift()
    stage.seconds(600)
    assert "Shiplap may not read its owner" in stage.kept()
    stage.faults.clear()
    stage.settle()
    assert (stage.missing["web"], stage.restarts("web")) == (0, 1)


@pytest.mark.parametrize("method", ["workload", "annotate_template"])
def test_one_that_the_api_server_refuses_hinders_no_other(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = running("odd", "web", cpu="100m")
    before = stage.nodes_of("odd")
    real = getattr(stage.cluster, method)

    def refuse(name: ScalableName, *args: Any, **named: Any) -> Any:
        if name.name.startswith("odd"):
            raise ClusterError("422: a webhook refuses it", status=422)
        return real(name, *args, **named)

    monkeypatch.setattr(stage.cluster, method, refuse)
    stage.drift()
    stage.seconds(900)
    assert stage.nodes_of("odd") == before
    assert (stage.missing.total(), stage.restarts("odd")) == (0, 0)
    assert stage.restarts("web") == (1 if method == "annotate_template" else 0)
    told = "; ".join((stage.kept(), *stage.told("RolloutImpossible")))
    assert ("a webhook refuses it" if method == "annotate_template" else "cannot be read") in told


def test_an_api_server_that_does_not_answer_is_asked_again() -> None:
    stage = running()
    stage.faults.on("before", "cluster.workload", ClusterUnreachable("no answer"), nth=3)
    stage.faults.on("before", "cluster.annotate_template", ClusterUnreachable("no answer"))
    stage.drift()
    stage.settle()
    assert (stage.missing["web"], stage.restarts("web")) == (0, 1)


def test_an_annotation_that_cannot_be_read_keeps_its_pod() -> None:
    stage = running(annotations={"shiplap.dev/rollout": "please"})
    before = stage.nodes_of("web")
    stage.drift()
    stage.seconds(900)
    assert stage.nodes_of("web") == before
    assert "'please' is none of evict, stay, never" in stage.kept()


def test_a_change_in_the_same_moment_is_seen_first() -> None:
    stage = running()
    stage.faults.on("before", "cluster.annotate_template", ObjectConflict("409"))
    stage.drift()
    stage.settle()
    assert (stage.missing["web"], stage.restarts("web")) == (0, 1)


def test_a_new_pod_that_never_gets_ready_ends_nobody() -> None:
    stage = running(progressDeadlineSeconds=120)
    before = stage.nodes_of("web")
    begin_drift(stage)
    stage.pod_start_s = 1e9
    stage.seconds(1800)
    assert before <= stage.nodes_of("web")
    assert stage.missing["web"] == 0
    assert stage.restarts("web") == 1
    assert any("its rollout does not progress" in text for text in stage.told("RolloutImpossible"))


def test_pods_that_come_back_to_their_node_are_not_restarted_again() -> None:
    stage = running()
    (before,) = stage.nodes_of("web")
    change(stage, template={"spec": {"nodeName": before}})
    stage.settle()
    begin_drift(stage)
    stage.seconds(1200)
    assert stage.nodes_of("web") == {before}
    assert stage.restarts("web") == 2  # the user's, and one
    assert stage.missing["web"] == 0


@pytest.mark.parametrize(("annotations", "leaves"), [(STAYS, False), (GOES, True)])
def test_a_bare_pod_is_no_deployments(annotations: dict[str, str], *, leaves: bool) -> None:
    stage = running()
    container = {"name": "main", "resources": {"requests": {"cpu": "100m"}}}
    metadata = {"name": "bare", "labels": {"app": "bare"}, "annotations": annotations}
    stage.server.create("pods", {"metadata": metadata, "spec": {"containers": [container]}}, "default")
    stage.settle()
    before = stage.nodes_of("bare")
    stage.drift()
    stage.seconds(1800)
    assert (stage.nodes_of("bare") != before) is leaves


# What waits for nothing


def test_an_interruption_waits_for_no_restart() -> None:
    stage = running()
    _, instance = first(stage)
    stage.interrupt(warning(stage, instance.id, SPOT))
    stage.seconds(90)
    assert stage.restarts("web") == 0
    assert stage.meter.counts["PodsEvicted"] == 1


def test_the_end_of_the_grace_period_waits_for_no_restart() -> None:
    stage = RolloutStage()
    stage.limit("5m")
    running(stage=stage)
    before = stage.nodes_of("web")
    begin_drift(stage)
    change(stage, paused=True)
    stage.seconds(200)
    assert stage.nodes_of("web") == before
    stage.seconds(130)
    assert stage.nodes_of("web").isdisjoint(before)

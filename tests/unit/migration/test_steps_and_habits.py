"""The way over and back, and what workloads are used to."""

from __future__ import annotations

import json
import shlex
from functools import partial
from typing import Any

import msgspec
import pytest

from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.manifests.files.documents import read_text
from shiplap_cli.commands.migrate.migration_findings import FormerKind, FormerPool
from shiplap_cli.commands.migrate.steps import steps_of
from shiplap_cli.commands.migrate.workload_findings import with_local_storage, workload_findings
from tests.builders.pods import pod as any_pod

OLD = {
    FormerKind.NODE_POOL: FormerPool(FormerKind.NODE_POOL, "default", "default-shiplap", cpu_limit="100"),
    FormerKind.NODE_GROUP: FormerPool(FormerKind.NODE_GROUP, "core", "core-shiplap", least=2, desired=3),
    FormerKind.SCALING_GROUP: FormerPool(FormerKind.SCALING_GROUP, "web", "web-shiplap", least=1, desired=4),
}


@pytest.mark.parametrize("origin", list(FormerKind))
@pytest.mark.parametrize("tainted", [True, False])
def test_every_step_that_changes_something_can_be_undone(origin: FormerKind, tainted: bool) -> None:
    steps = steps_of("manifests", "prod", [OLD[origin]], tainted=tainted)
    without = [step.title for step in steps if not step.undo]
    assert without == ([] if tainted else ["Try them on the cluster as it is"])
    for command in (command for step in steps for command in (*step.commands, *step.undo)):
        assert shlex.split(command)


def test_the_deployment_begins_with_its_files_and_with_what_the_account_lacks() -> None:
    steps = steps_of("manifests", "prod", [OLD[FormerKind.NODE_POOL]], tainted=True)
    (deploy,) = (step for step in steps if step.title == "Deploy")
    assert deploy.commands[:4] == (
        "shiplap init",
        "npx aws-cdk bootstrap",
        "shiplap doctor --before-deploy",
        "npx aws-cdk deploy",
    )
    (handed,) = (step for step in steps if step.title == "Hand all pods over")
    assert "has drifted" in handed.why


@pytest.mark.parametrize("origin", list(FormerKind))
def test_the_old_autoscaler_launches_nothing_more_before_every_pod_is_claimed(origin: FormerKind) -> None:
    titles = [step.title for step in steps_of("m", "c", [OLD[origin]], tainted=True)]
    stop = next(title for title in titles if title in ("Stop Cluster Autoscaler", "Let Karpenter launch nothing more"))
    assert titles.index(stop) + 1 == titles.index("Hand all pods over")


def test_manifests_are_tried_without_the_taint_that_keeps_pods_off() -> None:
    tried = steps_of("m", "c", [OLD[FormerKind.NODE_GROUP]], tainted=True, given="a.json --cluster c")[1]
    assert tried.commands[0] == "shiplap migrate convert a.json --cluster c --no-taint --to m-untainted"
    assert tried.commands[1].endswith("--manifests m-untainted")
    assert steps_of("m", "c", [], tainted=False)[1].commands[0].endswith("--manifests m")


@pytest.mark.parametrize(
    ("origin", "undo"),
    [
        (FormerKind.NODE_GROUP, "--scaling-config minSize=2,desiredSize=3"),
        (FormerKind.SCALING_GROUP, "--min-size 1 --desired-capacity 4"),
    ],
)
def test_groups_get_their_old_sizes_back(origin: FormerKind, undo: str) -> None:
    steps = steps_of("manifests", "prod", [OLD[origin]], tainted=True)
    (emptied,) = (step for step in steps if step.title.startswith("Empty"))
    assert any(undo in command for command in emptied.undo)


@pytest.mark.parametrize(("limit", "back"), [("100", "100"), ("", None)])
def test_karpenters_pools_get_their_old_limit_back(limit: str, back: str | None) -> None:
    former = msgspec.structs.replace(OLD[FormerKind.NODE_POOL], cpu_limit=limit)
    (stop,) = (s for s in steps_of("m", "c", [former], tainted=True) if "nothing more" in s.title)
    patch = shlex.split(stop.undo[0])[-1]
    assert json.loads(patch) == {"spec": {"limits": {"cpu": back}}}


def test_the_first_workload_is_held_to_the_first_new_pool() -> None:
    (move,) = (s for s in steps_of("m", "c", [OLD[FormerKind.NODE_POOL]], tainted=True) if "one workload" in s.title)
    patch = json.loads(shlex.split(move.commands[0])[-1])
    assert [entry["path"].rpartition("/")[2] for entry in patch] == ["tolerations", "nodeSelector"]
    assert patch[1]["value"] == {"karpenter.sh/nodepool": "default-shiplap"}


pod = partial(any_pod, namespace="web", owner="owner", owner_kind="ReplicaSet")


def found(
    *pods: Pod, nodes: tuple[Node, ...] = (), budgets: tuple[PodDisruptionBudget, ...] = (), **given: Any
) -> list[tuple[str, str]]:
    given = {"from_autoscaler": True, "local": frozenset(), "renamed": {}} | given
    return [(finding.field, finding.source) for finding in workload_findings(pods, nodes, budgets, **given)]


def test_a_workload_without_habits_is_not_named() -> None:
    assert found(pod("a")) == []


def test_pods_that_the_autoscaler_would_keep_a_node_for() -> None:
    annotations = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    assert found(
        pod("kept", annotations=annotations),
        pod("naked", owner=""),
        pod("dns", namespace="kube-system"),
        pod("cache"),
        pod("done", owner="", status={"phase": "Succeeded"}),
        local=frozenset({"web/cache"}),
    ) == [
        ('annotation cluster-autoscaler.kubernetes.io/safe-to-evict: "false"', "pod web/kept"),
        ("pods without a controller", "pod web/naked"),
        ("kube-system pods without a PodDisruptionBudget", "pod kube-system/dns"),
        ("pods with local storage", "pod web/cache"),
    ]


def test_system_pods_with_a_budget_and_daemons_are_at_home_anywhere() -> None:
    budget = msgspec.convert(
        {"metadata": {"name": "b", "namespace": "kube-system"}, "spec": {"selector": {"matchLabels": {"app": "dns"}}}},
        PodDisruptionBudget,
    )
    system = {"namespace": "kube-system"}
    assert (
        found(
            pod("dns", labels={"app": "dns"}, **system),
            pod("proxy", owner_kind="DaemonSet", **system),
            budgets=(budget,),
        )
        == []
    )


def test_nodes_that_must_stay() -> None:
    annotations = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    node = msgspec.convert({"metadata": {"name": "n", "annotations": annotations}}, Node)
    assert found(nodes=(node,)) == [
        ('annotation cluster-autoscaler.kubernetes.io/scale-down-disabled: "true"', "node n")
    ]


def test_many_pods_are_counted() -> None:
    ((_, source),) = found(*(pod(f"p{n}", owner="") for n in range(8)))
    assert source == "pods web/p0, web/p1, web/p2, web/p3, web/p4 and 3 more"


@pytest.mark.parametrize("key", ["karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup"])
def test_pods_that_select_what_goes(key: str) -> None:
    tied = pod("a", spec={"nodeSelector": {key: "old"}})
    other = pod("b", spec={"nodeSelector": {key: "elsewhere"}})
    given: dict[str, Any] = {"from_autoscaler": False, "local": frozenset(), "renamed": {"old": "new"}}
    (finding,) = workload_findings([tied, other], (), (), **given)
    assert (finding.field, finding.source) == (f"nodeSelector {key}", "pod web/a")
    assert finding.becomes == "karpenter.sh/nodepool: new", "node groups are no label of nodes of Shiplap"


def test_which_volumes_keep_data_on_a_node() -> None:
    text = "\n---\n".join(
        f"kind: Pod\napiVersion: v1\nmetadata: {{name: p{n}, namespace: a}}\nspec: {{volumes: [{volume}]}}"
        for n, volume in enumerate(
            [
                "{emptyDir: {}}",
                "{emptyDir: null}",
                "{emptyDir: {medium: Memory}}",
                "{hostPath: {path: /}}",
                "{configMap: {}}",
                "5",
            ]
        )
    )
    assert with_local_storage(read_text("x", text)) == {"a/p0", "a/p1", "a/p3"}

"""Which step is taken about a pod that may leave its node, from its owners and budgets alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from shiplap.kubernetes.objects import OwnerReference, Pod
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget, PodDisruptionBudgetStatus
from shiplap.kubernetes.related_objects import REVISION, RolledWorkload
from shiplap.policies.rollouts.rollout_steps import (
    RESTARTED_AT,
    RESTARTED_FOR,
    PodOwners,
    RolloutStep,
    StepTaken,
    controller_of,
    restart_annotations,
    restarted_for,
    step_of,
)
from tests.builders.pods import pod

NOW = 1_767_268_800.0
SELECTOR = {"matchLabels": {"app": "web"}}
OWNER = {"kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": True}


member = partial(
    pod,
    "web-1-a",
    namespace="shop",
    labels={"app": "web"},
    phase="Running",
    ready=True,
    metadata={"ownerReferences": [OWNER]},
)


def workload(
    replicas: int = 1, *, revision: str = "4", restarted: str = "", status: dict[str, Any] | None = None, **spec: Any
) -> RolledWorkload:
    counts = {"replicas": replicas, "updatedReplicas": replicas, "availableReplicas": replicas, "observedGeneration": 7}
    template = {"metadata": {"annotations": {RESTARTED_FOR: restarted} if restarted else {}}}
    metadata = {"name": "web", "namespace": "shop", "uid": "d", "generation": 7, "annotations": {REVISION: revision}}
    written = {"replicas": replicas, "selector": SELECTOR, "template": template, **spec}
    return msgspec.convert(
        {"metadata": metadata, "spec": written, "status": {**counts, **(status or {})}}, RolledWorkload
    )


def budget(name: str = "web", **spec: Any) -> PodDisruptionBudget:
    body = {"metadata": {"name": name, "namespace": "shop"}, "spec": {"selector": SELECTOR, **spec}}
    return msgspec.convert(body, PodDisruptionBudget)


def step(
    deployment: RolledWorkload | None,
    *budgets: PodDisruptionBudget,
    going: int = 1,
    of: Pod | None = None,
    set_revision: str = "4",
) -> StepTaken:
    owners = PodOwners(controller_of(member().metadata), workload(revision=set_revision), deployment)
    return step_of(of or member(), owners, "claim-a", budgets=budgets, going=going)


def test_the_last_pod_is_not_evicted() -> None:
    assert step(workload()).step is RolloutStep.RESTART
    assert step(workload(2)).step is RolloutStep.EVICT
    assert step(workload(2), going=2).step is RolloutStep.RESTART
    assert step(workload(3), going=2).step is RolloutStep.EVICT


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"maxUnavailable": 0}, RolloutStep.RESTART),
        ({"maxUnavailable": 1}, RolloutStep.EVICT),
        ({"minAvailable": 3}, RolloutStep.RESTART),
        ({"minAvailable": "100%"}, RolloutStep.RESTART),
        ({"minAvailable": 2}, RolloutStep.EVICT),
        ({"minAvailable": "many"}, RolloutStep.RESTART),
    ],
)
def test_a_budget_that_allows_none_asks_for_a_restart(spec: dict[str, Any], expected: RolloutStep) -> None:
    assert step(workload(3), budget(**spec)).step is expected


def test_several_budgets_allow_no_eviction_ever() -> None:
    assert step(workload(3), budget("a", maxUnavailable=1), budget("b", maxUnavailable=1)).step is RolloutStep.RESTART


def test_what_the_controller_wrote_of_a_budget_counts_more_than_its_spec() -> None:
    status = PodDisruptionBudgetStatus(disruptions_allowed=0)
    generous = msgspec.structs.replace(budget(maxUnavailable=1), status=status)
    assert step(workload(3), generous).step is RolloutStep.RESTART


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"paused": True}, "it is paused"),
        ({"strategy": {"type": "Recreate"}}, "its strategy is Recreate"),
        ({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}, "its maxSurge is 0"),
        ({"strategy": {"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "0%"}}}, "its maxSurge is 0"),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}},
            "its maxUnavailable allows that none of its 1 pods is available",
        ),
        ({"strategy": {"rollingUpdate": {"maxSurge": "some"}}}, "its strategy cannot be read: "),
        (
            {"status": {"conditions": [{"type": "Progressing", "status": "False"}]}},
            "its rollout does not progress",
        ),
    ],
)
def test_what_cannot_be_restarted_says_why(spec: dict[str, Any], why: str) -> None:
    taken = step(workload(**spec))
    assert taken.step is RolloutStep.STUCK
    assert taken.why.startswith(why)


def test_a_surge_of_a_share_is_rounded_up() -> None:
    assert (
        step(workload(strategy={"rollingUpdate": {"maxSurge": "1%", "maxUnavailable": "99%"}})).step
        is RolloutStep.RESTART
    )


def test_a_pod_of_an_older_template_leaves_with_the_rollout() -> None:
    assert step(workload(3), set_revision="3").step is RolloutStep.LEAVES
    assert step(workload(status={"observedGeneration": 6})).step is RolloutStep.LEAVES
    assert step(workload(paused=True), set_revision="3").step is RolloutStep.STUCK


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"updatedReplicas": 2}, "another rollout is under way"),
        ({"replicas": 4}, "another rollout is under way"),
        ({"availableReplicas": 2}, "2 of its 3 pods are available"),
    ],
)
def test_what_is_not_whole_is_restarted_later(status: dict[str, Any], why: str) -> None:
    assert step(workload(3, status=status), budget(maxUnavailable=0)) == StepTaken(RolloutStep.WAIT, why)


def test_no_deployment_is_restarted_twice_for_one_node() -> None:
    taken = step(workload(restarted="claim-b claim-a"))
    assert taken == StepTaken(RolloutStep.STUCK, "it was restarted for this node, and its pods came back")
    assert step(workload(restarted="claim-b claim-ab")).step is RolloutStep.RESTART


def test_a_template_names_the_newest_claims_only() -> None:
    many = workload(restarted=" ".join(f"claim-{number}" for number in range(40)))
    changed = restart_annotations(many, "claim-a", NOW)[RESTARTED_FOR].split()
    assert changed == [*(f"claim-{number}" for number in range(21, 40)), "claim-a"]
    assert restarted_for(workload()) == []
    made = restart_annotations(workload(), "claim-a", NOW)
    assert made == {RESTARTED_FOR: "claim-a", RESTARTED_AT: "2026-01-01T12:00:00Z"}


def test_owners_that_are_gone_or_no_deployment() -> None:
    gone = PodOwners(controller_of(member().metadata))
    assert step_of(member(), gone, "claim-a", budgets=(), going=1).step is RolloutStep.EVICT
    bare = PodOwners()
    assert step_of(member(), bare, "claim-a", budgets=(), going=1) == StepTaken(
        RolloutStep.UNABLE, "no Deployment has it"
    )
    reference = OwnerReference("StatefulSet", "web", "s", controller=True)
    alone, three = (PodOwners(reference, workload(number)) for number in (1, 3))
    taken = step_of(member(), alone, "claim-a", budgets=(), going=1)
    assert taken == StepTaken(RolloutStep.UNABLE, "StatefulSet shop/web has no surge")
    assert step_of(member(), three, "claim-a", budgets=(), going=1).step is RolloutStep.EVICT


def test_a_pod_that_names_an_owner_which_does_not_select_it_restarts_nothing() -> None:
    taken = step(workload(), of=member(labels={"app": "hostile"}))
    assert taken == StepTaken(RolloutStep.UNABLE, "Deployment shop/web does not select it")
    assert step(workload(), of=member(namespace="other")).step is RolloutStep.UNABLE
    wrong = {"matchExpressions": [{"key": "app", "operator": "Is"}]}
    assert step(workload(selector=wrong)).step is RolloutStep.UNABLE


def test_an_owner_that_cannot_be_read_keeps_its_pod() -> None:
    taken = step_of(member(), PodOwners(problem="may not be read"), "claim-a", budgets=(), going=1)
    assert taken == StepTaken(RolloutStep.STUCK, "may not be read")

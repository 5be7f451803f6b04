"""How many pods a PodDisruptionBudget lets go."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.pod_disruption_budgets import (
    PodDisruptionBudget,
    disruptions_allowed,
    never_evicted,
    pods_by_budget,
)


def budget(status: dict[str, Any] | None = None, **spec: Any) -> PodDisruptionBudget:
    body: dict[str, Any] = {
        "metadata": {"name": "b", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}, **spec},
    }
    return msgspec.convert(body | ({"status": status} if status is not None else {}), PodDisruptionBudget)


def pod(name: str, *, ready: bool | None = None, namespace: str = "shop", app: str = "db") -> Pod:
    conditions = [] if ready is None else [{"type": "Ready", "status": str(ready)}]
    meta = {"name": name, "namespace": namespace, "labels": {"app": app}}
    return msgspec.convert({"metadata": meta, "status": {"conditions": conditions}}, Pod)


PODS = [pod(f"p{place}") for place in range(5)]


@pytest.mark.parametrize(
    ("spec", "number"),
    [
        ({"minAvailable": 3}, 2),
        ({"minAvailable": "50%"}, 2),
        ({"minAvailable": "100%"}, 0),
        ({"maxUnavailable": 1}, 1),
        ({"maxUnavailable": "30%"}, 2),
        ({"maxUnavailable": 0}, 0),
        ({}, 4),
    ],
)
def test_without_a_controller_the_spec_is_reckoned(spec: dict[str, Any], number: int) -> None:
    assert disruptions_allowed(budget(**spec), PODS) == number


def test_pods_that_are_not_ready_use_the_budget_up() -> None:
    assert disruptions_allowed(budget(maxUnavailable=1), [*PODS[:4], pod("sick", ready=False)]) == 0


def test_the_controllers_word_counts() -> None:
    assert disruptions_allowed(budget({"disruptionsAllowed": 7}, maxUnavailable=0), PODS) == 7


def test_an_amount_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="'half'"):
        disruptions_allowed(budget(minAvailable="half"), PODS)


def test_a_budget_covers_pods_of_its_namespace() -> None:
    others = [pod("x", namespace="other"), pod("y", app="web")]
    assert pods_by_budget([budget()], [*PODS, *others]) == {"shop/b": PODS}


@pytest.mark.parametrize(
    ("budgets", "ready", "never"),
    [
        ([], True, False),
        ([budget(minAvailable="100%")], True, True),
        ([budget(maxUnavailable=0)], True, True),
        ([budget(maxUnavailable="0%")], True, True),
        ([budget(maxUnavailable=1)], True, False),
        ([budget(minAvailable="99%")], True, False),
        ([budget(minAvailable=5, status={"disruptionsAllowed": 0})], True, False),
        ([budget(maxUnavailable=1), budget(maxUnavailable=1)], True, True),
        ([budget(maxUnavailable=0, unhealthyPodEvictionPolicy="AlwaysAllow")], True, True),
        ([budget(maxUnavailable=0, unhealthyPodEvictionPolicy="AlwaysAllow")], False, False),
        ([budget(maxUnavailable=0)], False, True),
    ],
)
def test_which_pods_are_never_evicted(budgets: list[PodDisruptionBudget], ready: bool, never: bool) -> None:
    assert never_evicted(pod("p", ready=ready), budgets) is never
    assert not never_evicted(pod("p", namespace="elsewhere"), budgets)
    assert not never_evicted(pod("p", app="other"), budgets)

"""Tests the number of pods that a PodDisruptionBudget lets go."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from shiplap.kubernetes import pod_disruption_budgets
from shiplap.kubernetes.objects import LabelSelector, LabelSelectorRequirement
from shiplap.kubernetes.pod_disruption_budgets import (
    EvictionRefusal,
    PodDisruptionBudget,
    counts_of,
    covered_pods,
    eviction_refusal,
    never_evicted,
)
from shiplap.kubernetes.selectors import matcher, matches
from tests.builders.pods import pod as any_pod


def budget(status: dict[str, Any] | None = None, **spec: Any) -> PodDisruptionBudget:
    body: dict[str, Any] = {
        "metadata": {"name": "b", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}, **spec},
    }
    return msgspec.convert(body | ({"status": status} if status is not None else {}), PodDisruptionBudget)


pod = partial(any_pod, namespace="shop", labels={"app": "db"}, phase="Running")
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
        ({}, 0),  # getExpectedPodCount of the disruption controller expects no pod
    ],
)
def test_without_a_controller_the_spec_is_reckoned(spec: dict[str, Any], number: int) -> None:
    assert counts_of(budget(**spec), PODS).disruptions_allowed == number


def test_pods_that_are_not_ready_use_the_budget_up() -> None:
    assert counts_of(budget(maxUnavailable=1), [*PODS[:4], pod("sick", ready=False)]).disruptions_allowed == 0


def test_the_controllers_word_counts() -> None:
    assert counts_of(budget({"disruptionsAllowed": 7}, maxUnavailable=0), PODS).disruptions_allowed == 7


def test_an_amount_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="'half'"):
        counts_of(budget(minAvailable="half"), PODS)


def test_a_budget_covers_pods_of_its_namespace() -> None:
    others = [pod("x", namespace="other"), pod("y", labels={"app": "web"})]
    assert covered_pods([budget()], [*PODS, *others]).by_budget == {"shop/b": PODS}


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
        ([budget({"disruptionsAllowed": 1, "observedGeneration": 1}, maxUnavailable=0)], True, True),
        ([budget({"currentHealthy": 2, "desiredHealthy": 1}, maxUnavailable=0)], False, False),
        ([budget({"currentHealthy": 2, "desiredHealthy": 1}, maxUnavailable=0)], True, True),
    ],
)
def test_which_pods_are_never_evicted(budgets: list[PodDisruptionBudget], ready: bool, never: bool) -> None:
    assert never_evicted(pod("p", ready=ready), budgets) is never
    assert not never_evicted(pod("p", namespace="elsewhere"), budgets)
    assert not never_evicted(pod("p", labels={"app": "other"}), budgets)


# The eviction API


FULL = {"disruptionsAllowed": 1, "currentHealthy": 5, "desiredHealthy": 4, "observedGeneration": 3}


def judged(
    written: dict[str, Any], *, phase: str = "Running", unhealthy: bool = False, policy: str = "IfHealthyBudget"
) -> EvictionRefusal | None:
    """The verdict on a pod of one budget whose spec is of generation 3, with this status."""
    made = budget(written, maxUnavailable=1, unhealthyPodEvictionPolicy=policy)
    made = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, generation=3))
    asked = pod("p", phase=phase)
    return eviction_refusal(asked, [made], {made.key: counts_of(made, ())}, unhealthy=unhealthy)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({}, None),
        ({"disruptionsAllowed": 0}, EvictionRefusal.EXHAUSTED),
        ({"disruptionsAllowed": -1}, EvictionRefusal.NEGATIVE),
        ({"observedGeneration": 2}, EvictionRefusal.STALE),
        ({"observedGeneration": 4}, None),
        ({"observedGeneration": 2, "disruptionsAllowed": 0}, EvictionRefusal.STALE),
        ({"disruptedPods": {f"p{place}": "2026-01-01T00:00:00Z" for place in range(2000)}}, None),
        ({"disruptedPods": dict.fromkeys(map(str, range(2001)))}, EvictionRefusal.UNCONFIRMED),
    ],
)
def test_a_ready_pod_goes_by_the_counts_of_its_budget(change: dict[str, Any], refusal: EvictionRefusal | None) -> None:
    assert judged(FULL | change) is refusal


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_pods_that_never_started_or_have_ended_go_without_a_budget(phase: str) -> None:
    assert judged(FULL | {"disruptionsAllowed": 0, "observedGeneration": 0}, phase=phase) is None
    two = [budget(maxUnavailable=0), budget(maxUnavailable=0)]
    asked = pod("p", phase=phase)
    assert eviction_refusal(asked, two, {}, unhealthy=True) is None
    assert not never_evicted(asked, two)


@pytest.mark.parametrize(
    ("policy", "change", "goes"),
    [
        ("IfHealthyBudget", {}, True),
        ("IfHealthyBudget", {"currentHealthy": 4}, True),
        ("IfHealthyBudget", {"currentHealthy": 3}, False),
        ("IfHealthyBudget", {"currentHealthy": 0, "desiredHealthy": 0}, False),
        ("IfHealthyBudget", {"observedGeneration": 1}, True),
        ("AlwaysAllow", {"currentHealthy": 0}, True),
        ("Other", {"currentHealthy": 3}, False),
    ],
)
def test_a_pod_that_is_not_ready_goes_while_the_budget_is_met_without_it(
    policy: str, change: dict[str, Any], goes: bool
) -> None:
    exhausted = FULL | {"disruptionsAllowed": 0} | change
    assert (judged(exhausted, unhealthy=True, policy=policy) is None) is goes
    assert judged(exhausted, policy=policy) is not None


def test_a_second_budget_refuses_whatever_both_allow() -> None:
    both = [budget(FULL), budget(FULL)]
    assert eviction_refusal(pod("p"), both, {}, unhealthy=True) is EvictionRefusal.SEVERAL


def test_an_empty_selector_covers_the_namespace_and_none_covers_nothing() -> None:
    everything, nothing = (
        msgspec.convert({"metadata": {"name": "b", "namespace": "shop"}, "spec": spec}, PodDisruptionBudget)
        for spec in ({"selector": {}}, {})
    )
    outside = pod("x", namespace="other")
    assert covered_pods([everything], [*PODS, outside]).by_budget == {"shop/b": PODS}
    assert covered_pods([nothing], PODS).by_budget == {"shop/b": []}


def test_a_pod_that_is_ending_is_not_healthy() -> None:
    ending = msgspec.structs.replace(
        PODS[0], metadata=msgspec.structs.replace(PODS[0].metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    assert counts_of(budget(minAvailable=3), [ending, *PODS[1:]]).disruptions_allowed == 1


def selecting(name: str, namespace: str = "shop", **selector: Any) -> PodDisruptionBudget:
    metadata = {"name": name, "namespace": namespace}
    return msgspec.convert({"metadata": metadata, "spec": {"selector": selector}}, PodDisruptionBudget)


def test_many_budgets_over_many_pods_cost_a_bounded_number_of_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only budgets with the largest selectors are given up; each of them protects the pods of its namespace."""
    monkeypatch.setattr(pod_disruption_budgets, "MOST_COMPARISONS", 1_000)
    rules = [{"key": f"k{place}", "operator": "DoesNotExist"} for place in range(9)]
    hostile = [selecting(f"h{number}", matchExpressions=rules) for number in range(100)]
    honest = selecting("honest", matchLabels={"app": "db"})
    elsewhere = selecting("elsewhere", "other", matchExpressions=rules)
    there = pod("x", namespace="other")
    found = covered_pods([*hostile, honest, elsewhere], [*PODS, there])
    assert found.by_budget["shop/honest"] == PODS
    assert found.by_budget["other/elsewhere"] == [there]
    assert 70 < len(found.unreadable) < 100
    assert not {"shop/honest", "other/elsewhere"} & found.unreadable.keys()
    assert all(found.by_budget[key] == PODS for key in found.unreadable)
    assert "too many labels" in next(iter(found.unreadable.values()))


def test_budgets_of_one_label_each_cost_no_more_than_the_pods_they_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule: each workload has a budget of its own."""
    pods = [pod(f"p{number}-{place}", labels={"app": f"a{number}"}) for number in range(100) for place in range(3)]
    budgets = [selecting(f"b{number}", matchLabels={"app": f"a{number}"}) for number in range(100)]
    monkeypatch.setattr(pod_disruption_budgets, "MOST_COMPARISONS", 3 * len(pods))
    found = covered_pods(budgets, pods)
    assert found.unreadable == {}
    assert found.by_budget["shop/b7"] == pods[21:24]


@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists", "DoesNotExist"])
@pytest.mark.parametrize("labels", [{}, {"app": "db"}, {"app": "web"}, {"app": "db", "k": "x"}, {"k": "y"}])
def test_a_matcher_matches_like_the_selector(operator: str, labels: dict[str, str]) -> None:
    values = ("x",) if operator in ("In", "NotIn") else ()
    for match_labels in ({}, {"app": "db"}):
        selector = LabelSelector(match_labels, (LabelSelectorRequirement("k", operator, values),))
        assert matcher(selector)(labels) == matches(selector, labels)


def test_an_unknown_operator_makes_one_budget_unreadable_and_protects_its_namespace() -> None:
    odd = selecting("odd", matchExpressions=[{"key": "k", "operator": "Near"}])
    found = covered_pods([odd, budget()], [*PODS, pod("x", namespace="other")])
    assert found.by_budget == {"shop/odd": PODS, "shop/b": PODS}
    assert "Near" in found.unreadable["shop/odd"]

"""Methods of disruption: their order, what each is asked about, and how one more is added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from shiplap.disruption import decide as decisions
from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import Decision, DisruptionProposal, Method, Reason
from shiplap.disruption.decision_progress import DecisionProgress
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.disruption.methods.method import DisruptionMethod
from shiplap.scheduling.model.snapshot import ClusterView, PolicyInput, Snapshot
from tests.builders.pods import pod_on
from tests.builders.pools import pool
from tests.conformance.disruptions import Standing, Verdict, disrupted, large, small

RETIRED = "example.com/retired"


class Retired(DisruptionMethod):
    """Removes nodes with a label whatever is on them; `asked` are the nodes that it was asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def commands(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> Sequence[DisruptionProposal]:
        self.asked = [item.name for item in candidates]
        retired = [item for item in candidates if RETIRED in item.node.metadata.labels]
        allowed = progress.within_budgets(retired, Reason.DRIFTED)
        progress.use_budget(allowed)
        return [
            DisruptionProposal(Reason.DRIFTED, Method.DRIFT, (item.name,), moved=len(item.pods), detail="it is retired")
            for item in allowed
        ]


class BesideBudgets(Retired):
    uses_budgets: ClassVar[bool] = False


class Patient(Retired):
    waits_for: ClassVar[frozenset[Method]] = frozenset({Method.EMPTINESS})


class RemovingPolicy(PolicyInput, DisruptionMethod, frozen=True):
    """The input of an optional feature that removes nodes."""

    recorded_as: ClassVar[str] = "none"

    def commands(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> Sequence[DisruptionProposal]:
        raise NotImplementedError


def decided(monkeypatch: pytest.MonkeyPatch, method: Retired, *nodes: Standing, budget: str = "100%") -> Verdict:
    """With one more method, before those that replace nodes."""
    monkeypatch.setattr(decisions, "AFTER_POLICIES", (method, *decisions.AFTER_POLICIES))
    pods = [pod_on(f"on-{item.node.metadata.name}", item.node.metadata.name, cpu="3") for item in nodes]
    pods = [item for item in pods if item.spec.node_name != "empty"]
    return disrupted(*nodes, pods=pods, pools=[pool(budgets=[{"nodes": budget}])])


def test_the_methods_are_asked_in_this_order() -> None:
    scheduling = Snapshot(cluster="demo", now=0.0, view=ClusterView(), policies=(RemovingPolicy(),))
    asked = [type(method).__name__ for method in decisions.methods_of(DisruptionSnapshot(scheduling=scheduling))]
    assert asked == [
        "ScaleDown",
        "Emptiness",
        "RemovingPolicy",
        "Replacement",
        "TerminateFirst",
        "Underutilization",
        "ClimbBack",
        "ZoneRebalance",
    ]


def test_a_new_reason_is_one_method_and_one_place_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    method = Retired()
    verdict = decided(monkeypatch, method, small("a", labels={RETIRED: "yes"}), small("b"), large("empty"))
    assert [(command.method, command.nodes) for command in verdict.decision.commands] == [
        (Method.EMPTINESS, ("empty",)),
        (Method.DRIFT, ("a",)),
    ]
    assert method.asked == ["a", "b"], "the empty node went before"


@pytest.mark.parametrize(("method", "others"), [(Retired(), "; 1 goes now"), (BesideBudgets(), "")])
def test_a_method_shares_the_budgets_unless_it_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, method: Retired, others: str
) -> None:
    nodes = [small(name, labels={RETIRED: "yes"}) for name in ("a", "b")]
    verdict = decided(monkeypatch, method, *nodes, budget="1")
    assert [command.nodes for command in verdict.decision.commands] == [("a",)]
    words = "no allowed disruptions for Drifted: budgets[0] of NodePool default allows 1 of 2 nodes at a time"
    assert verdict.blocked("b") == words + others


@pytest.mark.parametrize("empty", [True, False])
def test_a_method_waits_while_one_that_it_names_has_commands(monkeypatch: pytest.MonkeyPatch, *, empty: bool) -> None:
    method = Patient()
    nodes = [small("a", labels={RETIRED: "yes"}), *([large("empty")] if empty else [])]
    decision: Decision = decided(monkeypatch, method, *nodes).decision
    assert method.asked == ([] if empty else ["a"])
    assert [command.method for command in decision.commands] == [Method.EMPTINESS if empty else Method.DRIFT]

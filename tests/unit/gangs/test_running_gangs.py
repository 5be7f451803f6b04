"""Gangs that run: their nodes are not removed for money, drift or age while a gang would be torn."""

from __future__ import annotations

from shiplap.kubernetes.objects import Pod
from shiplap.policies.gangs.gang import KnownGangs, PodGroupFacts
from shiplap.policies.gangs.gang_input import GangInput
from shiplap.policies.gangs.running_gangs import torn_without
from shiplap.scheduling.model.snapshot import ClusterView
from tests.builders.pods import pod
from tests.conformance.disruptions import BOTH, Verdict, disrupted, large, small

GROUP = {"kueue.x-k8s.io/pod-group-name": "train"}


def member(name: str, node: str, minimum: int = 2, **fields: object) -> Pod:
    total = {"kueue.x-k8s.io/pod-group-total-count": str(minimum)}
    return pod(name, "1", node=node, labels=GROUP, annotations=total, **fields)


def kept(*pods: Pod, known: KnownGangs | None = None, leaving: frozenset[str] = frozenset()) -> set[str]:
    return set(torn_without(ClusterView(pods), known or KnownGangs(), leaving))


def decided(*pods: Pod, gangs: bool = True) -> Verdict:
    policies = (GangInput(KnownGangs()),) if gangs else ()
    return disrupted(large("a"), large("b"), small("c"), pods=pods, types=BOTH, policies=policies)


def test_nodes_of_a_gang_are_not_consolidated() -> None:
    pods = (member("m-0", "a"), member("m-1", "b"), pod("web", "1", node="c"))
    assert decided(*pods, gangs=False).removed
    verdict = decided(*pods)
    assert not verdict.removed & {"a", "b"}
    assert "runs members of gang default/train, which needs 2 together" in verdict.blocked("a")


def test_a_gang_on_one_node_may_move_with_it() -> None:
    assert kept(member("m-0", "a"), member("m-1", "a")) == set()


def test_members_above_the_minimum_may_move_one_after_the_other() -> None:
    four = [member(f"m-{number}", f"n{number}", 3) for number in range(4)]
    assert kept(*four) == {"n1", "n2", "n3"}
    assert kept(*four, leaving=frozenset({"n0"})) == {"n1", "n2", "n3"}
    assert kept(*four, leaving=frozenset({"n3"})) == {"n0", "n1", "n2"}


def test_what_has_ended_or_is_no_gang_keeps_no_node() -> None:
    assert kept(member("m-0", "a", phase="Succeeded"), member("m-1", "b", phase="Failed")) == set()
    assert kept(member("m-0", "a", 1), member("m-1", "b", 1)) == set()
    assert kept(pod("p", node="a"), pod("q", node="b")) == set()


def test_a_pod_group_says_how_many_run_together() -> None:
    pods = [pod(f"p-{node}", node=node, labels={"scheduling.x-k8s.io/pod-group": "g"}) for node in "ab"]
    assert kept(*pods) == set()
    facts = PodGroupFacts("scheduling.x-k8s.io", "default", "g", 2)
    assert kept(*pods, known=KnownGangs(pod_groups=(facts,))) == {"a", "b"}


def test_two_gangs_on_a_node_both_keep_it() -> None:
    other = {"kueue.x-k8s.io/pod-group-name": "other"}
    two = {"kueue.x-k8s.io/pod-group-total-count": "1"}
    pods = (member("m-0", "a"), member("m-1", "b"), pod("o", node="a", labels=other, annotations=two))
    assert kept(*pods) == {"a", "b"}

"""Nodes leave for sleep when all of their pods sleep and nothing protects them; pods that sleep wait."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given as generated
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.disruption.commands import Decision, Reason
from shiplap.disruption.decide import decide
from shiplap.disruption.disruption_snapshot import DisruptionSettings, DisruptionSnapshot, NodeHistory
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.policies.sleep.sleep_input import SleepInput
from shiplap.policies.sleep.sleep_objections import objection_to_sleep
from shiplap.policies.sleep.sleep_state import NAMESPACE, SleepState
from shiplap.policies.sleep.sleep_windows import LEAST_SLEEP_S
from shiplap.records import disruption_record
from shiplap.records.disruption_record import DisruptionRecord
from shiplap.records.scheduling_record import SchedulingRecord, encode, unpacked
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.pods import pod_on
from tests.builders.pools import pool
from tests.conformance.catalogues import fake_type
from tests.conformance.disruptions import BOTH, NOW, ON_DEMAND, disrupted, holds_until, large, pdb, small
from tests.conformance.sleep_cases import LATER, owned, scope, state

QUIET = DisruptionSettings(spot_to_spot=False)
KEEPS = pool("default", ON_DEMAND, after="Never")


def test_nodes_leave_together_when_all_their_pods_sleep() -> None:
    verdict = disrupted(
        small("a"),
        large("b"),
        pods=[owned("p", "a"), owned("q", "b")],
        pools=[KEEPS],
        types=BOTH,
        policies=(SleepInput(state()),),
    )

    assert verdict.command.nodes == ("a", "b")
    assert verdict.command.reason is Reason.ASLEEP
    assert verdict.command.replacements == ()
    assert verdict.command.savings_hourly == 5.0
    assert verdict.command.detail == "all their pods sleep, until 2027-01-15T17:00:00Z at least"


def test_the_first_scope_to_wake_says_until_when_and_rehearsals_do_not() -> None:
    first, rehearsed = scope("ci", "Namespace"), scope("other", rehearsal=True)
    asleep = state(scope(), replace(first, until=LATER - 3600), replace(rehearsed, until=LATER - 7200))
    verdict = disrupted(small("a"), pods=[owned("p", "a")], pools=[KEEPS], types=BOTH, policies=(SleepInput(asleep),))
    assert verdict.command.detail == "all their pods sleep, until 2027-01-15T16:00:00Z at least"


def test_what_sleep_saves_is_said_in_millionths_of_a_dollar() -> None:
    odd = fake_type("small", cpu="4", memory="8Gi", pods="20", price=0.12345678)
    verdict = disrupted(small("a"), pods=[owned("p", "a")], pools=[KEEPS], types=[odd], policies=(SleepInput(state()),))
    assert verdict.command.savings_hourly == 0.123457


@pytest.mark.parametrize(("undone", "removed"), [(0, {"a"}), (1, set())])
def test_a_node_whose_command_was_given_up_just_now_is_not_tried_again(undone: int, removed: set[str]) -> None:
    known = NodeHistory("a", undone_at=NOW - 60, undone=undone)
    verdict = disrupted(
        small("a"),
        pods=[owned("p", "a")],
        pools=[KEEPS],
        types=BOTH,
        policies=(SleepInput(state()),),
        histories=[known],
    )
    assert verdict.removed == removed


def test_nodes_that_sleep_use_up_budgets_and_take_no_pods() -> None:
    """One that has to wait for its turn sleeps, too: it takes none of those that move."""
    pools = [pool("default", ON_DEMAND, after="Never", budgets=({"nodes": "2"},), expire_after="1h")]
    nodes = (small("a"), small("b"), small("c"))
    pods = [owned("p", "a", cpu="3"), pod_on("q", "b", cpu="3"), pod_on("r", "c", cpu="3")]
    verdict = disrupted(*nodes, pods=pods, pools=pools, types=BOTH, policies=(SleepInput(state()),))
    assert verdict.removed == {"a", "b"}
    pools = [
        pool("default", ON_DEMAND, after="Never", budgets=({"nodes": "1", "reasons": ["Asleep"]},), expire_after="1h")
    ]
    pods = [owned("p", "a", cpu="1"), owned("q", "b", cpu="1"), pod_on("r", "c", cpu="1")]
    verdict = disrupted(*nodes, pods=pods, pools=pools, types=BOTH, policies=(SleepInput(state()),))
    assert verdict.removed == {"a", "c"}
    assert [len(command.replacements) for command in verdict.commands] == [0, 1]


def test_without_sleep_nothing_changes() -> None:
    for sleep in (None, SleepState(("default",)), state(scope("other"))):
        verdict = disrupted(
            small("a"), pods=[owned("p", "a")], pools=[KEEPS], types=BOTH, policies=[SleepInput(sleep)] if sleep else []
        )
        assert verdict.commands == ()
        assert b"rehearsed" not in msgspec.json.encode(verdict.decision)
        assert b"keptAwake" not in msgspec.json.encode(verdict.decision)


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (owned("p", "a", priority=2_000_000_000), "is system-critical"),
        (pod_on("p", "a"), "has no controller"),
        (owned("p", "a", metadata={"annotations": {labels.DO_NOT_DISRUPT: "true"}}), labels.DO_NOT_DISRUPT),
        (owned("p", "a", selector={"team": "x"}), "is taken by no NodePool"),
    ],
)
def test_one_pod_that_stays_keeps_its_node_and_says_why(item: Pod, why: str) -> None:
    verdict = disrupted(
        small("a"), pods=[item, owned("q", "a")], pools=[KEEPS], types=BOTH, policies=(SleepInput(state()),)
    )

    assert verdict.commands == ()
    assert verdict.blocked("a").startswith("does not sleep: ")
    assert why in verdict.blocked("a")
    assert verdict.decision.kept_awake == ("a",)


def test_pods_of_the_node_itself_do_not_keep_it() -> None:
    daemon = pod_on("d", "a", owner="DaemonSet")
    ended = owned("e", "a", status={"phase": "Succeeded"})

    verdict = disrupted(
        small("a"), pods=[daemon, ended, owned("p", "a")], pools=[KEEPS], types=BOTH, policies=(SleepInput(state()),)
    )

    assert verdict.removed == {"a"}


def test_a_pod_that_an_awake_pool_would_take_keeps_its_node() -> None:
    pools = [KEEPS, pool("other", ON_DEMAND)]

    verdict = disrupted(small("a"), pods=[owned("p", "a")], pools=pools, types=BOTH, policies=(SleepInput(state()),))

    assert verdict.commands == ()
    assert "could run on NodePool other, which is awake" in verdict.blocked("a")


def test_a_sleeping_namespace_empties_only_armed_nodes_that_hold_nothing_else() -> None:
    ci = {"namespace": "ci"}
    pods = [
        owned("p", "a", metadata=ci),
        owned("q", "b", metadata=ci),
        owned("r", "b"),
        owned("s", "c", metadata=ci),
        owned("t", "d"),
    ]
    pools = [KEEPS, pool("prod", ON_DEMAND, after="Never")]
    nodes = (small("a"), small("b"), small("c", pool="prod"), small("d"))

    verdict = disrupted(
        *nodes, pods=pods, pools=pools, types=BOTH, policies=(SleepInput(state(scope("ci", "Namespace"))),)
    )

    assert verdict.removed == {"a"}
    assert verdict.decision.kept_awake == ("b",)


def test_dearer_nodes_that_do_not_sleep_keep_no_cheaper_one_awake() -> None:
    """Neither one of a pool that is not armed, nor one whose pods do not sleep."""
    ci = {"namespace": "ci"}
    pods = [owned("p", "a", metadata=ci), owned("q", "b", metadata=ci), owned("r", "c")]
    pools = [KEEPS, pool("prod", ON_DEMAND, after="Never")]
    nodes = (small("a"), large("b", pool="prod"), large("c"))

    verdict = disrupted(
        *nodes, pods=pods, pools=pools, types=BOTH, policies=(SleepInput(state(scope("ci", "Namespace"))),)
    )

    assert verdict.removed == {"a"}


def test_a_rehearsal_names_nodes_and_takes_none() -> None:
    asleep = state(scope(rehearsal=True))

    verdict = disrupted(small("a"), pods=[owned("p", "a")], pools=[KEEPS], types=BOTH, policies=(SleepInput(asleep),))

    assert verdict.commands == ()
    assert verdict.decision.rehearsed == ("a",)


def test_no_more_nodes_leave_than_are_left_and_the_dearest_first() -> None:
    nodes = (small("a"), small("b"), large("c"))
    pods = [owned(name, name) for name in "abc"]

    verdict = disrupted(*nodes, pods=pods, pools=[KEEPS], types=BOTH, policies=(SleepInput(state(left=2)),))

    assert verdict.removed == {"a", "c"}
    assert "most nodes that shiplap.yaml allows" in verdict.blocked("b")


def test_budgets_of_the_pool_hold_and_others_of_it_are_not_replaced_meanwhile() -> None:
    bounded = pool("default", ON_DEMAND, budgets=({"nodes": "1"},), expire_after="1h")

    verdict = disrupted(
        small("a"),
        small("b"),
        pods=[owned("p", "a"), owned("q", "b")],
        pools=[bounded],
        types=BOTH,
        policies=(SleepInput(state()),),
    )

    assert verdict.command.reason is Reason.ASLEEP
    assert verdict.removed == {"a"}
    assert "no allowed disruptions for Asleep" in verdict.blocked("b")
    named = pool("default", ON_DEMAND, budgets=({"nodes": "0", "reasons": ["Empty", "Drifted", "Underutilized"]},))
    free = disrupted(small("a"), pods=[owned("p", "a")], pools=[named], types=BOTH, policies=(SleepInput(state()),))
    assert free.removed == {"a"}


def test_pod_disruption_budgets_are_not_used_up_beyond_what_they_allow() -> None:
    web = {"labels": {"app": "web"}}
    pods = [owned(f"p{place}", "abc"[place // 2], metadata=web) for place in range(6)]

    verdict = disrupted(
        *map(small, "abc"),
        pods=pods,
        pools=[KEEPS],
        types=BOTH,
        budgets=[pdb("web", 3, app="web")],
        policies=(SleepInput(state()),),
    )

    assert verdict.removed == {"a"}
    assert verdict.blocked("b") == "does not sleep: pdb default/web lets 1 more pods go, and 2 of the node's sleep"


@pytest.mark.parametrize(("policy", "leaves"), [("AlwaysAllow", True), ("IfHealthyBudget", False)])
def test_an_unready_pod_keeps_its_node_unless_the_budget_always_lets_it_go(*, policy: str, leaves: bool) -> None:
    web = pdb("web", 0, app="web")
    budget = replace(web, spec=replace(web.spec, unhealthy_pod_eviction_policy=policy))
    unready = {"conditions": [{"type": "Ready", "status": "False"}]}
    item = owned("p", "a", metadata={"labels": {"app": "web"}}, status=unready)

    verdict = disrupted(
        small("a"), pods=[item], pools=[KEEPS], types=BOTH, budgets=[budget], policies=(SleepInput(state()),)
    )

    assert verdict.removed == ({"a"} if leaves else set())


def test_pods_of_nodes_on_their_way_out_count_against_their_budget() -> None:
    web = {"labels": {"app": "web"}}
    pods = [owned("p", "a", metadata=web), owned("q", "b", metadata=web)]

    verdict = disrupted(
        small("a", state=ClaimState.DRAINING),
        small("b"),
        pods=pods,
        pools=[KEEPS],
        types=BOTH,
        budgets=[pdb("web", 1, app="web")],
        policies=(SleepInput(state()),),
    )

    assert verdict.commands == ()


def test_no_node_leaves_for_a_short_sleep() -> None:
    soon = state(scope(wakes_at=int(NOW + LEAST_SLEEP_S) - 1))
    long = state(scope(wakes_at=int(NOW + LEAST_SLEEP_S)))

    assert (
        disrupted(small("a"), pods=[owned("p", "a")], pools=[KEEPS], types=BOTH, policies=(SleepInput(soon),)).commands
        == ()
    )
    assert disrupted(
        small("a"), pods=[owned("p", "a")], pools=[KEEPS], types=BOTH, policies=(SleepInput(long),)
    ).removed == {"a"}


# Pods


def snapshot(*pods: Pod, sleep: SleepState | None = None, pools: Any = None, **fields: Any) -> Snapshot:
    return Snapshot(
        cluster="test",
        now=NOW,
        view=ClusterView(pods, **{"nodes": (), **fields}),
        manifests=Manifests(node_pools=tuple(pools or [pool("default", ON_DEMAND)])),
        catalogs=(NodeClassCatalog("default", BOTH),),
        policies=() if sleep is None else (SleepInput(sleep),),
    )


def test_pods_that_sleep_wait_with_a_reason_and_critical_ones_do_not() -> None:
    decided = plan(snapshot(owned("p"), owned("q", priority=2_000_000_000), sleep=state()))

    assert [pod_on.name for claim in decided.node_claims for pod_on in claim.pods] == ["q"]
    (waiting,) = decided.unschedulable
    assert (waiting.pod.name, waiting.message) == ("p", "sleeps: NodePool default sleeps until 2027-01-15T17:00:00Z")
    assert plan(snapshot(owned("p"), sleep=state(scope(rehearsal=True)))).unschedulable == ()


def test_pods_that_an_awake_pool_takes_are_planned_as_ever() -> None:
    pools = [pool("default", ON_DEMAND), pool("other", ON_DEMAND)]

    assert plan(snapshot(owned("p"), sleep=state(), pools=pools)) == plan(snapshot(owned("p"), pools=pools))


def test_no_node_is_launched_for_sleeping_pods_of_a_node_on_its_way_out() -> None:
    going = small("a", state=ClaimState.DRAINING)
    assert going.claim is not None
    world = replace(snapshot(owned("p", "a"), nodes=(going.node,)), claims=(going.claim,))

    assert len(plan(world).node_claims) == 1
    asleep = plan(replace(world, policies=(SleepInput(state()),)))
    assert asleep.node_claims == ()
    assert asleep.unschedulable == ()  # it still runs


def test_decisions_of_sleep_replay() -> None:
    world = snapshot(owned("p"), sleep=state())
    record = unpacked(__import__("zlib").decompress(encode(SchedulingRecord(world, plan(world)))))
    assert record.snapshot == world
    assert plan(record.snapshot) == record.plan

    node = small("a")
    assert node.claim is not None
    full = replace(snapshot(owned("p", "a"), nodes=(node.node,), sleep=state(), pools=[KEEPS]), claims=(node.claim,))
    looked_at = DisruptionSnapshot(scheduling=full)
    document = disruption_record.encode(DisruptionRecord(looked_at, decide(looked_at)))
    again = disruption_record.read(document, "it")
    assert isinstance(again.record, DisruptionRecord)
    assert disruption_record.decided_again(again.record) == again.written
    assert again.record.decision.commands[0].reason is Reason.ASLEEP


def test_a_decision_is_not_reused_past_the_last_moment_to_leave() -> None:
    looked_at = DisruptionSnapshot(scheduling=snapshot(sleep=state(scope(wakes_at=int(NOW + LEAST_SLEEP_S) + 30))))

    assert holds_until(looked_at) == pytest.approx(NOW + 30, abs=0.01)


def test_what_is_objected_to_once_a_node_is_closed() -> None:
    pools = [KEEPS]

    assert objection_to_sleep(state(), "default", [owned("p", "a")], pools) == ""
    assert objection_to_sleep(state(), "default", [], pools) == ""
    assert "may sleep here" in objection_to_sleep(None, "default", [owned("p", "a")], pools)
    assert "may sleep here" in objection_to_sleep(state(armed=()), "default", [], pools)
    assert "of no namespace that sleeps" in objection_to_sleep(
        SleepState(("default",)), "default", [owned("p", "a")], pools
    )
    assert "is awake again" in objection_to_sleep(SleepState(("default",)), "default", [], pools)
    assert "no controller" in objection_to_sleep(state(), "default", [pod_on("p", "a")], pools)


def test_another_node_pool_that_sleeps_is_no_reason_to_empty_a_node() -> None:
    """Each NodePool answers for itself: one that is not armed keeps its nodes, and so does one that is awake again."""
    pools = [KEEPS, pool("ci", ON_DEMAND)]
    of_ci = state(scope("ci"), armed=("ci",))
    assert "may sleep here" in objection_to_sleep(of_ci, "default", [], pools)
    both = state(scope("ci"), armed=("ci", "default"))
    assert "NodePool default is awake again" in objection_to_sleep(both, "default", [], pools)
    assert objection_to_sleep(both, "ci", [], pools) == ""
    assert objection_to_sleep(both, "default", [], pools, has_begun=True) == "", "pods that slept may have left it"


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet"])
def test_a_pod_that_ends_anyway_keeps_no_node_awake(kind: str) -> None:
    """That of a StatefulSet is made anew under its name; nothing evicts it either."""
    owner = {"ownerReferences": [{"kind": kind, "name": "r", "uid": "r", "controller": True}]}
    ending = pod_on("p", "a", metadata={**owner, "deletionTimestamp": "2030-01-01T00:00:00Z"})
    awake = SleepState(("default",), (scope("ci", NAMESPACE),), 100)
    kept = objection_to_sleep(awake, "default", [pod_on("q", "a", metadata=owner)], [KEEPS], has_begun=True)
    assert "of no namespace that sleeps" in kept
    assert objection_to_sleep(awake, "default", [ending], [KEEPS], has_begun=True) == ""


def test_a_pod_of_a_daemon_set_ends_no_drain_though_another_pool_would_take_it() -> None:
    owner = {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]}

    assert (
        objection_to_sleep(
            state(), "default", [pod_on("d", "a", metadata=owner)], [KEEPS, pool("other")], has_begun=True
        )
        == ""
    )


def test_a_node_whose_pods_have_gone_goes_on_leaving_while_anything_sleeps() -> None:
    asleep = SleepState(("default",), (scope("ci", NAMESPACE),))

    assert "is awake again" in objection_to_sleep(asleep, "default", [], [KEEPS])
    assert objection_to_sleep(asleep, "default", [], [KEEPS], has_begun=True) == ""
    assert "nothing sleeps" in objection_to_sleep(SleepState(("default",)), "default", [], [KEEPS], has_begun=True)


KINDS = ("sleeps", "prod", "critical", "bare", "daemon")


@generated(
    nodes=st.lists(st.lists(st.sampled_from(KINDS), max_size=4), min_size=1, max_size=6),
    left=st.integers(0, 6),
    whole=st.booleans(),
)
def test_no_pod_outside_the_sleeping_scope_is_ever_on_a_node_that_leaves_for_sleep(
    nodes: list[list[str]], left: int, whole: bool
) -> None:
    pods = []
    for place, kinds in enumerate(nodes):
        for number, kind in enumerate(kinds):
            fields: dict[str, Any] = {"metadata": {"namespace": "ci" if kind == "sleeps" else "web"}, "cpu": "100m"}
            if kind == "critical":
                fields["priority"] = 2_000_000_000
            name, node = f"{kind}-{place}-{number}", f"n{place}"
            if kind == "daemon":
                pods.append(pod_on(name, node, owner="DaemonSet", cpu="100m"))
            else:
                pods.append(pod_on(name, node, **fields) if kind == "bare" else owned(name, node, **fields))
    scopes = [scope("ci", "Namespace")] + ([scope()] if whole else [])
    asleep = {"sleeps", "daemon"} | ({"prod"} if whole else set())

    decision: Decision = disrupted(
        *(small(f"n{place}") for place in range(len(nodes))),
        pods=pods,
        pools=[KEEPS],
        types=BOTH,
        policies=(SleepInput(state(*scopes, left=left)),),
    ).decision

    gone = {node for command in decision.commands if command.reason is Reason.ASLEEP for node in command.nodes}
    assert len(gone) <= left
    for node in gone:
        assert set(nodes[int(node[1:])]) <= asleep


def test_nodes_that_no_budget_lets_sleep_use_up_nothing_that_nodes_of_other_pools_need() -> None:
    closed = pool("closed", ON_DEMAND, after="Never", budgets=[{"nodes": "0"}])
    open_pool = pool("open", ON_DEMAND, after="Never")
    asleep = state(scope("closed"), scope("open"), armed=("closed", "open"), left=1)
    verdict = disrupted(
        large("a", pool="closed"),
        small("b", pool="open"),
        pods=[owned("p", "a"), owned("q", "b")],
        pools=[closed, open_pool],
        types=BOTH,
        policies=(SleepInput(asleep),),
    )
    assert verdict.removed == {"b"}
    assert "no allowed disruptions for Asleep" in verdict.blocked("a")


def test_a_node_that_leaves_for_one_scope_is_not_rehearsed_for_another() -> None:
    asleep = state(scope(), scope("ci", "Namespace", rehearsal=True))
    held = replace(owned("p", "a"), metadata=replace(owned("p", "a").metadata, namespace="ci"))

    verdict = disrupted(small("a"), pods=[held], pools=[KEEPS], types=BOTH, policies=(SleepInput(asleep),))

    assert verdict.removed == {"a"}
    assert not verdict.decision.rehearsed

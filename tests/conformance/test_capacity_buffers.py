"""CapacityBuffers: room for pods that do not exist, which real pods may take at any time."""

from __future__ import annotations

from typing import Any

import msgspec

from shiplap.disruption.commands import Reason
from shiplap.disruption.rescheduling import Simulator, kept_by_buffers
from shiplap.kubernetes.related_objects import Scalable
from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap_cli.accounts.claim_account import ClaimAccounts
from tests.builders.buffers import buffer, template
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool
from tests.builders.pools import pool as pool_of_nodes
from tests.conformance.catalogues import fake_type
from tests.conformance.disruptions import BOTH, Verdict, disrupted, small
from tests.conformance.given import claim_volumes, given, in_flight

TYPES = [fake_type("four", cpu="4", memory="8Gi", pods="50", price=1.0)]


def deployment(replicas: int) -> Scalable:
    body = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    return msgspec.convert(
        {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": replicas, "template": {"spec": body}}},
        Scalable,
    )


def state(plan: Any) -> tuple[int, int, int, int]:
    (found,) = plan.plan.buffers
    return (found.replicas, found.existing, found.new, found.missing)


def test_missing_room_is_launched_and_its_pods_are_marked() -> None:
    plan = given(types=TYPES, buffers=[buffer(replicas=3)], templates=[template()])
    assert plan.claim.pods == ()
    assert [entry.name for entry in plan.claim.virtual_pods] == ["spare-00000", "spare-00001", "spare-00002"]
    assert plan.claim.requests["cpu"] == 3000
    assert state(plan) == (3, 0, 3, 0)


def test_a_claim_is_accounted_for_with_the_room_it_keeps() -> None:
    types = [fake_type("two", cpu="2", memory="8Gi", pods="50", price=0.5), *TYPES]
    plan = given(pod(cpu="1"), types=types, buffers=[buffer(replicas=2)], templates=[template()])
    account = ClaimAccounts(compile_snapshot(plan.snapshot)).of(plan.claim)
    assert account.types == "of 2 types 2 meet the requirements, 1 of them hold the pods (four)"
    (cheaper,) = account.cheaper
    assert "two at $0.5000/h: cpu short by 1" in cheaper


def test_free_room_on_nodes_counts_and_nothing_is_nominated() -> None:
    nodes = [node(cpu="2")]
    plan = given(types=TYPES, nodes=nodes, buffers=[buffer(replicas=3)], templates=[template()])
    assert plan.plan.existing_nodes == ()
    assert state(plan) == (3, 2, 1, 0)
    assert plan.plan.buffers[0].nodes == ("node",)
    assert len(plan.claims) == 1
    claims = [in_flight(claim) for claim in plan.claims]
    again = given(types=TYPES, nodes=nodes, claims=claims, buffers=[buffer(replicas=3)], templates=[template()])
    assert not again.claims
    assert state(again) == (3, 3, 0, 0)


def test_real_pods_come_first_and_take_the_room() -> None:
    nodes = [node(cpu="2")]
    plan = given(*pods(2, cpu="1"), types=TYPES, nodes=nodes, buffers=[buffer(replicas=2)], templates=[template()])
    assert [entry.name for entry in plan.plan.existing_nodes[0].pods] == ["pod-0", "pod-1"]
    assert state(plan) == (2, 0, 2, 0)


def test_buffers_never_displace_real_pods_at_a_limit() -> None:
    limited = pool(limits={"cpu": "4"})
    big = template(cpu="3900m")
    plan = given(pod(cpu="1"), pools=[limited], types=TYPES, buffers=[buffer(replicas=1)], templates=[big])
    assert plan.home("pod") == plan.claim.name
    assert plan.claim.virtual_pods == ()
    assert state(plan) == (1, 0, 0, 1)
    assert plan.plan.unschedulable == ()
    assert "no room" in plan.plan.buffers[0].reason


def test_a_share_of_a_workload_is_rounded_up_and_the_larger_of_both_counts() -> None:
    reference = {"scalableRef": {"kind": "Deployment", "name": "web"}}
    for replicas, spec, expected in (
        (5, {"percentage": 50}, 3),
        (0, {"percentage": 10}, 1),
        (5, {"percentage": 20, "replicas": 3}, 3),
        (9, {"percentage": 50, "replicas": 3}, 5),
        (9, {"percentage": 50, "limits": {"cpu": "2500m"}}, 2),
    ):
        made = buffer(**reference, **spec)
        assert state(given(types=TYPES, buffers=[made], scalables=[deployment(replicas)]))[0] == expected


def test_limits_alone_say_how_many() -> None:
    assert state(given(types=TYPES, buffers=[buffer(limits={"cpu": "2"})], templates=[template()]))[0] == 2
    endless = given(types=TYPES, buffers=[buffer(limits={"memory": "2Gi"})], templates=[template()])
    assert "hold any number" in endless.plan.buffers[0].reason


def test_what_a_buffer_points_at_must_be_there() -> None:
    plan = given(types=TYPES, buffers=[buffer(replicas=1)])
    assert plan.plan.buffers[0].reason == "PodTemplate small not found"
    made = buffer(scalableRef={"kind": "Deployment", "name": "web"}, replicas=1)
    assert given(types=TYPES, buffers=[made]).plan.buffers[0].reason == "Deployment web not found"


def test_volumes_with_claims_are_left_out_and_placement_is_kept() -> None:
    wanting = template(**claim_volumes("data"), nodeSelector={"kubernetes.io/arch": "arm64"})
    types = [*TYPES, fake_type("arm", cpu="4", memory="8Gi", arch="arm64", price=9.0)]
    plan = given(types=types, buffers=[buffer(replicas=1)], templates=[wanting])
    assert plan.claim.instance_types == ("arm",)
    impossible = template(nodeSelector={"kubernetes.io/hostname": "there"})
    plan = given(types=types, buffers=[buffer(replicas=1)], templates=[impossible])
    assert "restricted" in plan.plan.buffers[0].reason


def test_real_and_virtual_pods_share_a_new_node() -> None:
    plan = given(pod(cpu="1"), types=TYPES, buffers=[buffer(replicas=2)], templates=[template()])
    assert [entry.name for entry in plan.claim.pods] == ["pod"]
    assert len(plan.claim.virtual_pods) == 2
    assert plan.plan.stats.pods == 1


def test_nodes_that_hold_a_buffer_are_in_use_to_disruption() -> None:
    plan = given(
        types=TYPES,
        nodes=[node("held", cpu="2"), node("free", cpu="2")],
        buffers=[buffer(replicas=2)],
        templates=[template()],
    )
    (state_of_it,) = plan.plan.buffers
    assert len(state_of_it.nodes) == 1
    assert Simulator(plan.snapshot, ()).buffered == frozenset(state_of_it.nodes)


def test_pods_are_not_moved_into_the_room_of_a_buffer() -> None:
    """Else each move would have a node launched for the buffer."""
    used, spare = node("used", cpu="2"), node("spare", cpu="2")
    bound = pod(cpu="1.5", node="used")
    plan = given(bound, types=TYPES, nodes=[used, spare], buffers=[buffer(replicas=2)], templates=[template()])
    (state_of_it,) = plan.plan.buffers
    assert (state_of_it.nodes, state_of_it.held) == (("spare",), (2,))

    moved = Simulator(plan.snapshot, ()).without(["used"])

    assert moved.received == {}
    assert len(moved.claims) == 1
    assert moved.claims[0].virtual_pods == ()


def test_room_on_nodes_that_are_not_there_yet_holds_no_pods_in_place() -> None:
    """Half of the buffer is on a Node, the other half on a claim whose Node has not joined."""
    nodes, buffers, templates = [node(cpu="2")], [buffer(replicas=3)], [template()]
    first = given(types=TYPES, nodes=nodes, buffers=buffers, templates=templates)
    claims = [in_flight(claim) for claim in first.claims]
    plan = given(types=TYPES, nodes=nodes, claims=claims, buffers=buffers, templates=templates)
    assert len(plan.plan.buffers[0].nodes) == 2
    kept = kept_by_buffers(plan.snapshot, plan.plan, {"node"})
    assert [entry.spec.node_name for entry in kept] == ["node", "node"]


def test_each_node_keeps_as_many_pods_as_it_has_room_for() -> None:
    nodes = [node(name, cpu=cpu) for name, cpu in (("a", "2"), ("b", "1"), ("c", "1"))]
    plan = given(types=TYPES, nodes=nodes, buffers=[buffer(replicas=4)], templates=[template()])
    kept = kept_by_buffers(plan.snapshot, plan.plan, {"a", "b", "c"})
    assert sorted(entry.spec.node_name for entry in kept) == ["a", "a", "b", "c"]
    assert len({entry.key for entry in kept}) == 4


class TestNodesOfBuffers:
    def verdict(self, pool: NodePool) -> Verdict:
        """Of a node whose only use is the room that it keeps."""
        return disrupted(small("spare"), pools=[pool], types=BOTH, buffers=[buffer(replicas=2)], templates=[template()])

    def test_they_are_not_empty(self) -> None:
        verdict = self.verdict(pool_of_nodes())
        assert verdict.commands == ()
        assert verdict.blocked("spare") == "keeps room for a CapacityBuffer"

    def test_they_expire_like_any_other(self) -> None:
        command = self.verdict(pool_of_nodes(expire_after="1h")).command
        assert (command.reason, command.nodes) == (Reason.EXPIRED, ("spare",))

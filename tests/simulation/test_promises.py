"""What a checker tells of, and what it does not: each promise that counts something, at its bound and one beyond."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.progress import CommandState, DisruptionCommand
from shiplap.kubernetes.objects import Node, NodeStatus, ObjectMeta, Pod
from shiplap.kubernetes.quantity import CPU
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.ports import Instance
from shiplap_lab.checks.invariants import InvariantChecker
from shiplap_lab.scenarios.scenario import PodGroup, load
from shiplap_lab.scenarios.workload import pods_of_step
from tests.node_claims import node_claim, with_fields

POD = PodReference("default", "web-1", "uid-1")
CORES = {"m7i-flex.large": 2000, "m7i-flex.2xlarge": 8000}
WAY = (ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED)


class Play:
    """What happens before the eyes of a checker of the pools `flex` (24 CPUs, two nodes disrupted at once) and `spot`
    (half of its nodes at once)."""

    def __init__(self, *, steered: bool = True) -> None:
        self.now = 0.0
        self.on_node: dict[str, list[str]] = {}
        self.checker = InvariantChecker(
            load("mixed").manifests,
            now=lambda: self.now,
            price=lambda _: 0.1,
            capacity=lambda claim: {CPU: CORES[claim.known_instance.type]},
            most_nodes_per_pod=2,
            steered=steered,
            found=lambda: None,
        )
        self.checker.pods_of = self._pods_of

    def _pods_of(self, claim: NodeClaim) -> Sequence[Pod]:
        return [Pod(metadata=ObjectMeta(name=uid, uid=uid)) for uid in self.on_node.get(claim.name, ())]

    @property
    def told(self) -> list[str]:
        return [item.promise for item in self.checker.violations]

    def node(
        self,
        name: str,
        *,
        pods: tuple[PodReference, ...] = (),
        size: str = "m7i-flex.large",
        until: ClaimState = ClaimState.INITIALIZED,
        owner: str = "schedule-1",
        pool: str = "flex",
    ) -> NodeClaim:
        """A claim on its way up to a state."""
        claim = node_claim(
            cluster="demo", name=name, node_pool=pool, node_class="default", pods=pods, owner=owner, token=name
        )
        for state in WAY[: WAY.index(until) + 1]:
            if state is ClaimState.LAUNCHED:
                at = Instance(f"i-{name}", size, "eu-west-1a", "on-demand", "ami-1", "running", launched_at=self.now)
                self.checker.instances[at.id] = at
                claim = with_fields(claim, instance_id=at.id, instance_type=size, hourly=0.1)
            named = f"node-{name}" if state in (ClaimState.REGISTERED, ClaimState.INITIALIZED) else ""
            claim = replace(claim, state=state, node_name=named)
            self.checker.claim_written(claim)
        return claim

    def leave(self, claim: NodeClaim, failure: str) -> NodeClaim:
        gone = replace(claim, state=ClaimState.DRAINING, failure=failure)
        self.checker.claim_written(gone)
        return gone

    def command(self, name: str, targets: Sequence[str], replacements: Sequence[str] = ()) -> DisruptionCommand:
        command = DisruptionCommand(
            cluster="demo",
            name=name,
            reason=Reason.UNDERUTILIZED,
            method=Method.CONSOLIDATION,
            targets=tuple(targets),
            nodes=tuple(f"node-{target}" for target in targets),
            replacements=tuple(replacements),
            created_at=self.now,
        )
        self.checker.command_written(command)
        return command


def test_a_limit_is_judged_as_soon_as_something_is_launched() -> None:
    """Whoever breaks it plans nothing more for that pool, so that nobody would ask again."""
    play = Play()
    for name in ("a", "b", "c"):
        play.node(name, size="m7i-flex.2xlarge")
    assert play.told == []
    play.node("d", until=ClaimState.LAUNCHED)
    assert play.told == ["limits are kept"]


def test_nodes_that_a_command_gives_back_make_room_for_what_is_launched_meanwhile() -> None:
    play = Play()
    for name in ("a", "b", "c"):
        play.node(name, size="m7i-flex.2xlarge")
    play.command("first", ["a"], ["d"])
    play.node("d", owner="")
    assert play.told == []


def test_a_pod_gets_so_many_nodes_and_no_more() -> None:
    play = Play()
    play.node("a", pods=(POD,))
    play.node("b", pods=(POD,))
    assert play.told == []
    play.node("c", pods=(POD,), until=ClaimState.LAUNCHED)
    assert play.told == ["few nodes for one pod"]


@pytest.mark.parametrize("holder", ["b", "other"])
def test_a_node_taken_from_under_a_pod_is_made_up_for_whoever_it_was_launched_for(holder: str) -> None:
    """Pods take each other's nodes: the one a pod loses need not be one of its own."""
    play = Play()
    play.node("a", pods=(POD,))
    claims = {"b": play.node("b", pods=(POD,)), "other": play.node("other")}
    play.on_node[holder] = [POD.uid]
    play.leave(claims[holder], "SpotInterruption")
    play.node("c", pods=(POD,))
    assert play.told == []
    play.node("d", pods=(POD,), until=ClaimState.LAUNCHED)
    assert play.told == ["few nodes for one pod"]


@pytest.mark.parametrize(("steered", "told"), [(True, ["few nodes for one pod"]), (False, [])])
def test_a_node_that_others_have_taken_counts_where_pods_are_steered(steered: bool, told: list[str]) -> None:
    """kube-scheduler gives it to who has waited longest, unless its room is kept."""
    play = Play(steered=steered)
    play.node("a", pods=(POD,))
    play.node("b", pods=(POD,))
    play.on_node["b"] = ["uid-of-another"]
    play.node("c", pods=(POD,))
    assert play.told == told


def test_a_node_that_a_command_takes_away_is_not_made_up_for() -> None:
    play = Play()
    play.node("a", pods=(POD,))
    last = play.node("b", pods=(POD,))
    play.on_node["b"] = [POD.uid]
    play.leave(last, str(Reason.UNDERUTILIZED))
    play.node("c", pods=(POD,), until=ClaimState.LAUNCHED)
    assert play.told == ["few nodes for one pod"]


@pytest.mark.parametrize(("first", "told"), [(CommandState.UNDONE, []), (CommandState.DONE, ["few nodes for one pod"])])
def test_a_pod_is_moved_by_one_command_unless_it_was_given_up(first: CommandState, told: list[str]) -> None:
    play = Play()
    play.node("a")
    begun = play.command("first", ["a"], ["b"])
    play.node("b", pods=(POD,), owner="")
    play.checker.command_written(replace(begun, state=first))
    play.command("second", ["a"], ["c"])
    play.node("c", pods=(POD,), owner="")
    assert play.told == told


def test_a_node_that_leaves_by_itself_uses_up_a_budget() -> None:
    play = Play()
    claims = [play.node(name) for name in ("a", "b", "c", "d")]
    play.leave(claims[0], "SpotInterruption")
    play.now = 60.0
    play.command("first", ["b"])
    assert play.told == []
    play.command("second", ["c"])
    assert play.told == ["disruption budgets are kept"]


def test_what_a_decision_could_not_know_breaks_no_budget() -> None:
    play = Play()
    claims = [play.node(name) for name in ("a", "b", "c", "d")]
    play.leave(claims[0], "SpotInterruption")
    play.command("first", ["b", "c"])  # decided on what was there a moment before
    assert play.told == []


def test_a_node_whose_instance_is_being_ended_uses_up_no_budget() -> None:
    play = Play()
    claims = [play.node(name) for name in ("a", "b", "c", "d")]
    for claim in claims[:2]:
        play.checker.claim_written(replace(play.leave(claim, "SpotInterruption"), state=ClaimState.TERMINATING))
    play.now = 60.0
    play.command("first", ["c", "d"])
    assert play.told == []


def test_nodes_that_were_there_no_more_are_no_share_of_a_budget() -> None:
    play = Play()
    for name in ("a", "b", "c"):
        play.node(name, pool="spot")
    play.command("first", ["a", "b"])
    assert play.told == []
    play.checker.was_in_service = lambda claim, _: claim.name != "c"
    play.command("second", ["b"])
    assert play.told == ["disruption budgets are kept"]


@pytest.mark.parametrize(("memory", "told"), [("2Gi", []), ("3Gi", ["no node holds more than it has"])])
def test_the_pods_of_a_node_have_what_they_request(memory: str, told: list[str]) -> None:
    play = Play()
    node = Node(status=NodeStatus(allocatable={"memory": "2Gi", "cpu": "1", "pods": "2"}))
    group = PodGroup("web", cpu="1", memory=memory)
    play.checker.node_filled(node, [msgspec.convert(pod, Pod) for pod in pods_of_step(group)])
    assert play.told == told

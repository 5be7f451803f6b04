"""The judge of ceilings: what runs is added up per hour, what was spent and is reserved per month, and who may wait."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.disruption.commands import Reason
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import Instance, written_claim
from shiplap_lab.judge.promises import Promise
from tests.builders.claims import node_claim, with_fields
from tests.simulation.plays import Play

LAUNCHED = ClaimState.LAUNCHED
TOLD = "ceiling reached: account, $0.20 per hour: $0.20 in use, a node takes $0.10"
MONTH_END = datetime(2026, 2, 1, tzinfo=UTC).timestamp()
HOUR_S = 3600.0
STOP = {"monthly": 2.0, "mode": "stop", "recoveryPercent": 0}


def _event(uid: str, message: str) -> dict[str, Any]:
    return {"metadata": {"name": uid}, "involvedObject": {"kind": "Pod", "uid": uid}, "message": message}


def test_a_launch_above_a_ceiling_breaks_the_promise() -> None:
    for cluster, broken in (("", True), ("other", False)):
        play = Play()
        play.judge.dollars.ceilings = {cluster: [{"hourly": 0.2, "mode": "stop"}]}
        play.node("a", until=LAUNCHED)
        play.node("b", until=LAUNCHED)
        assert play.told == []
        play.node("c", until=LAUNCHED)
        assert play.told == ([Promise.CEILINGS] if broken else [])


def test_a_pod_may_wait_that_names_a_ceiling_which_is_in_use() -> None:
    play = Play()
    play.judge.dollars.ceilings = {"": [{"hourly": 0.2, "mode": "stop"}]}
    play.judge.object_written("demo", "ADDED", "events", _event("uid-1", TOLD))
    assert not play.judge.may_wait("demo", "uid-1")
    play.node("a", until=LAUNCHED)
    assert play.judge.may_wait("demo", "uid-1")
    assert not play.judge.may_wait("demo", "uid-2")
    play.judge.object_written("demo", "MODIFIED", "events", _event("uid-1", "no instance type has room"))
    assert not play.judge.may_wait("demo", "uid-1")


class Month(Play):
    """Ten hours before the end of January, with these ceilings. A machine costs 0.1 USD per hour: 1 USD until then."""

    def __init__(self, *ceilings: dict[str, Any]) -> None:
        super().__init__()
        self.now = MONTH_END - 10 * HOUR_S
        self.judge.dollars.ceilings = {"demo": ceilings}
        self.price = 0.1
        list(self.judge.dollars.end_month())

    def launch(self, name: str, *, pods: tuple[dict[str, Any], ...] = (), pool: str = "flex") -> NodeClaim:
        """A claim with an instance of the cluster."""
        for pod in pods:
            self.judge.object_written("demo", "ADDED", "pods", pod)
        uids = [{"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]} for pod in pods]
        claim = node_claim(cluster="demo", name=name, node_pool=pool, node_class="default", token=name)
        claim = self._written(replace(claim, created_at=self.now), uids)
        claim = self._written(replace(claim, state=ClaimState.LAUNCHING), uids)
        kind, zone, bought = "m7i-flex.large", "eu-west-1a", "on-demand"
        at = Instance(f"i-{name}", kind, zone, bought, "ami-1", "running", launched_at=self.now, cluster="demo")
        self.judge.machine_added(msgspec.json.encode(replace(at, launch=name, node_pool=pool)))
        return self._written(
            replace(with_fields(claim, instance_id=at.id, instance_type=kind, hourly=self.price), state=LAUNCHED), uids
        )

    def end(self, claim: NodeClaim, failure: str = "Terminated") -> None:
        """Its instance ends by itself."""
        self.judge.machine_ended(f"i-{claim.name}")
        self._written(replace(claim, state=ClaimState.GONE, failure=failure), [])

    def reprice(self, price: float) -> None:
        self.price = price
        self.judge.dollars.repriced(lambda *_: price)

    def _written(self, claim: NodeClaim, pods: list[dict[str, str]]) -> NodeClaim:
        written = replace(claim, version=claim.version + 1)
        item = msgspec.json.decode(_plain(written)) | {"pods": pods}
        self.judge.claim_written("shiplap", msgspec.json.encode(item).decode())
        return written


def _plain(claim: NodeClaim) -> str:
    stored = written_claim(claim)
    assert isinstance(stored, str)
    return stored


def _pod(uid: str, priority: int = 0, node: str = "") -> dict[str, Any]:
    spec = {"containers": [], "priority": priority} | ({"nodeName": node} if node else {})
    return {"metadata": {"name": uid, "uid": uid}, "spec": spec}


def test_no_machine_is_launched_once_a_month_is_spent_and_reserved() -> None:
    month = Month(STOP)
    month.launch("a")
    month.now += 5 * HOUR_S
    month.launch("b")
    assert month.told == []
    month.launch("c")
    assert month.told == []  # 1.0 + 0.5 + 0.5
    month.launch("d")
    assert month.told == [Promise.CEILINGS]


def test_what_has_ended_was_spent_and_reserves_nothing() -> None:
    month = Month(STOP)
    ended = [month.launch(name) for name in "ab"]
    month.now += 5 * HOUR_S
    for claim in ended:
        month.end(claim, "Empty")
    month.launch("c")
    month.launch("d")
    assert month.told == []
    month.launch("e")
    assert month.told == [Promise.CEILINGS]


def test_twenty_lives_of_a_pool_say_how_long_others_are_reserved() -> None:
    month = Month({**STOP, "monthly": 5.0})
    for number in range(20):
        claim = month.launch(f"short-{number}")
        month.now += 360
        month.end(claim, "Empty")
    assert month.now == MONTH_END - 8 * HOUR_S
    for name in "abcdefghijklmno":
        month.launch(name)  # 0.2 was spent, and each is reserved for six minutes
    assert month.told == []
    month.now += HOUR_S
    for name in "pqrstuvwxyz":
        month.launch(name)
    assert month.told == []


@pytest.mark.parametrize("why", ["critical", "replaces", "lost", ""])
def test_only_recovery_draws_on_what_is_kept_for_it(why: str) -> None:
    month = Month({**STOP, "recoveryPercent": 50})
    lost = month.launch("a")
    if why == "lost":
        month.end(lost)
        month.now += 60
        month.launch("b")
    pods = {"critical": (_pod("dns", 2_000_000_000),), "replaces": (_pod("web", 0, "node-a"),)}.get(why, ())
    month.launch("c", pods=pods)
    assert month.told == ([] if why else [Promise.CEILINGS])


@pytest.mark.parametrize("reason", Reason)
def test_nothing_is_lost_that_a_command_took_but_what_is_unhealthy(reason: Reason) -> None:
    month = Month({**STOP, "recoveryPercent": 50})
    month.end(month.launch("a"), str(reason))
    month.now += 60
    month.launch("b")
    month.launch("c")
    assert month.told == ([] if reason is Reason.UNHEALTHY else [Promise.CEILINGS])


@pytest.mark.parametrize(("priority", "broken"), [(0, True), (100, True), (101, False)])
def test_above_a_ceiling_of_mode_priority_only_higher_pods_get_nodes(priority: int, broken: bool) -> None:
    month = Month({"monthly": 1.0, "mode": "priority", "abovePriority": 100, "recoveryPercent": 0})
    month.launch("a")
    month.launch("b", pods=(_pod("web", priority),))
    assert month.told == ([Promise.CEILINGS] if broken else [])


def test_a_pool_has_its_own_ceiling_and_modes_that_only_warn_bound_nothing() -> None:
    month = Month({**STOP, "nodePool": "spot", "monthly": 1.0}, {"monthly": 0.1}, {"monthly": 0.1, "mode": "cheapest"})
    month.launch("a", pool="spot")
    month.launch("b")
    assert month.told == []
    month.launch("c", pool="spot")
    assert month.told == [Promise.CEILINGS]


@pytest.mark.parametrize(
    ("pool", "spec", "was", "broken"),
    [
        pytest.param("spot", {}, 0.05, True, id="dear"),
        pytest.param("flex", {}, 0.05, False, id="a pool without spot"),
        pytest.param("spot", {"nodeSelector": {"karpenter.sh/capacity-type": "on-demand"}}, 0.05, False, id="bound"),
        pytest.param("spot", {}, 0.1, False, id="spot became cheaper just now"),
        pytest.param("spot", {"priority": 2_000_000_000}, 0.05, False, id="critical"),
    ],
)
def test_above_a_ceiling_of_mode_cheapest_nothing_is_on_demand_that_could_be_spot(
    pool: str, spec: dict[str, Any], was: float, broken: bool
) -> None:
    month = Month({"monthly": 1.0, "mode": "cheapest", "recoveryPercent": 0})
    for spot in (was, 0.05):
        month.judge.dollars.repriced(lambda *where, cost=spot: cost if where[2] == "spot" else 0.1)
    pod = _pod("web")
    pod["spec"] |= spec
    month.launch("a", pool=pool)
    assert month.told == []
    month.launch("b", pool=pool, pods=(pod,))
    assert month.told == ([Promise.CEILINGS] if broken else [])


def test_a_critical_pod_waits_for_nothing_but_a_ceiling_that_stops() -> None:
    priority = {"monthly": 1.0, "mode": "priority", "abovePriority": 100}
    for ceiling, may in ((priority, False), ({**STOP, "monthly": 1.0}, True)):
        month = Month(ceiling)
        month.launch("a", pods=(_pod("dns", 2_000_000_000), _pod("web")))
        for uid in ("dns", "web"):
            told = "ceiling reached: cluster demo, $1.00 per month: $1.00 in use, a node takes $1.00"
            month.judge.object_written("demo", "ADDED", "events", _event(uid, told))
        assert month.judge.may_wait("demo", "web")
        assert month.judge.may_wait("demo", "dns") is may


def test_dearer_spot_may_pass_a_ceiling_and_a_launch_may_not() -> None:
    month = Month({**STOP, "monthly": 1.0})
    month.launch("a")
    month.reprice(0.2)
    month.now = MONTH_END + 1
    month.judge.tick(calm=False)
    assert month.told == []
    ((name, over, dearer),) = month.judge.dollars.overshoots
    assert name == "cluster demo"
    assert [over, dearer] == pytest.approx([1.0, 1.0])


def test_more_than_prices_explain_is_told_of() -> None:
    month = Month({**STOP, "monthly": 1.0})
    month.launch("a")
    month.judge.dollars.ceilings = {"demo": [{**STOP, "monthly": 0.4}]}
    month.reprice(0.11)
    month.now = MONTH_END + 1
    month.judge.tick(calm=False)
    assert month.told == [Promise.CEILINGS]


def test_a_new_month_begins_with_nothing_spent() -> None:
    month = Month({**STOP, "monthly": 80.0})
    month.launch("a")
    month.now = MONTH_END + 1
    month.judge.tick(calm=False)
    month.launch("b")  # 67.2 each
    assert month.told == [Promise.CEILINGS]


def test_a_claim_may_have_booked_the_price_that_was_and_no_other() -> None:
    month = Month()
    month.reprice(0.2)
    month.price = 0.1
    month.launch("a")
    assert month.told == []
    month.reprice(0.3)
    month.price = 0.1
    month.launch("b")
    assert month.told == [Promise.MONEY]

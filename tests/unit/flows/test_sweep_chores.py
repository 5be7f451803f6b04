"""Tests the chores of a sweep one after the other, and the rest of them where one chore fails."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.errors import AwsError
from shiplap.flows.claim_updates import GARBAGE, GRACE_S
from shiplap.flows.live_settings import ManifestState
from shiplap.flows.sweep import sweep as chores
from shiplap.flows.sweep.capacity_blocks import replace_in_ending_blocks
from shiplap.flows.sweep.sweep import CHORES, sweep
from shiplap.instances.catalog.resolved_nodeclass import EXPIRING_S, CapacityReservation
from shiplap.instances.catalog.type_catalog import pilot_key
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import PILOT_LEASE_S, Instance
from tests.builders.claims import node_claim
from tests.integration.flows.stage import ZONES, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


def put(stage: Stage, name: str, state: ClaimState = ClaimState.LAUNCHED, **fields: Any) -> NodeClaim:
    known: dict[str, Any] = {
        "cluster": stage.name,
        "instance_id": f"i-{name}",
        "instance_type": "m5.large",
        "ami": "ami-1",
        "kubelet_hash": "k",
        "changed_at": stage.clock.now(),
        "deadline_at": stage.clock.now() + 900,
    }
    stage.state.adopt(node_claim(name=name, state=state, **known | fields))
    found = stage.state.claim(stage.name, name)
    assert found is not None
    return found


def run(stage: Stage, instance_id: str, **fields: Any) -> None:
    known: dict[str, Any] = {
        "id": instance_id,
        "instance_type": "m5.large",
        "zone": ZONES[0],
        "capacity_type": "on-demand",
        "ami": "ami-1",
        "state": "running",
        "launched_at": stage.clock.now() - GRACE_S - 1,
        "cluster": stage.name,
        "install": "shiplap",
    }
    stage.compute.add(Instance(**known | fields))


def reminders(stage: Stage) -> list[tuple[str, str, int]]:
    return [(item.claim, item.step, item.delay_s) for item in stage.timers.reminders]


def test_timers_come_before_what_may_fail_and_pods_after_all_nodes_are_known() -> None:
    order = [chore.__name__ for chore in CHORES]
    assert len(set(order)) == len(order)
    assert order[:3] == ["renew_pilot_leases", "report_other_installs", "set_lost_timers"]
    assert {"leave_capacity_blocks", "repair"} <= set(order[3:])
    of_pods = order.index("withdraw_nominations")
    assert of_pods > order.index("repair")
    assert order[of_pods : of_pods + 3] == ["withdraw_nominations", "record_proven_pods", "record_pods_refused"]


def test_every_chore_of_a_sweep_is_done(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    watched = tuple((lambda _, name=chore.__name__: done.append(name)) for chore in CHORES)
    monkeypatch.setattr(chores, "CHORES", watched)
    sweep(stage.settings, (), stage.context)
    public = [name for name, value in vars(chores).items() if getattr(value, "__module__", "") == chores.__name__]
    others = {"sweep", "in_turn", "is_silent", "reason_to_visit", "without_instance"}
    assert set(done) == {name for name in public if not name.startswith("_")} - others


@pytest.mark.parametrize(("suspended", "ends"), [("", True), ("Karpenter runs here", False)])
def test_a_suspended_cluster_keeps_its_nodes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, suspended: str, ends: bool
) -> None:
    done: list[str] = []

    def note(name: str) -> Any:
        return lambda _: done.append(name)

    ending = (note("repair"), note("leave"))
    monkeypatch.setattr(chores, "CHORES", (*ending, note("other")))
    monkeypatch.setattr(chores, "_ENDING_NODES", ending)
    sweep(stage.settings, (), stage.context, manifest_state=ManifestState(suspended))
    assert done == (["repair", "leave", "other"] if ends else ["other"])


def test_nodes_of_a_suspended_cluster_are_neither_repaired_nor_taken_out_of_blocks() -> None:
    assert {chore.__name__ for chore in chores._ENDING_NODES} == {"leave_capacity_blocks", "repair"}


@pytest.mark.parametrize(
    ("state", "explored", "renewed"),
    [
        (ClaimState.LAUNCHED, ("m5.large",), True),
        (ClaimState.LAUNCHED, (), False),
        (ClaimState.LAUNCHED, ("m5.xlarge",), False),
        (ClaimState.REGISTERED, ("m5.large",), False),
        (ClaimState.LAUNCHING, ("m5.large",), False),
    ],
)
def test_the_lease_of_a_pilot_is_renewed_until_its_node_has_joined(
    stage: Stage, state: ClaimState, explored: tuple[str, ...], renewed: bool
) -> None:
    put(stage, "c", state, relies_on_estimate=explored)
    stage.capacity.acquire_pilot("ami-1", "m5.large", "k", f"{stage.name}/c", stage.clock.now())
    stage.clock.advance(PILOT_LEASE_S - 1)
    run(stage, "i-c")
    sweep(stage.settings, (), stage.context)
    stage.clock.advance(2)
    held = stage.capacity.pilots(["ami-1"], stage.clock.now())
    assert held == ({pilot_key("ami-1", "m5.large", "k")} if renewed else frozenset())


@pytest.mark.parametrize(("others", "strangers", "counted"), [(0, 0, None), (2, 0, 2.0), (0, 1, 1.0), (3, 2, 5.0)])
def test_instances_of_other_installs_are_counted(
    stage: Stage, others: int, strangers: int, counted: float | None
) -> None:
    for number in range(others):
        run(stage, f"i-other-{number}", install=f"install-{number}")
    for number in range(strangers):
        run(stage, f"i-strange-{number}", install="")
    run(stage, "i-ours")
    sweep(stage.settings, (), stage.context)
    assert stage.meter.counts.get("InstancesOfOtherInstalls") == counted


def test_instances_without_a_claim_are_looked_at_by_the_name_on_them(stage: Stage) -> None:
    run(stage, "i-1", claim="lost")
    run(stage, "i-2", launch="token")
    run(stage, "i-3")  # nothing says whose it is
    run(stage, "i-4", claim="young", launched_at=stage.clock.now())
    put(stage, "held")
    run(stage, "i-held", claim="held")
    sweep(stage.settings, (), stage.context)
    assert reminders(stage) == [("lost", GARBAGE, 0), ("token", GARBAGE, 0)]
    assert stage.meter.counts["InstancesWithoutClaim"] == 2


def test_a_node_that_outlives_its_instance_is_looked_at_unless_its_claim_is_known(stage: Stage) -> None:
    put(stage, "ends", ClaimState.TERMINATING)
    for name in ("ends", "gone", ""):
        marks = {labels.NODE_CLAIM: name} if name else {}
        stage.server.create(
            "nodes",
            {
                "metadata": {"name": f"n-{name or 'none'}", "labels": marks},
                "spec": {"providerID": f"aws:///a/i-{name or 'none'}"},
                "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
            },
        )
    sweep(stage.settings, stage.cluster.nodes(), stage.context)
    assert reminders(stage) == [("ends", "terminate", 0), ("gone", GARBAGE, 0)]


def test_instances_that_were_launched_together_get_the_names_of_their_claims(stage: Stage) -> None:
    put(stage, "a")
    put(stage, "b")
    run(stage, "i-a", launch="t")
    run(stage, "i-b", launch="t", claim="as-tagged")
    run(stage, "i-x", launch="u")
    sweep(stage.settings, (), stage.context)
    assert {item.id: item.claim for item in stage.compute.alive()} == {"i-a": "a", "i-b": "as-tagged", "i-x": ""}


@pytest.mark.parametrize(("made_ago_s", "deleted"), [(25 * 3600.0, 1.0), (60.0, None)])
def test_launch_templates_that_nothing_uses_are_deleted_and_counted(
    stage: Stage, made_ago_s: float, deleted: float | None
) -> None:
    stage.compute.templates[stage.name, "old"] = stage.clock.now() - made_ago_s
    sweep(stage.settings, (), stage.context)
    assert stage.meter.counts.get("LaunchTemplatesDeleted") == deleted


def test_launch_templates_that_cannot_be_deleted_hold_nothing_up(stage: Stage) -> None:
    """The sweep still does the chores after the failed one."""
    stage.faults.on("before", "compute.sweep_templates", AwsError("denied", code="UnauthorizedOperation"))
    put(stage, "c", ClaimState.REGISTERED, subnet="subnet-old")
    run(stage, "i-c", subnet="subnet-new", claim="c")
    sweep(stage.settings, (), stage.context)
    assert stage.meter.counts["LaunchTemplatesNotSwept"] == 1
    claim = stage.state.claim(stage.name, "c")
    assert claim is not None
    assert claim.known_instance.subnet == "subnet-new"


def test_what_a_chore_writes_the_later_ones_read(stage: Stage) -> None:
    """A claim whose network was corrected is written again, for its sick node, at its new version."""
    put(stage, "c", ClaimState.INITIALIZED, node_name="n", subnet="subnet-old", deadline_at=0.0)
    run(stage, "i-c", subnet="subnet-new", claim="c")
    since = "2023-11-14T20:00:00Z"
    stage.server.create(
        "nodes",
        {
            "metadata": {"name": "n", "labels": {labels.NODE_CLAIM: "c", labels.REGISTERED: "true"}},
            "spec": {"providerID": "aws:///a/i-c"},
            "status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}]},
        },
    )
    sweep(stage.settings, stage.cluster.nodes(), stage.context)
    claim = stage.state.claim(stage.name, "c")
    assert claim is not None
    assert (claim.known_instance.subnet, claim.state, claim.failure) == (
        "subnet-new",
        ClaimState.DRAINING,
        "NodeUnhealthy",
    )


def in_block(stage: Stage, name: str, state: ClaimState, **fields: Any) -> NodeClaim:
    marks = {labels.RESERVATION_ID: "cr-1", labels.RESERVATION_TYPE: "capacity-block"}
    known: dict[str, Any] = {"capacity_type": "reserved", "labels": marks, "node_name": "", "deadline_at": 0.0}
    return put(stage, name, state, **known | fields)


def block(stage: Stage, *, name: str = "cr-1", ends_in_s: float = EXPIRING_S - 60) -> CapacityReservation:
    return CapacityReservation(
        id=name,
        instance_type="m5.large",
        zone=ZONES[0],
        available=2,
        type="capacity-block",
        ends_at=stage.clock.now() + ends_in_s,
    )


IN_USE = (ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED, ClaimState.DISRUPTING)


@pytest.mark.parametrize("state", [item for item in ClaimState if item is not ClaimState.PLANNED])
def test_a_node_in_use_leaves_a_block_that_ends(stage: Stage, state: ClaimState) -> None:
    """One that is Launched gets no node in time: it is ended."""
    claim = in_block(stage, "c", state)
    stage.compute.reservations = (block(stage, name="cr-0"), block(stage))
    replace_in_ending_blocks(stage.settings, [claim], stage.context)
    after = stage.state.claim(stage.name, "c")
    assert (after != claim) is (state in IN_USE)
    assert stage.meter.counts.get("CapacityBlocksLeft", 0.0) == float(state in IN_USE)


@pytest.mark.parametrize(
    ("fields", "ends_in_s", "leaves"),
    [
        ({}, EXPIRING_S - 60, True),
        ({}, EXPIRING_S + 60, False),
        ({"labels": {labels.RESERVATION_ID: "cr-2", labels.RESERVATION_TYPE: "capacity-block"}}, 0.0, False),
        ({"labels": {labels.RESERVATION_ID: "cr-1", labels.RESERVATION_TYPE: "default"}}, 0.0, False),
        ({"labels": {labels.RESERVATION_TYPE: "capacity-block"}}, 0.0, False),
        ({"capacity_type": "on-demand"}, 0.0, False),
        ({"node_class": "removed"}, 0.0, False),
    ],
)
def test_which_nodes_leave_a_block(stage: Stage, fields: dict[str, Any], ends_in_s: float, leaves: bool) -> None:
    claim = in_block(stage, "c", ClaimState.INITIALIZED, **fields)
    stage.compute.reservations = (block(stage, ends_in_s=ends_in_s),)
    replace_in_ending_blocks(stage.settings, [claim], stage.context)
    assert (stage.state.claim(stage.name, "c") != claim) is leaves


def test_ec2_is_asked_for_blocks_only_while_a_node_is_in_one(stage: Stage) -> None:
    stage.compute.reservations = (block(stage),)
    claims = [put(stage, "a", ClaimState.INITIALIZED), in_block(stage, "b", ClaimState.GONE)]
    replace_in_ending_blocks(stage.settings, claims, stage.context)
    assert "before compute.resolve" not in stage.faults.points

"""Tests the use of commitments: nodes and claims that count, their kind, and the questions to the store."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.errors import StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.policies.active import ActivePolicies
from shiplap.flows.policies.commitments_inputs import (
    commitment_room,
    listed_prices,
    note_use,
    planned_use,
    read_commitments,
    read_use,
    running_use,
    used_commitments,
)
from shiplap.flows.policies.policy import DecisionFacts
from shiplap.instances.catalog.ec2_catalog import Catalog, TypePrices
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.policies.commitments.account_commitments import AccountCommitments, InstanceUse, ReservedInstances
from shiplap.policies.commitments.commitment_ledger import RegionalRoom
from shiplap.policies.commitments.commitment_settings import CommitmentSettings, WrittenPlan
from shiplap.policies.commitments.commitment_use import ClusterUse, SharedUse
from shiplap.policies.policy_settings import chosen
from shiplap.ports import DecisionState
from shiplap.scheduling.model.snapshot import ClusterView, Snapshot
from shiplap.settings import ClusterSettings
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.signals import FakeClock, FakeMeter
from shiplap_lab.fakes.state import FakeState
from shiplap_lab.policies.commitments_fakes import FakeCommitments, FakeCommitmentUse
from tests.builders.claims import node_claim, with_fields
from tests.builders.nodes import node

NOW = 1_800_000_000.0
COUNTED = CommitmentSettings(counted_by="eu-west-1/shiplap", share="100%")
WRITTEN = CommitmentSettings(
    counted_by="eu-west-1/shiplap", written=(WrittenPlan(dollars_per_hour=1.0, discount="28%", end="2030-01-01"),)
)
KNOWN = AccountCommitments("eu-west-1", NOW)
RUNS = {"instance_id": "i-1", "instance_type": "m5.large", "zone": "a", "capacity_type": "on-demand"}
ONE = (InstanceUse("m5.large", "a", 1),)
ANYWHERE = (InstanceUse("m5.large", "", 1),)
BLOCK = {labels.RESERVATION_TYPE: "capacity-block"}
LENT = {labels.RESERVATION_TYPE: "default", labels.RESERVATION_INTERRUPTIBLE: "true"}


def settings(commitments: CommitmentSettings | None = COUNTED) -> ClusterSettings:
    return ClusterSettings(name="blue", region="eu-west-1", policies=() if commitments is None else chosen(commitments))


def ports(**known: Any) -> FlowContext:
    """A context of these ports; what uses another one fails."""
    wanted = ("cluster", "compute", "capacity", "catalog", "bus", "timers", "recorder")
    rest: dict[str, Any] = {"clock": FakeClock(NOW), "state": FakeState(), "meter": FakeMeter()}
    return FlowContext(**(dict.fromkeys(wanted) | rest | known))


CLAIM = node_claim(name="a", state=ClaimState.LAUNCHED)


def only(key: str, *values: str, operator: str = "In") -> tuple[RequirementSpec, ...]:
    return (RequirementSpec(key, operator, values),)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(RUNS, ONE, id="runs on demand"),
        pytest.param(RUNS | {"capacity_type": "spot"}, (), id="runs on spot"),
        pytest.param(
            RUNS | {"capacity_type": "reserved"}, ANYWHERE, id="runs in a reservation, where no zonal ones pay"
        ),
        pytest.param(RUNS | {"capacity_type": "reserved", "labels": BLOCK}, (), id="runs in a capacity block"),
        pytest.param(RUNS | {"capacity_type": "reserved", "labels": LENT}, (), id="runs in what others may take back"),
        pytest.param(RUNS | {"labels": BLOCK}, ONE, id="on demand after all"),
        pytest.param(
            RUNS | {"requirements": only(labels.CAPACITY_TYPE, "spot", "on-demand")}, ONE, id="might have been on spot"
        ),
        pytest.param(
            RUNS | {"capacity_type": "spot", "requirements": only(labels.CAPACITY_TYPE, "on-demand")},
            (),
            id="what runs counts, not what was asked for",
        ),
        pytest.param(RUNS | {"instance_types": ("c5.large",)}, ONE, id="the type launched, not the first of the list"),
        pytest.param(RUNS | {"labels": {labels.ZONE: "b"}}, ONE, id="the zone launched in, not the label"),
        pytest.param(RUNS | {"labels": {labels.OS: "linux"}}, ONE, id="says that it is Linux"),
        pytest.param(RUNS | {"labels": {labels.OS: "windows"}}, (), id="Windows by its label"),
        pytest.param(RUNS | {"requirements": only(labels.OS, "windows")}, (), id="Windows by its requirements"),
        pytest.param(RUNS | {"requirements": only(labels.OS, "linux", "windows")}, ONE, id="may be Linux"),
    ],
)
def test_a_launched_claim_counts_as_what_it_runs_as(fields: dict[str, Any], expected: tuple[InstanceUse, ...]) -> None:
    assert planned_use([with_fields(CLAIM, **fields)]) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"requirements": only(labels.CAPACITY_TYPE, "on-demand")}, 1, id="on demand alone"),
        pytest.param({}, 0, id="nothing is said"),
        pytest.param({"requirements": only(labels.CAPACITY_TYPE, "on-demand", "spot")}, 0, id="or spot"),
        pytest.param({"requirements": only(labels.CAPACITY_TYPE, "on-demand", "spot", "reserved")}, 0, id="or any"),
        pytest.param({"requirements": only(labels.CAPACITY_TYPE, "spot", operator="NotIn")}, 0, id="not spot"),
        pytest.param({"requirements": only(labels.ARCH, "on-demand")}, 0, id="a line of another key"),
    ],
)
def test_a_planned_claim_counts_if_it_can_be_nothing_but_on_demand(fields: dict[str, Any], expected: int) -> None:
    planned = with_fields(
        CLAIM, state=ClaimState.PLANNED, instance_types=("m5.large", "c5.large"), labels={labels.ZONE: "a"}, **fields
    )
    assert planned_use([planned]) == ONE * expected


@pytest.mark.parametrize("kinds", [("reserved",), ("on-demand", "reserved")])
def test_a_planned_claim_for_a_reservation_counts_without_its_zone(kinds: tuple[str, ...]) -> None:
    def planned(*lines: RequirementSpec) -> NodeClaim:
        wanted = (*only(labels.CAPACITY_TYPE, *kinds), *lines)
        return with_fields(
            CLAIM,
            state=ClaimState.PLANNED,
            instance_types=("m5.large",),
            labels={labels.ZONE: "a"},
            requirements=wanted,
        )

    assert planned_use([planned()]) == ANYWHERE
    assert planned_use([planned(*only(labels.RESERVATION_TYPE, "default"))]) == ANYWHERE
    assert planned_use([planned(*only(labels.RESERVATION_TYPE, "capacity-block"))]) == ()


def test_a_planned_claim_without_a_type_or_a_zone() -> None:
    wanted = only(labels.CAPACITY_TYPE, "on-demand")
    assert planned_use([with_fields(CLAIM, state=ClaimState.PLANNED, requirements=wanted)]) == ()
    assert planned_use(
        [with_fields(CLAIM, state=ClaimState.PLANNED, requirements=wanted, instance_types=("m5.large",))]
    ) == (InstanceUse("m5.large", "", 1),)


@pytest.mark.parametrize("state", list(ClaimState))
def test_a_claim_counts_until_it_has_ended(state: ClaimState) -> None:
    ended = state in (ClaimState.GONE, ClaimState.FAILED)
    assert planned_use([with_fields(CLAIM, state=state, **RUNS)]) == (() if ended else ONE)
    assert running_use([], [with_fields(CLAIM, state=state, **RUNS)]) == (() if ended else ONE)


OWN = {labels.NODE_CLAIM: "lost"}


@pytest.mark.parametrize(
    ("own", "capacity_type", "expected"),
    [
        pytest.param(OWN, "on-demand", 1, id="on demand"),
        pytest.param(OWN | {labels.OS: "linux"}, "on-demand", 1, id="Linux"),
        pytest.param(OWN | {labels.OS: "windows"}, "on-demand", 0, id="Windows"),
        pytest.param(OWN, "spot", 0, id="spot"),
        pytest.param(OWN, "", 0, id="unlabelled"),
        pytest.param({}, "on-demand", 0, id="not of a claim: the account's other instances have it"),
    ],
)
def test_a_node_whose_claim_is_not_known_counts_by_its_labels(
    own: dict[str, str], capacity_type: str, expected: int
) -> None:
    made = node(instance_type="m5.large", zone="a", capacity_type=capacity_type, labels=own)
    assert running_use([made], []) == ONE * expected


@pytest.mark.parametrize(("marks", "expected"), [({}, ANYWHERE), (BLOCK, ()), (LENT, ())])
def test_a_node_in_a_reservation_counts_unless_it_is_paid_in_advance(
    marks: dict[str, str], expected: tuple[InstanceUse, ...]
) -> None:
    made = node(instance_type="m5.large", zone="a", capacity_type="reserved", labels=OWN | marks)
    assert running_use([made], []) == expected


def test_a_node_and_its_claim_count_once_and_another_claim_beside_them() -> None:
    made = node("n", instance_type="c5.large", zone="b", capacity_type="on-demand", labels={labels.NODE_CLAIM: "a"})
    alone = node("o", instance_type="m5.large", zone="a", capacity_type="on-demand", labels=OWN)
    waiting = with_fields(CLAIM, **RUNS | {"name": "w", "instance_id": "i-2"})
    assert running_use([made], [with_fields(CLAIM, **RUNS)]) == ONE
    assert running_use([alone, made], [with_fields(CLAIM, **RUNS), waiting]) == (InstanceUse("m5.large", "a", 3),)


def test_prices_that_are_not_known_are_left_out() -> None:
    prices = {"b": TypePrices(0.0000015), "a": TypePrices(0.096), "none": TypePrices(), "free": TypePrices(0.0)}
    found = listed_prices(Catalog(region="eu-west-1", types=(), zones={}, prices=prices))
    assert list(found.items()) == [("a", 96_000), ("b", 2)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [(COUNTED, KNOWN), (WRITTEN, KNOWN), (None, None)],
)
def test_the_store_is_read_where_commitments_are_counted_on(
    wanted: CommitmentSettings | None, expected: AccountCommitments | None
) -> None:
    store = FakeCommitments()
    store.save(KNOWN)
    store.faults.clear()
    assert read_commitments(settings(wanted), ports(policy_ports={"commitments": store})) == expected
    assert bool(store.faults.points) == (expected is not None)
    assert read_commitments(settings(wanted), ports()) is None


def test_a_store_that_fails_is_counted_and_nothing_is_known() -> None:
    store, meter = FakeCommitments(), FakeMeter()
    store.faults.on("before", "commitments.load", StoreError("not now"))
    assert read_commitments(settings(), ports(policy_ports={"commitments": store}, meter=meter)) is None
    assert meter.counts == {"CommitmentsNotRead": 1}


CATALOG = Catalog(
    region="eu-west-1", types=(), zones={}, prices={"m5.large": TypePrices(0.1), "c5.large": TypePrices(0.2)}
)
SHOWN = AccountCommitments(
    "eu-west-1",
    NOW,
    reserved_instances=(ReservedInstances("ri", "m5.large", 9, NOW + 1),),
    others=(InstanceUse("m5.large", "b", 2),),
)
NOTED = SharedUse(
    7,
    {
        "blue": ClusterUse(NOW, (InstanceUse("m5.large", "a", 5),)),
        "green": ClusterUse(NOW, (InstanceUse("m5.large", "c", 3),)),
    },
)


def snapshot() -> Snapshot:
    return Snapshot(cluster="blue", now=NOW, view=ClusterView(), claims=(with_fields(CLAIM, **RUNS),))


def test_what_is_left_is_less_all_others_and_our_own_as_it_runs_not_as_it_was_noted() -> None:
    facts = DecisionFacts(snapshot(), DecisionState(0), CATALOG)
    left = commitment_room(COUNTED, SHOWN, NOTED, "blue", facts)
    assert left.regional == (RegionalRoom("m5", (9 - 2 - 3 - 1) * 16),)
    assert commitment_room(COUNTED, None, NOTED, "blue", facts).is_empty
    assert commitment_room(COUNTED, SHOWN, None, "blue", facts).is_empty
    assert ActivePolicies.of(settings(None), ports()).planning_inputs(facts) == ()


def test_a_written_plan_gives_way_to_the_accounts_other_instances_too() -> None:
    left = commitment_room(WRITTEN, SHOWN, SharedUse(), "blue", DecisionFacts(snapshot(), DecisionState(0), CATALOG))
    assert [item.commitment for item in left.savings_plans] == [1_000_000 - (2 + 1) * 72_000]


def test_disruption_knows_what_the_accounts_others_leave_and_who_in_the_install_uses_it() -> None:
    facts = DecisionFacts(snapshot(), DecisionState(0), CATALOG)
    used = used_commitments(COUNTED, SHOWN, NOTED, "blue", facts)
    assert used.counted.regional == (RegionalRoom("m5", (9 - 2) * 16),)
    assert used.uses == (InstanceUse("m5.large", "a", 1), InstanceUse("m5.large", "c", 3))
    assert used.listed == {"m5.large": 100_000}
    assert ActivePolicies.of(settings(None), ports()).disruption_inputs(facts) == ()
    assert used_commitments(COUNTED, SHOWN, None, "blue", facts).counted.is_empty
    unknown = used_commitments(COUNTED, None, NOTED, "blue", facts)
    assert (unknown.counted.is_empty, unknown.uses) == (True, used.uses)


def test_a_note_holds_what_runs_and_what_is_planned_and_fails_if_another_was_first() -> None:
    store, meter = FakeCommitmentUse(), FakeMeter()
    context = ports(policy_ports={"commitment_use": store}, meter=meter)
    planned = with_fields(CLAIM, **RUNS | {"name": "p", "instance_id": "i-2"})
    before = store.read()
    noted = note_use(settings(), before, ONE, [planned], context)
    assert noted == SharedUse(1, {"blue": ClusterUse(NOW, (InstanceUse("m5.large", "a", 2),))})
    assert store.read() == noted
    assert note_use(settings(), noted, (InstanceUse("m5.large", "a", 2),), [], context) == noted
    assert store.read() == noted
    assert meter.counts == {}
    assert note_use(settings(), before, ONE, [planned], context) is None
    assert store.read() == noted
    assert meter.counts == {"CommitmentsMoved": 1}


@pytest.mark.parametrize("wanted", [COUNTED, None])
def test_the_use_is_read_where_commitments_are_counted_on(wanted: CommitmentSettings | None) -> None:
    store, meter, faults = FakeCommitmentUse(), FakeMeter(), Faults()
    assert store.note(SharedUse(), "blue", ClusterUse(NOW), NOW)
    assert read_use(settings(wanted), ports(policy_ports={"commitment_use": store})) == (
        None if wanted is None else store.read()
    )
    assert read_use(settings(wanted), ports()) is None
    faults.on("before", "commitment_use.read", StoreError("not now"))
    failing = ports(policy_ports={"commitment_use": FakeCommitmentUse(faults)}, meter=meter)
    assert read_use(settings(wanted), failing) is None
    assert meter.counts == ({} if wanted is None else {"CommitmentsNotRead": 1})

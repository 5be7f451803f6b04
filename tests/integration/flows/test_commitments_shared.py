"""Flows that use commitments: clusters of one account never launch on the same dollar, whatever is lost or dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.errors import StoreError
from shiplap.flows.policies.commitments_inputs import refresh_commitments, running_use
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, NodeSpec, ObjectMeta
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import (
    AccountCommitments,
    InstanceUse,
    ReservedInstances,
    SavingsPlan,
)
from shiplap.policies.commitments.commitment_settings import CommitmentSettings, WrittenPlan
from shiplap.policies.commitments.commitment_use import HELD_S, ClusterUse
from shiplap.policies.policy_settings import chosen
from shiplap_lab.fakes.faults import Crash
from shiplap_lab.policies.commitments_fakes import FakeCommitments, FakeCommitmentUse
from tests.builders.claims import node_claim
from tests.builders.pools import family_pool
from tests.integration.flows.disrupted import oversized
from tests.integration.flows.stage import ZONES, Stage

FAMILIES = (family_pool("any", ("m6i", "c7i"), sizes=("large",), capacity_types=("on-demand", "spot")),)
COUNTED = CommitmentSettings(counted_by="eu-west-1/shiplap", share="100%")
POD = {"cpu": "1200m", "memory": "2Gi"}
RATE = 69_120
"""What an hour of m6i.large takes of the Savings Plan, micro-dollars."""


def account_of(stage: Stage) -> FakeCommitments:
    """Return what the account of a stage has, and what is stored of it."""
    return cast("FakeCommitments", stage.policy_ports["commitments"]["commitments"])


def use_of(stage: Stage) -> FakeCommitmentUse:
    """Return the notes of who uses the commitments of a stage's account."""
    return cast("FakeCommitmentUse", stage.policy_ports["commitments"]["commitment_use"])


def with_reserved(count: int, *, beside: Stage | None = None, others: int = 0) -> Stage:
    """A cluster, alone or beside another, of an account with Reserved Instances for m6i.large."""
    stage = on_account(beside)
    if beside is None:
        reserved = ReservedInstances("ri", "m6i.large", count, stage.clock.now() + 1e6)
        used = (InstanceUse("m6i.large", ZONES[0], others),) if others else ()
        account_of(stage).save(
            AccountCommitments("eu-west-1", stage.clock.now(), reserved_instances=(reserved,), others=used)
        )
    return stage


def with_plan(count: int, *, beside: Stage | None = None) -> Stage:
    """As `with_reserved`, with the dollars of an EC2 Instance Savings Plan for so many m6i.large."""
    stage = on_account(beside)
    if beside is None:
        plan = SavingsPlan("sp", count * RATE, stage.clock.now() + 1e6, "m6i", {"m6i.large": RATE})
        account_of(stage).save(AccountCommitments("eu-west-1", stage.clock.now(), (plan,)))
    return stage


def on_account(beside: Stage | None) -> Stage:
    stage = Stage(FAMILIES, spot=True, beside=beside)
    stage.settings = replace(stage.settings, policies=chosen(COUNTED))
    return stage


either = pytest.mark.parametrize("account", [with_reserved, with_plan])


def on_commitments(*stages: Stage) -> int:
    """Return the number of running instances for which commitments were counted on."""
    return sum(
        instance.instance_type == "m6i.large" and instance.capacity_type == "on-demand"
        for instance in {instance.id: instance for stage in stages for instance in stage.compute.alive()}.values()
    )


def test_a_cluster_launches_what_is_paid_for_and_no_more_of_it() -> None:
    stage = with_reserved(2)
    stage.add_pods(4, **POD)
    assert len(stage.schedule().launched) == 4
    assert on_commitments(stage) == 2
    noted = use_of(stage).read().clusters[stage.name]
    assert sum(item.count for item in noted.instances) == 2


def test_instances_of_others_are_paid_for_first() -> None:
    stage = with_reserved(3, others=2)
    stage.add_pods(4, **POD)
    stage.schedule()
    assert on_commitments(stage) == 1


@pytest.mark.parametrize(("others", "ours"), [(0, 2), (1, 1), (2, 0)])
def test_a_written_plan_pays_for_what_instances_of_others_leave(others: int, ours: int) -> None:
    stage = on_account(None)
    plan = WrittenPlan(dollars_per_hour=2 * RATE / MICROS, discount="28%", family="m6i", end="2999-01-01")
    written = CommitmentSettings(counted_by="eu-west-1/shiplap", written=(plan,))
    stage.settings = replace(stage.settings, policies=chosen(written))
    used = (InstanceUse("m6i.large", ZONES[0], others),) if others else ()
    account_of(stage).shown = AccountCommitments("eu-west-1", stage.clock.now(), others=used)
    refresh_commitments(written, account_of(stage), account_of(stage), stage.meter)
    stage.add_pods(4, **POD)
    stage.schedule()
    assert on_commitments(stage) == ours


def test_without_the_setting_nothing_is_read_and_nothing_is_written() -> None:
    stage, plain = with_reserved(2), Stage(FAMILIES, spot=True)
    stage.settings = replace(stage.settings, policies=())
    for each in (stage, plain):
        each.add_pods(4, **POD)
        each.schedule()
        each.sweep()
    assert on_commitments(stage) == 0
    assert [point for point in stage.faults.points if "commitment" in point] == [
        "before commitments.save",
        "after commitments.save",
    ]
    assert [claim.plan for claim in stage.claims()] == [claim.plan for claim in plain.claims()]


@either
def test_clusters_of_one_install_share_what_is_left(account: Callable[..., Stage]) -> None:
    blue = account(3)
    green = account(3, beside=blue)
    blue.add_pods(2, **POD)
    green.add_pods(3, **POD)
    blue.schedule()
    green.schedule()
    assert (on_commitments(blue), on_commitments(green)) == (2, 1)


@either
def test_of_two_that_plan_on_the_same_dollars_one_plans_again(account: Callable[..., Stage]) -> None:
    blue = account(2)
    green = account(2, beside=blue)
    blue.add_pods(2, **POD)
    green.add_pods(2, **POD)
    blue.faults.on("before", "commitment_use.note", green.schedule)
    report = blue.schedule()
    assert len(report.launched) == 2
    assert report.rounds == 2
    assert blue.meter.counts["CommitmentsMoved"] == 1
    assert (on_commitments(green), on_commitments(blue)) == (2, 0)


@either
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("effect", ["commitments.load", "commitment_use.note", "state.commit", "compute.launch"])
def test_a_death_at_any_effect_counts_no_dollar_twice_and_loses_none(
    when: str, effect: str, account: Callable[..., Stage]
) -> None:
    blue = account(3)
    green = account(3, beside=blue)
    blue.add_pods(2, **POD)
    green.add_pods(3, **POD)
    blue.faults.on(when, effect, Crash())
    assert blue.dies(blue.schedule)
    green.schedule()
    assert on_commitments(blue, green) <= 3
    for _ in range(6):
        blue.clock.advance(HELD_S / 3)
        blue.sweep()
        green.sweep()
    assert on_commitments(blue, green) <= 3
    assert sum(len(claim.plan.pods) for stage in (blue, green) for claim in stage.claims() if claim.instance_id) == 5


def test_what_is_not_used_any_more_is_free_for_others_after_a_while() -> None:
    blue = with_reserved(2)
    green = with_reserved(2, beside=blue)
    gone = ClusterUse(blue.clock.now(), (InstanceUse("m6i.large", ZONES[0], 2),))
    assert use_of(blue).note(use_of(blue).read(), blue.name, gone, blue.clock.now())
    blue.sweep()
    green.add_pods(1, prefix="early", **POD)
    green.schedule()
    assert on_commitments(green) == 0
    blue.clock.advance(HELD_S)
    blue.sweep()
    green.add_pods(1, prefix="late", **POD)
    green.schedule()
    assert on_commitments(green) == 1


def test_a_node_that_has_joined_without_its_labels_is_counted() -> None:
    instance = {"instance_id": "i-1", "instance_type": "m6i.large", "zone": ZONES[0], "capacity_type": "on-demand"}
    claim = node_claim(cluster="demo", name="a", node_pool="any", node_class="d", state=ClaimState.LAUNCHED, **instance)
    node = Node(metadata=ObjectMeta(name="n"), spec=NodeSpec(provider_id=f"aws:///{ZONES[0]}/i-1"))
    assert running_use([node], [claim]) == running_use([], [claim]) == (InstanceUse("m6i.large", ZONES[0], 1),)


@pytest.mark.parametrize("effect", ["commitments.load", "commitment_use.read"])
def test_what_cannot_be_read_keeps_no_pod_waiting(effect: str) -> None:
    stage = with_reserved(2)
    stage.add_pods(1, **POD)
    stage.faults.on("before", effect, StoreError("not now"))
    assert len(stage.schedule().launched) == 1
    assert on_commitments(stage) == 0
    assert stage.meter.counts["CommitmentsNotRead"] == 1


def test_a_sweep_goes_on_when_the_use_cannot_be_noted() -> None:
    stage = with_reserved(2)
    stage.add_pods(1, **POD)
    stage.schedule()
    stage.clock.advance(7 * 3600)
    stage.faults.on("before", "commitment_use.note", StoreError("not now"))
    stage.sweep()
    assert stage.meter.counts["CommitmentsNotNoted"] == 1


def test_a_sweep_that_has_not_read_the_use_writes_no_note() -> None:
    stage = with_reserved(2)
    stage.add_pods(1, **POD)
    stage.schedule()
    noted = use_of(stage).read()
    stage.clock.advance(7 * 3600)
    stage.faults.on("before", "commitment_use.read", StoreError("not now"))
    stage.sweep()
    assert use_of(stage).read() == noted


def test_a_sweep_that_renews_the_note_decides_by_the_renewed_one() -> None:
    stage = with_reserved(2)
    stage.add_pods(1, **POD)
    stage.schedule()
    stage.clock.advance(7 * 3600)
    stage.add_pods(1, prefix="more", **POD)
    stage.sweep()
    assert len(stage.claims()) == 2
    assert "CommitmentsMoved" not in stage.meter.counts


def test_what_was_described_more_than_a_day_ago_is_not_counted_on() -> None:
    stage = with_reserved(2)
    stage.clock.advance(25 * 3600)
    stage.add_pods(1, **POD)
    stage.schedule()
    assert on_commitments(stage) == 0


def test_the_catalogue_describes_commitments_and_keeps_the_last_when_aws_refuses() -> None:
    stage = with_reserved(2)
    before = account_of(stage).load()
    refresh_commitments(COUNTED, account_of(stage), account_of(stage), stage.meter)
    assert account_of(stage).load() == before
    assert stage.meter.counts["CommitmentsNotDescribed"] == 1
    account_of(stage).shown = AccountCommitments("eu-west-1", 5.0)
    refresh_commitments(COUNTED, account_of(stage), account_of(stage), stage.meter)
    assert account_of(stage).load() == account_of(stage).shown


def test_a_claim_on_commitments_is_launched_as_nothing_else() -> None:
    stage = with_reserved(1)
    stage.add_pods(1, **POD)
    stage.schedule()
    (claim,) = stage.claims()
    wanted = {line.key: line.values for line in claim.plan.requirements}
    assert wanted[labels.CAPACITY_TYPE] == ("on-demand",)
    assert claim.plan.instance_types == ("m6i.large",)
    assert msgspec.json.encode(claim.plan.labels).count(b"on-demand") == 1


def test_a_replacement_notes_what_it_will_use_before_it_is_written() -> None:
    stage = oversized()
    reserved = ReservedInstances("ri", "m6i.large", 1, stage.clock.now() + 1e6)
    account_of(stage).save(AccountCommitments("eu-west-1", stage.clock.now(), reserved_instances=(reserved,)))
    stage.settings = replace(stage.settings, policies=chosen(COUNTED))
    stage.disrupt()
    stage.clock.advance(60)
    stage.faults.clear()
    stage.disrupt()
    points = list(stage.faults.points)
    assert points.index("before commitment_use.note") < points.index("before state.commit")

"""Ceilings in dollars, from shiplap.yaml to what runs, with every effect lost, doubled or late."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import FINAL, ClaimState
from shiplap.policies.ceilings.ceiling_input import CeilingInput
from shiplap.policies.ceilings.ceiling_use import hourly_micros
from shiplap.policies.ceilings.ceilings import CEILING_REACHED, CRITICAL_PRIORITY, Ceiling, CeilingMode
from shiplap.policies.ceilings.ceilings_settings import CeilingSettings
from shiplap.policies.policy_settings import chosen
from shiplap.records import scheduling_record as records
from shiplap.scheduling.planner import plan
from shiplap.spending.ledger import HOUR_S, month_end
from tests.builders.pools import family_pool
from tests.integration.flows.disrupted import Disrupted, kinds, oversized
from tests.integration.flows.live_stage import LiveStage
from tests.integration.flows.stage import Stage
from tests.thoroughness import moments

STOP = CeilingMode.STOP
LARGE = 80_000
"""Millionths of a dollar per hour of a c7i-flex.large, the only type of these tests."""

FLEX = (family_pool("flex", ("c7i-flex",), sizes=("large",)),)


def stage_below(*ceilings: Ceiling, account: Sequence[Ceiling] = (), beside: Stage | None = None) -> Stage:
    stage = Stage(FLEX, beside=beside)
    below = chosen(CeilingSettings(ceilings, tuple(account)))
    stage.settings = replace(stage.settings, policies=below, unproven_pod_nodes=0, dry_run=False)
    return stage


def hourly(dollars: float, **fields: object) -> Ceiling:
    return replace(Ceiling(hourly=dollars, mode=STOP, recovery_percent=0), **fields)


def monthly(dollars: float, **fields: object) -> Ceiling:
    return replace(Ceiling(monthly=dollars, mode=STOP, recovery_percent=0), **fields)


def one_each(stage: Stage, count: int, prefix: str = "web", priority: int = 0) -> None:
    """Pods of which a node holds one."""
    stage.add_pods(count, cpu="1500m", prefix=prefix)
    for number in range(count):
        stage.server.patch("pods", f"{prefix}-{number:03d}", {"spec": {"priority": priority}})


def living(*stages: Stage) -> int:
    """Return the cost of all nodes per hour."""
    claims = (claim for stage in stages for claim in stage.claims())
    return sum(hourly_micros(claim) for claim in claims if claim.state not in FINAL)


def play(stage: Stage, minutes: int = 8) -> None:
    """As `play_on`, whether or not pods go on waiting."""
    for _ in range(minutes):
        stage.sweep()
        stage.join()
        stage.attend(*stage.due())
        stage.bind()
        stage.clock.advance(60)


def _counted(stage: Stage, name: str) -> float:
    return stage.meter.counts.get(name, 0)


def told(stage: Stage) -> list[str]:
    return [event["message"] for event in stage.server.list("events").items]


def test_no_more_is_launched_than_an_hourly_ceiling_allows_and_pods_say_so() -> None:
    stage = stage_below(hourly(0.25))
    one_each(stage, 5)
    report = stage.schedule()
    assert (len(report.launched), report.unschedulable) == (3, 2)
    assert living(stage) == 3 * LARGE
    waiting = [message for message in told(stage) if CEILING_REACHED in message]
    assert len(waiting) == 2
    assert "cluster demo, $0.25 per hour: $0.24 in use, a node takes $0.08" in waiting[0]
    play(stage)
    assert living(stage) == 3 * LARGE


def test_what_ends_makes_room() -> None:
    stage = stage_below(hourly(0.09))
    one_each(stage, 2)
    play(stage)
    (claim,) = stage.claims()
    stage.server.delete("pods", claim.plan.pods[0].name)
    stage.compute.terminate("demo", claim.instance_id)
    stage.server.delete("nodes", claim.node_name, None)
    stage.clock.advance(400)
    play(stage)
    assert len([known for known in stage.claims() if known.state is ClaimState.INITIALIZED]) == 1
    assert living(stage) == LARGE


def test_critical_pods_get_nodes_at_the_expense_of_what_is_kept_for_recovery() -> None:
    stage = stage_below(hourly(0.2, recovery_percent=50))
    one_each(stage, 3)
    one_each(stage, 1, prefix="dns", priority=CRITICAL_PRIORITY)
    report = stage.schedule()
    assert (len(report.launched), report.unschedulable) == (1, 3)
    (claim,) = stage.claims()
    assert claim.plan.pods[0].name == "dns-000"


def test_priority_gives_nodes_only_to_more_important_pods() -> None:
    stage = stage_below(hourly(0.01, mode=CeilingMode.PRIORITY, above_priority=100))
    stage.add_pods(1, prefix="low")
    stage.add_pods(1, prefix="high")
    stage.server.patch("pods", "high-000", {"spec": {"priority": 101}})
    stage.schedule()
    (claim,) = stage.claims()
    assert [pod.name for pod in claim.plan.pods] == ["high-000"]
    assert "only pods of a priority above 100 get nodes" in told(stage)[0]


def test_warn_launches_and_counts() -> None:
    stage = stage_below(hourly(0.01, mode=CeilingMode.WARN))
    one_each(stage, 2)
    assert len(stage.schedule().launched) == 2
    stage.sweep()
    assert _counted(stage, "CeilingsReached") == 1


def test_a_decision_below_a_ceiling_is_replayed_exactly() -> None:
    stage = stage_below(hourly(0.25))
    one_each(stage, 5)
    stage.schedule()
    (recorded,) = stage.recorder.records.values()
    record = records.decode(recorded) if isinstance(recorded, bytes) else recorded
    assert record.snapshot.policy(CeilingInput) is not None
    assert plan(record.snapshot) == record.plan


def test_without_ceilings_nothing_of_dollars_is_read_or_written() -> None:
    stage = Stage(FLEX)
    one_each(stage, 2)
    stage.play_on()
    for _ in range(3):
        stage.clock.advance(HOUR_S)
        stage.sweep()
    assert not [point for point in stage.faults.points if "ledger" in point or "close" in point or "spending" in point]
    assert {claim.most_hourly for claim in stage.claims()} == {0.0}
    assert stage.state.read("demo", stage.clock.now()).ledger is None


def test_a_month_reserves_what_its_nodes_will_cost() -> None:
    """Nothing is known of lives yet, so each node is reserved to the end of the month; later ones take less."""
    stage = stage_below(monthly(1.0))
    now = stage.clock.now()
    stage.clock.advance(month_end(now) - now - 5 * HOUR_S)
    one_each(stage, 5)
    assert len(stage.schedule().launched) == 2  # of 0.40 each
    for _ in range(4):
        play(stage)
        stage.clock.advance(HOUR_S - 480)
    stage.clock.advance(2 * HOUR_S + 60)
    play(stage)
    ledger = stage.state.read("demo", 0).ledger
    assert ledger is not None
    assert 800_000 < ledger.last_month.spent <= 1_000_000


def test_two_clusters_share_the_ceiling_of_their_account() -> None:
    first = stage_below(account=[hourly(0.25)])
    second = stage_below(account=[hourly(0.25)], beside=first)
    one_each(first, 2)
    one_each(second, 2)
    assert len(first.schedule().launched) == 2
    assert len(second.schedule().launched) == 1
    assert living(first, second) == 3 * LARGE
    assert first.state.read("demo", 0).account_spending.hourly == 3 * LARGE


def test_of_two_clusters_that_decide_at_once_one_decides_again() -> None:
    first = stage_below(account=[hourly(0.09)])
    second = stage_below(account=[hourly(0.09)], beside=first)
    one_each(first, 1)
    one_each(second, 1)
    first.faults.on("before", "state.commit", second.schedule)
    assert first.schedule().launched == ()
    assert living(first, second) == LARGE
    assert _counted(first, "EpochsMoved") == 1


@pytest.mark.parametrize("account", [True, False])
def test_wherever_a_function_dies_no_dollar_is_counted_twice_and_no_ceiling_passed(account: bool) -> None:
    """Launch, post and count, killed at each effect; the next invocations finish the work."""
    ceiling = hourly(0.25)

    def begun() -> Stage:
        stage = stage_below(account=[ceiling]) if account else stage_below(ceiling)
        one_each(stage, 4)
        return stage

    whole = begun()
    whole.faults.clear()
    whole.sweep()
    for point in moments(len(whole.faults.points), account):
        stage = begun()
        stage.faults.clear()
        stage.faults.crash_at(point)
        stage.dies(stage.sweep)
        stage.faults.clear()
        assert living(stage) <= 250_000
        stage.clock.advance(120)
        play(stage)
        assert living(stage) == 3 * LARGE
        if account:
            assert stage.state.read("demo", 0).account_spending.hourly == 3 * LARGE


def test_each_hour_is_posted_once_wherever_the_sweep_dies() -> None:
    def begun() -> Stage:
        stage = stage_below(hourly(5), account=[monthly(1000)])
        one_each(stage, 2)
        stage.play_on()
        stage.clock.advance(HOUR_S)
        stage.faults.clear()
        return stage

    whole = begun()
    whole.sweep()
    expected = whole.state.read("demo", 0).ledger
    assert expected is not None
    assert expected.this_month.by_namespace.keys() == {"default"}
    number = len(whole.faults.points)
    for point in range(number):
        stage = begun()
        stage.faults.crash_at(point)
        stage.dies(stage.sweep)
        stage.faults.clear()
        stage.sweep()
        known = stage.state.read("demo", 0).ledger
        assert known is not None
        assert known.this_month == expected.this_month


def test_an_ended_node_is_posted_to_its_end_and_closed() -> None:
    stage = stage_below(hourly(5))
    one_each(stage, 1)
    stage.play_on()
    (claim,) = stage.claims()
    stage.server.delete("pods", "web-000")
    stage.clock.advance(1800)
    stage.sweep()
    stage.compute.terminate("demo", claim.instance_id)
    stage.server.delete("nodes", claim.node_name, None)
    stage.clock.advance(400)
    play(stage)
    ended = stage.state.claim("demo", claim.name)
    assert ended is not None
    assert ended.state is ClaimState.GONE
    stage.clock.advance(HOUR_S)
    stage.sweep()
    stage.clock.advance(HOUR_S)
    stage.sweep()
    ledger = stage.state.read("demo", 0).ledger
    assert ledger is not None
    seconds = ended.changed_at - claim.created_at
    assert abs(ledger.this_month.spent - seconds * LARGE / HOUR_S) <= 3
    assert stage.state.ledger_claims("demo") == ()


def oversized_below(dollars: float) -> Disrupted:
    stage = oversized()
    ceiling = Ceiling(hourly=dollars, mode=STOP)
    stage.settings = replace(stage.settings, policies=chosen(CeilingSettings(of_account=(ceiling,))))
    return stage


def test_a_cheaper_node_takes_the_place_of_a_dear_one_below_the_ceiling_of_the_account() -> None:
    stage = oversized_below(0.6)
    stage.minutes(14)
    assert kinds(stage) == ["m6i.large"]
    assert stage.state.read(stage.name, 0).account_spending.hourly == living(stage) == 96_000


def test_no_node_is_replaced_while_both_would_cost_more_than_the_ceiling_stops_at() -> None:
    stage = oversized_below(0.4)
    stage.minutes(4)
    assert kinds(stage) == ["m6i.2xlarge"]
    assert stage.state.commands(stage.name) == ()
    assert stage.disrupt().blocked == 1


@pytest.mark.parametrize("account", [True, False])
def test_wherever_a_replacement_dies_the_counters_are_true_in_the_end(account: bool) -> None:
    def begun() -> Disrupted:
        stage = oversized_below(0.6)
        if not account:
            ceiling = Ceiling(hourly=0.6, mode=STOP)
            stage.settings = replace(stage.settings, policies=chosen(CeilingSettings((ceiling,))))
        stage.disrupt()
        stage.clock.advance(60)
        stage.faults.clear()
        return stage

    whole = begun()
    whole.disrupt()
    commits = [place for place, point in enumerate(whole.faults.points) if "commit" in point or "ledger" in point]
    for point in commits:
        stage = begun()
        stage.faults.crash_at(point)
        assert stage.dies(stage.disrupt)
        stage.faults.clear()
        stage.minutes(14)
        assert kinds(stage) == ["m6i.large"]
        assert stage.state.read(stage.name, 0).account_spending.hourly == (96_000 if account else 0)


def test_a_nodeclaim_of_a_user_waits_below_a_ceiling_and_stays() -> None:
    stage = LiveStage()
    stage.deployed = replace(stage.deployed, policies=chosen(CeilingSettings((hourly(0.01),))))
    on_demand = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
    node_class = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    spec = {"nodeClassRef": node_class, "requirements": [on_demand]}
    metadata = {"name": "mine", "creationTimestamp": rfc3339(stage.clock.now())}
    stage.server.create("nodeclaims", {"kind": "NodeClaim", "metadata": metadata, "spec": spec})
    for _ in range(3):
        stage.minute()
    assert not stage.claims()
    assert [item["metadata"]["name"] for item in stage.server.list("nodeclaims").items] == ["mine"]

"""A decision is made again when something else than the time has changed, or when the time makes a difference."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.disruption.candidates import UNSTARTED_S
from shiplap.disruption.decide import decide
from shiplap.disruption.decision_clock import LONGEST_S
from shiplap.disruption.disruption_snapshot import DisruptionSettings, DisruptionSnapshot, NodeHistory
from shiplap.disruption.standstill import LastDecision
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Event, EventSource, NodeCondition, ObjectReference, Pod
from shiplap.kubernetes.timestamps import rfc3339
from tests.builders.claims import with_fields
from tests.builders.pods import pod
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, fake_type
from tests.conformance.disruptions import holds_until
from tests.living_cluster import LivingCluster

SMALL = fake_type("small", cpu="2", memory="4Gi", pods="10", price=1.0, offerings=(("on-demand", Z1),))
LARGE = fake_type("large", cpu="4", memory="8Gi", pods="20", price=1.9, offerings=(("on-demand", Z1),))
HOUR_S = 3600
NIGHT = datetime(2027, 1, 15, 21, 50, tzinfo=UTC).timestamp()


def settled_cluster(**fields: object) -> LivingCluster:
    """Two full nodes and nothing to do."""
    settled = LivingCluster([pool(after="5m", **fields)], [SMALL, LARGE], now=NIGHT)  # type: ignore[arg-type]
    settled.create(pod(f"p{number}", cpu="1800m") for number in range(2))
    settled.schedule()
    settled.now += 2 * HOUR_S
    return settled


def later(snapshot: DisruptionSnapshot, seconds: float) -> DisruptionSnapshot:
    return replace(snapshot, scheduling=replace(snapshot.scheduling, now=snapshot.scheduling.now + seconds))


def with_nodes(snapshot: DisruptionSnapshot, change: Callable[[str], str]) -> DisruptionSnapshot:
    view = snapshot.scheduling.view
    nodes = tuple(
        replace(node, metadata=replace(node.metadata, resource_version=change(node.metadata.resource_version)))
        for node in view.nodes
    )
    changed = replace(snapshot.scheduling, view=replace(view, nodes=nodes, version="9"), epoch=77)
    return replace(snapshot, scheduling=changed)


def test_what_only_looks_different_is_not_decided_anew() -> None:
    snapshot, last = settled_cluster().disruption_snapshot(), LastDecision()
    first = last(snapshot)
    assert first.commands == ()
    assert last(later(with_nodes(snapshot, lambda version: version + "1"), 60)) is first


def test_a_pod_that_came_is_seen() -> None:
    grown, last = settled_cluster(), LastDecision()
    first = last(grown.disruption_snapshot())
    grown.create([pod("another", cpu="100m")])
    assert last(grown.disruption_snapshot()) is not first


def versioned(snapshot: DisruptionSnapshot, *, pods: str, claims: int) -> DisruptionSnapshot:
    """The same as it is listed: with versions of pods and claims."""
    scheduling = snapshot.scheduling
    listed = tuple(
        replace(item, metadata=replace(item.metadata, uid=item.key, resource_version=pods))
        for item in scheduling.view.pods
    )
    written = tuple(replace(claim, version=claims) for claim in scheduling.claims)
    return replace(snapshot, scheduling=replace(scheduling, view=replace(scheduling.view, pods=listed), claims=written))


@pytest.mark.parametrize(("pods", "claims"), [("8", 3), ("7", 4)])
def test_another_version_of_a_pod_or_a_claim_is_another_pod_or_claim(pods: str, claims: int) -> None:
    snapshot, last = settled_cluster().disruption_snapshot(), LastDecision()
    first = last(versioned(snapshot, pods="7", claims=3))
    assert last(versioned(snapshot, pods="7", claims=3)) is first
    assert last(versioned(snapshot, pods=pods, claims=claims)) is not first


def test_a_pod_without_a_version_is_compared_as_a_whole() -> None:
    snapshot, last = settled_cluster().disruption_snapshot(), LastDecision()
    view = snapshot.scheduling.view
    bare = [replace(item, metadata=replace(item.metadata, resource_version="")) for item in view.pods]
    changed = [replace(item, metadata=replace(item.metadata, labels={"new": "label"})) for item in bare]

    def seen(pods: list[Pod]) -> DisruptionSnapshot:
        listed = replace(view, pods=tuple(pods))
        return replace(snapshot, scheduling=replace(snapshot.scheduling, view=listed))

    first = last(seen(bare))
    assert last(seen(bare)) is first
    assert last(seen(changed)) is not first


def test_a_decision_that_commands_something_is_made_again() -> None:
    emptied, last = settled_cluster(), LastDecision()
    emptied.delete([min(emptied.pods)])
    first = last(emptied.disruption_snapshot())
    assert first.commands
    second = last(later(emptied.disruption_snapshot(), 60))
    assert second.commands
    assert second is not first


def test_however_little_happens_it_is_made_again_after_a_while() -> None:
    snapshot, last = settled_cluster().disruption_snapshot(), LastDecision()
    first = last(snapshot)
    assert last(later(snapshot, LONGEST_S - 1)) is first
    assert last(later(snapshot, LONGEST_S)) is not first


def test_a_clock_that_was_set_back_is_not_trusted() -> None:
    snapshot, last = settled_cluster().disruption_snapshot(), LastDecision()
    first = last(snapshot)
    assert last(later(snapshot, -1)) is not first


def test_nodes_of_static_pools_change_with_every_second() -> None:
    snapshot = settled_cluster(replicas=2).disruption_snapshot()
    assert holds_until(snapshot) <= snapshot.scheduling.now
    manifests = snapshot.scheduling.manifests
    beside = replace(manifests, node_pools=(*manifests.node_pools, pool("other")))
    mixed = replace(snapshot, scheduling=replace(snapshot.scheduling, manifests=beside))
    assert holds_until(mixed) <= mixed.scheduling.now


def history(**fields: float) -> Callable[[LivingCluster], DisruptionSnapshot]:
    """The first node with this history, its times counted from now."""

    def given_a_cluster(settled: LivingCluster) -> DisruptionSnapshot:
        known = NodeHistory(min(settled.nodes), **{name: settled.now + at for name, at in fields.items()})
        return replace(settled.disruption_snapshot(), histories=(known,), settings=DisruptionSettings(settle_s=1800))

    return given_a_cluster


def given_up(settled: LivingCluster) -> DisruptionSnapshot:
    known = NodeHistory(min(settled.nodes), undone_at=settled.now - 870, undone=1)
    return replace(settled.disruption_snapshot(), histories=(known,))


def protected(settled: LivingCluster) -> DisruptionSnapshot:
    key = min(settled.pods)
    item = settled.pods[key]
    meta = replace(item.metadata, annotations={labels.DO_NOT_DISRUPT: "10m"})
    status = replace(item.status, start_time=rfc3339(settled.now - 570))
    settled.pods[key] = replace(item, metadata=meta, status=status)
    return settled.disruption_snapshot()


def scaled_up(settled: LivingCluster) -> DisruptionSnapshot:
    said = Event(
        involved_object=ObjectReference(kind="Pod", namespace="default", name="p0"),
        reason="TriggeredScaleUp",
        source=EventSource("cluster-autoscaler"),
        last_timestamp=rfc3339(settled.now - 570),
    )
    snapshot = settled.disruption_snapshot()
    view = replace(snapshot.scheduling.view, events=(said,))
    return replace(snapshot, scheduling=replace(snapshot.scheduling, view=view))


def starting(settled: LivingCluster) -> DisruptionSnapshot:
    name = min(settled.nodes)
    node = settled.nodes[name]
    meta = replace(node.metadata, creation_timestamp=rfc3339(settled.now - 870))
    status = replace(node.status, conditions=(NodeCondition("Ready", "False"),))
    settled.nodes[name] = replace(node, metadata=meta, status=status)
    return settled.disruption_snapshot()


def aged(seconds: float) -> Callable[[LivingCluster], DisruptionSnapshot]:
    def given_a_cluster(settled: LivingCluster) -> DisruptionSnapshot:
        for name, claim in settled.claims.items():
            settled.claims[name] = replace(claim, created_at=settled.now - seconds)
        return settled.disruption_snapshot()

    return given_a_cluster


def of_its_own_word(settled: LivingCluster) -> DisruptionSnapshot:
    aged(3 * HOUR_S - 30)(settled)
    name = min(settled.claims)
    settled.claims[name] = with_fields(settled.claims[name], expire_after="3h")
    return settled.disruption_snapshot()


@pytest.mark.parametrize(
    ("look", "fields"),
    [
        (of_its_own_word, {}),
        (history(initialized_at=-270), {}),
        (history(last_pod_event_at=-270), {}),
        (history(moved_in_at=-1770), {}),
        (given_up, {}),
        (protected, {}),
        (scaled_up, {}),
        (starting, {}),
        (aged(3 * HOUR_S - 30), {"expire_after": "3h"}),
        (aged(HOUR_S - 30), {}),  # a type that has vanished counts as drift from this age on
    ],
)
def test_it_is_made_again_when_a_time_is_up(
    look: Callable[[LivingCluster], DisruptionSnapshot], fields: dict[str, str]
) -> None:
    """Each in thirty seconds."""
    snapshot, last = look(settled_cluster(**fields)), LastDecision()
    first = last(snapshot)
    assert last(later(snapshot, 29)) is first
    assert last(later(snapshot, 30)) is not first


@pytest.mark.parametrize(("schedule", "duration"), [("0 0 * * *", "8h"), ("50 23 * * *", "10m"), ("0 * * * *", "1m")])
def test_it_is_made_again_when_a_budget_begins_or_ends(schedule: str, duration: str) -> None:
    """Ten to midnight, when all of these change."""
    budget = {"nodes": "0", "schedule": schedule, "duration": duration}
    snapshot, last = settled_cluster(budgets=[budget]).disruption_snapshot(), LastDecision()
    assert datetime.fromtimestamp(snapshot.scheduling.now, UTC).minute == 50
    first = last(snapshot)
    assert last(later(snapshot, 599)) is first
    assert last(later(snapshot, 600)) is not first


@pytest.mark.parametrize(("zone", "minutes"), [("Asia/Tokyo", 10), ("Asia/Kathmandu", 25)])
def test_it_is_made_again_when_a_budget_of_another_time_zone_begins(zone: str, minutes: int) -> None:
    """Ten to midnight in UTC; ten to nine in Tokyo, and twenty-five to six in Kathmandu. Nothing changes before."""
    schedule = "0 9 * * *" if zone == "Asia/Tokyo" else "0 6 * * *"
    made = settled_cluster(
        budgets=[{"nodes": "0", "schedule": schedule, "duration": "8h"}],
        annotations={"shiplap.dev/disruption-time-zone": zone},
    )
    snapshot, last = made.disruption_snapshot(), LastDecision()
    due_s = min(minutes * 60.0, LONGEST_S)
    first = last(snapshot)
    assert last(later(snapshot, due_s - 1)) is first
    assert last(later(snapshot, due_s)) is not first


def test_a_budget_that_cannot_be_read_says_the_same_at_any_time() -> None:
    snapshot = settled_cluster(budgets=[{"nodes": "0", "schedule": "never", "duration": "8h"}]).disruption_snapshot()
    assert holds_until(snapshot) == pytest.approx(snapshot.scheduling.now + LONGEST_S, abs=1)


@given(
    sizes=st.lists(st.sampled_from(["200m", "900m", "1800m"]), min_size=1, max_size=6),
    ages=st.lists(st.integers(0, 4000), min_size=6, max_size=6),
    after=st.sampled_from(["0s", "1m", "10m", "Never"]),
    expire_after=st.sampled_from(["1h", "70m", "Never"]),
    window=st.sampled_from([None, ("*/7 * * * *", "3m"), ("0 22 * * *", "90m")]),
    passed=st.lists(st.integers(1, 400), min_size=1, max_size=5),
)
def test_it_is_what_would_be_decided(
    sizes: list[str],
    ages: list[int],
    after: str,
    expire_after: str,
    window: tuple[str, str] | None,
    passed: list[int],
) -> None:
    budget = {"nodes": "0", "schedule": window[0], "duration": window[1]} if window else {"nodes": "1"}
    some = pool(after=after, expire_after=expire_after, budgets=[budget])
    living = LivingCluster([some], [SMALL, LARGE], now=NIGHT)
    living.create(pod(f"p{number}", cpu=size) for number, size in enumerate(sizes))
    living.schedule()
    living.delete(sorted(living.pods)[1::2])
    known = tuple(
        NodeHistory(name, initialized_at=NIGHT - age, last_pod_event_at=NIGHT - age / 2, moved_in_at=NIGHT - age / 3)
        for name, age in zip(sorted(living.nodes), ages, strict=False)
    )
    last = LastDecision()
    for seconds in passed:
        living.now += seconds
        snapshot = replace(living.disruption_snapshot(), histories=known)
        one, other = last(snapshot), decide(snapshot)
        assert one.commands == other.commands
        assert one.drifted == other.drifted
        assert [item.node for item in one.blocked] == [item.node for item in other.blocked]


def test_a_node_that_changed_is_seen() -> None:
    snapshot, last = settled_cluster().disruption_snapshot(), LastDecision()
    first = last(snapshot)
    view = snapshot.scheduling.view
    nodes = tuple(replace(node, spec=replace(node.spec, unschedulable=True)) for node in view.nodes)
    seen = replace(snapshot.scheduling, view=replace(view, nodes=nodes, version="9"))
    assert last(later(replace(snapshot, scheduling=seen), 60)) is not first


def test_a_pod_whose_protection_cannot_be_read_hides_no_other() -> None:
    settled = settled_cluster()
    for key, value in zip(sorted(settled.pods), ("soon", "10m"), strict=True):
        item = settled.pods[key]
        meta = replace(item.metadata, annotations={labels.DO_NOT_DISRUPT: value})
        status = replace(item.status, start_time=rfc3339(settled.now - 570))
        settled.pods[key] = replace(item, metadata=meta, status=status)
    snapshot = settled.disruption_snapshot()
    assert holds_until(snapshot) == pytest.approx(snapshot.scheduling.now + 30, abs=1)


@pytest.mark.parametrize(("phase", "moment"), [("Pending", 30.0), ("Running", None)])
def test_a_pod_that_should_have_started_is_looked_at_when_its_time_is_up(phase: str, moment: float | None) -> None:
    settled = settled_cluster()
    key = min(settled.pods)
    item = settled.pods[key]
    status = replace(item.status, phase=phase, start_time=rfc3339(settled.now - UNSTARTED_S + 30))
    settled.pods[key] = replace(item, status=status)
    snapshot = settled.disruption_snapshot()
    expected = LONGEST_S if moment is None else moment
    assert holds_until(snapshot) == pytest.approx(snapshot.scheduling.now + expected, abs=1)


def test_only_nodes_with_a_pod_that_has_not_started_are_looked_at_when_its_time_is_up() -> None:
    settled = settled_cluster()
    known = tuple(
        NodeHistory(name, initialized_at=settled.now - 3000, last_pod_event_at=settled.now - UNSTARTED_S + 30)
        for name in sorted(settled.nodes)
    )
    quiet = replace(settled.disruption_snapshot(), histories=known)
    assert holds_until(quiet) == pytest.approx(settled.now + LONGEST_S, abs=1)
    key = min(settled.pods)
    item = settled.pods[key]
    settled.pods[key] = replace(item, status=replace(item.status, phase="Pending", start_time=""))
    starting = replace(settled.disruption_snapshot(), histories=known)
    assert holds_until(starting) == pytest.approx(settled.now + 30, abs=1)


def test_a_moment_that_is_now_is_still_to_come() -> None:
    """Nothing is said of it: a decision made right at a moment is made again right after it."""
    snapshot = settled_cluster().disruption_snapshot()
    until = holds_until(snapshot)
    at = replace(snapshot, scheduling=replace(snapshot.scheduling, now=until + 0.001))
    assert holds_until(at) == pytest.approx(until)
    assert holds_until(later(at, 0.001)) > until + 1

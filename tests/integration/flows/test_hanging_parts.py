"""An effect that may be refused without harm may also hang: the function still decides, acts and acknowledges soon.

Nobody lists here what is optional. Each effect of a function is refused first. If the function does its work all the
same, then the effect may hang: the work is the same again, and it takes no longer than a budget. An effect that hangs
outside of any budget ends the test with `Hang`.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.cluster.bounded_connections import left_s
from shiplap.cluster.snapshot_keeper import SnapshotKeeper
from shiplap.errors import AwsThrottled, ClusterUnreachable, ShiplapError, StoreThrottled
from shiplap.flows.install import EmfMeter
from shiplap.flows.interrupt import entry as interrupt_entry
from shiplap.flows.lifecycle.lifecycle import visit_claims
from shiplap.flows.messages import NodeSeen
from shiplap.flows.optional.optional_calls import DEAD_LETTERS, METRICS, MOST_LOST_S, PARTS
from shiplap.flows.otlp_push import OtlpPush
from shiplap.flows.planning import decision_inputs
from shiplap.flows.schedule import entry
from shiplap.flows.shown_claims import show_claims
from shiplap.flows.sweep.manifest_statuses import publish_statuses
from shiplap.policies.registry import POLICIES, flow_of
from shiplap.ports import DeadLetters
from shiplap.settings import OtlpSettings
from shiplap_lab.fakes.faults import Hang
from shiplap_lab.fakes.signals import FakeDeadLetters
from shiplap_lab.fakes.stores import FakeSnapshots
from tests.integration.flows.capacity_blocks import HOUR_S, staged
from tests.integration.flows.disrupted import Disrupted, oversized
from tests.integration.flows.hanging_plays import NotedCalls, Played, done, prepared, run_dry, sweeping
from tests.integration.flows.leaving import warning
from tests.integration.flows.live_stage import LiveStage
from tests.integration.flows.shared_install import Clusters, Context, SharedInstall, launched, pending, records
from tests.integration.flows.stage import Stage
from tests.integration.flows.strangers import found
from tests.policy_parts import policy_parts

REQUIRED = {
    "state.*": "a decision is made from table state and written to it: without it there is none",
    "compute.instances": "the sweep finds leaks with it; EC2 that does not answer it launches nothing either",
    "cluster.watch": "what has changed since a snapshot is waited for a second; the transport bounds the rest",
    "cluster.patch_node": "it closes the node of a decision; the transport and the cluster's turn bound it",
}
"""Effects that may be refused, but not be left out after a while; with the reason."""


def scheduling() -> Played:
    """Two pods get a node, and a third fits nowhere; EC2 refuses the preferred type."""
    stage = Stage()
    stage.add_pods(2)
    stage.add_pods(1, memory="1Ti", prefix="giant")
    for name in stage.types:
        if name.startswith("c7i-flex."):
            run_dry(stage, name, "on-demand")

    def act(stage: Stage) -> Any:
        report = stage.schedule()
        return report.unfinished, len(report.launched), done(stage)

    return prepared(stage, act)


def launching_together() -> Played:
    """Equal nodes come of one launch, and get their names when they are there."""
    stage = Stage()
    stage.add_pods(1, cpu="7")
    stage.play_on()
    stage.add_pods(3, cpu="7", prefix="late")
    stage.prove_pending_kinds()

    def act(stage: Stage) -> Any:
        report = stage.schedule()
        return report.unfinished, len(report.launched), done(stage)

    return prepared(stage, act)


def sweeping_blocks() -> Played:
    """A node stands in a capacity block that is about to end."""
    stage = staged(3 * HOUR_S)
    stage.add_pods(1, cpu="1200m")
    stage.schedule()
    stage.play_on()

    def act(stage: Stage) -> Any:
        report = stage.sweep()
        return report.unfinished, done(stage)

    return prepared(stage, act)


def scheduling_beside_strangers() -> Played:
    """A node of somebody else's could teach its capacity."""

    def act(stage: Stage) -> Any:
        report = stage.schedule()
        return report.unfinished, len(report.launched)

    return prepared(found(), act)


def scheduling_with_a_snapshot() -> Played:
    """The pods of a large cluster are in the bucket."""
    stage = Stage()
    stage.add_pods(2)
    stage.play_on()
    snapshots = FakeSnapshots(stage.faults)
    keeper = SnapshotKeeper(stage.name, stage.cluster, snapshots, clock=stage.clock, fewest_pods=1)
    keeper.established.set()
    keeper.round(1.0)
    stage.context = replace(stage.context, snapshots=snapshots)
    stage.add_pods(1, prefix="late", cpu="7")

    def act(stage: Stage) -> Any:
        report = stage.schedule()
        return report.unfinished, len(report.launched)

    return prepared(stage, act)


def joining() -> Played:
    """Nodes join: they are registered, opened and complete, and their pods are nominated."""
    stage = Stage()
    stage.add_pods(3)
    stage.schedule()
    stage.join()

    def act(stage: Stage) -> Any:
        report = stage.attend()
        return len(report.registered), len(report.initialized), done(stage)

    return prepared(stage, act)


def giving_up() -> Played:
    """An instance has not become a node in time."""
    stage = Stage()
    stage.add_pods(1)
    stage.schedule()
    stage.clock.advance(3600)

    def act(stage: Stage) -> Any:
        report = stage.attend(*stage.due())
        return len(report.ended), [state for state, _ in done(stage)]

    return prepared(stage, act)


def disrupting() -> Played:
    """A node that is too large has been seen to twice, and its command begins."""
    stage = oversized()
    stage.disrupt()
    stage.around()

    def act(stage: Stage) -> Any:
        assert isinstance(stage, Disrupted)
        report = stage.disrupt()
        return report.proposed, len(report.begun), done(stage)

    return prepared(stage, act)


def showing() -> Played:
    """NodeClaim objects and statuses of live manifests follow a launch and a join."""
    stage = LiveStage()
    stage.add_pods(1)
    stage.schedule()
    stage.join()

    def act(stage: Stage) -> Any:
        assert isinstance(stage, LiveStage)
        (node,) = stage.cluster.nodes()
        seen = NodeSeen(stage.name, node.metadata.name, node.spec.provider_id)
        report = visit_claims(stage.settings, [seen], stage.context)
        show_claims(report.registered, stage.settings, stage.context)
        publish_statuses(stage.settings, stage.context, stage.known, stage.manifest_state)
        return len(report.registered), done(stage)

    return prepared(stage, act)


STORIES: dict[str, Callable[[], Played]] = {
    story.__name__: story
    for story in (
        scheduling,
        launching_together,
        sweeping,
        sweeping_blocks,
        scheduling_beside_strangers,
        scheduling_with_a_snapshot,
        joining,
        giving_up,
        disrupting,
        showing,
        *(story for module in policy_parts("integration.flows", "hanging") for story in module.STORIES),
    )
}


def refusal(effect: str) -> ShiplapError:
    """Return the error that an adapter raises when its call is refused for now."""
    if effect.startswith("cluster."):
        return ClusterUnreachable("refused", status=503)
    if effect.startswith(("compute.", "health.")):
        return AwsThrottled("refused", code="RequestLimitExceeded")
    return StoreThrottled("refused")


def played(story: str, effects: dict[str, BaseException]) -> tuple[object, float]:
    """Return the result of a story if these effects always raise, and its duration in virtual seconds."""
    told = STORIES[story]()
    for effect, error in effects.items():
        told.stage.faults.always(effect, error)
    began_at = told.stage.clock.now()
    try:
        work: object = told.act()
    except ShiplapError as error:
        work = error
    return work, told.stage.clock.now() - began_at


def effects_of(story: str) -> list[str]:
    told = STORIES[story]()
    told.act()
    passed = {point.partition(" ")[2] for point in told.stage.faults.points}
    return sorted(effect for effect in passed if not any(fnmatchcase(effect, name) for name in REQUIRED))


@pytest.fixture(autouse=True)
def snapshots_of_small_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_inputs, "FEWEST_NODES", 1)


def optional_effects(story: str) -> list[str]:
    """Effects without which the work of a story is the same."""
    work, _ = played(story, {})
    return [effect for effect in effects_of(story) if played(story, {effect: refusal(effect)})[0] == work]


@pytest.mark.parametrize("story", STORIES)
def test_what_may_be_refused_may_hang(story: str) -> None:
    work, usual_s = played(story, {})
    optional = optional_effects(story)
    assert optional
    for effect in optional:
        with_hang, took_s = played(story, {effect: Hang(effect)})
        assert with_hang == work, effect
        assert took_s - usual_s <= MOST_LOST_S, effect


@pytest.mark.parametrize("story", STORIES)
def test_all_that_is_optional_may_hang_at_once(story: str) -> None:
    """One budget for AWS, and one for the API server."""
    work, usual_s = played(story, {})
    with_hang, took_s = played(story, {effect: Hang(effect) for effect in optional_effects(story)})
    assert with_hang == work
    assert took_s - usual_s <= 2 * MOST_LOST_S


def test_each_part_hangs_in_some_story() -> None:
    parts: set[str] = set()
    for prepare in STORIES.values():
        told = prepare()
        told.act()
        assert isinstance(told.stage.context.optional, NotedCalls)
        parts |= told.stage.context.optional.parts
    of_the_install = {METRICS.name, DEAD_LETTERS.name}
    policies = [flow_of(entry.name) for entry in POLICIES]
    of_policies = {part.name for each in policies for part in (*each.parts, *(port.part for port in each.ports))}
    assert parts | of_the_install == {part.name for part in PARTS} | of_policies


def test_a_story_is_about_the_work_of_its_function() -> None:
    assert played("scheduling", {})[0][1] == 1  # type: ignore[index]
    assert played("joining", {})[0][:2] == (1, 1)  # type: ignore[index]


class HangingInstall(SharedInstall):
    """An install for two clusters in which all hangs that is optional, from the first call on."""

    def __init__(self, clusters: Clusters) -> None:
        super().__init__("schedule", clusters)
        self.optional = NotedCalls(clusters.first.clock)
        self._push = OtlpPush(OtlpSettings("https://collector.example/v1/metrics", "secret"), "platform", _never)
        self.meter = EmfMeter("platform", push=self._push)
        for name, context in clusters.contexts.items():
            clusters.contexts[name] = replace(context, optional=self.optional)

    @property
    def dead_letters(self) -> DeadLetters:  # type: ignore[override]
        return self.optional.within(DEAD_LETTERS, FakeDeadLetters(self._clusters.first.faults), self.clock)


def _never(_: str) -> str:
    raise Hang("secret")


@pytest.mark.usefixtures("own_logger")
def test_the_short_invocation_of_notices_keeps_time_for_their_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function `interrupt` has ten seconds, which all that is optional could use up."""
    clusters, left = Clusters("a"), list[float]()
    monkeypatch.setattr(interrupt_entry, "interrupt", lambda *_: left.append(left_s()))
    body = warning(clusters.stages["a"], "i-0123456789abcdef0")
    answer = interrupt_entry.handle(records(body), Context(10.0), HangingInstall(clusters))
    assert answer == {"batchItemFailures": []}
    assert 0 < left[0] <= 10.0 - interrupt_entry.RESERVE_S
    assert left_s() == inf


@pytest.mark.usefixtures("own_logger")
def test_an_invocation_in_which_all_that_is_optional_hangs_acknowledges_its_work_within_its_budgets() -> None:
    """One budget for AWS, and one for each cluster. The message that could not be set aside comes again."""
    clusters = Clusters("a", "b")
    for stage in clusters.stages.values():
        stage.add_pods(1)
        stage.add_pods(1, memory="1Ti", prefix="giant")
    for effect in ("bus.publish", "timers.remind", "recorder.record", "cluster.publish", "joins.read"):
        clusters.first.faults.always(effect, Hang(effect))
    clusters.first.faults.always("dead_letters.send", Hang("dead_letters.send"))
    install, clock = HangingInstall(clusters), clusters.first.clock
    began_at = clock.now()

    answer = entry.handle(records(pending("a"), pending("b"), "no message"), Context(), install)

    assert answer == {"batchItemFailures": [{"itemIdentifier": "m2"}]}
    assert launched(clusters) == {"a": 1, "b": 1}
    assert 0 < clock.now() - began_at <= 3 * MOST_LOST_S
    assert isinstance(install.optional, NotedCalls)
    assert {METRICS.name, DEAD_LETTERS.name} <= install.optional.parts

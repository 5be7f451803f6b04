"""Plays a scenario step by step on a region and reports what came of it.

The region is whatever lets the world live: the emulated AWS with simulated clusters in real time, or fakes in virtual
time. The player only pushes, looks and judges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Protocol

from shiplap.kubernetes.objects import Pod
from shiplap_lab.checks.expectations import unmet
from shiplap_lab.checks.observation import ClusterObservation, RegionObservation, pool_specs
from shiplap_lab.checks.observed_facts import ObservedFacts
from shiplap_lab.dev.dev_report import DevReport, summarize
from shiplap_lab.judge.judge import Judge
from shiplap_lab.judge.promises import Violation
from shiplap_lab.scenarios.scenario import (
    Expectation,
    Interruption,
    InterruptionKind,
    NodeMemoryRule,
    Outage,
    Play,
    Scenario,
    ScenarioStep,
)
from shiplap_lab.scenarios.workload import pods_of_step

_STEP_LIMIT_S = 300.0
"""For so long nothing may change: eight busy processes beside it keep two processors from a launch for two minutes."""

_LONGEST = 10
"""So many times its limit a wait lasts at most, while things go on changing."""
_HOLD_S = 1.0
_DISRUPT_S = 8.0
_REST_LIMIT_S = 40.0
_HELD_BACK_S = 6.0
"""It takes longer to make sure that nothing happens than that something has happened."""


class ScenarioRegion(Protocol):
    """A Region to play a scenario in. `let_time_pass` returns after a moment of its time; `now` is its clock.

    `pace` says how many times longer everything takes than in `shiplap lab dev`.
    """

    pace: float

    def now(self) -> float: ...

    def let_time_pass(self) -> None: ...

    def observe(self) -> RegionObservation: ...

    def outage(self, outage: Outage) -> None: ...

    def interrupt(self, instance_id: str, kind: InterruptionKind) -> None: ...

    def set_memory(self, rules: Sequence[NodeMemoryRule]) -> None: ...

    def apply(self, cluster: str, *items: dict[str, Any]) -> None: ...

    def remove(self, cluster: str, pod: Pod) -> None: ...

    def disrupt(self, cluster: str) -> None: ...


class ObservedRegion(ScenarioRegion, Protocol):
    """A Region of which only observations tell what happened."""

    def price(self, instance_type: str, zone: str, capacity_type: str) -> float: ...

    def machine_types(self) -> dict[str, dict[str, Any]]: ...


Show = Callable[[str, RegionObservation], None]
"""Called with the step's text and the newest observation, as often as there is something new to look at."""


class Played(NamedTuple):
    """The report of a play, and how each broken invariant was broken."""

    report: DevReport
    violations: tuple[Violation, ...]


Judged = list[tuple[Expectation, tuple[str, ...]]]
"""Expectations, each with what is missing."""


def play_observed(play: Play, region: ObservedRegion, show: Show) -> Played:
    """Play every step, then let all come to rest; expectations and invariants become verdicts of the report."""
    facts = ObservedFacts(
        pool_specs(play.manifests),
        region.now(),
        region.price,
        region.machine_types(),
        most_nodes_per_pod=play.scenario.most_nodes_per_pod,
    )
    whole = _Patience(region, play.scenario.time_limit_s)

    def look() -> RegionObservation:
        seen = region.observe()
        facts.see(seen, region.now())
        return seen

    judged = _play_steps(play.scenario, region, look, show, whole)
    verdicts = {expectation.name: not reasons for expectation, reasons in judged}
    show("All comes to rest", look())
    patience = (whole, _Patience(region, _REST_LIMIT_S))
    world = _come_to_rest(facts.judge, region, look, may_wait(play.scenario), patience)
    return Played(summarize(play.name, world, {**verdicts, **facts.verdicts()}), tuple(facts.judge.violations))


def play_steps(scenario: Scenario, region: ScenarioRegion, look: Callable[[], RegionObservation], show: Show) -> Judged:
    """Play every step. `look` observes the region."""
    return _play_steps(scenario, region, look, show, _Patience(region, scenario.time_limit_s))


def _play_steps(
    scenario: Scenario,
    region: ScenarioRegion,
    look: Callable[[], RegionObservation],
    show: Show,
    whole: _Patience,
) -> Judged:
    judged: Judged = []
    memory = scenario.memory
    for step in scenario.steps:
        memory = (*memory, *step.memory)
        _move(step, memory, region)
        if not step.settle:
            show(step.say, look())
            continue
        judged += _settle(step, region, look, show, (whole, _Patience(region, _limit_s(step))))
    return judged


class _Patience:
    """Decides how long to wait: until nothing has changed for so many seconds, which `pace` makes longer.

    What counts is the time since the last change, because on a busy machine everything takes longer, and no verdict may
    depend on that. Where things never stop changing, it ends after ten times as long.
    """

    def __init__(self, region: ScenarioRegion, limit_s: float) -> None:
        self._region, self._limit_s = region, limit_s * region.pace
        self._began_at = self._changed_at = region.now()
        self._seen: object = None

    def is_over(self, world: RegionObservation) -> bool:
        """True if the wait is over, as the region looks now."""
        now, seen = self._region.now(), _progress(world)
        if self._seen is not None and seen != self._seen:
            self._changed_at = now
        self._seen = seen
        return now - self._changed_at >= self._limit_s or now - self._began_at >= self._limit_s * _LONGEST


def _progress(world: RegionObservation) -> object:
    """Return what changes while something is under way: states of claims and instances, and where pods are."""
    return [
        (
            [(claim.name, claim.state) for claim in cluster.claims],
            [(instance.id, instance.state) for instance in cluster.instances],
            sorted((pod.key, pod.spec.node_name) for pod in cluster.workload),
            sorted(node.metadata.name for node in cluster.nodes),
        )
        for cluster in world.clusters
    ]


def _is_over(patience: Sequence[_Patience], world: RegionObservation) -> bool:
    """True if any patience is over. Each patience looks at the world every time."""
    return True in {each.is_over(world) for each in patience}


def _come_to_rest(
    judge: Judge,
    region: ScenarioRegion,
    look: Callable[[], RegionObservation],
    may_wait: frozenset[str],
    patience: Sequence[_Patience],
) -> RegionObservation:
    """Look until nothing is under way; once time is up, the judge says what is."""
    while True:
        world = look()
        pending = world.pending(may_wait)
        if _is_over(patience, world) or not (pending or judge.unfinished()):
            judge.must_rest([pod.key for pod in pending])
            return world
        region.let_time_pass()


def _limit_s(step: ScenarioStep) -> float:
    """Return how long a step may take, in seconds. Where nothing presses, sweeps empty nodes, a minute apart."""
    return _STEP_LIMIT_S * (2.5 if step.disrupt else 1.0)


def _move(step: ScenarioStep, memory: Sequence[NodeMemoryRule], region: ScenarioRegion) -> None:
    for outage in step.outages:
        region.outage(outage)
    for interruption in step.interruptions:
        for instance_id in _instances_of(interruption, region.observe().cluster(step.cluster)):
            region.interrupt(instance_id, interruption.kind)
    region.set_memory(memory)
    if step.delete:
        for pod in region.observe().cluster(step.cluster).workload:
            if any(fnmatchcase(pod.key, glob) for glob in step.delete):
                region.remove(step.cluster, pod)
    for item in step.objects:
        region.apply(step.cluster, item)
    region.apply(step.cluster, *(body for group in step.pods for body in pods_of_step(group)))


def _instances_of(interruption: Interruption, seen: ClusterObservation) -> list[str]:
    """Instances of the first nodes, by name, that run pods of the group."""
    names = {pod.spec.node_name for pod in seen.workload if pod.metadata.name.rpartition("-")[0] == interruption.pods}
    nodes = sorted((node for node in seen.nodes if node.metadata.name in names), key=lambda node: node.metadata.name)
    return [node.spec.provider_id.rpartition("/")[2] for node in nodes[: interruption.nodes]]


def _settle(
    step: ScenarioStep,
    region: ScenarioRegion,
    look: Callable[[], RegionObservation],
    show: Show,
    patience: Sequence[_Patience],
) -> Judged:
    """Look until every expectation has held for a while, or time is up."""
    hold_s = (_HELD_BACK_S if any(expectation.held_back for expectation in step.expect) else _HOLD_S) * region.pace
    met_since: float | None = None
    disrupted_at = float("-inf")
    while True:
        world = look()
        missing = [(expectation, unmet(expectation, world, step.cluster)) for expectation in step.expect]
        show(_text(step, missing), world)
        if any(reasons for _, reasons in missing):
            met_since = None
        elif met_since is None:
            met_since = region.now()
        if met_since is not None and region.now() - met_since >= hold_s:
            return missing
        if _is_over(patience, world):
            return missing
        if step.disrupt and region.now() - disrupted_at >= _DISRUPT_S:
            disrupted_at = region.now()
            region.disrupt(step.cluster)
        region.let_time_pass()


def _text(step: ScenarioStep, missing: Judged) -> str:
    waits = [f"{expectation.name}: {reasons[0]}" for expectation, reasons in missing if reasons]
    return f"{step.say}  [{waits[0]}]" if waits else step.say


def may_wait(scenario: Scenario) -> frozenset[str]:
    """Pods whose newest expectation is to stay pending."""
    newest: dict[tuple[str, str], bool] = {}
    for step in scenario.steps:
        for expectation in step.expect:
            newest[step.cluster, expectation.pods] = bool(expectation.unschedulable or expectation.held_back)
    return frozenset(
        f"{step.cluster}/{group.namespace}/{group.name}-{index}"
        for step in scenario.steps
        for group in step.pods
        for index in range(group.count)
        if newest.get((step.cluster, group.name))
    )

"""One run of the simulation: takes a scenario, a seed and its faults, and returns the outcome."""

from __future__ import annotations

import gc
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from math import inf
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.errors import InvalidInput
from shiplap.flows.lifecycle.pod_placement import NONE
from shiplap.flows.watch.watch import hints_of
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.resolved_nodeclass import Ami
from shiplap.kubernetes.objects import Event, Pod, RawObject
from shiplap.policies.policy_settings import chosen
from shiplap.ports import BusEvent, FleetOverride, FleetRequest, Instance
from shiplap.records.disruption_record import decided_again, read
from shiplap.settings import ClusterSettings, Settings
from shiplap_lab.catalogue import embedded
from shiplap_lab.checks.observation import ClusterObservation, RegionObservation, pool_specs
from shiplap_lab.cluster_simulator import topology_filters, volume_binder
from shiplap_lab.cluster_simulator.simulated_cluster import SimulatedCluster
from shiplap_lab.dev.player import may_wait, play_steps
from shiplap_lab.fakes.signals import FakeClock
from shiplap_lab.faults.ec2.no_capacity import NoCapacityFault
from shiplap_lab.faults.ec2.reprice import RepriceFault
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kinds import KINDS
from shiplap_lab.faults.fault_world import FaultWorld
from shiplap_lab.faults.functions.clock_skew import ClockSkewFault
from shiplap_lab.faults.instances.interruption import InterruptFault
from shiplap_lab.faults.instances.spot_notices import advise
from shiplap_lab.faults.manifest_objects import ShownManifests
from shiplap_lab.judge.judge import Judge
from shiplap_lab.judge.promises import Promise, Violation
from shiplap_lab.policies.policy_plays import (
    AccountPlay,
    PolicyWorld,
    begin_accounts,
    runs_of_policies,
    settings_of_policies,
)
from shiplap_lab.scenarios.scenario import (
    Constraint,
    InterruptionKind,
    NodeMemoryRule,
    Outage,
    Play,
    Scenario,
    ScenarioCluster,
    Wave,
)
from shiplap_lab.scenarios.workload import create_object, remove_pod
from shiplap_lab.simulation.chaos import is_watched, placement, waves_of_rhythms
from shiplap_lab.simulation.due_steps import DueSteps
from shiplap_lab.simulation.idle_minutes import IdleMinutes
from shiplap_lab.simulation.manifest_promises import ManifestPromises, with_live_manifests
from shiplap_lab.simulation.region_facts import RegionFacts
from shiplap_lab.simulation.tellings import Tellings
from shiplap_lab.virtual_time.checked_fakes import CheckedCompute, CheckedMeter, CheckedState
from shiplap_lab.virtual_time.event_loop import EventLoop
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from shiplap_lab.virtual_time.functions import TracebackHandler
from shiplap_lab.virtual_time.lasting_watches import ClusterWithWatches
from shiplap_lab.virtual_time.simulated_install import MakeState, SimulatedInstall, SimulationContext
from shiplap_lab.virtual_time.simulated_machines import (
    STEP_S,
    ClusterChanges,
    ReplicaGroups,
    SimulatedMachines,
    cluster_in_virtual_time,
)
from shiplap_lab.virtual_time.supply import REGION, ZONES, SimulatedHardware, catalog, price
from shiplap_lab.virtual_time.trace import Trace
from shiplap_lab.virtual_time.virtual_threads import VirtualThreads

QUIET_S = 3600.0
"""How long nothing may be under way until all counts as settled, in seconds."""

_LATE_COMMAND_S = 900.0
"""What begins after all was at rest has so long to end, once, in seconds: a node that grows older may become worth
replacing at any time.
"""

_LOOK_S = 10.0
_TTL_LATE_S = 48 * 3600.0
"""How late DynamoDB may delete what has expired, in seconds."""

_APART_S = 23.0
"""Seconds between the schedules of installs."""

_REPLAYED = 2
"""Recorded decisions of a run that are made again."""

_OBJECTS_UNTIL_COLLECTED = 2_000_000
_STATE = "EC2 Instance State-change Notification"


_CONSTRAINTS: dict[str, Constraint] = {
    topology_filters.SPREAD: "spread",
    topology_filters.AFFINITY: "pod-affinity",
    topology_filters.ANTI_AFFINITY: "pod-affinity",
    topology_filters.OTHERS_ANTI_AFFINITY: "pod-affinity",
    volume_binder.CONFLICT: "volume-zone",
}
"""By kube-scheduler's words for it."""


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a run. Times in seconds since the start; money in USD; `settled_at` is -1 if it never settled.
    So many pods were `asleep` at the end.

    `effects` says how often the faults of each kind took effect, and how often constraints kept pods off nodes.
    """

    scenario: str
    seed: int
    trace: str
    placement: str = ""
    violations: tuple[Violation, ...] = ()
    settled_at: float = -1.0
    ended_at: float = 0.0
    steps: int = 0
    launched: int = 0
    ended: int = 0
    most_nodes: int = 0
    pods_bound: int = 0
    longest_pending: float = 0.0
    asleep: int = 0
    spent: float = 0.0
    ledger: float = 0.0
    unclaimed: float = 0.0
    given_up: int = 0
    overshoots: tuple[tuple[str, float, float], ...] = ()
    faults: tuple[Fault, ...] = ()
    effects: dict[str, int] = {}
    metrics: dict[str, float] = {}
    lines: tuple[str, ...] = ()


class Simulation:
    """Installs, clusters and EC2 in virtual time; `play` runs them once. `observers` are called every ten seconds.

    Attributes:
        instances: all that EC2 has started, as they were then, by id.
        ended: those of them that have ended.
    """

    def __init__(
        self,
        play: Play,
        seed: int,
        faults: Sequence[Fault],
        hours: float,
        *,
        make_state: MakeState = CheckedState,
        skips_idle: bool = True,
        skips_quiet: bool = False,
        disruption: DisruptionSettings | None = None,
    ) -> None:
        """`skips_idle`: leave out idle minutes where that has the same effects, as in scenarios with rhythms.

        `skips_quiet`: leave out those of the quiet hour at the end, too, in any scenario in which time alone changes
        nothing.

        `disruption` bounds what may be disrupted for money, for all clusters.
        """
        scenario = play.scenario
        refuse_unplayable(play)
        self._disruption = disruption or DisruptionSettings()
        self._policy_runs = runs_of_policies(scenario, seed, faults)
        for run in self._policy_runs:
            play = replace(play, manifests={name: run.manifests(of) for name, of in play.manifests.items()})
        self._play, self._seed, self._planned, self._hours = play, seed, tuple(faults), hours
        self._waves = (*scenario.waves, *waves_of_rhythms(scenario, seed, hours))
        self.loop = EventLoop(FakeClock() if scenario.begins is None else FakeClock(scenario.begins.timestamp()))
        self._start = self.loop.now()
        self.trace = Trace(self.loop.now, self._start)
        self.faults = FaultInjector(self.loop, self.trace, seed)
        self.sold = embedded.load(REGION) if scenario.steps else catalog(zone_ids=scenario.spot_risk != "off")
        self.charged = self.sold
        self._placement = placement(scenario, seed)
        settings = [self._settings_of(cluster) for cluster in scenario.clusters]
        self.hardware = {item.name: SimulatedHardware(self.sold, item, scenario.memory, seed) for item in settings}
        self.instances: dict[str, Instance] = {}
        self.ended: set[str] = set()
        self.meter = CheckedMeter()
        self._threads = VirtualThreads(self.loop, self.faults) if is_watched(scenario, seed) else None
        stage = SimulationContext(self.loop, self.faults, self.trace, self.sold, self.meter, make_state, self._threads)
        self.compute = CheckedCompute(
            self.loop.clock,
            self.faults,
            _amis(play),
            self._instance_ended,
            scenario.installs[0],
        )
        self.compute.on_launch.append(self._launched)
        self.compute.on_reboot.append(self._rebooted)
        served = [with_live_manifests(cluster) for cluster in settings] if scenario.live_manifests else settings
        self.installs = {
            name: SimulatedInstall(
                Settings(tuple(replace(cluster, install=name) for cluster in served)),
                stage,
                self.compute if name == self.compute.install else self.compute.beside(name),
            )
            for name in scenario.installs
        }
        machines = SimulatedMachines(self.faults, self.hardware, seed)
        self.clusters = {name: self._cluster(name, machines) for name in scenario.cluster_names}
        self._groups = {name: ReplicaGroups(made, scenario.groups) for name, made in self.clusters.items()}
        self._changes = {name: ClusterChanges(made.informer, self.loop.now) for name, made in self.clusters.items()}
        for install in self.installs.values():
            install.connect(self.clusters)
        # The others are short, and their seeds keep their traces.
        rests = bool(scenario.rhythms) and self._threads is None and all(run.rests for run in self._policy_runs)
        self.faults.latency_by_moment = rests
        self._skips_idle, self._skips_quiet = rests and skips_idle, skips_quiet
        self._idle_minutes = IdleMinutes(self.loop, self.faults, self.clusters, tuple(self.installs.values()))
        self.judge = self._seated_judge()
        self._begin_policies()
        self._facts, self._due_steps, self._tellings = self._hear_tellings()
        self._commit_account()
        self.observers: list[Callable[[], object]] = []
        self._manifest_promises: ManifestPromises | None = None
        self._fault_world = self._connect_faults()
        self._pending_since: dict[str, float] = {}
        self._longest_pending, self._bound, self._most_nodes = 0.0, 0, 0
        self._settled_since: float | None = None
        self._disturbed_at = -inf
        self._calm_from = self._end_of_trouble()
        self._may_wait = may_wait(scenario)
        self._shortages: dict[str, int] = {}

    def _settings_of(self, cluster: ScenarioCluster) -> ClusterSettings:
        return ClusterSettings(
            name=cluster.name,
            region=REGION,
            manifests=self._play.manifests[cluster.name],
            placement=self._placement,
            policies=chosen(*settings_of_policies(replace(self._play.scenario, clusters=(cluster,)))),
            vm_memory_overhead_percent=cluster.vm_memory_overhead_percent,
            reserved_enis=cluster.reserved_enis,
            prefix_delegation=cluster.prefix_delegation,
            disruption=self._disruption,
        )

    def _connect_faults(self) -> FaultWorld:
        """Faults change this run from now on; and its manifests, if they are objects of the clusters."""
        manifests = self._play.manifests
        is_live = self._play.scenario.live_manifests
        servers = {name: cluster.server for name, cluster in self.clusters.items()}
        objects = ShownManifests(self.faults, servers, manifests, self._tell_functions) if is_live else None
        world = FaultWorld(
            compute=self.compute,
            clusters=self.clusters,
            installs=self.installs,
            manifests=manifests,
            objects=objects,
            offerings=tuple(
                (kind.instance_type, zone, capacity_type)
                for kind in self.sold.types
                for zone in ZONES
                for capacity_type in ("on-demand", "spot")
            ),
            devices=self._play.scenario.devices,
            say=self._aws_says,
            lose=self._lose,
            add=self._add,
            restart=self._restart,
        )
        self.faults.connect(world)
        if objects is not None:
            broken = partial(self.judge.found, Promise.EXPECTED)
            made = ManifestPromises(self.faults, objects, self.clusters, self.installs, broken)
            self.observers += [made.judge_commands, made.collect_orphans]
            self._manifest_promises = made
        return world

    def _tell_functions(self, event: BusEvent) -> None:
        for install in self.installs.values():
            install.functions.route(event)

    def _begin_policies(self) -> None:
        """Optional features prepare the run."""
        installs = tuple(self.installs.values())
        world = PolicyWorld(
            now=self.loop.now,
            installs=installs,
            judge=self.judge,
            record=self.trace.record,
            apart_s=self._clocks_apart_s,
            clusters=self.clusters,
            is_disturbed=lambda: bool(self.faults.active),
        )
        for run in self._policy_runs:
            run.begin(world)

    def _commit_account(self) -> None:
        """AWS shows what optional features count on; the judge knows what that pays."""
        list_price = partial(price, self.sold, zone="", capacity_type="on-demand")
        ports = tuple(install.policy_ports for install in self.installs.values())
        account = AccountPlay(self._play.scenario, self._seed, self.loop.now(), self.sold, list_price, ports)
        begin_accounts(account, self.judge.dollars)

    def _seated_judge(self) -> Judge:
        """The judge, who sees all that crosses the ports from now on."""
        judge = Judge(
            self.loop.now,
            self._stop,
            machine_types=embedded.stated_hardware(self.sold),
            pools=pool_specs(self._play.manifests),
            most_nodes_per_pod=self._play.scenario.most_nodes_per_pod,
            steered=self._placement != NONE,
            price=partial(price, self.sold),
            clocks_apart_s=self._clocks_apart_s,
        )
        judge.dollars.ceilings = _ceilings(self._play.scenario)
        for name, cluster in self.clusters.items():
            cluster.server.on_write(partial(judge.object_written, name))
        self.compute.on_request.append(judge.fleet_requested)
        self.compute.on_terminate.append(judge.termination_requested)
        for name, install in self.installs.items():
            install.state.on_claim.append(partial(judge.claim_written, name))
            install.state.on_command.append(partial(judge.command_written, name))
            install.state.on_restore.append(partial(judge.table_restored, name))
            install.catalog.on_save.append(self._repriced)
            for cluster_name, access in install.access.items():
                access.on_delete.append(partial(judge.pod_deleted, name, cluster_name))
                access.on_node.append(partial(judge.node_read, cluster_name))
                if isinstance(access, ClusterWithWatches):
                    access.on_known.append(partial(judge.pods_known, cluster_name))
            if install.snapshots is not None:
                install.snapshots.on_save.append(judge.snapshot_written)
        return judge

    @property
    def _clocks_apart_s(self) -> float:
        """Return how far the clocks of functions may be from the world's clock, in seconds."""
        return sum(fault.amount for fault in self._planned if fault.kind == ClockSkewFault.name)

    @property
    def _running(self) -> int:
        return len(self.instances) - len(self.ended)

    def _expire(self, install: SimulatedInstall) -> None:
        install.state.expire(self.loop.now() - _TTL_LATE_S)

    def _hear_tellings(self) -> tuple[RegionFacts, DueSteps, Tellings]:
        """Compare each telling from now on with the facts, which are updated before."""
        facts, now, undisturbed = RegionFacts(), self.loop.now, self._play.scenario.undisturbed
        said = partial(self.judge.found, Promise.TOLD)
        prices, apart_s = partial(price, self.sold), self._clocks_apart_s
        tellings = Tellings(facts, now, said, price=prices, is_undisturbed=undisturbed, apart_s=apart_s)
        self.meter.on_count.append(tellings.counted)

        def written(install: str, stored: str | bytes) -> None:
            tellings.claim_written(install, *facts.claim_written(install, stored, now()))

        def command_written(install: str, stored: str | bytes) -> None:
            tellings.command_written(*facts.command_written(install, stored))

        def restored(install: str, claims: Sequence[str | bytes], commands: Sequence[str | bytes]) -> None:
            facts.table_restored(install, claims, commands, now())
            tellings.table_restored(install)

        def stored(cluster: str, kind: str, plural: str, item: RawObject) -> None:
            facts.object_written(cluster, kind, plural, item, now())
            tellings.object_written(cluster, item, plural)

        for name, cluster in self.clusters.items():
            cluster.server.on_write(partial(stored, name))
        self.compute.on_request.append(
            lambda install, body: tellings.fleet_requested(install, msgspec.json.decode(body))
        )
        for name, install in self.installs.items():
            install.state.on_claim.append(partial(written, name))
            install.state.on_command.append(partial(command_written, name))
            install.state.on_restore.append(partial(restored, name))
            install.bus.on_publish.append(partial(self._published, name))
            install.timers.on_remind.append(partial(tellings.reminded, name))
            for cluster_name, access in install.access.items():
                access.on_delete.append(partial(tellings.pod_deleted, cluster_name))
        return facts, DueSteps(facts), tellings

    def _published(self, install: str, event: BusEvent) -> None:
        self._tellings.published(install, event.detail_type, event.detail)

    # The run

    def play(self) -> RunOutcome:
        """Run until all is settled, or until it should have been."""
        for name in self.clusters if self._threads is None else ():
            self.loop.every(STEP_S, partial(self._imitate_watch, name), first_s=0.7, rests=True)
        for wave in self._waves:
            self.loop.after(wave.at * 60, partial(self._wave, wave))
        for number, fault in enumerate(self._planned):
            self.loop.after(fault.at * 60, partial(self._begin, number, fault))
        for at_s, act in (moment for run in self._policy_runs for moment in run.moments()):
            self.loop.after(at_s, act)
        self.loop.every(_LOOK_S, self._look, first_s=_LOOK_S, rests=True)
        for number, install in enumerate(self.installs.values()):
            self.loop.every(3600.0, partial(self._expire, install), first_s=3600.0)
            install.functions.start(number * _APART_S)
        threads = nullcontext() if self._threads is None else self._threads.in_place()
        with _listening(self._broke_down), _seldom_collected(), threads:
            try:
                is_at_rest = self._run()
            finally:
                self.loop.close()
        return self._outcome(is_at_rest=is_at_rest)

    def _run(self) -> bool:
        """Let events happen until the end; whether all has come to rest."""
        self._play_steps()
        begun, extended_to = self.loop.now(), 0.0
        while not self.loop.stopped:
            self.loop.run_until(self.loop.now() + _LOOK_S)
            now = self.loop.now()
            least = max(self._start + self._hours * 3600, self._calm_from, begun)
            self._leave_out_idle(least)
            if now >= least and self._settled_since is not None and now - self._settled_since >= QUIET_S:
                return True
            latest = extended_to or least + self._play.scenario.settle_minutes * 60
            if now >= latest and self._settled_since is None:
                if extended_to or now - self._disturbed_at > _LATE_COMMAND_S:
                    self._must_have_settled()
                    break
                extended_to = now + _LATE_COMMAND_S
        return False

    def _leave_out_idle(self, least: float) -> None:
        """Leave out idle minutes where that is wanted. `least`: when the quiet hour may begin, in epoch seconds."""
        is_at_end = self.loop.now() >= least
        if not (self._skips_quiet if is_at_end else self._skips_idle):
            return
        self._idle_minutes.look()
        if self._settled_since is not None:
            self._idle_minutes.skip(self._settled_since + QUIET_S if is_at_end else least)

    def _play_steps(self) -> None:
        region = SimulatedRegion(self)
        for cluster in self._play.scenario.clusters:
            for item in cluster.objects:
                region.apply(cluster.name, item)
        record = partial(self.trace.record, "step")
        for expectation, missing in play_steps(self._play.scenario, region, region.observe, _Steps(record)):
            if missing:
                self.judge.found(Promise.EXPECTED, f"{expectation.name}: {'; '.join(missing)}")

    def pending(self) -> list[Pod]:
        """Pods without a node, except those that a step expects to wait, and that ceilings keep waiting."""
        return [
            pod
            for name, cluster in self.clusters.items()
            for pod in cluster.pending()
            if not self._may_wait or f"{name}/{pod.key}" not in self._may_wait
            if not self.judge.may_wait(name, pod.metadata.uid)
        ]

    def _resting(self) -> frozenset[str]:
        """The uids of pods without a node that a feature lets wait."""
        if not self.judge.waiting_rules:
            return frozenset()
        waiting = ((name, pod.metadata.uid) for name, cluster in self.clusters.items() for pod in cluster.pending())
        return frozenset(uid for name, uid in waiting if self.judge.rests(name, uid))

    def _effects(self) -> dict[str, int]:
        """Count how often faults took effect, and how often constraints kept pods off nodes."""
        effects = Counter(self.faults.effects)
        for cluster in self.clusters.values():
            for words, times in cluster.scheduler.kept_off.items():
                effects[_CONSTRAINTS.get(words, "")] += times
            effects["preemption"] += cluster.scheduler.preempted
        effects.pop("", None)
        return {kind: times for kind, times in sorted(effects.items()) if times}

    def _end_of_trouble(self) -> float:
        ends = [60 * wave.at for wave in self._waves]
        ends += [60 * (fault.at + fault.minutes) + KINDS[fault.kind].afterwards_s for fault in self._planned]
        return self._start + max(ends, default=0.0)

    def _stop(self, violation: Violation) -> None:  # noqa: ARG002 - the judge keeps it
        self.loop.stopped = True

    def _broke_down(self, traceback: str) -> None:
        self.judge.found(Promise.FLOWS, traceback[-1500:])

    # Periodic checks

    def _must_have_settled(self) -> None:
        resting = self._resting()
        self.judge.must_rest([pod.key for pod in self.pending() if pod.metadata.uid not in resting])
        if not self.judge.violations:
            self.judge.found(Promise.REST, "it did, but too late")

    def _look(self) -> None:
        now = self.loop.now()
        calm = now >= self._calm_from
        self.judge.tick(calm=calm)
        if self._play.scenario.undisturbed and (late := self._due_steps.late(now)):
            self.judge.found(Promise.AT_ONCE, late)
        for install in self.installs.values():
            if install.dead_letters.letters:
                self.judge.found(Promise.MESSAGES, str(install.dead_letters.letters[0])[:300])
        if self._may_wait or self.judge.dollars.ceilings:
            pending = {pod.metadata.uid for pod in self.pending()}
        else:
            pending = {uid for cluster in self.clusters.values() for uid in cluster.pending_uids()}
        resting = self._resting()
        for uid, since in self._pending_since.items():
            self._longest_pending = max(self._longest_pending, now - since)
            self._bound += uid not in pending
            if 0 < 60 * self._play.scenario.patience_minutes < now - since and uid in pending - resting:
                self.judge.found(Promise.PATIENCE, f"{uid} has waited for {now - since:.0f} s")
        self._pending_since = {uid: self._pending_since.get(uid, now) for uid in sorted(pending)}
        self._most_nodes = max(self._most_nodes, self._running)
        if pending - resting or self.judge.unfinished() or any(run.is_under_way() for run in self._policy_runs):
            if self._settled_since is not None:
                self._disturbed_at, self._settled_since = now, None
        elif self._settled_since is None:
            self._settled_since = now
            self.trace.record("settled", nodes=self._running)
        for run in self._policy_runs:
            run.look()
        for observe in self.observers:
            observe()

    def _imitate_watch(self, cluster: str) -> None:
        """Send the hints that the watch function would send."""
        tracker = self._changes[cluster].tracker
        if not tracker.has_news or self.faults.is_api_down:
            return
        for event in hints_of(cluster, tracker.take(), self.loop.now()):
            for name, install in self.installs.items():
                self._published(name, event)
                install.functions.route(event)

    # Events

    def _cluster(self, name: str, machines: SimulatedMachines) -> SimulatedCluster[Instance]:
        cluster = cluster_in_virtual_time(name, self.loop, self.faults, machines)

        def joined(machine: Instance) -> None:
            self.trace.record("node joined", node=machine.private_dns, instance=machine.id)

        cluster.kubelets.on_join.append(joined)
        cluster.kubelets.on_gone.append(lambda machine: self.trace.record("node gone", node=machine.private_dns))
        return cluster

    def _wave(self, wave: Wave) -> None:
        for name, groups in self._groups.items():
            if wave.cluster in ("", name):
                groups.scale(wave.group, wave.replicas)
        self.trace.record("wave", group=wave.group, replicas=wave.replicas)

    def _launched(self, instance: Instance, request: FleetRequest, override: FleetOverride) -> None:  # noqa: ARG002
        self.trace.record(
            "launched", instance=instance.id, type=instance.instance_type, zone=instance.zone, token=request.token
        )
        self.judge.machine_started(msgspec.json.encode(instance))
        self._facts.running.add(instance.id)
        self.instances[instance.id] = instance
        self.clusters[instance.cluster].kubelets.boot(instance, since=self.loop.now())
        for kind in self.faults.kinds:
            kind.launched(instance)
        if self._manifest_promises is not None:
            self._manifest_promises.launched(instance)

    def _rebooted(self, instance: Instance) -> None:
        self.trace.record("rebooted", instance=instance.id)
        self.clusters[instance.cluster].kubelets.reboot(instance)

    def _instance_ended(self, instance_id: str) -> None:
        if instance_id in self.ended:
            return
        instance = self.instances[instance_id]
        self.trace.record("instance ended", instance=instance_id)
        self.judge.machine_ended(instance_id)
        self._facts.running.discard(instance_id)
        self.ended.add(instance_id)
        self.clusters[instance.cluster].kubelets.end(instance)
        for kind in self.faults.kinds:
            kind.ended(instance)
        self.loop.after(3.0, partial(self._aws_says, _STATE, instance_id, state="terminated"))

    def _aws_says(self, detail_type: str, instance_id: str, happened_at: float = 0.0, **detail: str) -> None:
        """Send an event of EC2 to every install: all share the account's default bus. Without a moment it is now."""
        for install in self.installs.values():
            sent = install.functions.ec2_event(detail_type, instance_id, happened_at or self.loop.now(), **detail)
            self.judge.event_sent(sent)
            self._facts.event_sent(sent)

    def _lose(self, instance_id: str, code: str = "") -> None:
        if instance_id not in self.ended:
            self.compute.lose(instance_id, code, "unknown" if code else "")
            self._instance_ended(instance_id)

    def _repriced(self, stored: Catalog) -> None:
        """Spot costs from now on what the stored catalogue says."""
        if stored.prices != self.charged.prices:
            self.trace.record("prices changed")
            self.faults.of(RepriceFault).took_effect()
            self.charged = stored
            self.judge.dollars.repriced(partial(price, stored))

    def price(self, instance: Instance) -> float:
        """USD per hour now."""
        return price(self.charged, instance.instance_type, instance.zone, instance.capacity_type)

    # Faults

    def _begin(self, number: int, fault: Fault) -> None:
        self.trace.record("fault", kind=fault.kind, target=fault.target, amount=fault.amount, minutes=fault.minutes)
        if self.faults.begin(number, fault):
            if self._manifest_promises is not None:
                self._manifest_promises.fault_began(fault)
            self.loop.after(fault.minutes * 60, partial(self._over, number))

    def _over(self, number: int) -> None:
        over = self.faults.end(number)
        if over is not None and self._manifest_promises is not None:
            self._manifest_promises.fault_ended(over)

    def _restart(self) -> None:
        """Another version is in service: running functions die, and their processes' memory is lost."""
        self.faults.kill_all()
        for install in self.installs.values():
            install.functions.forget()

    def shorten(self, outage: Outage) -> None:
        """EC2 has none of these offerings any more, or has them again."""
        target = f"{outage.instance_type}/{outage.zone}/{outage.capacity_type}"
        number = self._shortages.setdefault(target, -1 - len(self._shortages))
        self.faults.active.pop(number, None)
        if not outage.over:
            self.faults.active[number] = Fault(NoCapacityFault.name, target=target, amount=0)
        self.faults.adjust()

    def warn(self, instance_id: str, kind: InterruptionKind) -> None:
        """EC2 announces that it takes an instance back, or advises to leave it."""
        if kind == "spot":
            self.faults.of(InterruptFault).warn(instance_id)
        else:
            advise(self._fault_world, instance_id)

    def _add(self, instance: Instance) -> None:
        """An instance runs that no function has launched."""
        self.compute.add(instance)
        self.instances[instance.id] = instance
        self.judge.machine_added(msgspec.json.encode(instance))
        self._facts.running.add(instance.id)
        self.clusters[instance.cluster].kubelets.boot(instance, since=self.loop.now())

    # The end

    def _replay(self) -> None:
        """Make some recorded decisions again, and tell the judge of them."""
        recorders = (recorder for install in self.installs.values() for recorder in install.recorders.values())
        recorded = {name: recorder for recorder in recorders for name in recorder.records}
        chance = Random(f"{self._seed}:replay")  # noqa: S311 - repeatable chance
        for name in chance.sample(sorted(recorded), min(_REPLAYED, len(recorded))):
            found = read(recorded[name].document(name), name)
            again = decided_again(found.record) if found.record is not None else b""
            digests = [hashlib.sha256(made).hexdigest() if made else "" for made in (found.written, again)]
            self.judge.decision_replayed({"record": name, "recorded": digests[0], "again": digests[1]})

    def _outcome(self, *, is_at_rest: bool) -> RunOutcome:
        if not self.judge.violations:
            self._replay()
        if self._manifest_promises is not None and is_at_rest:
            self._manifest_promises.judge_objects()
        for unmet in filter(None, [run.unmet() for run in self._policy_runs]):
            if not self.judge.violations:
                self.judge.found(Promise.EXPECTED, unmet)
        self.judge.check_ledger()
        self._tellings.check_end()
        ledger, unclaimed = self.judge.ledger()
        now = self.loop.now() - self._start
        settled = self._settled_since - self._start if self._settled_since is not None else -1.0
        return RunOutcome(
            scenario=self._play.name,
            seed=self._seed,
            trace=self.trace.digest,
            placement=self._placement,
            violations=tuple(self.judge.violations),
            settled_at=settled,
            ended_at=now,
            steps=self.loop.steps,
            launched=len(self.instances),
            ended=len(self.ended),
            most_nodes=self._most_nodes,
            pods_bound=self._bound,
            longest_pending=self._longest_pending,
            asleep=len(self._resting()),
            spent=round(self.judge.spent(), 6),
            ledger=round(ledger, 6),
            unclaimed=round(unclaimed, 6),
            given_up=sum(install.functions.given_up for install in self.installs.values()),
            overshoots=tuple(self.judge.dollars.overshoots),
            faults=self._planned,
            effects=self._effects(),
            metrics=dict(sorted(self.meter.counts.items())),
            lines=tuple(line.decode() for line in self.trace.lines),
        )


class SimulatedRegion:
    """The Region in which steps are played. Booting takes half a minute here, and so everything takes longer."""

    pace = 10.0

    def __init__(self, simulation: Simulation) -> None:
        self._simulation, self._loop = simulation, simulation.loop

    def now(self) -> float:
        """Epoch seconds; a run that has stopped has no more time."""
        return inf if self._loop.stopped else self._loop.now()

    def let_time_pass(self) -> None:
        self._loop.run_until(self._loop.now() + STEP_S)

    def observe(self) -> RegionObservation:
        """Clusters as of the controllers' last look, claims as they were last written, and all instances."""
        learned = tuple(entry for install in self._simulation.installs.values() for entry in install.capacity.all())
        return RegionObservation(tuple(self._cluster(name) for name in self._simulation.clusters), learned)

    def _cluster(self, name: str) -> ClusterObservation:
        cluster, ended = self._simulation.clusters[name], self._simulation.ended
        states = [install.state for install in self._simulation.installs.values()]
        return ClusterObservation(
            name=name,
            pods=tuple(pod for _, pod in sorted(cluster.informer.pods.items())),
            nodes=tuple(node for _, node in sorted(cluster.informer.nodes.items())),
            events=tuple(cluster.server.typed(item, Event) for item in cluster.server.list("events").items),
            claims=tuple(claim for state in states for claim in state.written.values() if claim.cluster == name),
            instances=tuple(
                replace(instance, state="terminated") if instance.id in ended else instance
                for instance in self._simulation.instances.values()
                if instance.cluster == name
            ),
        )

    def outage(self, outage: Outage) -> None:
        self._simulation.shorten(outage)

    def interrupt(self, instance_id: str, kind: InterruptionKind) -> None:
        self._simulation.warn(instance_id, kind)

    def set_memory(self, rules: Sequence[NodeMemoryRule]) -> None:
        for hardware in self._simulation.hardware.values():
            hardware.memory = rules

    def apply(self, cluster: str, *items: dict[str, Any]) -> None:
        for item in items:
            create_object(self._simulation.clusters[cluster].server, item, self._loop.now())

    def remove(self, cluster: str, pod: Pod) -> None:
        remove_pod(self._simulation.clusters[cluster].server, pod)

    def disrupt(self, cluster: str) -> None:
        """Nothing: the functions are invoked by their schedules."""


class _Steps:
    """Writes each step into the trace once."""

    def __init__(self, record: Callable[..., None]) -> None:
        self._record, self._said = record, ""

    def __call__(self, say: str, _region: RegionObservation) -> None:
        step = say.partition("  [")[0]
        if step != self._said:
            self._said = step
            self._record(say=step)


def refuse_unplayable(play: Play) -> None:
    """Raise InvalidInput if the scenario describes what only the emulated AWS has."""
    elsewhere = f"`shiplap lab dev --scenario {play.name}` can"
    play.scenario.refuse("`shiplap lab simulate`", images=f"each EC2NodeClass has one AMI; {elsewhere}")
    for expectation in (item for step in play.scenario.steps for item in step.expect):
        if expectation.pod_capacity is not None or expectation.amis:
            field = "podCapacity" if expectation.pod_capacity is not None else "amis"
            reason = (
                f"`shiplap lab simulate` cannot check `{field}` of {expectation.name!r}: nodes boot without user data"
            )
            raise InvalidInput("scenario", f"{reason}; {elsewhere}")


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Collect garbage less often: there are hardly any cycles, and each collection walks a whole cluster's objects."""
    usual = gc.get_threshold()
    gc.set_threshold(_OBJECTS_UNTIL_COLLECTED, usual[1], usual[2])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


@contextmanager
def _listening(found: Callable[[str], object]) -> Iterator[None]:
    """Do not print the logs of flows meanwhile; report unexpected errors."""
    logger = logging.getLogger("shiplap")
    handlers, level, propagate = logger.handlers, logger.level, logger.propagate
    logger.handlers = [TracebackHandler(found)]
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.handlers = handlers
        logger.setLevel(level)
        logger.propagate = propagate


def _ceilings(scenario: Scenario) -> dict[str, Sequence[dict[str, Any]]]:
    """As they are written, by cluster; those of the account under an empty name."""
    written = {"": scenario.ceilings} | {cluster.name: cluster.ceilings for cluster in scenario.clusters}
    return {name: ceilings for name, ceilings in written.items() if ceilings}


def _amis(play: Play) -> dict[str, tuple[Ami, ...]]:
    """Each EC2NodeClass has its own AMI; `default` has that of the fake."""
    names = sorted({node_class.metadata.name for each in play.manifests.values() for node_class in each.node_classes})
    return {name: (Ami(f"ami-{name}", name, "2026-01-01T00:00:00Z"),) for name in names if name != "default"}

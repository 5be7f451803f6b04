"""Fakes that report their effects to the invariant checker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from shiplap.disruption.progress import CommandState, DisruptionCommand
from shiplap.instances.catalog.resolved_nodeclass import Ami
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import BusEvent, Clock
from shiplap_lab.checks.invariants import InvariantChecker, Promise
from shiplap_lab.fakes.cluster import ApiServer, FakeCluster
from shiplap_lab.fakes.compute import FakeCompute
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.state import FakeState
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from shiplap_lab.virtual_time.versions import as_previous_version


class CheckedState(FakeState):
    """Reports each claim and command as soon as it is durable; its index of instances may lag."""

    def __init__(self, faults: FaultInjector, checker: InvariantChecker, clock: Clock) -> None:
        super().__init__(faults)
        self._checker, self._injector, self._clock = checker, faults, clock
        self._indexed_at: dict[str, float] = {}

    def claim_of_instance(self, instance_id: str) -> NodeClaim | None:
        """As the fake, unless the index has not caught up with the instance's launch."""
        claim = super().claim_of_instance(instance_id)
        lag = max((fault.amount for _, fault in self._injector.active_of("index-lag")), default=0.0)
        late = self._clock.now() < self._indexed_at.get(instance_id, 0.0) + lag
        return None if late else claim

    def _put(self, claim: NodeClaim) -> None:
        if self._injector.active_of("upgrade"):
            claim = as_previous_version(claim)
        super()._put(claim)
        if claim.instance_id:
            self._indexed_at.setdefault(claim.instance_id, self._clock.now())
        self._checker.claim_written(claim)

    def _put_command(self, command: DisruptionCommand) -> None:
        super()._put_command(as_previous_version(command) if self._injector.active_of("upgrade") else command)

    def _commit_group(self, cluster: str, epoch: int, items: Sequence[NodeClaim | DisruptionCommand]) -> None:
        super()._commit_group(cluster, epoch, items)
        for item in items:
            if isinstance(item, DisruptionCommand):
                self._checker.command_written(item)

    def advance_command(self, command: DisruptionCommand, to: CommandState, **changes: Any) -> DisruptionCommand:
        """As the fake; a durable write is reported even if its writer gets no answer."""
        try:
            return super().advance_command(command, to, **changes)
        finally:
            self._checker.command_written(self._commands[command.cluster, command.name])


class CheckedCompute(FakeCompute):
    """Reports terminations; `pods_of` gives the pods of an instance, `ended` is called when it has ended."""

    def __init__(
        self,
        clock: Clock,
        faults: Faults,
        amis: Mapping[str, tuple[Ami, ...]],
        checker: InvariantChecker,
        pods_of: Callable[[str, str], Sequence[Pod]],
        ended: Callable[[str], object],
        install: str,
    ) -> None:
        super().__init__(clock, faults=faults, amis=amis, install=install)
        self.checker, self._pods_of, self._on_end = checker, pods_of, ended

    def of(self, install: str, checker: InvariantChecker) -> Self:
        """The same account as another install uses it, with that install's checker."""
        other = self.beside(install)
        other.checker = checker
        return other

    def terminate(self, cluster: str, *instance_ids: str) -> None:
        """As the fake, one after the other."""
        for instance_id in instance_ids:
            self._terminate(cluster, instance_id)

    def _terminate(self, cluster: str, instance_id: str) -> None:
        instance = self.checker.instances.get(instance_id)
        if instance is not None and instance_id not in self.checker.ended:
            self.checker.terminating(instance, self._pods_of(cluster, instance_id))
        elif instance is None and instance_id in self.running:
            self.checker.violated(Promise.OWN_INSTANCES, f"{self.install} ends {instance_id}")
        try:
            super().terminate(cluster, instance_id)
        finally:
            if instance is not None and instance.cluster == cluster and instance_id not in self.running:
                self._on_end(instance_id)

    @property
    def running(self) -> set[str]:
        """Ids of the instances that have not ended."""
        return {instance.id for instance in self.alive()}


class CheckedCluster(FakeCluster):
    """Reports evictions and deletions of pods."""

    def __init__(self, server: ApiServer, faults: Faults, checker: InvariantChecker) -> None:
        super().__init__(server, faults=faults)
        self._checker = checker

    def evict(self, pod: Pod, grace_s: int | None = None) -> None:
        """As the fake."""
        super().evict(pod, grace_s)
        self._checker.evicted(pod, forced=False)

    def delete_pod(self, pod: Pod, grace_s: int) -> None:
        """As the fake."""
        super().delete_pod(pod, grace_s)
        self._checker.evicted(pod, forced=True)


class RoutingBus:
    """An EventBus that hands each event to a router."""

    def __init__(self, faults: Faults, route: Callable[[BusEvent], object]) -> None:
        self._faults, self._route = faults, route

    def publish(self, events: Sequence[BusEvent]) -> None:
        """Deliver."""
        with self._faults.effect("bus.publish"):
            for event in events:
                self._route(event)


class QueueTimers:
    """Timers as delayed messages."""

    def __init__(self, faults: Faults, send: Callable[[str, str, str, int], object]) -> None:
        self._faults, self._send = faults, send

    def remind(self, cluster: str, claim: str, step: str, delay_s: int) -> None:
        """Set a timer."""
        with self._faults.effect("timers.remind"):
            self._send(cluster, claim, step, delay_s)

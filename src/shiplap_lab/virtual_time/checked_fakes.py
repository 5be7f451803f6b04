"""Fakes that report their effects to the judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from shiplap.disruption.progress import DisruptionCommand
from shiplap.errors import StoreError, TooManyRequests
from shiplap.instances.catalog.resolved_nodeclass import Ami
from shiplap.kubernetes.objects import Pod, RawObject
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import BusEvent, Clock, DecisionState, FleetRequest, FleetResult, written_claim, written_command
from shiplap.spending.account_counters import CountChange
from shiplap_lab.fakes.cluster import ApiServer, FakeCluster
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.signals import FakeMeter
from shiplap_lab.fakes.state import FakeState
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from shiplap_lab.virtual_time.unsettled_compute import UnsettledCompute

ITEM_BYTES = 400 * 1024
"""Of one item of DynamoDB."""


class CheckedState(FakeState):
    """Reports each claim and command as soon as it is durable; its index of instances may lag.

    Attributes:
        on_claim, on_command: called with each item as it is stored.
        on_epoch: called with a cluster and its epoch whenever a function reads it.
        on_commit: called with a cluster and its epoch after each transaction of a commit.
        on_restore: called with all items after a restore.
        written: every claim as it was last written, by cluster and name.
    """

    def __init__(self, faults: FaultInjector, clock: Clock) -> None:
        super().__init__(faults)
        self.on_claim: list[Callable[[str | bytes], object]] = []
        self.on_command: list[Callable[[str | bytes], object]] = []
        self.on_epoch: list[Callable[[str, int], object]] = []
        self.on_commit: list[Callable[[str, int], object]] = []
        self.on_restore: list[Callable[[Sequence[str | bytes], Sequence[str | bytes]], object]] = []
        self.written: dict[tuple[str, str], NodeClaim] = {}
        self._injector, self._clock = faults, clock
        self._indexed_at: dict[str, float] = {}

    def read(self, cluster: str, now: float) -> DecisionState:
        """As the fake."""
        found = super().read(cluster, now)
        self._tell(self.on_epoch, cluster, found.epoch)
        return found

    def epoch(self, cluster: str) -> int:
        """As the fake."""
        found = super().epoch(cluster)
        self._tell(self.on_epoch, cluster, found)
        return found

    def epochs(self) -> Mapping[str, int]:
        """The epoch of each cluster that has one."""
        return dict(sorted(self._epochs.items()))

    def _commit_group(
        self, cluster: str, epoch: int, items: Sequence[NodeClaim | DisruptionCommand], counted: CountChange | None
    ) -> None:
        super()._commit_group(cluster, epoch, items, counted)
        self._tell(self.on_commit, cluster, self._epochs.get(cluster, 0))

    @staticmethod
    def _tell(listeners: Sequence[Callable[[str, int], object]], cluster: str, epoch: int) -> None:
        for listener in listeners:
            listener(cluster, epoch)

    def claim_of_instance(self, instance_id: str) -> NodeClaim | None:
        """As the fake, unless the index has not caught up with the instance's launch."""
        claim = super().claim_of_instance(instance_id)
        return None if self._is_late(instance_id) else claim

    def _is_late(self, instance_id: str) -> bool:
        indexed_at, at_work = self._indexed_at.get(instance_id, 0.0), self._injector.at_work
        late = [kind for kind in at_work if self._clock.now() < indexed_at + kind.index_lag_s()]
        for kind in late:
            kind.index_was_late()
        return bool(late)

    def _put(self, claim: NodeClaim) -> None:
        for kind in self._injector.at_work:
            claim = kind.stores(claim)
        stored = written_claim(claim)
        if len(stored if isinstance(stored, bytes) else stored.encode()) > ITEM_BYTES:
            raise StoreError(f"{claim.name}: Item size has exceeded the maximum allowed size")
        super()._put(claim)
        if claim.instance_id:
            self._indexed_at.setdefault(claim.instance_id, self._clock.now())
        self._stored_claim(claim)

    def restore(self, backup: Mapping[str, Any]) -> None:
        """As the fake."""
        super().restore(backup)
        claims, commands = self.contents()
        self.written = {(claim.cluster, claim.name): claim for claim in claims}
        for listener in self.on_restore:
            listener([written_claim(claim) for claim in claims], [written_command(command) for command in commands])

    def _stored_claim(self, claim: NodeClaim) -> None:
        self.written[claim.cluster, claim.name] = claim
        stored = written_claim(claim)
        for listener in self.on_claim:
            listener(stored)

    def _stored_command(self, stored: str | bytes) -> None:
        for listener in self.on_command:
            listener(stored)

    def _put_command(self, command: DisruptionCommand) -> None:
        for kind in self._injector.at_work:
            command = kind.stores(command)
        super()._put_command(command)
        self._stored_command(written_command(command))


class CheckedCompute(UnsettledCompute):
    """Reports requests; `ended` is called when an instance has ended.

    Attributes:
        on_request: called with the install and the JSON of each request for a fleet.
        on_terminate: called with the install and the ids of each request to end instances.
    """

    def __init__(
        self,
        clock: Clock,
        faults: FaultInjector,
        amis: Mapping[str, tuple[Ami, ...]],
        ended: Callable[[str], object],
        install: str,
    ) -> None:
        super().__init__(clock, faults, amis, install)
        self.on_request: list[Callable[[str, bytes], object]] = []
        self.on_terminate: list[Callable[[str, Sequence[str]], object]] = []
        self._on_end = ended

    def launch(self, request: FleetRequest) -> FleetResult:
        """As the fake."""
        for listener in self.on_request:
            listener(self.install, _request_body(request))
        return super().launch(request)

    def terminate(self, cluster: str, *instance_ids: str) -> None:
        """As the fake, one after the other."""
        for listener in self.on_terminate:
            listener(self.install, instance_ids)
        for instance_id in instance_ids:
            self._terminate(cluster, instance_id)

    def _terminate(self, cluster: str, instance_id: str) -> None:
        before = self.running
        try:
            super().terminate(cluster, instance_id)
        finally:
            if instance_id in before - self.running:
                self._on_end(instance_id)

    @property
    def running(self) -> set[str]:
        """Ids of the instances that have not ended."""
        return {instance.id for instance in self.alive()}


def _request_body(request: FleetRequest) -> bytes:
    return msgspec.json.encode(
        {
            "token": request.token,
            "cluster": request.claim.cluster,
            "claims": [claim.name for claim in request.claims],
            "wanted": request.wanted,
            "capacity_type": request.capacity_type,
            "node_class": request.node_class.metadata.name,
            "offerings": [(override.instance_type, override.zone) for override in request.overrides],
        }
    )


class CheckedCluster(FakeCluster):
    """Reports evictions and deletions of pods.

    Attributes:
        on_delete: called with the JSON of a pod before its deletion, and whether it was deleted without an eviction.
    """

    def __init__(self, server: ApiServer, faults: FaultInjector) -> None:
        super().__init__(server, faults=faults)
        self.on_delete: list[Callable[[RawObject, bool], object]] = []
        self._injector = faults

    def _end(self, pod: Pod, grace_s: int | None, *, forced: bool) -> None:
        """As the fake. The pod is looked at in that moment: others may have had it deleted before the request came."""
        try:
            before = self.server.get("pods", pod.metadata.name, pod.metadata.namespace)
            super()._end(pod, grace_s, forced=forced)
        except TooManyRequests:
            for kind in self._injector.at_work:
                kind.evictions_refused()
            raise
        for listener in self.on_delete:
            listener(before, forced)


class RoutingBus:
    """An EventBus that hands each event to a router, and to each of `on_publish`."""

    def __init__(self, faults: Faults, route: Callable[[BusEvent], object]) -> None:
        self.on_publish: list[Callable[[BusEvent], object]] = []
        self._faults, self._route = faults, route

    def publish(self, events: Sequence[BusEvent]) -> None:
        """Deliver."""
        with self._faults.effect("bus.publish"):
            for event in events:
                for listener in self.on_publish:
                    listener(event)
                self._route(event)


class QueueTimers:
    """Timers as delayed messages; each of `on_remind` is told of them, too."""

    def __init__(self, faults: Faults, send: Callable[[str, str, str, int], object]) -> None:
        self.on_remind: list[Callable[[str, str, str, int], object]] = []
        self._faults, self._send = faults, send

    def remind(self, cluster: str, claim: str, step: str, delay_s: int) -> None:
        """Set a timer."""
        with self._faults.effect("timers.remind"):
            for listener in self.on_remind:
                listener(cluster, claim, step, delay_s)
            self._send(cluster, claim, step, delay_s)


class CheckedMeter(FakeMeter):
    """Each of `on_count` is called with the name and the value of a metric, and its dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.on_count: list[Callable[[str, float, Mapping[str, str]], object]] = []

    def count(
        self, name: str, value: float = 1.0, unit: str = "Count", *, dimensions: Mapping[str, str] | None = None
    ) -> None:
        """As the fake."""
        super().count(name, value, unit, dimensions=dimensions)
        for listener in self.on_count:
            listener(name, value, dimensions or {})

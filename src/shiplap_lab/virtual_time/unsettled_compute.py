"""EC2 as it is between two states: instances stay `pending` or `shutting-down`, and names of the ended are given again.

The fake of EC2 applies capacity, quotas and late descriptions by itself; their kinds of faults hear of it here.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from shiplap.errors import AwsError
from shiplap.instances.catalog.resolved_nodeclass import Ami
from shiplap.ports import Clock, FleetRequest, FleetResult, Instance
from shiplap_lab.fakes.compute import FakeCompute
from shiplap_lab.virtual_time.fault_injector import FaultInjector


class UnsettledCompute(FakeCompute):
    """A FakeCompute with these faults. `freed_names` are host names of ended instances that the next ones are given."""

    def __init__(
        self, clock: Clock, injector: FaultInjector, amis: Mapping[str, tuple[Ami, ...]], install: str
    ) -> None:
        super().__init__(clock, faults=injector, amis=amis, install=install)
        self.freed_names: list[str] = []
        self._injector = injector
        self._pending_until: dict[str, float] = {}
        self._shutting_down: dict[str, float] = {}

    def launch(self, request: FleetRequest) -> FleetResult:
        """As the fake; an active fault loses the answer."""
        result = super().launch(request)
        if any(kind.forgets_launch(self) for kind in self._injector.at_work):
            raise AwsError("connection reset", code="")
        return result

    def _fulfil(self, request: FleetRequest) -> FleetResult:
        result = super()._fulfil(request)
        for kind in self._injector.at_work:
            for failure in result.failures:
                kind.launch_failed(failure.code)
        slow = sum(kind.pending_s() for kind in self._injector.at_work) if result.instances else 0.0
        if slow:
            self._pending_until.update((item.id, item.launched_at + slow) for item in result.instances)
        return result

    def _private_dns(self, number: int) -> str:
        if not self.freed_names:
            return super()._private_dns(number)
        for kind in self._injector.at_work:
            kind.named_again()
        return self.freed_names.pop(0)

    def terminate(self, cluster: str, *instance_ids: str) -> None:
        """As the fake; an active fault keeps the instances in `shutting-down` for a while."""
        before = {name: self._instances[name].state for name in instance_ids if name in self._instances}
        try:
            super().terminate(cluster, *instance_ids)
        finally:
            ended = [name for name in before if self._instances[name].state != before[name]]
            slow = sum(kind.ending_s() for kind in self._injector.at_work) if ended else 0.0
            self._shutting_down.update((name, self._clock.now() + slow) for name in ended if slow)

    def _described(self) -> list[Instance]:
        shown = super()._described()
        if self.describe_lag_s:
            is_late = self._is_late(shown)
            for kind in self._injector.at_work:
                kind.described(is_late=is_late)
        now = self._clock.now()
        if any(now < until for until in self._pending_until.values()):
            shown = [self._as_pending(item, now) for item in shown]
        ending = {name for name, until in self._shutting_down.items() if now < until} - {item.id for item in shown}
        own = [self._instances[name] for name in sorted(ending) if not self._is_foreign(self._instances[name])]
        return [*shown, *(replace(item, state="shutting-down") for item in own)]

    def _as_pending(self, instance: Instance, now: float) -> Instance:
        waits = instance.state == "running" and now < self._pending_until.get(instance.id, 0.0)
        return replace(instance, state="pending") if waits else instance

    def _is_late(self, shown: list[Instance]) -> bool:
        """True if describing shows other instances than are there."""
        there = {item.id for item in self.alive() if not self._is_foreign(item)}
        return there != {item.id for item in shown}

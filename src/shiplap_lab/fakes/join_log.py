"""JoinLog in memory, held to the same contract as the DynamoDB adapter."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from msgspec.structs import replace

from shiplap.instances.readiness.joins import AmiJoins, JoinHistory, PoolJoins, with_samples
from shiplap_lab.fakes.faults import Faults


class FakeJoins:
    """The port JoinLog."""

    def __init__(self, faults: Faults | None = None) -> None:
        self._faults = faults or Faults()
        self._lock = Lock()
        self._pools: dict[tuple[str, str], PoolJoins] = {}
        self._amis: dict[tuple[str, str], AmiJoins] = {}

    def read(self, cluster: str) -> JoinHistory:
        with self._faults.locked_effect("joins.read", self._lock):
            return JoinHistory(
                tuple(item for (of, _), item in sorted(self._pools.items()) if of == cluster),
                tuple(item for (of, _), item in sorted(self._amis.items()) if of == cluster),
            )

    def joined(
        self, cluster: str, pool: str, ami: str, instance_type: str, seconds: Sequence[float], now: float
    ) -> None:
        with self._faults.locked_effect("joins.joined", self._lock):
            times = self._pools.get((cluster, pool), PoolJoins(pool))
            self._pools[cluster, pool] = replace(times, register_s=with_samples(times.register_s, seconds))
            known = self._amis.get((cluster, ami), AmiJoins(ami))
            self._amis[cluster, ami] = known.joined(instance_type, now)

    def initialized(self, cluster: str, pool: str, seconds: Sequence[float], now: float) -> None:  # noqa: ARG002 - nothing expires here
        with self._faults.locked_effect("joins.initialized", self._lock):
            times = self._pools.get((cluster, pool), PoolJoins(pool))
            self._pools[cluster, pool] = replace(times, initialize_s=with_samples(times.initialize_s, seconds))

    def failed(self, cluster: str, ami: str, instance_type: str, launched_at: float, now: float) -> None:
        with self._faults.locked_effect("joins.failed", self._lock):
            known = self._amis.get((cluster, ami), AmiJoins(ami))
            self._amis[cluster, ami] = known.failed(instance_type, launched_at, now)

"""Table `capacity` in memory, held to the same contract as the DynamoDB adapter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from threading import Lock

import msgspec

from shiplap.instances.capacity.learned_capacity import merged_capacity
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation, pilot_key
from shiplap.ports import PILOT_LEASE_S
from shiplap_lab.fakes.faults import Faults

_DECODER = msgspec.json.Decoder(LearnedCapacity)
_Key = tuple[str, str, str]


class FakeCapacity:
    """A CapacityStore; keys are (AMI, instance type, kubelet hash)."""

    def __init__(self, faults: Faults | None = None, *, learned: Iterable[LearnedCapacity] = ()) -> None:
        """`learned`: what is known from the start."""
        self.faults = faults or Faults()
        self._lock = Lock()
        self._learned: dict[_Key, bytes] = {
            (entry.ami, entry.instance_type, entry.kubelet_hash): msgspec.json.encode(entry) for entry in learned
        }
        self._pilots: dict[_Key, tuple[str, float]] = {}

    def learned(self, amis: Sequence[str]) -> tuple[LearnedCapacity, ...]:
        with self._effect("capacity.learned"):
            return tuple(_DECODER.decode(item) for key, item in sorted(self._learned.items()) if key[0] in amis)

    def all(self) -> tuple[LearnedCapacity, ...]:
        with self._effect("capacity.all"):
            return tuple(_DECODER.decode(item) for _, item in sorted(self._learned.items()))

    def observe(self, observation: Observation) -> LearnedCapacity:
        key = (observation.ami, observation.instance_type, observation.kubelet_hash)
        return self.merge(LearnedCapacity(*key, recent=(observation,)))

    def merge(self, entry: LearnedCapacity) -> LearnedCapacity:
        key = (entry.ami, entry.instance_type, entry.kubelet_hash)
        with self._effect("capacity.observe"):
            item = self._learned.get(key)
            learned = merged_capacity(None if item is None else _DECODER.decode(item), entry)
            self._learned[key] = msgspec.json.encode(learned)
        return learned

    def forget(self, ami: str, instance_type: str = "", kubelet_hash: str = "") -> int:
        with self._effect("capacity.forget"):
            doomed = [
                key
                for key in self._learned
                if key[0] == ami and instance_type in ("", key[1]) and kubelet_hash in ("", key[2])
            ]
            for key in doomed:
                del self._learned[key]
        return len(doomed)

    def acquire_pilot(self, ami: str, instance_type: str, kubelet_hash: str, holder: str, now: float) -> bool:
        key = (ami, instance_type, kubelet_hash)
        with self._effect("capacity.acquire_pilot"):
            held_by, until = self._pilots.get(key, ("", 0.0))
            if until > now and held_by != holder:
                return False
            self._pilots[key] = (holder, now + PILOT_LEASE_S)
        return True

    def release_pilot(self, ami: str, instance_type: str, kubelet_hash: str, holder: str) -> None:
        key = (ami, instance_type, kubelet_hash)
        with self._effect("capacity.release_pilot"):
            if key in self._pilots and self._pilots[key][0] == holder:
                del self._pilots[key]

    def pilots(self, amis: Sequence[str], now: float) -> frozenset[str]:
        with self._effect("capacity.pilots"):
            return frozenset(
                pilot_key(*key) for key, (_, until) in self._pilots.items() if key[0] in amis and until > now
            )

    def _effect(self, name: str) -> AbstractContextManager[None]:
        return self.faults.locked_effect(name, self._lock)

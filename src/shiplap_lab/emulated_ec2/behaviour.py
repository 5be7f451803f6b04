"""Behaviour of EC2 that moto lacks: capacity that runs out, client tokens, time and faults.

The state lives here and is changed through the control API; `moto_patches` reads it inside moto's answers.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from threading import RLock
from typing import Any

import msgspec

from shiplap.errors import AwsError
from shiplap_lab.emulated_ec2.allocation import CapacityPool
from shiplap_lab.emulated_ec2.emulated_reservations import EmulatedReservation
from shiplap_lab.emulated_ec2.regional_prices import Prices


class CapacityRule(msgspec.Struct, rename="camel"):
    """Limits how many more instances the pools that match can give, together. Names may hold `*`; None means plenty.

    The newest rule that matches a pool counts. Terminated instances do not come back to it.
    """

    instance_type: str = "*"
    zone: str = "*"
    capacity_type: str = "*"
    available: int | None = None

    def matches(self, pool: CapacityPool) -> bool:
        return (
            fnmatchcase(pool.instance_type, self.instance_type)
            and fnmatchcase(pool.zone, self.zone)
            and fnmatchcase(pool.capacity_type, self.capacity_type)
        )


class ActionFault(msgspec.Struct, rename="camel"):
    """Make the next `times` calls of an action fail with `code`; `after` the effect, as when an answer gets lost."""

    action: str
    code: str
    message: str = "injected by the scenario"
    times: int = 1
    after: bool = False


class StartFailure(msgspec.Struct, rename="camel"):
    """The next `times` instances end while they start, with EC2's reason `code`, as when a volume's key is refused."""

    code: str
    message: str = ""
    times: int = 1


class InstanceBucket:
    """Tokens for instances as EC2 counts them: so many at once, refilled by `per_second`. Times in epoch seconds."""

    def __init__(self, burst: float, per_second: float) -> None:
        self._burst = burst
        self._per_second = per_second
        self._tokens = burst
        self._at = 0.0

    def take(self, count: int, now: float) -> bool:
        """Use so many tokens; False, and none is used, when there are fewer."""
        self._tokens = min(self._tokens + max(now - self._at, 0.0) * self._per_second, self._burst)
        self._at = max(now, self._at)
        if self._tokens < count:
            return False
        self._tokens -= count
        return True


class Timing(msgspec.Struct, frozen=True, rename="camel"):
    """Delays in seconds: launch → running, terminate → terminated, launch → visible in DescribeInstances."""

    pending_s: float = 0.0
    terminating_s: float = 0.0
    describe_lag_s: float = 0.0


class Behaviour:
    """Mutable state of the emulated region, guarded by `lock`."""

    def __init__(self, prices: Prices, clock: Callable[[], float] = time.time) -> None:
        self.prices = prices
        self.lock = RLock()
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Back to plenty of everything, no delays and no memory of tokens."""
        with self.lock:
            self.timing = Timing()
            self.rules: list[CapacityRule] = []
            self.faults: list[ActionFault] = []
            self.start_failures: list[StartFailure] = []
            self.reservations: dict[str, EmulatedReservation] = {}
            self.silent_fleets = 0
            self.launchable = InstanceBucket(1000, 2)
            self.endable = InstanceBucket(1000, 20)
            self.calls: dict[str, int] = {}
            self.fleets: dict[str, dict[str, Any]] = {}
            self._ahead_s = 0.0
            self._answers: dict[tuple[str, str], tuple[str, Any]] = {}

    def now(self) -> float:
        """Epoch seconds of the emulated region: the clock plus what it was advanced by."""
        return self._clock() + self._ahead_s

    def advance(self, seconds: float) -> None:
        """Let time pass at once, so that delayed states settle without waiting."""
        with self.lock:
            self._ahead_s += seconds

    def available(self, pool: CapacityPool) -> int | None:
        """Return how many more instances a pool gives; None means plenty."""
        rule = self._rule(pool)
        return None if rule is None else rule.available

    def take(self, pool: CapacityPool) -> bool:
        """Use one instance of a pool; False when there is none left."""
        with self.lock:
            rule = self._rule(pool)
            if rule is None or rule.available is None:
                return True
            if rule.available <= 0:
                return False
            rule.available -= 1
            return True

    def _rule(self, pool: CapacityPool) -> CapacityRule | None:
        return next((rule for rule in reversed(self.rules) if rule.matches(pool)), None)

    def once(self, action: str, token: str, parameters: Any, produce: Callable[[], Any]) -> Any:
        """The answer given before for a client token, else a new one.

        Raises:
            AwsError: IdempotentParameterMismatch, the token was used with other parameters.
        """
        if not token:
            return produce()
        digest = hashlib.sha256(json.dumps(parameters, sort_keys=True, default=str).encode()).hexdigest()
        with self.lock:
            known = self._answers.get((action, token))
            if known is None:
                known = (digest, produce())
                self._answers[action, token] = known
            if known[0] != digest:
                raise AwsError(
                    "The client token has already been used with other parameters.", code="IdempotentParameterMismatch"
                )
            return known[1]

    def fault(self, action: str, *, after: bool) -> ActionFault | None:
        """The fault this call must answer with, used up by one."""
        with self.lock:
            for fault in self.faults:
                if fault.action == action and fault.after == after and fault.times > 0:
                    fault.times -= 1
                    return fault
            return None

    def death(self) -> StartFailure | None:
        """Return how the instance that starts now ends, and use that failure up by one; None if none is left."""
        with self.lock:
            for death in self.start_failures:
                if death.times > 0:
                    death.times -= 1
                    return death
            return None

    def count(self, action: str) -> None:
        """Remember that an action was called, for tests that bound the number of calls."""
        with self.lock:
            self.calls[action] = self.calls.get(action, 0) + 1

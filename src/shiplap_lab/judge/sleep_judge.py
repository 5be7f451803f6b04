"""The judge of nodes that leave for sleep. As the judge of a Region, it imports nothing of what it judges."""

from __future__ import annotations

from collections.abc import Callable

from shiplap_lab.judge.judge import Key
from shiplap_lab.judge.raw_json import ClaimItem, Json
from shiplap_lab.judge.sleep_rules import may_leave, sleeps


class SleepRule:
    """The rule of reason Asleep, a `LeavingRule`.

    Attributes:
        sleep: what sleeps in all clusters, as it is written, with `rehearsed`, `hours` and `wokenAt` if there are any,
            and the names of `all` NodePools.
        left: the windows of each node that left.
    """

    def __init__(self, sleep: Json | None, now: Callable[[], float], apart_s: float) -> None:
        """A run begins now; the clocks of its functions are `apart_s` apart."""
        self.sleep = sleep or {"windows": (), "nodePools": (), "mostNodes": 0}
        self.left: dict[Key, list[Json]] = {}
        self._now, self._begun, self._apart_s = now, now(), apart_s

    def __call__(self, key: Key, claim: ClaimItem, pod: Json | None) -> str:
        """Return how the rule is broken by a node that begins to leave, or by one of which a pod was evicted."""
        return self._broken_by_leaving(key, claim) if pod is None else self._broken_by_eviction(key, claim, pod)

    def lets_wait(self, pod: Json) -> bool:
        """Return True for a pod that sleeps now: it may wait until its windows end."""
        now, known = self._now(), self.sleep
        open_ = ((may_leave(known, self._begun, now, self._apart_s, pool), pool) for pool in known["nodePools"])
        return any(sleeps(known, windows, pool, pod) for windows, pool in open_)

    def _broken_by_leaving(self, key: Key, claim: ClaimItem) -> str:
        """A node may leave if it is of an armed NodePool, and a window is open that is no rehearsal."""
        self.left[key] = may_leave(self.sleep, self._begun, self._now(), self._apart_s, claim.node_pool)
        if not self.left[key]:
            return f"{claim.name} of {claim.node_pool} leaves while nothing of it sleeps"
        most = self.sleep["mostNodes"]
        return f"{len(self.left)} nodes left, {most} may" if len(self.left) > most else ""

    def _broken_by_eviction(self, key: Key, claim: ClaimItem, pod: Json) -> str:
        """A pod may be evicted if it sleeps."""
        if sleeps(self.sleep, self.left.get(key, []), claim.node_pool, pod):
            return ""
        return f"{pod['metadata']['name']} is awake and was evicted from {claim.name}, which leaves for sleep"

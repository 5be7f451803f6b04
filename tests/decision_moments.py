"""Drawn clusters at moments at which much is about to change, and the moments that a decision about them depends on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from math import inf
from typing import Any, Self

from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.disruption.decide import decide
from shiplap.disruption.decision_clock import LONGEST_S, DecisionClock
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot, NodeHistory
from shiplap.disruption.standstill import plan_moments
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import NodeCondition
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.pods import pod
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, fake_type
from tests.living_cluster import LivingCluster

SMALL = fake_type("small", cpu="2", memory="4Gi", pods="10", price=1.0, offerings=(("on-demand", Z1),))
LARGE = fake_type("large", cpu="4", memory="8Gi", pods="20", price=1.9, offerings=(("on-demand", Z1),))
NIGHT = datetime(2027, 1, 15, 21, 50, tzinfo=UTC).timestamp()


class WatchedTime(float):
    """A time less an offset; it keeps the moments at which comparisons with it would come out otherwise.

    A constant less a time is a plain number: only costs of moves are computed so, and what they forbid they forbid
    later, too.
    """

    moments: list[float]
    offset: float

    def __new__(cls, seconds: float, moments: list[float], offset: float = 0.0) -> Self:
        made = super().__new__(cls, seconds)
        made.moments, made.offset = moments, offset
        return made

    def __sub__(self, other: float) -> WatchedTime:
        return WatchedTime(float(self) - other, self.moments, self.offset + other)

    def __add__(self, other: float) -> WatchedTime:
        return WatchedTime(float(self) + other, self.moments, self.offset - other)

    def __rsub__(self, other: float) -> float:
        return other - float(self)

    def __lt__(self, other: float) -> bool:
        return self._noted(other) and float(self) < other

    def __le__(self, other: float) -> bool:
        return self._noted(other) and float(self) <= other

    def __gt__(self, other: float) -> bool:
        return self._noted(other) and float(self) > other

    def __ge__(self, other: float) -> bool:
        return self._noted(other) and float(self) >= other

    def _noted(self, other: float) -> bool:
        self.moments.append(other + self.offset)
        return True


def at(snapshot: DisruptionSnapshot, now: float) -> DisruptionSnapshot:
    return replace(snapshot, scheduling=replace(snapshot.scheduling, now=now))


ages = st.one_of(st.integers(0, 4000), st.sampled_from((250, 580, 880, 3590, 4190)))
"""Seconds; many are just below those that something waits for."""
windows = st.sampled_from([None, ("*/7 * * * *", "3m"), ("0 22 * * *", "90m")])


@st.composite
def snapshots(draw: st.DrawFn) -> DisruptionSnapshot:
    """A few nodes of any age, full, half empty or empty, with pods that start or are protected."""
    window = draw(windows)
    budget = {"nodes": "0", "schedule": window[0], "duration": window[1]} if window else {"nodes": "1"}
    after, expire_after = draw(st.sampled_from(["0s", "1m", "10m"])), draw(st.sampled_from(["1h", "70m", "Never"]))
    living = LivingCluster([pool(after=after, expire_after=expire_after, budgets=[budget])], [SMALL, LARGE], now=NIGHT)
    sizes = draw(st.lists(st.sampled_from(["200m", "900m", "1800m"]), min_size=1, max_size=6))
    living.create(pod(f"p{number}", cpu=size) for number, size in enumerate(sizes))
    living.schedule()
    living.delete(draw(st.sets(st.sampled_from(sorted(living.pods)))))
    for key in sorted(living.pods):
        item, since = living.pods[key], rfc3339(NIGHT - draw(ages))
        protected = draw(st.sampled_from([{}, {}, {labels.DO_NOT_DISRUPT: "20m"}]))
        phase = draw(st.sampled_from(["Running", "Running", "Pending"]))
        status = replace(item.status, phase=phase, start_time=since)
        living.pods[key] = replace(item, metadata=replace(item.metadata, annotations=protected), status=status)
    for name in sorted(living.claims):
        state = draw(st.sampled_from([ClaimState.INITIALIZED] * 4 + [ClaimState.REGISTERED, ClaimState.DRAINING]))
        changed = {"created_at": NIGHT - draw(ages), "changed_at": NIGHT - draw(ages), "state": state}
        living.claims[name] = replace(living.claims[name], **changed)
    for name in sorted(living.nodes):
        node = living.nodes[name]
        ready = draw(st.sampled_from(["True", "True", "True", "False"]))
        status = replace(node.status, conditions=(NodeCondition("Ready", ready),))
        meta = replace(node.metadata, creation_timestamp=rfc3339(NIGHT - draw(ages)))
        living.nodes[name] = replace(node, metadata=meta, status=status)
    if draw(st.booleans()):  # so that there is a plan to make
        living.create([pod("waits", cpu="900m")])
    looked_at = living.disruption_snapshot()
    histories = tuple(_history(draw, name) for name in sorted(living.nodes))
    return replace(looked_at, histories=histories)


def _history(draw: st.DrawFn, name: str) -> NodeHistory:
    fields: dict[str, Any] = {
        field: NIGHT - draw(ages) for field in ("initialized_at", "last_pod_event_at", "moved_in_at", "undone_at")
    }
    return NodeHistory(name, undone=draw(st.integers(0, 2)), **fields)


class NamingClock(DecisionClock):
    """A clock that keeps all moments that it is asked about, not the earliest alone."""

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self.named: set[float] = set()

    def has_reached(self, moment: float) -> bool:
        self.named.add(moment)
        return super().has_reached(moment)

    def note(self, moments: Iterable[float]) -> None:
        known = list(moments)
        self.named.update(known)
        super().note(known)


def unnamed_moments(snapshot: DisruptionSnapshot) -> list[float]:
    """Moments soon to come that a decision depends on and that nothing names, in seconds from now."""
    now = snapshot.scheduling.now
    moments: list[float] = []
    watched = at(snapshot, WatchedTime(now, moments))
    clock = NamingClock(watched.scheduling.now)
    assert decide(watched, clock) == decide(snapshot)
    named = {round(float(moment), 3) for moment in (*clock.named, *plan_moments(snapshot)) if moment < inf}
    return [moment - now for moment in moments if now < moment < now + LONGEST_S and round(moment, 3) not in named]

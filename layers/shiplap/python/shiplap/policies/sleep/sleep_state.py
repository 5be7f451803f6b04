"""Decides what sleeps at a moment: the windows that are open, less rehearsals, wakes and everything that is in doubt.

Whatever is doubtful keeps nodes: what cannot be read, is empty, would sleep for more than a week, was never rehearsed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil

import msgspec

from shiplap.instances.readiness.joins import FEWEST_SAMPLES, JoinHistory, PoolJoins
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.shiplap_annotations import SLEEP
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.policies.sleep.sleep_windows import LONGEST_S, SleepWindow, Span, common, merged, parse_window, spans_of

NODE_POOL, NAMESPACE = "NodePool", "Namespace"
NEVER = "never"
"""The value of the annotation that keeps a NodePool awake."""

UNKNOWN_JOIN_S = 300.0
"""How long nodes of a NodePool take to be ready where fewer than FEWEST_SAMPLES have been seen, in seconds."""

LONGEST_LEAD_S = 900.0
"""No NodePool is woken earlier than this before its window ends, in seconds."""

SWEEP_S = 60.0
"""Pods that were let wait are planned for within this time, in seconds: a sweep comes each minute."""

WHOLE_REHEARSAL_S = 900.0
"""A rehearsal counts if it began no later than this after its hours began, in seconds."""


class SleepNotes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The notes that are kept of a cluster's sleep. Times are epoch seconds.

    `rehearsed` maps windows, by their place in the settings whose digest is `digest`, to the end of their rehearsal. A
    NodePool that an annotation narrows has a rehearsal of its own, by the place and its name: `0/dev`. `taken` nodes
    have left for sleep and count until `taken_until`. A person woke the cluster at `woken_at`, until `awake_until`, or
    until the end of the windows that were open then where that is 0.
    """

    digest: str = ""
    rehearsed: dict[str, int] = {}
    taken: int = 0
    taken_until: int = 0
    woken_at: int = 0
    awake_until: int = 0
    version: int = 0


class SleepingScope(msgspec.Struct, frozen=True, omit_defaults=True):
    """A NodePool or a namespace that sleeps: from `since` until `until`, and woken at `wakes_at` so that nodes are
    there by then. In a `rehearsal` nothing leaves and nothing waits.
    """

    kind: str
    name: str
    since: int
    until: int
    wakes_at: int
    rehearsal: bool = False


class SleepState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sleep of one cluster at one moment, for a decision.

    Nodes of the NodePools `armed` may leave, `nodes_left` more of them. `doubts` say what stays awake because it is
    not understood. `woken` says until when a person keeps everything awake, epoch seconds, or 0.
    """

    armed: tuple[str, ...] = ()
    scopes: tuple[SleepingScope, ...] = ()
    nodes_left: int = 0
    doubts: tuple[str, ...] = ()
    woken: int = 0

    def asleep(self, kind: str) -> dict[str, SleepingScope]:
        """Return the scopes of a kind that sleep in earnest, by name."""
        return {scope.name: scope for scope in self.scopes if scope.kind == kind and not scope.rehearsal}

    def lasting(self, until: float) -> SleepState:
        """Only what sleeps for longer than until a moment."""
        return msgspec.structs.replace(self, scopes=tuple(item for item in self.scopes if item.wakes_at >= until))

    def rehearsing(self) -> SleepState:
        """As if every rehearsal were the real thing."""
        scopes = tuple(msgspec.structs.replace(scope, rehearsal=False) for scope in self.scopes)
        return msgspec.structs.replace(self, scopes=scopes)


def sleep_digest(settings: SleepSettings, pools: Iterable[NodePool]) -> str:
    """Changes with all that says what sleeps when, and with the NodePools that can: then windows are rehearsed anew."""
    written = {
        pool.metadata.name: pool.metadata.annotations.get(SLEEP)
        for pool in pools
        if pool.metadata.name in settings.node_pools and _can_sleep(pool)
    }
    return hashlib.sha256(msgspec.json.encode((settings, written), order="deterministic")).hexdigest()[:16]


def _can_sleep(pool: NodePool) -> bool:
    """A static NodePool keeps its nodes."""
    return pool.spec.replicas is None


def annotation_problem(pool: NodePool) -> str:
    """Return the problem with the annotation of a NodePool; empty without an annotation, and if it can be read."""
    try:
        _narrowing(pool.metadata.annotations.get(SLEEP, NEVER))
    except ValueError as error:
        return f"NodePool {pool.metadata.name}: annotation {SLEEP}: {error}"
    return ""


def is_any_open(settings: SleepSettings, now: float) -> bool:
    """True if a window of the settings is open, so that the notes matter. A window that cannot be read is not open."""
    return any(_open_span(_spans(item, now)[0], now) is not None for item in settings.windows)


def sleep_state(
    settings: SleepSettings, pools: Sequence[NodePool], joins: JoinHistory, notes: SleepNotes, now: float
) -> SleepState:
    """Return the state of sleep now.

    Args:
        settings: of the cluster.
        pools: its NodePools, as they are now.
        joins: how nodes have joined.
        notes: what is remembered.
        now: epoch seconds.
    """
    known = notes if notes.digest == sleep_digest(settings, pools) else _without_rehearsals(notes)
    spans = _Spans(settings, pools, now)
    woken = _woken_until(spans, notes, now)
    leads = {name: lead_s(joins.times(name)) for name in settings.node_pools}
    scopes = []
    for kind, name in spans.names:
        lead = leads[name] if kind == NODE_POOL else max(leads.values(), default=UNKNOWN_JOIN_S)
        places = spans.places(kind, name)
        over = [place for place in places if _is_rehearsed(known, spans.key(place, kind, name), now)]
        for rehearsal, counted in ((False, over), (True, places)):
            span = _open_span(spans.of(kind, name, counted), now)
            if span is not None:
                wakes_at = int(span.end - lead)
                if now < wakes_at:
                    scopes.append(SleepingScope(kind, name, span.start, span.end, wakes_at, rehearsal))
                break
    taken = notes.taken if now < notes.taken_until else 0
    return SleepState(
        armed=tuple(sorted(spans.armed)),
        scopes=tuple(scopes) if not woken else (),
        nodes_left=max(settings.most_nodes - taken, 0),
        doubts=tuple(spans.doubts),
        woken=woken,
    )


def with_rehearsals(settings: SleepSettings, pools: Sequence[NodePool], notes: SleepNotes, now: float) -> SleepNotes:
    """The notes once the rehearsals that are going on are noted; the same notes when there is nothing new.

    Hours that began long ago are not noted: their next beginning is the rehearsal. It lasts until the window ends.
    """
    digest = sleep_digest(settings, pools)
    known = notes if notes.digest == digest else _without_rehearsals(notes)
    rehearsed = dict(known.rehearsed)
    spans = _Spans(settings, pools, now)
    for kind, name in spans.names:
        for place in spans.places(kind, name):
            key = spans.key(place, kind, name)
            hours, window = (_open_span(of(kind, name, [place]), now) for of in (spans.of, spans.written))
            if hours and window and key not in known.rehearsed and now - hours.start <= WHOLE_REHEARSAL_S:
                rehearsed[key] = window.end
    if rehearsed == known.rehearsed:
        return notes
    return msgspec.structs.replace(known, digest=digest, rehearsed=rehearsed)


def with_taken(state: SleepState, notes: SleepNotes, nodes: int, now: float) -> SleepNotes:
    """The notes once so many more nodes are about to leave: they count until all that sleeps now is awake again."""
    before = notes.taken if now < notes.taken_until else 0
    until = max((scope.until for scope in state.scopes), default=0)
    return msgspec.structs.replace(notes, taken=before + nodes, taken_until=max(until, notes.taken_until))


def lead_s(times: PoolJoins) -> float:
    """Return how many seconds before the end of a window to wake its NodePool.

    Nodes are ready by that end 19 in 20 times.
    The 95th percentiles of the times from launch to registration and from there to be complete, and a sweep.
    """
    if min(len(times.register_s), len(times.initialize_s)) < FEWEST_SAMPLES:
        return UNKNOWN_JOIN_S + SWEEP_S
    return min(_p95(times.register_s) + _p95(times.initialize_s) + SWEEP_S, LONGEST_LEAD_S)


def _p95(samples: Sequence[float]) -> float:
    return sorted(samples)[ceil(0.95 * len(samples)) - 1]


def _without_rehearsals(notes: SleepNotes) -> SleepNotes:
    return msgspec.structs.replace(notes, digest="", rehearsed={})


def _is_rehearsed(notes: SleepNotes, key: str, now: float) -> bool:
    return notes.rehearsed.get(key, now + 1) <= now


def _woken_until(spans: _Spans, notes: SleepNotes, now: float) -> int:
    """Until when a person keeps the cluster awake; 0 when none does.

    Windows end as shiplap.yaml has them: in hours of an annotation that begin later a wake holds as well.
    """
    if notes.awake_until:
        return notes.awake_until if now < notes.awake_until else 0
    if not notes.woken_at:
        return 0
    open_then = [_open_span(spans.written(kind, name), notes.woken_at) for kind, name in spans.in_windows]
    until = max((min(span.end, notes.woken_at + LONGEST_S) for span in open_then if span is not None), default=0)
    return until if now < until else 0


class _Spans:
    """Finds when each NodePool and each namespace would sleep around a moment, by the windows that name it."""

    def __init__(self, settings: SleepSettings, pools: Sequence[NodePool], now: float) -> None:
        self.doubts: list[str] = []
        self._now = now
        self._settings = settings
        by_name = {pool.metadata.name: pool for pool in pools}
        self.armed = [name for name in settings.node_pools if self._may_be_armed(name, by_name.get(name))]
        self._narrowed = {name: self._narrowed_to(name, by_name[name].metadata.annotations) for name in self.armed}
        read = [(item, *_spans(item, now)) for item in settings.windows]
        self._windows = [(item, spans) for item, spans, _ in read]
        namespaces = {name for item in settings.windows for name in item.namespaces}
        self.in_windows = [(NAMESPACE, name) for name in sorted(namespaces)]
        self.in_windows += [(NODE_POOL, name) for name in sorted(set(settings.node_pools))]
        self.names = [(kind, name) for kind, name in self.in_windows if kind == NAMESPACE or name in self.armed]
        self._doubt_windows([problem for _, _, problem in read if problem])

    def places(self, kind: str, name: str) -> list[int]:
        """The windows that say when something sleeps, by their place in the settings."""
        return [place for place, (item, _) in enumerate(self._windows) if _names(item, kind, name)]

    def key(self, place: int, kind: str, name: str) -> str:
        """Under which the rehearsal of a window is noted. A NodePool with hours of its own rehearses by itself."""
        return str(place) if self._hours(kind, name) is None else f"{place}/{name}"

    def written(self, kind: str, name: str, places: Iterable[int] | None = None) -> list[Span]:
        """The merged time of these windows, of all that name something where none are given."""
        counted = self.places(kind, name) if places is None else places
        return merged(span for place in counted for span in self._windows[place][1])

    def of(self, kind: str, name: str, places: Iterable[int] | None = None) -> list[Span]:
        """The same, as the annotation of a NodePool narrows it: when something would sleep."""
        hours, written = self._hours(kind, name), self.written(kind, name, places)
        return written if hours is None else common(written, hours)

    def _hours(self, kind: str, name: str) -> list[Span] | None:
        return self._narrowed.get(name) if kind == NODE_POOL else None

    def _may_be_armed(self, name: str, pool: NodePool | None) -> bool:
        if pool is None:
            self.doubts.append(f"NodePool {name} is not known: nothing of it sleeps")
        elif not _can_sleep(pool):
            self.doubts.append(f"NodePool {name} is static: it stays awake")
        return pool is not None and _can_sleep(pool)

    def _narrowed_to(self, name: str, annotations: Mapping[str, str]) -> list[Span] | None:
        """The time that the annotation of a NodePool leaves for sleep; None without one, and none at all in doubt."""
        if SLEEP not in annotations:
            return None
        try:
            windows = _narrowing(annotations[SLEEP])
            return merged(span for window in windows for span in _around(window, self._now))
        except ValueError as error:
            self.doubts.append(f"NodePool {name} stays awake: annotation {SLEEP}: {error}")
            return []

    def _doubt_windows(self, unread: Iterable[str]) -> None:
        """Let nothing sleep while one window is in doubt: nobody knows what else its author meant otherwise."""
        endless = (f"{_named(kind, name)} would sleep for more than 7 days on end" for kind, name in self._endless())
        if doubts := [f"all stays awake: {why}" for why in (*unread, *endless)]:
            self.doubts += doubts
            self.names = []

    def _endless(self) -> Iterator[tuple[str, str]]:
        for kind, name in self.names:
            span = _open_span(self.of(kind, name), self._now)
            if span is not None and span.end - span.start > LONGEST_S:
                yield kind, name


def _narrowing(written: str) -> list[SleepWindow]:
    """The windows of an annotation, none for NEVER. Raises ValueError."""
    return [] if written.strip() == NEVER else [parse_window(text) for text in written.split(";")]


def _named(kind: str, name: str) -> str:
    return f"{kind} {name}" if kind == NODE_POOL else f"namespace {name}"


def _names(item: WindowSettings, kind: str, name: str) -> bool:
    return name in item.namespaces if kind == NAMESPACE else item.is_of_pool(name)


def _spans(item: WindowSettings, now: float) -> tuple[list[Span], str]:
    """Return the spans of a window around a moment, or why they are not known."""
    try:
        return list(_around(parse_window(item.when), now)), ""
    except ValueError as error:
        return [], f"a window of shiplap.yaml: {error}"


def _around(window: SleepWindow, now: float) -> Iterable[Span]:
    """A week and a day before and after: enough to see what would sleep for more than a week."""
    return spans_of(window, now - LONGEST_S - 86_400, now + LONGEST_S + 86_400)


def _open_span(spans: Iterable[Span], now: float) -> Span | None:
    return next((span for span in spans if span.start <= now < span.end), None)

"""The claims and recorded decisions of a live install, polled every few seconds beside its cluster.

Only claims that have changed are fetched, and each record is read once. A source that may not be read is reported; the
others are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Event, Thread

import msgspec

from shiplap.errors import AwsError, InvalidInput, StoreError
from shiplap.flows.interrupt.notices import NoticeKind
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.policies.registry import parts
from shiplap.ports import FlightRecords
from shiplap.records.disruption_record import Headline, headline
from shiplap_cli.hints import with_hint
from shiplap_cli.inputs.cluster_events import SourceProblem
from shiplap_cli.installs.followed_resources import FollowedResources

EVERY_S = 5.0
BACK_S = 24 * 3600.0
"""How far back decisions are shown, seconds."""
_LATE_S = 900.0
"""A record's id has the time of the look at the cluster; it is written so many seconds later at the most."""
_AT_ONCE = 8
_MOST = 20
"""Records that are opened in one look, because each holds a whole cluster; and claim steps of the first look."""


class ClaimsRead(msgspec.Struct, frozen=True):
    """All claims of the cluster that are not over."""

    claims: tuple[NodeClaim, ...]


class DecisionsRead(msgspec.Struct, frozen=True):
    """New decisions, oldest first."""

    lines: tuple[Headline, ...]


class LinesRead(msgspec.Struct, frozen=True):
    """The lines of text of a feature of the install; empty where it has no such settings."""

    kind: str
    lines: tuple[str, ...]


SourceRead = ClaimsRead | DecisionsRead | LinesRead

Put = Callable[[SourceRead | SourceProblem], None]


class PolledSource(msgspec.Struct, frozen=True):
    """A source: its `kind` in problems, the text shown while it cannot be read, and what reads it."""

    kind: str
    unseen: str
    read: Callable[[], SourceRead]

    def poll_once(self, put: Put) -> None:
        """Read the source once. Raises InvalidInput: there is no such install or cluster."""
        try:
            put(self.read())
        except (AwsError, StoreError) as error:
            put(self._problem(with_hint(error)))
        else:
            put(SourceProblem(self.kind, ""))

    def keep_polling(self, put: Put, ended: Event) -> None:
        """Read the source again and again, in a thread that ends with the process at the latest."""

        def run() -> None:
            while not ended.wait(EVERY_S):
                try:
                    self.poll_once(put)
                except InvalidInput as error:  # the install has gone since it was looked up
                    put(self._problem(str(error)))

        Thread(target=run, name=f"follow-{self.kind}", daemon=True).start()

    def _problem(self, why: str) -> SourceProblem:
        return SourceProblem(self.kind, f"{self.unseen}: {why}")


def claims_source(read: Callable[[], Sequence[NodeClaim]]) -> PolledSource:
    """The claims of a cluster."""
    unseen = "claims are not seen, so tiers and nodes on their way are unknown and prices estimated"
    return PolledSource("claims", unseen, lambda: ClaimsRead(tuple(read())))


def decisions_source(read: Callable[[], Sequence[Headline]]) -> PolledSource:
    """The recorded decisions of a cluster."""
    return PolledSource("decisions", "recorded decisions are not seen", lambda: DecisionsRead(tuple(read())))


def lines_source(kind: str, unseen: str, read: Callable[[], Sequence[str]]) -> PolledSource:
    """Return the source of the lines of a feature of the install; it shows `unseen` while a read fails."""
    return PolledSource(kind, unseen, lambda: LinesRead(kind, tuple(read())))


def policy_sources(resources: FollowedResources, clock: Callable[[], float]) -> list[PolledSource]:
    """Return the sources of lines of optional features, those of `shiplap_cli.policies.<name>_top`."""
    found = parts("shiplap_cli", "top")
    return [lines_source(name, module.UNSEEN, module.lines_reader(resources, clock)) for name, module in found]


def claim_reader(resources: FollowedResources) -> Callable[[], Sequence[NodeClaim]]:
    """Reads the claims of a cluster from table `state`."""

    return lambda: resources.state.claims(resources.cluster)


def decision_reader(resources: FollowedResources, clock: Callable[[], float]) -> Callable[[], Sequence[Headline]]:
    """Reads the new decisions of a cluster from the install's bucket."""

    @cache
    def records() -> RecordedDecisions:
        return RecordedDecisions(resources.install.records(), resources.cluster, clock)

    return lambda: records().fresh()


class RecordedDecisions:
    """The records of a cluster as they come.

    Args:
        records: where they are.
        cluster: whose.
        clock: epoch seconds now.
    """

    def __init__(self, records: FlightRecords, cluster: str, clock: Callable[[], float]) -> None:
        self._records, self._cluster, self._clock = records, cluster, clock
        self._known: frozenset[str] | None = None
        self._since = clock() - BACK_S

    def fresh(self) -> list[Headline]:
        """The decisions recorded since the last call; the first call returns the newest. Raises StoreError."""
        now = self._clock()
        # Clocks differ: a record that was just written may have a time that is in the future here.
        ids = self._records.ids(self._cluster, self._since, now + _LATE_S)
        known = self._known
        unread = [name for name in ids if name not in known][:_MOST] if known is not None else list(ids[-_MOST:])
        with ThreadPoolExecutor(_AT_ONCE) as pool:  # the first frame waits for them
            lines = list(pool.map(lambda name: headline(self._records.stored(name), name), unread))
        self._known = frozenset(ids) if known is None else (known & frozenset(ids)) | frozenset(unread)
        self._since = max(self._since, now - 2 * _LATE_S)
        return lines


LAUNCH, INTERRUPT, LIFECYCLE = "launch", "interrupt", "lifecycle"
_NOTICES = frozenset(map(str, NoticeKind))
_RECORDED = frozenset({ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.DISRUPTING})
"""States that a recorded decision already shows."""


def claim_steps(before: Sequence[NodeClaim] | None, after: Sequence[NodeClaim]) -> list[Headline]:
    """Steps that no record holds, between two looks at the claims: launches, interruptions, joins and removals.

    They are in order of time. `before` is None at the first look, which shows the latest ones.
    """
    known = {claim.name: claim for claim in before or ()}
    lines = [line for claim in after for line in _steps_of(known.get(claim.name), claim)]
    lines.sort(key=lambda line: (line.at, line.text))
    return lines if before is not None else lines[-_MOST:]


def _steps_of(old: NodeClaim | None, new: NodeClaim) -> Iterator[Headline]:
    if (old is None or old.state is not new.state) and new.state not in _RECORDED:
        yield Headline(new.changed_at, _kind(new), _step(new))
    if new.cordoned and (old is None or old.cordoned != new.cordoned):
        yield Headline(new.changed_at, INTERRUPT, f"{new.name} takes no more pods: {new.cordoned}")


def _kind(claim: NodeClaim) -> str:
    if claim.failure in _NOTICES:
        return INTERRUPT
    return LAUNCH if claim.state is ClaimState.LAUNCHED or not claim.instance_id else LIFECYCLE


def _step(claim: NodeClaim) -> str:
    words = f"{claim.name} is {claim.state}"
    if claim.state is ClaimState.LAUNCHED:
        got = claim.known_instance
        return f"{words}: {got.type} {got.capacity_type} in {got.zone}, {claim.hourly:.4f} USD/h"
    if claim.failure:
        return f"{words}: {claim.failure}"
    return f"{words}, node {claim.node_name}" if claim.node_name else words

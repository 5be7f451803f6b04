"""The decisions of a live install as they are recorded: one listing every few seconds, and each record read once.

Where they may not be read, that is said, and the rest is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import msgspec

from shiplap.disruption.record import Headline, headline
from shiplap.ports import FlightRecords
from shiplap_cli.inputs.cluster_events import SourceProblem
from shiplap_cli.installs.find_install import DeployedInstall
from shiplap_cli.top import polling

BACK_S = 24 * 3600.0
"""How far back decisions are shown, seconds."""
_LATE_S = 900.0
"""A record's id has the time of the look at the cluster; it is written so many seconds later at the most."""
_AT_ONCE = 8
_MOST = 20
"""Records that are opened in one look: each holds a whole cluster."""
_SUBJECT = polling.PolledSource("decisions", "recorded decisions are not seen")


class DecisionsRead(msgspec.Struct, frozen=True):
    """New decisions, oldest first."""

    lines: tuple[Headline, ...]


Put = Callable[[DecisionsRead | SourceProblem], None]
Look = Callable[[], Sequence[Headline]]


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
        """Those that appeared since the last call; of the first call the newest. Raises StoreError."""
        now = self._clock()
        # Clocks differ: what a function wrote a moment ago may be of a time that is still to come here.
        ids = self._records.ids(self._cluster, self._since, now + _LATE_S)
        known = self._known
        unread = [name for name in ids if name not in known][:_MOST] if known is not None else list(ids[-_MOST:])
        with ThreadPoolExecutor(_AT_ONCE) as pool:  # the first frame waits for them
            lines = list(pool.map(lambda name: headline(self._records.document(name), name), unread))
        self._known = frozenset(ids) if known is None else (known & frozenset(ids)) | frozenset(unread)
        self._since = max(self._since, now - 2 * _LATE_S)
        return lines


def decision_reader(located: Callable[[], tuple[DeployedInstall, str]], clock: Callable[[], float]) -> Look:
    """What reads the decisions of a cluster of an install, which is looked for when it is first used."""
    known: list[RecordedDecisions] = []

    def fresh() -> Sequence[Headline]:
        if not known:
            from shiplap.aws.bucket import BucketRecorder  # noqa: PLC0415 - loads botocore
            from shiplap.aws.session import client  # noqa: PLC0415 - as above

            install, cluster = located()
            known.append(RecordedDecisions(BucketRecorder(client("s3"), install.bucket), cluster, clock))
        return known[0].fresh()

    return fresh


def poll_decisions(fresh: Look, put: Put) -> None:
    """Once. Raises InvalidInput: there is no such install or cluster."""
    polling.poll_once(_SUBJECT, lambda: DecisionsRead(tuple(fresh())), put)


def follow_decisions(fresh: Look, put: Put, ended: Event) -> None:
    """Look again and again, in a thread that ends with the process at the latest."""
    polling.keep_polling(_SUBJECT, lambda: DecisionsRead(tuple(fresh())), put, ended)

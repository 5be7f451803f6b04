"""Reads claims and commands through the index on stages, at the cost of what has changed.

A cluster of thousands of nodes has as many claims of several kilobytes, and every decision needs them. The index lists
keys, stages and versions consistently. Each conditional write makes a new version, so an item of the same stage and
version is unchanged. A warm function reads only changed items; a cold one reads all of them once.

Most claims are settled, and their entries alone would cost a hundred units at 5,000 nodes. So the key of a settled one
says when it was written, by the writer's clock, and a warm function lists those written since it last looked. Stages
with few entries are listed whole. One that is not listed there any more is read by its key.

The range of a look overlaps the one before by OVERLAP_S, for clocks that differ and writes that are repeated. A write
still later, one of an older release, which says no time, and an item that was deleted are found by a look at the whole
index, which is due after WHOLE_LOOK_S.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from threading import Lock
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from shiplap.aws.dynamodb.items import Item, get_all, query
from shiplap.aws.dynamodb.tables import STAGE_INDEX
from shiplap.aws.failures import Sleep

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

WHOLE_LOOK_S = 900.0
"""After so many seconds a process lists the whole index again."""

OVERLAP_S = 300.0
"""So far before its last look, in seconds, the next one begins."""


FEW = 80
"""A partition with fewer items is listed whole at each look: that costs no more than two ranges of it."""


class Stage(StrEnum):
    """What the keys of the index begin with; `#` and the rest follow.

    Their order counts: what is done lies before all that a cluster has, and what is settled before the rest of it. An
    older release has failed claims under `Failed`, between these.
    """

    DONE = "Done"
    """Gone, and of no use to anybody."""
    ENDED = "Ended"
    """Gone, and a ledger has not posted it to its end."""
    SETTLED = "Settled"
    """In service, or failed."""
    UNSETTLED = "Unsettled"


_TIMED = frozenset({Stage.DONE, Stage.SETTLED})
"""Stages whose keys begin with the time of the write. What leaves another one can only be missing in a list of it."""

_WHEN = "~"
"""What the time of a write begins with. No name does, so that keys without a time come before those with one."""

_LAST = "~~"
"""Behind the keys of a stage."""


def stage_key(stage: Stage, name: str, written_at: float) -> str:
    """Return the key of the index for a claim or command that is written now, epoch seconds."""
    return f"{_since(stage, written_at)}#{name}" if stage in _TIMED else f"{stage}#{name}"


def _since(stage: Stage, at: float) -> str:
    return f"{stage}#{_WHEN}{max(0, int(at * 1000)):013d}"


Record = TypeVar("Record")

_Key = tuple[str, str]


class _Entry(NamedTuple):
    """What the index says of an item."""

    stage: str
    version: str

    def is_listed_whole(self) -> bool:
        """True if every look lists the stage of this entry."""
        return self.stage.startswith((f"{Stage.UNSETTLED}#", f"{Stage.ENDED}#"))


class _Known(Generic[Record]):
    """The items of a partition as they were at `seen_at`, of which all were listed at `whole_at`, epoch seconds."""

    def __init__(self) -> None:
        self.items: dict[_Key, tuple[_Entry, Record]] = {}
        self.seen_at = self.whole_at = float("-inf")


class StagedItems(Generic[Record]):
    """Reads records of one kind by their stage; `decode` makes one of its item. `clock` is that of the writers."""

    def __init__(
        self,
        client: DynamoDBClient,
        table: str,
        decode: Callable[[Item], Record],
        sleep: Sleep,
        clock: Callable[[], float],
    ) -> None:
        self._client, self._table, self._decode, self._sleep, self._clock = client, table, decode, sleep, clock
        self._known: dict[str, _Known[Record]] = {}
        self._lock = Lock()

    def read(self, partitions: Iterable[str], stage: Stage | None = None) -> list[Record]:
        """The records of these partitions in a stage; in all but the first one if none is named.

        Each is as it was at one moment since the call began; one that has left the stage meanwhile is left out. What
        the module says may be found late concerns settled ones alone.

        Raises:
            StoreThrottled, StoreError.
        """
        looks = [self._look(partition, stage) for partition in partitions]
        read = self._get(sorted(key for look in looks for key in look.changed))
        prefix = "" if stage is None else f"{stage}#"
        records: list[Record] = []
        for look in looks:
            with self._lock:  # all at once: another thread may be looking at the same
                known = self._known[look.partition]
                found = {key: known.items[key] for key in look.kept if key in known.items}
                found |= {key: read[key] for key in look.changed if key in read}
                if stage is not None:
                    known.items |= found
                else:
                    known.items, known.seen_at = found, look.at
                if look.is_whole:
                    known.whole_at = look.at
            records += (record for entry, record in found.values() if entry.stage.startswith(prefix))
        return records

    def _look(self, partition: str, stage: Stage | None) -> _Look:
        now = self._clock()
        with self._lock:
            known = self._known.setdefault(partition, _Known())
            items, seen_at = dict(known.items), known.seen_at
            is_whole = len(items) < FEW or not 0 <= now - known.whole_at < WHOLE_LOOK_S
        if stage is not None or is_whole:
            first, last = (stage, stage) if stage is not None else (Stage.ENDED, Stage.UNSETTLED)
            listed = self._entries(partition, f"{first}#", f"{last}#{_LAST}")
            kept = {key for key, entry in listed.items() if key in items and items[key][0] == entry}
            return _Look(partition, now, stage is None, kept, listed.keys() - kept)
        since = seen_at - OVERLAP_S
        ended = self._entries(partition, _since(Stage.DONE, since), f"{Stage.ENDED}#{_LAST}")
        listed = ended | self._entries(partition, _since(Stage.SETTLED, since), f"{Stage.UNSETTLED}#{_LAST}")
        changed = {
            key
            for key, entry in listed.items()
            if (items[key][0] != entry if key in items else not entry.stage.startswith(f"{Stage.DONE}#"))
        }
        changed |= {key for key, (entry, _) in items.items() if entry.is_listed_whole() and key not in listed}
        return _Look(partition, now, False, items.keys() - changed, changed)

    def _entries(self, partition: str, first: str, last: str) -> dict[_Key, _Entry]:
        between = (STAGE_INDEX.sort_key, first, last)
        found = query(self._client, self._table, ("cluster", partition), between=between, index=STAGE_INDEX.name)
        return {
            (partition, item["item"]["S"]): _Entry(item[STAGE_INDEX.sort_key]["S"], item["version"]["N"])
            for item in found
        }

    def _get(self, keys: list[_Key]) -> Mapping[_Key, tuple[_Entry, Record]]:
        """The items of these keys that have a stage and are not done with."""
        wanted = [{"cluster": {"S": partition}, "item": {"S": item}} for partition, item in keys]
        read = {}
        for item in get_all(self._client, self._table, wanted, self._sleep):
            at = item.get(STAGE_INDEX.sort_key)
            if at is not None and not at["S"].startswith(f"{Stage.DONE}#"):
                key = (item["cluster"]["S"], item["item"]["S"])
                read[key] = _Entry(at["S"], item["version"]["N"]), self._decode(item)
        return read


class _Look(NamedTuple):
    """A look at a partition that began `at`, epoch seconds: the keys of items that are as they were, and of others."""

    partition: str
    at: float
    is_whole: bool
    kept: Iterable[_Key]
    changed: Iterable[_Key]

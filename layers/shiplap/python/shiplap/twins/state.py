"""Table `state` in memory, held to the same contract as the DynamoDB adapter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from threading import Lock
from typing import Any

import msgspec

from shiplap.api.nodeclaim import UNSETTLED, ClaimState, NodeClaim, check_new, forgotten_at, moved
from shiplap.errors import ConditionFailed, EpochMoved
from shiplap.ports import (
    COMMIT_GROUP,
    MISSED_FOR_S,
    DecisionState,
    Move,
    OfferingFailure,
    UnavailableOffering,
    check_together,
)
from shiplap.twins.faults import Faults

_DECODER = msgspec.json.Decoder(NodeClaim)


class TwinState:
    """A StateStore. Claims are kept encoded, so that nothing survives here that would not survive in a table."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self._lock = Lock()
        self._epochs: dict[str, int] = {}
        self._claims: dict[tuple[str, str], bytes] = {}
        self._unavailable: dict[tuple[str, str, str, str], UnavailableOffering] = {}
        self._missed: dict[tuple[str, str], float] = {}

    def read(self, cluster: str, now: float) -> DecisionState:
        with self._effect("state.read"):
            return DecisionState(
                epoch=self._epochs.get(cluster, 0),
                claims=tuple(claim for claim in self._of(cluster) if claim.state in UNSETTLED),
                unavailable=tuple(
                    item for key, item in sorted(self._unavailable.items()) if key[0] == cluster and item.until > now
                ),
                missed_pods=frozenset(
                    uid for (of, uid), until in self._missed.items() if of == cluster and until > now
                ),
            )

    def commit(self, cluster: str, epoch: int, claims: Sequence[NodeClaim]) -> int:
        check_new(cluster, claims)
        for start in range(0, len(claims), COMMIT_GROUP):
            with self._effect("state.commit"):
                self._commit_group(cluster, epoch, claims[start : start + COMMIT_GROUP])
            epoch += 1
        return epoch

    def _commit_group(self, cluster: str, epoch: int, claims: Sequence[NodeClaim]) -> None:
        if self._epochs.get(cluster, 0) != epoch:
            raise EpochMoved(cluster, epoch)
        if any((cluster, claim.name) in self._claims for claim in claims):
            raise ConditionFailed(f"cluster {cluster}: a claim of that name exists")
        self._epochs[cluster] = epoch + 1
        for claim in claims:
            self._put(claim)

    def claim(self, cluster: str, name: str) -> NodeClaim | None:
        with self._effect("state.claim"):
            document = self._claims.get((cluster, name))
            return None if document is None else _DECODER.decode(document)

    def claim_of_instance(self, instance_id: str) -> NodeClaim | None:
        with self._effect("state.claim_of_instance"):
            claims = (_DECODER.decode(document) for _, document in sorted(self._claims.items()))
            return next((claim for claim in claims if instance_id and claim.instance_id == instance_id), None)

    def claims(self, cluster: str) -> tuple[NodeClaim, ...]:
        with self._effect("state.claims"):
            return tuple(claim for claim in self._of(cluster) if claim.state is not ClaimState.GONE)

    def advance(self, claim: NodeClaim, to: ClaimState, **changes: Any) -> NodeClaim:
        after = moved(claim, to, changes)
        with self._effect("state.advance"):
            document = self._claims.get((claim.cluster, claim.name))
            if document is None or _DECODER.decode(document).version != claim.version:
                raise ConditionFailed(f"claim {claim.name} is no longer at version {claim.version}")
            self._put(after)
        return after

    def advance_all(self, moves: Sequence[Move]) -> tuple[NodeClaim, ...]:
        after = tuple(moved(move.claim, move.to, move.changes) for move in moves)
        check_together(moves)
        with self._effect("state.advance_all"):
            for move in moves:
                document = self._claims.get((move.claim.cluster, move.claim.name))
                if document is None or _DECODER.decode(document).version != move.claim.version:
                    raise ConditionFailed(f"claim {move.claim.name} is no longer at version {move.claim.version}")
            for claim in after:
                self._put(claim)
        return after

    def mark_unavailable(self, cluster: str, failure: OfferingFailure, now: float) -> UnavailableOffering:
        key = (cluster, failure.instance_type, failure.zone, failure.capacity_type)
        with self._effect("state.mark_unavailable"):
            marked = self._unavailable[key] = UnavailableOffering.after(self._unavailable.get(key), failure, now)
        return marked

    def mark_missed(self, cluster: str, pod_uids: Sequence[str], now: float) -> None:
        with self._effect("state.mark_missed"):
            self._missed.update(((cluster, uid), now + MISSED_FOR_S) for uid in pod_uids)

    def expire(self, now: float) -> None:
        """What DynamoDB's TTL does sooner or later: forget claims that ended long ago and stale marks."""
        for key, document in list(self._claims.items()):
            end = forgotten_at(_DECODER.decode(document))
            if end is not None and end <= now:
                del self._claims[key]
        self._missed = {key: until for key, until in self._missed.items() if until > now}

    def _of(self, cluster: str) -> Iterator[NodeClaim]:
        return (_DECODER.decode(document) for key, document in sorted(self._claims.items()) if key[0] == cluster)

    def _put(self, claim: NodeClaim) -> None:
        self._claims[claim.cluster, claim.name] = msgspec.json.encode(claim)

    def _effect(self, name: str) -> AbstractContextManager[None]:
        return self.faults.locked_effect(name, self._lock)

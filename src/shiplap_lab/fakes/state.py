"""Table `state` in memory, held to the same contract as the DynamoDB adapter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from threading import Lock
from typing import Any, Unpack

import msgspec
from msgspec.structs import replace

from shiplap.disruption.progress import OVER, CommandChanges, CommandState, DisruptionCommand, advanced
from shiplap.disruption.progress import forgotten_at as command_forgotten_at
from shiplap.disruption.repair.kept_sick_nodes import SickNote
from shiplap.errors import ConditionFailed, EpochMoved, StoreError
from shiplap.instances.readiness.joins import AmiJoins, JoinHistory, PoolJoins, with_samples
from shiplap.manifests.nodeclaim import (
    UNSETTLED,
    ClaimChanges,
    ClaimState,
    NodeClaim,
    advanced_claim,
    check_new_claims,
    forgotten_at,
)
from shiplap.ports import (
    ADDRESSES_S,
    COMMIT_GROUP,
    FUTILE_FOR_S,
    MISSED_FOR_S,
    PROVEN_FOR_S,
    REFUSED_FOR_S,
    SICK_FOR_S,
    DecisionState,
    Move,
    OfferingFailure,
    Refusals,
    UnavailableOffering,
    check_together,
    may_take,
    read_claim,
    read_command,
    taken_now,
    total_addresses,
    written_claim,
    written_command,
)
from shiplap.spending.account_counters import AccountSpending, CountChange, CountedSpending
from shiplap.spending.ledger import SpendingLedger
from shiplap_lab.fakes.faults import Faults

MOST_ITEM_BYTES = 400 * 1024
"""DynamoDB's limit of an item."""


class FakeState:
    """A StateStore. What is written is kept as it is read back from JSON, so that nothing survives here that would not
    survive in a table."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self._lock = Lock()
        self._epochs: dict[str, int] = {}
        self._claims: dict[tuple[str, str], NodeClaim] = {}
        self._present: dict[str, dict[str, NodeClaim]] = {}
        self._of_instance: dict[str, tuple[str, str]] = {}
        self._commands: dict[tuple[str, str], DisruptionCommand] = {}
        self._under_way: dict[str, dict[str, DisruptionCommand]] = {}
        self._unavailable: dict[tuple[str, str, str], UnavailableOffering] = {}
        self._reserved: dict[str, dict[str, tuple[int, float]]] = {}
        self._addresses: dict[str, tuple[dict[str, int], float]] = {}
        self._missed: dict[tuple[str, str], float] = {}
        self._refused: dict[tuple[str, str], Refusals] = {}
        self._futile: dict[tuple[str, str], float] = {}
        self._proven: dict[tuple[str, str], float] = {}
        self._sick: dict[tuple[str, str], SickNote] = {}
        self._frozen_at = 0.0
        self._ledgers: dict[str, bytes] = {}
        self._counted: dict[str, CountedSpending] = {}
        self._spending: dict[str, AccountSpending] = {}
        self._closed: dict[tuple[str, str], bool] = {}

    def read(self, cluster: str, now: float) -> DecisionState:
        with self._effect("state.read"):
            return DecisionState(
                epoch=self._epochs.get(cluster, 0),
                claims=tuple(claim for claim in self._present_in(cluster) if claim.state in UNSETTLED),
                unavailable=tuple(item for _, item in sorted(self._unavailable.items()) if item.until > now),
                recovering=tuple(item for _, item in sorted(self._unavailable.items()) if item.is_recovering(now)),
                reserved=taken_now(self._reserved, now),
                addresses=total_addresses(taken for taken, until in self._addresses.values() if until > now),
                missed_pods=frozenset(
                    uid for (of, uid), until in self._missed.items() if of == cluster and until > now
                ),
                refused={
                    uid: refusals
                    for (of, uid), refusals in sorted(self._refused.items())
                    if of == cluster and refusals.at + REFUSED_FOR_S > now
                },
                futile={
                    name: at
                    for (of, name), at in sorted(self._futile.items())
                    if of == cluster and at + FUTILE_FOR_S > now
                },
                proven={
                    kind: at
                    for (of, kind), at in sorted(self._proven.items())
                    if of == cluster and at + PROVEN_FOR_S > now
                },
                sick={
                    name: note
                    for (of, name), note in sorted(self._sick.items())
                    if of == cluster and note.at + SICK_FOR_S > now
                },
                frozen_at=self._frozen_at,
                ledger=self._ledger(cluster),
                counted=self._counted.get(cluster, CountedSpending()),
                account_spending=self._account_spending,
            )

    def epoch(self, cluster: str) -> int:
        with self._effect("state.epoch"):
            return self._epochs.get(cluster, 0)

    def commit(
        self,
        cluster: str,
        epoch: int,
        claims: Sequence[NodeClaim],
        commands: Sequence[DisruptionCommand] = (),
        counted: CountChange | None = None,
    ) -> int:
        check_new_claims(cluster, claims)
        items: list[NodeClaim | DisruptionCommand] = [*commands, *claims]
        while items:
            most = COMMIT_GROUP - (0 if counted is None else 2)
            with self._effect("state.commit"):
                self._commit_group(cluster, epoch, items[:most], counted)
            items, counted, epoch = items[most:], None, epoch + 1
        return epoch

    def _commit_group(
        self, cluster: str, epoch: int, items: Sequence[NodeClaim | DisruptionCommand], counted: CountChange | None
    ) -> None:
        if self._epochs.get(cluster, 0) != epoch:
            raise EpochMoved(cluster, epoch)
        if counted is not None and not self._may_count(cluster, counted):
            raise EpochMoved(cluster, epoch)
        for item in items:
            known = self._commands if isinstance(item, DisruptionCommand) else self._claims
            if (cluster, item.name) in known:
                raise ConditionFailed(f"cluster {cluster}: {item.name} exists")
        for item in items:
            if isinstance(item, NodeClaim):
                _checked(item)
        self._epochs[cluster] = epoch + 1
        if counted is not None:
            self._count(cluster, counted)
        for item in items:
            if isinstance(item, DisruptionCommand):
                self._put_command(item)
            else:
                self._put(item)

    def commands(self, cluster: str) -> tuple[DisruptionCommand, ...]:
        with self._effect("state.commands"):
            return tuple(command for _, command in sorted(self._under_way.get(cluster, {}).items()))

    def advance_command(
        self, command: DisruptionCommand, to: CommandState, **changes: Unpack[CommandChanges]
    ) -> DisruptionCommand:
        after = advanced(command, to, changes)
        with self._effect("state.advance_command"):
            known = self._commands.get((command.cluster, command.name))
            if known is None or known.version != command.version:
                raise ConditionFailed(f"command {command.name} is no longer at version {command.version}")
            self._put_command(after)
        return after

    def claim(self, cluster: str, name: str) -> NodeClaim | None:
        with self._effect("state.claim"):
            return self._claims.get((cluster, name))

    def claim_of_instance(self, instance_id: str) -> NodeClaim | None:
        with self._effect("state.claim_of_instance"):
            return self._claims.get(self._of_instance.get(instance_id, ("", "")))

    def claims(self, cluster: str) -> tuple[NodeClaim, ...]:
        with self._effect("state.claims"):
            return tuple(self._present_in(cluster))

    def advance(self, claim: NodeClaim, to: ClaimState, **changes: Unpack[ClaimChanges]) -> NodeClaim:
        after = advanced_claim(claim, to, changes)
        with self._effect("state.advance"):
            known = self._claims.get((claim.cluster, claim.name))
            if known is None or known.version != claim.version:
                raise ConditionFailed(f"claim {claim.name} is no longer at version {claim.version}")
            self._put(after)
        return after

    def advance_all(self, moves: Sequence[Move]) -> tuple[NodeClaim, ...]:
        after = tuple(advanced_claim(move.claim, move.to, move.changes) for move in moves)
        check_together(moves)
        with self._effect("state.advance_all"):
            for claim in after:
                _checked(claim)
            for move in moves:
                known = self._claims.get((move.claim.cluster, move.claim.name))
                if known is None or known.version != move.claim.version:
                    raise ConditionFailed(f"claim {move.claim.name} is no longer at version {move.claim.version}")
            for claim in after:
                self._put(claim)
        return after

    def ledger_claims(self, cluster: str) -> tuple[NodeClaim, ...]:
        with self._effect("state.ledger_claims"):
            return tuple(claim for claim in self._of(cluster) if self._counts(claim))

    def _counts(self, claim: NodeClaim) -> bool:
        is_open = claim.is_metered and (claim.cluster, claim.name) not in self._closed
        return claim.state is not ClaimState.GONE or is_open

    def post_ledger(self, cluster: str, ledger: SpendingLedger) -> bool:
        with self._effect("state.post_ledger"):
            known = self._ledger(cluster)
            if (0 if known is None else known.version) + 1 != ledger.version:
                return False
            self._ledgers[cluster] = msgspec.json.encode(ledger)
            return True

    def close_claims(self, claims: Sequence[NodeClaim]) -> None:
        for claim in claims:
            with self._effect("state.close_claims"):
                self._closed[claim.cluster, claim.name] = True

    def count_spending(self, cluster: str, change: CountChange) -> bool:
        with self._effect("state.count_spending"):
            may_count = self._may_count(cluster, change)
            if may_count:
                self._count(cluster, change)
            return may_count

    def _ledger(self, cluster: str) -> SpendingLedger | None:
        stored = self._ledgers.get(cluster)
        return None if stored is None else msgspec.json.decode(stored, type=SpendingLedger)

    @property
    def _account_spending(self) -> AccountSpending:
        return self._spending.get("", AccountSpending())

    def _may_count(self, cluster: str, change: CountChange) -> bool:
        known = self._counted.get(cluster, CountedSpending())
        return known.version + 1 == change.after.version and self._account_spending.allows(change)

    def _count(self, cluster: str, change: CountChange) -> None:
        self._counted[cluster] = change.after
        self._spending[""] = self._account_spending.after(change)

    def adopt(self, claim: NodeClaim) -> bool:
        with self._effect("state.adopt"):
            known = self._claims.get((claim.cluster, claim.name))
            if known is not None and known.state is not ClaimState.FAILED:
                return False
            self._put(claim)
            return True

    def mark_unavailable(self, failures: Sequence[OfferingFailure], now: float) -> tuple[UnavailableOffering, ...]:
        by_scope = {failure.scope: failure for failure in sorted(failures, reverse=True)}
        with self._effect("state.mark_unavailable"):
            for scope, failure in by_scope.items():
                self._unavailable[scope] = UnavailableOffering.after(self._unavailable.get(scope), failure, now)
            return tuple(self._unavailable[scope] for scope in sorted(by_scope))

    def relieve(self, offering: UnavailableOffering) -> None:
        with self._effect("state.relieve"):
            if self._unavailable.get(offering.scope) == offering:
                self._unavailable[offering.scope] = offering.relieved()

    def take_reserved(self, reservation_id: str, token: str, count: int, available: int, now: float) -> int:
        with self._effect("state.take_reserved"):
            taken = self._reserved.setdefault(reservation_id, {})
            granted = may_take(taken, token, count, available, now)
            taken[token] = (granted, now + ADDRESSES_S)
            return granted

    def reserve_addresses(self, token: str, addresses: Mapping[str, int], now: float) -> None:
        with self._effect("state.reserve_addresses"):
            self._addresses[token] = (dict(addresses), now + ADDRESSES_S)

    def mark_missed(self, cluster: str, pod_uids: Sequence[str], now: float) -> None:
        with self._effect("state.mark_missed"):
            self._missed.update(((cluster, uid), now + MISSED_FOR_S) for uid in pod_uids)

    def mark_refused(self, cluster: str, pod_uid: str, refusals: Refusals) -> None:
        with self._effect("state.mark_refused"):
            known = self._refused.get((cluster, pod_uid), Refusals())
            if known.at <= refusals.at:
                self._refused[cluster, pod_uid] = replace(refusals, claims=tuple(sorted(refusals.claims)))

    def mark_futile(self, cluster: str, created_at: Mapping[str, float]) -> None:
        with self._effect("state.mark_futile"):
            self._futile.update(((cluster, name), at) for name, at in created_at.items())

    def mark_sick(self, cluster: str, notes: Mapping[str, SickNote]) -> None:
        with self._effect("state.mark_sick"):
            self._sick.update(((cluster, name), note) for name, note in notes.items())

    def mark_proven(self, cluster: str, kinds: Sequence[str], now: float) -> None:
        with self._effect("state.mark_proven"):
            self._proven.update(((cluster, kind), now) for kind in kinds)

    def freeze(self, clusters: Sequence[str], now: float) -> float:
        with self._effect("state.freeze"):
            self._frozen_at = self._frozen_at or now
            for cluster in set(clusters):
                self._epochs[cluster] = self._epochs.get(cluster, 0) + 1
            return self._frozen_at

    def unfreeze(self) -> None:
        with self._effect("state.unfreeze"):
            self._frozen_at = 0.0

    def frozen_at(self) -> float:
        with self._effect("state.frozen_at"):
            return self._frozen_at

    def expire(self, now: float) -> None:
        """Forget claims that ended long ago and stale marks, as DynamoDB's TTL does sooner or later."""
        for key, claim in list(self._claims.items()):
            end = forgotten_at(claim)
            if end is not None and end <= now:
                del self._claims[key]
                self._present.get(claim.cluster, {}).pop(claim.name, None)
                self._of_instance = {name: of for name, of in self._of_instance.items() if of != key}
        for key, command in list(self._commands.items()):
            end = command_forgotten_at(command)
            if end is not None and end <= now:
                del self._commands[key]
                self._under_way.get(command.cluster, {}).pop(command.name, None)
        self._addresses = {token: kept for token, kept in self._addresses.items() if kept[1] > now}
        self._missed = {key: until for key, until in self._missed.items() if until > now}
        self._refused = {key: refusals for key, refusals in self._refused.items() if refusals.at + REFUSED_FOR_S > now}
        self._futile = {key: at for key, at in self._futile.items() if at + FUTILE_FOR_S > now}
        self._proven = {key: at for key, at in self._proven.items() if at + PROVEN_FOR_S > now}
        self._sick = {key: note for key, note in self._sick.items() if note.at + SICK_FOR_S > now}

    def backup(self) -> dict[str, Any]:
        """All that is in the table now, for `restore`."""
        return {name: deepcopy(value) for name, value in vars(self).items() if isinstance(value, dict)}

    def restore(self, backup: Mapping[str, Any]) -> None:
        """Put a backup in the place of all that is there."""
        vars(self).update(deepcopy(dict(backup)))

    def contents(self) -> tuple[tuple[NodeClaim, ...], tuple[DisruptionCommand, ...]]:
        """All claims and commands, by cluster and name."""
        claims = tuple(claim for _, claim in sorted(self._claims.items()))
        return claims, tuple(command for _, command in sorted(self._commands.items()))

    def _of(self, cluster: str) -> Iterator[NodeClaim]:
        return (claim for key, claim in sorted(self._claims.items()) if key[0] == cluster)

    def _present_in(self, cluster: str) -> Iterator[NodeClaim]:
        """Return the claims that are not gone: after days of a simulation, these are few of all claims."""
        return (claim for _, claim in sorted(self._present.get(cluster, {}).items()))

    def _put(self, claim: NodeClaim) -> None:
        key = (claim.cluster, claim.name)
        self._claims[key] = stored = read_claim(_checked(claim))
        present = self._present.setdefault(claim.cluster, {})
        if stored.state is ClaimState.GONE:
            present.pop(claim.name, None)
        else:
            present[claim.name] = stored
        if claim.instance_id:  # the first by name of several has it, which only a defect makes
            self._of_instance[claim.instance_id] = min(key, self._of_instance.get(claim.instance_id, key))

    def _put_command(self, command: DisruptionCommand) -> None:
        self._commands[command.cluster, command.name] = stored = read_command(written_command(command))
        under_way = self._under_way.setdefault(command.cluster, {})
        if stored.state in OVER:
            under_way.pop(command.name, None)
        else:
            under_way[command.name] = stored

    def _effect(self, name: str) -> AbstractContextManager[None]:
        return self.faults.locked_effect(name, self._lock)


def _checked(claim: NodeClaim) -> str | bytes:
    """The claim as it is stored. Raises StoreError where DynamoDB would refuse the item."""
    stored = written_claim(claim)
    if len(stored) > MOST_ITEM_BYTES:
        raise StoreError(f"claim {claim.name}: Item size has exceeded the maximum allowed size")
    return stored


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
                tuple(joins for (of, _), joins in sorted(self._pools.items()) if of == cluster),
                tuple(joins for (of, _), joins in sorted(self._amis.items()) if of == cluster),
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

"""Table `state` of a simulated install on DynamoDB Local, behind the adapter that the deployed functions use."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from shiplap.aws.dynamodb.items import Item, scan
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.aws.dynamodb.tables import EXPIRY
from shiplap.disruption.progress import CommandState, DisruptionCommand
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import (
    Clock,
    DecisionState,
    Move,
    OfferingFailure,
    Refusals,
    UnavailableOffering,
    read_claim,
    read_command,
    written_claim,
    written_command,
)
from shiplap.spending.account_counters import CountChange
from shiplap.spending.ledger import SpendingLedger
from shiplap_lab.faults.functions.versions import as_previous_version
from shiplap_lab.virtual_time.checked_fakes import CheckedState
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from tests.dynamodb_local.faulty_transport import FaultyTransport

TABLE = "state"


class CheckedTable(CheckedState):
    """The same effects in the same order as those of the fake, each carried out by the real adapter.

    The transport tells the judge what is durable: an answer that is lost leaves a write behind.
    """

    def __init__(
        self,
        faults: FaultInjector,
        clock: Clock,
        client: Any,
        *,
        seed: int,
        share: float,
    ) -> None:
        super().__init__(faults, clock)
        self.transport = FaultyTransport(
            client._endpoint.http_session,
            seed,
            share=share,
            rewrite=self._as_written_now,
            written=self._became_durable,
        )
        self.transport.attach(client)
        self._client = client
        self._table = DynamoState(client, TABLE, sleep=lambda _: None)

    # What goes over the wire

    def _as_written_now(self, item: dict[str, Any]) -> dict[str, Any]:
        """An item as the version writes it that runs now."""
        if not self._injector.active_of("upgrade"):
            return item
        if "claim" in item:
            self._injector.effects["upgrade"] += 1
            stored = written_claim(as_previous_version(_claim_of(item)))
            return {**item, "claim": {"S": stored} if isinstance(stored, str) else {"B": b64encode(stored).decode()}}
        if "command" in item:
            stored_command = written_command(as_previous_version(read_command(item["command"]["S"])))
            return {**item, "command": {"S": stored_command}}
        return item

    def _became_durable(self, items: Sequence[dict[str, Any]]) -> None:
        """Tell the judge, of claims first: a command is judged with its replacements."""
        for item in items:
            if "claim" in item:
                claim = _claim_of(item)
                if claim.instance_id:
                    self._indexed_at.setdefault(claim.instance_id, self._clock.now())
                self._stored_claim(claim)
        for item in items:
            if "command" in item:
                self._stored_command(item["command"]["S"])

    # The port

    def read(self, cluster: str, now: float) -> DecisionState:
        with self._effect("state.read"):
            return self._table.read(cluster, now)

    def epoch(self, cluster: str) -> int:
        with self._effect("state.epoch"):
            return self._table.epoch(cluster)

    def _commit_group(
        self, cluster: str, epoch: int, items: Sequence[NodeClaim | DisruptionCommand], counted: CountChange | None
    ) -> None:
        self._table.commit(
            cluster,
            epoch,
            [item for item in items if isinstance(item, NodeClaim)],
            [item for item in items if isinstance(item, DisruptionCommand)],
            counted,
        )

    def ledger_claims(self, cluster: str) -> tuple[NodeClaim, ...]:
        with self._effect("state.ledger_claims"):
            return self._table.ledger_claims(cluster)

    def post_ledger(self, cluster: str, ledger: SpendingLedger) -> bool:
        with self._effect("state.post_ledger"):
            return self._table.post_ledger(cluster, ledger)

    def close_claims(self, claims: Sequence[NodeClaim]) -> None:
        with self._effect("state.close_claims"):
            self._table.close_claims(claims)

    def count_spending(self, cluster: str, change: CountChange) -> bool:
        with self._effect("state.count_spending"):
            return self._table.count_spending(cluster, change)

    def commands(self, cluster: str) -> tuple[DisruptionCommand, ...]:
        with self._effect("state.commands"):
            return self._table.commands(cluster)

    def advance_command(self, command: DisruptionCommand, to: CommandState, **changes: Any) -> DisruptionCommand:
        with self._effect("state.advance_command"):
            return self._table.advance_command(command, to, **changes)

    def claim(self, cluster: str, name: str) -> NodeClaim | None:
        with self._effect("state.claim"):
            return self._table.claim(cluster, name)

    def claim_of_instance(self, instance_id: str) -> NodeClaim | None:
        with self._effect("state.claim_of_instance"):
            claim = self._table.claim_of_instance(instance_id)
        return None if self._is_late(instance_id) else claim

    def claims(self, cluster: str) -> tuple[NodeClaim, ...]:
        with self._effect("state.claims"):
            return self._table.claims(cluster)

    def advance(self, claim: NodeClaim, to: ClaimState, **changes: Any) -> NodeClaim:
        with self._effect("state.advance"):
            return self._table.advance(claim, to, **changes)

    def advance_all(self, moves: Sequence[Move]) -> tuple[NodeClaim, ...]:
        with self._effect("state.advance_all"):
            return self._table.advance_all(moves)

    def adopt(self, claim: NodeClaim) -> bool:
        with self._effect("state.adopt"):
            return self._table.adopt(claim)

    def mark_unavailable(self, failures: Sequence[OfferingFailure], now: float) -> tuple[UnavailableOffering, ...]:
        with self._effect("state.mark_unavailable"):
            return self._table.mark_unavailable(failures, now)

    def relieve(self, offering: UnavailableOffering) -> None:
        with self._effect("state.relieve"):
            self._table.relieve(offering)

    def take_reserved(self, reservation_id: str, token: str, count: int, available: int, now: float) -> int:
        with self._effect("state.take_reserved"):
            return self._table.take_reserved(reservation_id, token, count, available, now)

    def reserve_addresses(self, token: str, addresses: Mapping[str, int], now: float) -> None:
        with self._effect("state.reserve_addresses"):
            self._table.reserve_addresses(token, addresses, now)

    def mark_missed(self, cluster: str, pod_uids: Sequence[str], now: float) -> None:
        with self._effect("state.mark_missed"):
            self._table.mark_missed(cluster, pod_uids, now)

    def mark_refused(self, cluster: str, pod_uid: str, refusals: Refusals) -> None:
        with self._effect("state.mark_refused"):
            self._table.mark_refused(cluster, pod_uid, refusals)

    def mark_futile(self, cluster: str, created_at: Mapping[str, float]) -> None:
        with self._effect("state.mark_futile"):
            self._table.mark_futile(cluster, created_at)

    def mark_proven(self, cluster: str, kinds: Sequence[str], now: float) -> None:
        with self._effect("state.mark_proven"):
            self._table.mark_proven(cluster, kinds, now)

    def freeze(self, clusters: Sequence[str], now: float) -> float:
        with self._effect("state.freeze"):
            return self._table.freeze(clusters, now)

    def unfreeze(self) -> None:
        with self._effect("state.unfreeze"):
            self._table.unfreeze()

    def frozen_at(self) -> float:
        with self._effect("state.frozen_at"):
            return self._table.frozen_at()

    def expire(self, now: float) -> None:
        """Delete expired items as TTL does, in virtual time: DynamoDB Local knows only the time of this machine."""
        with self.transport.undisturbed():
            for item in list(scan(self._client, TABLE)):
                if EXPIRY in item and float(item[EXPIRY]["N"]) <= now:
                    self._client.delete_item(TableName=TABLE, Key={key: item[key] for key in ("cluster", "item")})

    def _effect(self, name: str) -> AbstractContextManager[None]:
        return self._injector.effect(name)


def _claim_of(item: Item) -> NodeClaim:
    """Binary attributes are Base64 on the wire."""
    stored = item["claim"]
    return read_claim(stored["S"] if "S" in stored else b64decode(stored["B"]))

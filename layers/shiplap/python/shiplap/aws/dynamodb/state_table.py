"""Table `state`: the epoch, the claims, the offerings that failed and the pods that were missed.

`tables` describes the layout and why it is so. The epoch is read before the claims: if it is unchanged when a decision
commits, no other decision was committed since, and the claims that were read are complete.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Unpack
from uuid import uuid4

import msgspec
from botocore.exceptions import ClientError

from shiplap.aws.dynamodb.items import (
    Item,
    Value,
    expiry,
    float_of,
    get,
    number,
    of_version,
    placeholders,
    put_if,
    query,
    text,
)
from shiplap.aws.dynamodb.shared_state import DynamoAccount
from shiplap.aws.dynamodb.staged_items import Stage, StagedItems, stage_key
from shiplap.aws.dynamodb.tables import EXPIRY, INSTANCE_ID_INDEX, STAGE_INDEX
from shiplap.aws.failures import CONDITION_FAILED, TRANSACTION_CANCELED, Sleep, attempts, code_of, store_errors
from shiplap.disruption.progress import CommandChanges, CommandState, DisruptionCommand, advanced
from shiplap.disruption.progress import forgotten_at as command_forgotten_at
from shiplap.disruption.repair.kept_sick_nodes import SickNote
from shiplap.errors import ConditionFailed, EpochMoved, StoreError, StoreThrottled
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
    COMMIT_BYTES,
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
    read_claim,
    read_command,
    taken_now,
    total_addresses,
    written_claim,
    written_command,
)
from shiplap.spending.account_counters import CountChange, CountedSpending
from shiplap.spending.ledger import SpendingLedger

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBClient

SHARDS = 8
"""Partitions a cluster's claims are spread over. Never change it: claims would be looked for where they are not."""

EPOCH, CLAIM, POD, COMMAND = "EPOCH", "CLAIM", "POD", "COMMAND"
LEDGER, COUNTED = "LEDGER", "COUNTED"
REFUSED, FUTILE, PROVEN, SICK = "REFUSED", "FUTILE", "PROVEN", "SICK"
"""Prefixes of sort keys; a `#` and the rest of the key follow, except after EPOCH, LEDGER and COUNTED."""

_BATCH = 25
_TRIES = 8


class DynamoState:
    """A StateStore on DynamoDB."""

    def __init__(
        self,
        client: DynamoDBClient,
        table: str,
        *,
        sleep: Sleep = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._table = table
        self._sleep = sleep
        self._account = DynamoAccount(client, table, sleep)
        self._clock = clock
        self._read = StagedItems(client, table, claim_of_item, sleep, clock)
        self._commands = StagedItems(client, table, command_of_item, sleep, clock)

    def read(self, cluster: str, now: float) -> DecisionState:
        epoch = 0
        missed: set[str] = set()
        refused: dict[str, Refusals] = {}
        futile: dict[str, float] = {}
        proven: dict[str, float] = {}
        sick: dict[str, SickNote] = {}
        ledger, counted = None, CountedSpending()
        for item in query(self._client, self._table, ("cluster", cluster)):
            kind, _, rest = item["item"]["S"].partition("#")
            if kind == EPOCH:
                epoch = int(item["epoch"]["N"])
            elif kind == POD and float_of(item, EXPIRY) > now:
                missed.add(rest)
            elif kind == REFUSED and float_of(item, EXPIRY) > now:
                refused[rest] = refusals_of_item(item)
            elif kind == FUTILE and float_of(item, EXPIRY) > now:
                futile[rest] = float_of(item, "created_at")
            elif kind == SICK and float_of(item, EXPIRY) > now:
                sick[rest] = SickNote(item["ami"]["S"], float_of(item, "at"))
            elif kind == PROVEN:
                proven[rest] = float_of(item, "at")
            elif kind == LEDGER:
                ledger = msgspec.json.decode(item["ledger"]["S"], type=SpendingLedger)
            elif kind == COUNTED:
                counted = msgspec.json.decode(item["counted"]["S"], type=CountedSpending)
        known = self._account.read()
        return DecisionState(
            epoch=epoch,
            claims=self._claims(cluster, Stage.UNSETTLED),
            unavailable=tuple(offering for offering in known.offerings if offering.until > now),
            recovering=tuple(offering for offering in known.offerings if offering.is_recovering(now)),
            reserved=taken_now(known.taken, now),
            addresses=total_addresses(item.addresses for item in known.reservations if item.until > now),
            missed_pods=frozenset(missed),
            refused=refused,
            futile={name: at for name, at in futile.items() if at + FUTILE_FOR_S > now},
            proven={kind: at for kind, at in proven.items() if at + PROVEN_FOR_S > now},
            sick=sick,
            frozen_at=known.frozen_at,
            ledger=ledger,
            counted=counted,
            account_spending=known.spending,
        )

    def epoch(self, cluster: str) -> int:
        items = query(self._client, self._table, ("cluster", cluster), ("item", EPOCH))
        return next((int(item["epoch"]["N"]) for item in items), 0)

    def commit(
        self,
        cluster: str,
        epoch: int,
        claims: Sequence[NodeClaim],
        commands: Sequence[DisruptionCommand] = (),
        counted: CountChange | None = None,
    ) -> int:
        check_new_claims(cluster, claims)
        items = [*map(item_of_command, commands), *(self._item(claim) for claim in claims)]
        counters = self._counters(cluster, counted) if counted is not None else []
        for group in transactions_of(items, beside=len(counters)):
            self._commit_group(cluster, epoch, group, counters)
            epoch, counters = epoch + 1, []
        return epoch

    def _commit_group(self, cluster: str, epoch: int, items: Sequence[Item], counters: Sequence[Any]) -> None:
        absent = "attribute_not_exists(#epoch) OR " if epoch == 0 else ""
        advance_epoch = {
            "TableName": self._table,
            "Key": _key(cluster, EPOCH),
            "UpdateExpression": "SET #epoch = :next",
            "ConditionExpression": f"{absent}#epoch = :expected",
            "ExpressionAttributeNames": placeholders(["epoch"]),
            "ExpressionAttributeValues": {":expected": number(epoch), ":next": number(epoch + 1)},
        }
        new = {"ConditionExpression": "attribute_not_exists(#item)", "ExpressionAttributeNames": placeholders(["item"])}
        request: dict[str, Any] = {
            # Repeats of this one call are one transaction. Not derived from the claims: two deciders may well arrive at
            # the same claims, and then only one of them may be told that it has won.
            "ClientRequestToken": uuid4().hex,
            "TransactItems": [
                {"Update": advance_epoch},
                *counters,
                *({"Put": {"TableName": self._table, "Item": item, **new}} for item in items),
            ],
        }
        self._transact(request, lambda error: raise_cancelled_commit(error, cluster, epoch, len(counters)))

    def _counters(self, cluster: str, change: CountChange) -> list[Any]:
        """Actions that add to the account's counters, and note it, if the cluster's note is the one before."""
        note = {
            **_key(cluster, COUNTED),
            "counted": text(msgspec.json.encode(change.after).decode()),
            "version": number(change.after.version),
        }
        condition, names, past = of_version(change.after.version - 1 or None)
        put = {
            "TableName": self._table,
            "Item": note,
            "ConditionExpression": condition,
            "ExpressionAttributeNames": placeholders(names),
            **({"ExpressionAttributeValues": past} if past else {}),
        }
        return [{"Put": put}, {"Update": self._account.counting(change)}]

    def count_spending(self, cluster: str, change: CountChange) -> bool:
        request = {"ClientRequestToken": uuid4().hex, "TransactItems": self._counters(cluster, change)}
        try:
            self._transact(request, lambda error: raise_cancelled_commit(error, cluster, 0, 1))
        except EpochMoved:
            return False
        return True

    def ledger_claims(self, cluster: str) -> tuple[NodeClaim, ...]:
        return self._claims(cluster)

    def post_ledger(self, cluster: str, ledger: SpendingLedger) -> bool:
        item = {
            **_key(cluster, LEDGER),
            "ledger": text(msgspec.json.encode(ledger).decode()),
            "version": number(ledger.version),
        }
        return put_if(self._client, self._table, item, *of_version(ledger.version - 1 or None))

    def close_claims(self, claims: Sequence[NodeClaim]) -> None:
        for claim in claims:
            with store_errors(f"write table {self._table}"):
                try:
                    self._client.update_item(
                        TableName=self._table,
                        Key=_claim_key(claim.cluster, claim.name),
                        UpdateExpression="REMOVE #stage",
                        ConditionExpression="#state = :gone",
                        ExpressionAttributeNames=placeholders(["stage", "state"]),
                        ExpressionAttributeValues={":gone": text(ClaimState.GONE)},
                    )
                except ClientError as error:  # it has expired
                    if code_of(error) != CONDITION_FAILED:
                        raise

    def commands(self, cluster: str) -> tuple[DisruptionCommand, ...]:
        unfinished = self._commands.read([_commands_key(cluster)], Stage.UNSETTLED)
        return tuple(sorted(unfinished, key=lambda command: command.name))

    def advance_command(
        self, command: DisruptionCommand, to: CommandState, **changes: Unpack[CommandChanges]
    ) -> DisruptionCommand:
        after = advanced(command, to, changes)
        if not put_if(self._client, self._table, item_of_command(after), *of_version(command.version)):
            raise ConditionFailed(f"command {command.name} is no longer at version {command.version}")
        return after

    def claim(self, cluster: str, name: str) -> NodeClaim | None:
        item = get(self._client, self._table, _claim_key(cluster, name))
        return None if item is None else claim_of_item(item)

    def claim_of_instance(self, instance_id: str) -> NodeClaim | None:
        if not instance_id:  # no key of an index is empty
            return None
        by_instance = (INSTANCE_ID_INDEX.partition_key, instance_id)
        for key in query(self._client, self._table, by_instance, index=INSTANCE_ID_INDEX.name, consistent=False):
            item = get(self._client, self._table, {"cluster": key["cluster"], "item": key["item"]})
            if item is not None and (claim := claim_of_item(item)).instance_id == instance_id:
                return claim
        return None

    def claims(self, cluster: str) -> tuple[NodeClaim, ...]:
        return tuple(claim for claim in self._claims(cluster) if claim.state is not ClaimState.GONE)

    def _claims(self, cluster: str, stage: Stage | None = None) -> tuple[NodeClaim, ...]:
        """Return the claims of a stage, or of all but those that are done with, sorted by name."""
        partitions = [_partition_key(cluster, shard) for shard in range(SHARDS)]
        return tuple(sorted(self._read.read(partitions, stage), key=attrgetter("name")))

    def advance(self, claim: NodeClaim, to: ClaimState, **changes: Unpack[ClaimChanges]) -> NodeClaim:
        after = advanced_claim(claim, to, changes)
        if not put_if(self._client, self._table, self._item(after), *of_version(claim.version)):
            raise ConditionFailed(f"claim {claim.name} is no longer at version {claim.version}")
        return after

    def advance_all(self, moves: Sequence[Move]) -> tuple[NodeClaim, ...]:
        after = tuple(advanced_claim(move.claim, move.to, move.changes) for move in moves)
        check_together(moves)
        if len(moves) <= 1:  # a transaction costs twice as much as a write
            return tuple(self.advance(move.claim, move.to, **move.changes) for move in moves)
        request: dict[str, Any] = {
            "ClientRequestToken": uuid4().hex,
            "TransactItems": [self._replace(claim) for claim in after],
        }
        self._transact(request, lambda error: raise_cancelled_moves(error, moves))
        return after

    def _item(self, claim: NodeClaim) -> Item:
        return item_of_claim(claim, self._clock())

    def _replace(self, claim: NodeClaim) -> dict[str, Any]:
        """An action that writes a claim over the version before it."""
        return {
            "Put": {
                "TableName": self._table,
                "Item": self._item(claim),
                "ConditionExpression": "#version = :version",
                "ExpressionAttributeNames": placeholders(["version"]),
                "ExpressionAttributeValues": {":version": number(claim.version - 1)},
            }
        }

    def _transact(self, request: dict[str, Any], explain: Callable[[ClientError], None]) -> None:
        """Write all or nothing. `explain` raises what a cancellation means, or returns when it may be tried again."""
        for _ in attempts(_TRIES, sleep=self._sleep):
            with store_errors(f"write table {self._table}"):
                try:
                    self._client.transact_write_items(**request)
                except ClientError as error:
                    if code_of(error) != TRANSACTION_CANCELED:
                        raise
                    explain(error)
                    continue
                return
        raise StoreThrottled(f"table {self._table}: the same items are being written by too many at once")

    def adopt(self, claim: NodeClaim) -> bool:
        condition, failed = "attribute_not_exists(#item) OR #state = :failed", {":failed": text(ClaimState.FAILED)}
        return put_if(self._client, self._table, self._item(claim), condition, ["item", "state"], failed)

    def mark_unavailable(self, failures: Sequence[OfferingFailure], now: float) -> tuple[UnavailableOffering, ...]:
        return self._account.mark_unavailable(failures, now)

    def relieve(self, offering: UnavailableOffering) -> None:
        self._account.relieve(offering)

    def take_reserved(self, reservation_id: str, token: str, count: int, available: int, now: float) -> int:
        return self._account.take_reserved(reservation_id, token, count, available, now)

    def reserve_addresses(self, token: str, addresses: Mapping[str, int], now: float) -> None:
        self._account.reserve_addresses(token, addresses, now)

    def mark_missed(self, cluster: str, pod_uids: Sequence[str], now: float) -> None:
        items = [{**_key(cluster, f"{POD}#{uid}"), EXPIRY: expiry(now + MISSED_FOR_S)} for uid in sorted(set(pod_uids))]
        for start in range(0, len(items), _BATCH):
            unwritten: Any = [{"PutRequest": {"Item": item}} for item in items[start : start + _BATCH]]
            for _ in attempts(_TRIES, sleep=self._sleep):
                with store_errors(f"write table {self._table}"):
                    answer = self._client.batch_write_item(RequestItems={self._table: unwritten})
                unwritten = answer.get("UnprocessedItems", {}).get(self._table, [])
                if not unwritten:
                    break
            else:
                raise StoreThrottled(f"cluster {cluster}: {len(unwritten)} missed pods could not be written")

    def mark_refused(self, cluster: str, pod_uid: str, refusals: Refusals) -> None:
        at = number(refusals.at)
        item = {
            **_key(cluster, f"{REFUSED}#{pod_uid}"),
            "claims": {"SS": sorted(refusals.claims)},
            "at": at,
            "tries": number(refusals.tries),
            "launched_at": number(refusals.launched_at),
            "like": {"S": refusals.like},
            EXPIRY: expiry(refusals.at + REFUSED_FOR_S),
        }
        # A newer item stays: another sweep wrote it meanwhile.
        put_if(self._client, self._table, item, "attribute_not_exists(#at) OR #at <= :at", ["at"], {":at": at})

    def mark_futile(self, cluster: str, created_at: Mapping[str, float]) -> None:
        for name, at in sorted(created_at.items()):  # few at a time, and not every function may write batches
            item = {
                **_key(cluster, f"{FUTILE}#{name}"),
                "created_at": number(at),
                EXPIRY: expiry(at + FUTILE_FOR_S),
            }
            with store_errors(f"write table {self._table}"):
                self._client.put_item(TableName=self._table, Item=item)

    def mark_sick(self, cluster: str, notes: Mapping[str, SickNote]) -> None:
        for name, note in sorted(notes.items()):
            item = {
                **_key(cluster, f"{SICK}#{name}"),
                "ami": {"S": note.ami},
                "at": number(note.at),
                EXPIRY: expiry(note.at + SICK_FOR_S),
            }
            with store_errors(f"write table {self._table}"):
                self._client.put_item(TableName=self._table, Item=item)

    def mark_proven(self, cluster: str, kinds: Sequence[str], now: float) -> None:
        for kind in sorted(kinds):
            item = {**_key(cluster, f"{PROVEN}#{kind}"), "at": number(now), EXPIRY: expiry(now + PROVEN_FOR_S)}
            with store_errors(f"write table {self._table}"):
                self._client.put_item(TableName=self._table, Item=item)

    def freeze(self, clusters: Sequence[str], now: float) -> float:
        # The note first: a decision that reads the epoch after its step reads the note as well.
        since = self._account.freeze(now)
        for cluster in sorted(set(clusters)):
            with store_errors(f"write table {self._table}"):
                self._client.update_item(
                    TableName=self._table,
                    Key=_key(cluster, EPOCH),
                    UpdateExpression="ADD #epoch :one",
                    ExpressionAttributeNames=placeholders(["epoch"]),
                    ExpressionAttributeValues={":one": number(1)},
                )
        return since

    def unfreeze(self) -> None:
        self._account.unfreeze()

    def frozen_at(self) -> float:
        return self._account.frozen_at()


def refusals_of_item(item: Item) -> Refusals:
    """Items of older versions lack `tries`, `launched_at` and `like`."""
    return Refusals(
        tuple(sorted(item["claims"]["SS"])),
        float_of(item, "at"),
        int(item["tries"]["N"]) if "tries" in item else 0,
        float_of(item, "launched_at") if "launched_at" in item else 0.0,
        item["like"]["S"] if "like" in item else "",
    )


def raise_cancelled_commit(error: ClientError, cluster: str, epoch: int, counters: int) -> None:
    """Raise what a cancelled transaction means; return when it only ran into another one and may be tried again.

    After the epoch come `counters` that others move as well.
    """
    codes = _cancellations(error)
    if "ConditionalCheckFailed" in codes[: 1 + counters]:
        raise EpochMoved(cluster, epoch) from error
    if "ConditionalCheckFailed" in codes:
        raise ConditionFailed(f"cluster {cluster}: a claim or command of that name exists") from error
    _check_repeatable(codes, error)


def raise_cancelled_moves(error: ClientError, moves: Sequence[Move]) -> None:
    """Raise which of the moves another writer came before; return where they may be repeated."""
    codes = _cancellations(error)
    for code, move in zip(codes, moves, strict=False):
        if code == "ConditionalCheckFailed":
            raise ConditionFailed(f"claim {move.claim.name} is no longer at version {move.claim.version}") from error
    _check_repeatable(codes, error)


def _cancellations(error: ClientError) -> list[str]:
    """Return why DynamoDB did not do each action of a cancelled transaction.

    The text `None` stands for an action that failed only because other actions did.
    """
    reasons: Any = error.response.get("CancellationReasons", [])
    return [reason.get("Code", "None") for reason in reasons]


def _check_repeatable(codes: Sequence[str], error: ClientError) -> None:
    if set(codes) - {"None", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"} or not codes:
        raise StoreError(f"the claims could not be written: {error}") from error


def transactions_of(items: Sequence[Item], beside: int) -> Iterator[Sequence[Item]]:
    """Runs of items that fit into one transaction beside the epoch, by count and by size.

    `beside` actions are in the first one as well.
    """
    group: list[Item] = []
    size, most = 0, COMMIT_GROUP - beside
    for item in items:
        length = max(len(stored) for stored in (item.get("claim") or item["command"]).values())
        if group and (len(group) == most or size + length > COMMIT_BYTES):
            yield group
            group, size, most = [], 0, COMMIT_GROUP
        group.append(item)
        size += length
    if group:
        yield group


def _partition_key(cluster: str, shard: int) -> str:
    return f"{cluster}#{shard}"


def _key(partition: str, item: str) -> dict[str, Value]:
    return {"cluster": text(partition), "item": text(item)}


def _claim_key(cluster: str, name: str) -> dict[str, Value]:
    return _key(_partition_key(cluster, zlib.crc32(name.encode()) % SHARDS), f"{CLAIM}#{name}")


def item_of_claim(claim: NodeClaim, written_at: float) -> Item:
    """Return the item that a claim is stored as from now on, epoch seconds."""
    stored = written_claim(claim)
    item = {
        **_claim_key(claim.cluster, claim.name),
        "claim": text(stored) if isinstance(stored, str) else {"B": stored},
        "state": text(claim.state),
        "version": number(claim.version),
    }
    stage = stage_of_state(claim.state, is_metered=claim.state is ClaimState.GONE and claim.is_metered)
    item[STAGE_INDEX.sort_key] = text(stage_key(stage, claim.name, written_at))
    if claim.instance_id:
        item[INSTANCE_ID_INDEX.partition_key] = text(claim.instance_id)
    end = forgotten_at(claim)
    if end is not None:
        item[EXPIRY] = expiry(end)
    return item


def _commands_key(cluster: str) -> str:
    return f"{cluster}#commands"


def item_of_command(command: DisruptionCommand) -> Item:
    """Return the item that a command is stored as."""
    item = {
        **_key(_commands_key(command.cluster), f"{COMMAND}#{command.name}"),
        "command": text(written_command(command)),
        "state": text(command.state),
        "version": number(command.version),
    }
    end = command_forgotten_at(command)
    if end is not None:
        return {**item, EXPIRY: expiry(end)}
    return {**item, STAGE_INDEX.sort_key: text(stage_key(Stage.UNSETTLED, command.name, 0.0))}


def command_of_item(item: Item) -> DisruptionCommand:
    """Return the command that an item holds."""
    try:
        return read_command(item["command"]["S"])
    except msgspec.DecodeError as error:
        raise StoreError(f"{item['item']['S']} cannot be read as a command: {error}") from error


def stage_of_state(state: ClaimState, *, is_metered: bool) -> Stage:
    """Return the part of the index that claims in this state are listed in; a ledger looks for metered ones."""
    if state in UNSETTLED:
        return Stage.UNSETTLED
    if state is ClaimState.GONE:
        return Stage.ENDED if is_metered else Stage.DONE
    return Stage.SETTLED


def claim_of_item(item: Item) -> NodeClaim:
    """Return the claim that an item holds."""
    try:
        stored = item["claim"]
        return read_claim(stored["S"] if "S" in stored else bytes(stored["B"]))
    except (msgspec.DecodeError, zlib.error) as error:
        raise StoreError(f"{item['item']['S']} cannot be read as a NodeClaim: {error}") from error

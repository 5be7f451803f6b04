"""The doors by which tests of formats come in. Of the library they name nothing else: who moves a door edits this."""

from __future__ import annotations

import contextlib
import importlib
import io
import tomllib
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from shiplap.aws.bucket import (
    BucketCatalog,
    BucketDryRuns,
    BucketMemory,
    BucketRecorder,
    BucketSnapshots,
    BucketStatus,
)
from shiplap.aws.bus import EventBridgeBus
from shiplap.aws.dynamodb import tables
from shiplap.aws.dynamodb.capacity_table import DynamoCapacity
from shiplap.aws.dynamodb.join_log import DynamoJoins
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.aws.ec2.request_pace import RequestPace
from shiplap.aws.sqs import SqsDeadLetters, SqsTimers
from shiplap.disruption.repair.kept_sick_nodes import SickNote
from shiplap.flows import claim_events
from shiplap.flows.messages import decode
from shiplap.ports import CLAIM_FORM, OfferingFailure, Refusals, read_claim
from shiplap.records import disruption_record as records
from shiplap.spending.account_counters import CountedSpending, change_to
from shiplap.spending.ledger import MonthOfSpending, SpendingLedger
from shiplap.spending.node_lives import NodeLives
from shiplap_cdk.install_document import read
from shiplap_cdk.install_keys import written_install
from tests.formats.sources import ROOT
from tests.integration.contracts.in_process_aws import REGION, aws_in_process, create_table, make_client
from tests.policy_parts import policy_parts


class Answer(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


def shiplap(*arguments: str) -> Answer:
    """Run the command `shiplap` as the package declares it, in this process."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["shiplap"]
    module, _, function = declared.partition(":")
    main = getattr(importlib.import_module(module), function)
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), patch("sys.argv", ["shiplap", *arguments]):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return Answer(code, out.getvalue(), err.getvalue())


def install_schema() -> dict[str, Any]:
    """The JSON schema of shiplap.yaml."""
    return msgspec.json.schema(written_install())


def install_of(path: Path) -> Any:
    """Read a shiplap.yaml as `cdk synth` reads it."""
    return read(path)


class Puts:
    """A client of S3 that keeps what is put: bodies by key."""

    def __init__(self) -> None:
        self.found: dict[str, bytes] = {}
        self.metadata: dict[str, dict[str, str]] = {}

    def put_object(self, *, Key: str, Body: bytes, Metadata: dict[str, str] | None = None, **_: Any) -> None:  # noqa: N803 - as boto3 has them
        self.found[Key] = Body
        self.metadata[Key] = Metadata or {}

    def get_object(self, *, Key: str, **_: Any) -> dict[str, Any]:  # noqa: N803 - as above
        return {"Body": io.BytesIO(self.found[Key])}


def recorded_again(*documents: bytes, least_bytes: int | None = None) -> dict[str, bytes]:
    """Recorded decisions, read and recorded once more by one process: what is put into the bucket, by key.

    With `least_bytes`, smaller parts than usual are stored apart.
    """
    client = Puts()
    recorder = BucketRecorder(client, "bucket")  # type: ignore[arg-type]
    recorder.least_bytes = recorder.least_bytes if least_bytes is None else least_bytes
    for document in documents:
        record = records.read(document, "golden").record
        if isinstance(record, records.DisruptionRecord):
            recorder.record_disruption(record.snapshot, record.decision)
        else:
            assert record is not None
            recorder.record(record.snapshot, record.plan)
    return client.found


def whole_records(bucket: Mapping[str, bytes]) -> list[bytes]:
    """The records among the objects of a bucket, by key, each whole."""
    client = Puts()
    client.found = dict(bucket)
    recorder = BucketRecorder(client, "bucket")  # type: ignore[arg-type]
    return [recorder.document(key.removeprefix("records/")) for key in sorted(bucket) if key.startswith("records/")]


NOW = 1_700_000_000.0
_KEYS = {"state": ("cluster", "item"), "capacity": ("ami", "item")}


def stored_items(seeds: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """One item of each kind, by table, as the adapters write them.

    Claims, commands and learned capacity are read from items that hold the seeds, and written again.
    """
    with aws_in_process():
        client = make_client("dynamodb")
        create_table(client, "state", tables.STATE)
        create_table(client, "capacity", tables.CAPACITY)
        state, capacity = DynamoState(client, "state", clock=lambda: NOW), DynamoCapacity(client, "capacity")
        _write_claims(client, state, seeds)
        _write_learned(client, capacity, seeds["learned"])
        _write_notes(state, DynamoJoins(client, "state"))
        for module in policy_parts("formats", "stored"):
            module.write(client, NOW)
        assert capacity.acquire_pilot("ami-1", "m5.large", "k1", "blue/general-planned", NOW)
        RequestPace(client, "state", REGION, clock=lambda: NOW).wait("create_fleet", 3)
        return {name: sorted(client.scan(TableName=name)["Items"], key=str) for name in _KEYS}


def _write_claims(client: Any, state: DynamoState, seeds: Mapping[str, Any]) -> None:
    for claim in seeds["claims"]:
        seed = {"cluster": "seed#0", "item": f"CLAIM#{claim['name']}", "stage": f"Settled#{claim['name']}"}
        _put(client, "state", seed | {"claim": _text(claim)})
    for command in seeds["commands"]:
        seed = {
            "cluster": "seed#commands",
            "item": f"COMMAND#{command['name']}",
            "stage": f"Unsettled#{command['name']}",
        }
        _put(client, "state", seed | {"command": _text(command)})
    claims, commands = state.ledger_claims("seed"), state.commands("seed")
    _empty(client, "state")
    planned = [claim for claim in claims if claim.state == "Planned"]
    assert state.commit("blue", 0, planned, commands) == 1
    for claim in claims:
        assert claim in planned or state.adopt(claim)


def _write_learned(client: Any, capacity: DynamoCapacity, learned: Mapping[str, Any]) -> None:
    _put(client, "capacity", {"ami": "seed", "item": "m5.large#k1", "learned": _text(learned)})
    (entry,) = capacity.all()
    _empty(client, "capacity")
    capacity.merge(entry)


def _write_notes(state: DynamoState, joins: DynamoJoins) -> None:
    one = OfferingFailure("m5.large", f"{REGION}a", "spot", "InsufficientInstanceCapacity")
    state.mark_unavailable([one], NOW)
    assert state.take_reserved("cr-1", "token", 2, 5, NOW) == 2
    state.reserve_addresses("token", {"subnet-1": 4}, NOW)
    state.mark_missed("blue", ["uid-1"], NOW)
    state.mark_refused("blue", "uid-2", Refusals(("general-a",), NOW, 2, NOW - 60, "likeness"))
    state.mark_futile("blue", {"general-a": NOW})
    state.mark_sick("blue", {"general-a": SickNote("ami-1", NOW)})
    state.mark_proven("blue", ["kind"], NOW)
    month = MonthOfSpending("2023-11", 30, 10, {"general": 30}, {"shop": 7})
    lives = {"general": NodeLives((0, 2), (1,))}
    assert state.post_ledger("blue", SpendingLedger(1, int(NOW), month, month, (20, 10), lives))
    assert state.count_spending("blue", change_to(CountedSpending(), "2023-11", 40, 5))
    joins.joined("blue", "general", "ami-1", "m5.large", [40.0], NOW)
    joins.initialized("blue", "general", [20.0], NOW)
    joins.failed("blue", "ami-1", "c5.large", NOW - 900, NOW)


def _put(client: Any, table: str, item: Mapping[str, str]) -> None:
    client.put_item(
        TableName=table, Item={"version": {"N": "0"}} | {name: {"S": value} for name, value in item.items()}
    )


def _empty(client: Any, table: str) -> None:
    for item in client.scan(TableName=table)["Items"]:
        client.delete_item(TableName=table, Key={name: item[name] for name in _KEYS[table]})


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def stored_objects(seeds: Mapping[str, Any]) -> Iterator[tuple[str, Any, dict[str, str]]]:
    """Keys, documents and metadata of objects in the bucket, each read from one that holds the seed, then written."""
    with aws_in_process():
        client = make_client("s3")
        client.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": REGION})
        for key in ("rehearsals/blue.json", "status/clusters.json"):
            client.put_object(Bucket="bucket", Key=key, Body=msgspec.json.encode(seeds[key]))
        for key, name in (("memory/blue", "memory/blue"), (f"catalog/{REGION}/seed", "catalog")):
            client.put_object(Bucket="bucket", Key=key, Body=zlib.compress(msgspec.msgpack.encode(seeds[name])))
        client.put_object(Bucket="bucket", Key=f"catalog/{REGION}/latest", Body=b"seed")
        puts = Puts()
        BucketCatalog(puts, "bucket", REGION).save(BucketCatalog(client, "bucket", REGION).load())  # type: ignore[arg-type]
        BucketMemory(puts, "bucket").save("blue", BucketMemory(client, "bucket").load("blue"))  # type: ignore[arg-type]
        BucketDryRuns(puts, "bucket").save("blue", BucketDryRuns(client, "bucket").load("blue"))  # type: ignore[arg-type]
        for module in policy_parts("formats", "objects"):
            key = module.key(REGION)
            client.put_object(Bucket="bucket", Key=key, Body=msgspec.json.encode(seeds[key]))
            module.write_again(client, puts, REGION)
        BucketStatus(puts, "bucket").save(BucketStatus(client, "bucket").load())  # type: ignore[arg-type]
        BucketSnapshots(puts, "bucket").save("blue", b'"document"', NOW)  # type: ignore[arg-type]
    for key, body in puts.found.items():
        yield key, body, puts.metadata.get(key, {})


def shiplap_on_a_bucket(seeds: Mapping[str, Any], *arguments: str) -> Answer:
    """Run `shiplap` in an account with a bucket that holds the seeds' statuses."""
    with aws_in_process():
        client = make_client("s3")
        client.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": REGION})
        client.put_object(Bucket="bucket", Key="status/clusters.json", Body=_text(seeds["status/clusters.json"]))
        return shiplap(*arguments, "--bucket", "bucket")


class Sent:
    """A client of EventBridge and SQS that keeps what is sent."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def put_events(self, *, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - as boto3 has them
        self.entries += Entries
        return {"Entries": [{"EventId": str(number)} for number in range(len(Entries))]}

    def send_message(self, **message: Any) -> None:
        self.entries.append(message)


def published(claim: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Entries of the bus: one event of each kind of the library's."""
    record = claim_of(claim)
    pods = record.plan.pods
    kinds = sorted(
        {value for value in vars(claim_events).values() if isinstance(value, str) and value.startswith("NodeClaim")}
    )
    told = [
        claim_events.pods_pending("blue", pods, "Unschedulable", NOW, event_id="blue/pods/1", source="watch"),
        claim_events.disruption_due("blue", "network", NOW),
        *(
            claim_events.node_seen("blue", "a", "aws:///z/i-1", NOW, ready=ready, event_id="e")
            for ready in (False, True)
        ),
        *(claim_events.of_claim(kind, record, NOW) for kind in kinds),
    ]
    client = Sent()
    EventBridgeBus(client, "shiplap").publish(told)  # type: ignore[arg-type]
    return client.entries


def fields_of_claims() -> set[str]:
    """Every field of a claim as it is stored."""
    return {field.encode_name for field in msgspec.structs.fields(CLAIM_FORM.flat_type)}


def claim_of(document: Mapping[str, Any]) -> Any:
    """A claim as it is stored."""
    return read_claim(_text(document))


def messages_sent() -> list[dict[str, Any]]:
    """A timer and a dead letter as they are sent to SQS."""
    client = Sent()
    SqsTimers(client, "https://queue").remind("blue", "general-a", "join", 90)  # type: ignore[arg-type]
    SqsDeadLetters(client, "https://letters").send("not a message", "why")  # type: ignore[arg-type]
    return client.entries


def message(body: str) -> list[Any]:
    """Return the values that Shiplap reads from a queue's message, without the names that the code gives them."""
    return sorted(_values(msgspec.to_builtins(decode(body, "queue"))), key=str)


def _values(found: Any) -> Iterator[Any]:
    parts = found.values() if isinstance(found, dict) else found if isinstance(found, list | tuple) else None
    if parts is None:
        yield found
    else:
        yield from (value for part in parts for value in _values(part))

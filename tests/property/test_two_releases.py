"""This release and the one before it read each other's claims and commands, and leave those of a newer one alone.

Functions are updated one by one, and an alias may be moved back at any time.
"""

from __future__ import annotations

import json
import zlib
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from shiplap.disruption.progress import CommandState, DisruptionCommand, advanced
from shiplap.errors import ConditionFailed
from shiplap.manifests.nodeclaim import SCHEMA, ClaimState, NodeClaim, advanced_claim
from shiplap.ports import read_claim, read_command, written_claim, written_command
from tests.builders.claims import node_claim, with_fields
from tests.formats.previous_release import PreviousDisruptionCommand, PreviousNodeClaim

NUMBERS = st.integers(0, 2**53)
SECONDS = st.floats(0, 1e11)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
AMOUNTS = st.dictionaries(TEXTS, NUMBERS, max_size=3)
LABELS = st.dictionaries(TEXTS, TEXTS, max_size=3)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: NUMBERS,
    float: SECONDS,
    str: TEXTS,
    bool: st.booleans(),
    dict[str, int]: AMOUNTS,
    dict[str, str]: LABELS,
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Whatever a field of this type may hold."""
    if kind in VALUES:
        return VALUES[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return st.builds(kind, **{field.name: values(field.type) for field in msgspec.structs.fields(kind)})
    if get_origin(kind) is Annotated:
        return values(get_args(kind)[0])
    if get_origin(kind) is tuple:
        return st.lists(values(get_args(kind)[0]), max_size=3).map(tuple)
    if get_origin(kind) in (Union, UnionType):
        return st.one_of(*map(values, get_args(kind)))
    return st.none() if kind is type(None) else st.sampled_from(kind)


CLAIMS = values(PreviousNodeClaim)
COMMANDS = values(PreviousDisruptionCommand)


def this(claim: PreviousNodeClaim) -> NodeClaim:
    """The same claim in this release's memory."""
    return node_claim(**asdict(claim))


def plain(stored: str | bytes) -> bytes:
    return stored.encode() if isinstance(stored, str) else zlib.decompress(stored)


def document(stored: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stored)
    return found


@given(CLAIMS)
def test_this_release_reads_claims_of_the_previous_one(claim: PreviousNodeClaim) -> None:
    assert read_claim(msgspec.json.encode(claim).decode()) == this(claim)


@given(CLAIMS)
def test_the_previous_release_reads_claims_of_this_one(claim: PreviousNodeClaim) -> None:
    stored = plain(written_claim(this(claim)))
    assert msgspec.json.decode(stored, type=PreviousNodeClaim) == claim
    assert document(stored) == document(msgspec.json.encode(claim)) | {"schema": SCHEMA}


@given(CLAIMS)
def test_what_is_written_is_read_again(claim: PreviousNodeClaim) -> None:
    assert read_claim(written_claim(this(claim))) == this(claim)


@given(CLAIMS, TEXTS, SECONDS)
def test_a_write_of_the_previous_release_changes_what_it_changes_and_nothing_else(
    claim: PreviousNodeClaim, owner: str, at: float
) -> None:
    read = msgspec.json.decode(plain(written_claim(this(claim))), type=PreviousNodeClaim)
    written = msgspec.json.encode(replace(read, owner=owner, changed_at=at, version=read.version + 1)).decode()
    expected = with_fields(this(claim), owner=owner, changed_at=at, version=claim.version + 1)
    assert read_claim(written) == expected


@given(COMMANDS)
def test_commands_of_either_release_are_read_by_the_other(command: PreviousDisruptionCommand) -> None:
    ours = DisruptionCommand(**asdict(command))
    assert read_command(msgspec.json.encode(command).decode()) == ours
    assert read_command(written_command(ours)) == ours
    assert msgspec.json.decode(written_command(ours), type=PreviousDisruptionCommand) == command


@given(CLAIMS, st.integers(min_value=SCHEMA + 1, max_value=99))
def test_a_claim_of_a_newer_schema_is_read_by_what_is_known_and_is_not_written(
    claim: PreviousNodeClaim, schema: int
) -> None:
    stored = document(plain(written_claim(this(claim)))) | {"schema": schema, "unheardOf": {"a": [1]}}
    found = read_claim(json.dumps(stored))
    assert found.newer
    assert found == with_fields(this(claim), schema=schema)
    for state in ClaimState:
        with pytest.raises(ConditionFailed):
            advanced_claim(found, state, {})


@given(COMMANDS, st.integers(min_value=SCHEMA + 1, max_value=99))
def test_a_command_of_a_newer_schema_keeps_its_nodes_busy_and_is_not_written(
    command: PreviousDisruptionCommand, schema: int
) -> None:
    found = read_command(json.dumps(document(msgspec.json.encode(command)) | {"schema": schema, "unheardOf": 1}))
    assert found.newer
    assert found.busy == DisruptionCommand(**asdict(command)).busy
    for state in CommandState:
        with pytest.raises(ConditionFailed):
            advanced(found, state, {})

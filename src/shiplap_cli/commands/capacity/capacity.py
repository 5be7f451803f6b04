"""`shiplap capacity`: the capacity that nodes reported, per AMI, instance type and kubelet settings.

The commands work on the install's table or on a file that `export` wrote. A file is changed in memory, by the store
that tests use, and written back whole.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from shiplap.errors import AwsError, InvalidInput, StoreError
from shiplap.instances.capacity.learned_capacity import is_observed
from shiplap.instances.catalog.type_catalog import LearnedCapacity
from shiplap.ports import CapacityStore
from shiplap_cli.commands.capacity.learned_entries import (
    LearnedEntry,
    LearnedRow,
    entries_table,
    learned_entry,
    learned_row,
    list_table,
)
from shiplap_cli.hints import with_hint
from shiplap_cli.inputs.learned import learned_file
from shiplap_cli.inputs.learned.travelling_capacity import (
    TravellingFile,
    arrived,
    as_imported,
    identities,
    ids_here,
    is_travelling,
    read_document,
    read_travelling,
    travelling_file,
    write_travelling,
)
from shiplap_cli.installs.find_install import STACK, Dev, Stack, find_install
from shiplap_cli.options import Options, takes_sources
from shiplap_cli.output import Format, Output, Printed, emit, fail, note, write_json
from shiplap_lab.fakes.stores import FakeCapacity

Ami = Annotated[str, typer.Argument(help="AMI id.")]
InstanceType = Annotated[str, typer.Argument(help="Instance type; all when left out.")]
KubeletHash = Annotated[str, typer.Argument(help="Hash of the kubelet settings; all when left out.")]


class CapacityLocation(Options, frozen=True, kw_only=True):
    """The place of learned capacity: a table, by its name or its install, or an exported file."""

    table: Annotated[
        str,
        typer.Option(
            "--table",
            envvar="SHIPLAP_CAPACITY_TABLE",
            help="DynamoDB table; that of the stack in AWS_REGION without.",
        ),
    ] = ""
    stack: Stack = STACK
    dev: Dev = False
    file: Annotated[Path | None, typer.Option("--file", help="An exported file to work on instead of the table.")] = (
        None
    )


class ImportedEntries(Printed, frozen=True):
    """Entries that were imported, those of them that nodes of this install supersede, and those without an AMI here."""

    entries: int
    superseded: int
    left_out: int


class RestoredEntries(Printed, frozen=True):
    """Entries of a backup, observations added, and those that were known already."""

    entries: int
    added: int
    known: int


class ForgottenEntries(Printed, frozen=True):
    """The number of entries that were removed."""

    forgotten: int


LearnedRows = tuple[LearnedRow, ...]
"""The answer of `shiplap capacity list`."""

LearnedEntries = tuple[LearnedEntry, ...]
"""The answer of `shiplap capacity show`."""


@takes_sources
def list_(*, place: CapacityLocation, output: Output = Format.TABLE) -> None:
    """One line per AMI, instance type and kubelet settings: memory learned, predicted, imported; nodes; when seen.

    The last column counts reports that are set aside; `show` says why.

    Example: shiplap capacity list
    """
    with _store(place) as store:
        rows = [learned_row(entry, time.time()) for entry in store.all()]
    emit(rows, output, lambda: list_table(rows))


@takes_sources
def show(
    ami: Ami,
    instance_type: InstanceType = "",
    kubelet_hash: KubeletHash = "",
    *,
    place: CapacityLocation,
    output: Output = Format.TABLE,
) -> int:
    """All resources, observations and reports set aside of an AMI's entries. Exit code 1 when there is none.

    Example: shiplap capacity show ami-0123456789abcdef0 m5.large
    """
    with _store(place) as store:
        entries = [
            learned_entry(entry, time.time())
            for entry in store.learned([ami])
            if instance_type in ("", entry.instance_type) and kubelet_hash in ("", entry.kubelet_hash)
        ]
    if not entries:
        fail(f"nothing is known of {' '.join(part for part in (ami, instance_type, kubelet_hash) if part)}")
        return 1
    emit(entries, output, lambda: entries_table(entries))
    return 0


@takes_sources
def import_(
    source: Annotated[Path, typer.Argument(help="A file that `export` printed; - for standard input.")],
    *,
    restore: Annotated[
        bool, typer.Option("--restore", help="It is this install's own backup: its reports count as they are.")
    ] = False,
    place: CapacityLocation,
    output: Output = Format.TABLE,
) -> None:
    """Add what another install has learned. It makes estimates more careful until a node of this install has reported.

    A portable file is mapped to this Region's AMIs by owner, name and architecture; what has no AMI here is counted and
    left out. With --restore the file is a backup of this install, and its observations are added to what is known.

    Example: shiplap capacity import learned.json
    """
    document = read_document(source)
    if restore:
        _restore(source, document, place, output)
        return
    if is_travelling(document):
        entries = read_travelling(source, document).entries
        here, left_out = arrived(entries, ids_here(_ec2(), [entry.image for entry in entries]))
    else:
        here, left_out = as_imported(_checked_entries(source, document)), 0
    with _store(place, writes=True, create=True) as store:
        known = {(each.ami, each.instance_type, each.kubelet_hash) for each in store.all() if is_observed(each)}
        for entry in here:
            store.merge(entry)
    superseded = sum((each.ami, each.instance_type, each.kubelet_hash) in known for each in here)
    done = ImportedEntries(len(here), superseded, left_out)
    text = (
        f"imported {done.entries} entries, {done.superseded} of them without effect because nodes have reported here; "
        f"left out {done.left_out} whose image is not here"
    )
    emit(done, output, lambda: Text(text))


def _restore(source: Path, document: bytes, place: CapacityLocation, output: Format) -> None:
    if is_travelling(document):
        raise InvalidInput(str(source), "holds no observations: --restore takes an export without --portable")
    entries = _checked_entries(source, document)
    observations = [observation for entry in entries for observation in entry.recent]
    with _store(place, writes=True, create=True) as store:
        known = [each for entry in store.learned(sorted({each.ami for each in entries})) for each in entry.recent]
        new = [observation for observation in observations if observation not in known]
        for entry in entries:
            store.merge(entry)
    done = RestoredEntries(len(entries), len(new), len(observations) - len(new))
    text = f"added {done.added} of {len(observations)} observations; {done.known} were known already"
    emit(done, output, lambda: Text(text))


@takes_sources
def export(
    *,
    portable: Annotated[
        bool, typer.Option("--portable", help="By the AMIs' owner, name and architecture: for other Regions, accounts.")
    ] = False,
    place: CapacityLocation,
    output: Output = Format.JSON,
) -> None:
    """Print everything as JSON, in the format that `import` and `--file` read; a table or YAML on demand.

    Example: shiplap capacity export --portable > learned.json
    """
    with _store(place) as store:
        known = store.all()
    if portable:
        write_json(write_travelling(_portable(known)).decode())
    elif output is Format.JSON:
        write_json(learned_file.dump_learned(known).decode())
    else:
        emit(
            learned_file.LearnedFile(tuple(known)),
            output,
            lambda: list_table([learned_row(entry, time.time()) for entry in known]),
        )


def _portable(known: Sequence[LearnedCapacity]) -> TravellingFile:
    """Raises InvalidInput: EC2 cannot be asked."""
    try:
        file = travelling_file(known, identities(_ec2(), sorted({entry.ami for entry in known})))
    except AwsError as error:
        raise InvalidInput("--portable", with_hint(error)) from error
    if file.left_out:
        left_out = f"left out {file.left_out} entries of AMIs that EC2 does not know any more"
        note(f"{left_out}\n")
    return file


def _ec2() -> Any:
    from shiplap.aws.session import client  # noqa: PLC0415 - botocore takes longer to import than all that a file needs

    return client("ec2")


@takes_sources
def forget(
    ami: Ami,
    instance_type: InstanceType = "",
    kubelet_hash: KubeletHash = "",
    *,
    place: CapacityLocation,
    output: Output = Format.TABLE,
) -> None:
    """Remove what is known of an AMI, or of one instance type or kubelet settings on it; says how many entries.

    Example: shiplap capacity forget ami-0123456789abcdef0
    """
    with _store(place, writes=True) as store:
        done = ForgottenEntries(store.forget(ami, instance_type, kubelet_hash))
    emit(done, output, lambda: Text(f"forgot {done.forgotten} {'entry' if done.forgotten == 1 else 'entries'}"))


@contextmanager
def _store(place: CapacityLocation, *, writes: bool = False, create: bool = False) -> Iterator[CapacityStore]:
    """The store to work on; a changed file is written back. Raises InvalidInput.

    Commands that write a file take turns, from its reading on: none loses what another one adds meanwhile.
    """
    file = place.file
    if file is not None:
        with _turn_of_writers(file) if writes else nullcontext():
            known = () if create and not file.exists() else learned_file.read_learned(file)
            in_memory = FakeCapacity(learned=known)
            before = in_memory.all()
            yield in_memory
            if in_memory.all() != before:
                _write_whole(file, learned_file.dump_learned(in_memory.all()))
        return
    # An install that is named on the command line counts over a table that the environment names.
    table = _table_of_install(place) if place.dev or place.stack != STACK or not place.table else place.table
    # botocore takes longer to import than everything else a file needs.
    from shiplap.aws.dynamodb.capacity_table import DynamoCapacity  # noqa: PLC0415
    from shiplap.aws.session import client  # noqa: PLC0415

    try:
        yield DynamoCapacity(client("dynamodb"), table)
    except (StoreError, AwsError) as error:
        raise InvalidInput(f"table {table}", with_hint(error)) from error


@contextmanager
def _turn_of_writers(file: Path) -> Iterator[None]:
    """Wait until no other command writes a file of this folder.

    The folder is locked, because a file that is replaced takes its lock with it. The kernel gives the lock back however
    a command ends. Raises InvalidInput.
    """
    try:
        folder = os.open(file.parent, os.O_RDONLY)
    except OSError as error:
        raise InvalidInput(str(file), error.strerror or str(error)) from error
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
        except OSError as error:  # a file system without locks
            raise InvalidInput(str(file), f"its folder cannot be locked: {error.strerror}") from error
        yield
    finally:
        os.close(folder)


def _table_of_install(place: CapacityLocation) -> str:
    """The table of an install. Raises InvalidInput."""
    try:
        return find_install(bucket="", stack=place.stack, dev=place.dev).output("CapacityTable")
    except (AwsError, InvalidInput) as error:
        if place.dev and isinstance(error, InvalidInput):
            raise
        named = (
            f"is not given, and stack {place.stack} does not tell it: {with_hint(error)}; or give an exported --file"
        )
        raise InvalidInput("--table", named) from error


def _write_whole(file: Path, document: bytes) -> None:
    """Replace a file in one step: readers see the old content or the new. Raises InvalidInput."""
    draft = file.with_name(file.name + ".new")
    try:
        draft.write_bytes(document)
        draft.replace(file)
    except OSError as error:
        raise InvalidInput(str(file), error.strerror or str(error)) from error


def _checked_entries(source: Path, document: bytes) -> tuple[LearnedCapacity, ...]:
    """The entries of a file with AMI ids; each observation must be of its entry. Raises InvalidInput."""
    entries = learned_file.parse_learned(source, document)
    for entry in entries:
        key = (entry.ami, entry.instance_type, entry.kubelet_hash)
        for each in entry.recent:
            if (each.ami, each.instance_type, each.kubelet_hash) != key:
                named = f"{each.ami} {each.instance_type} {each.kubelet_hash}"
                raise InvalidInput(str(source), f"the entry {' '.join(key)} holds an observation of {named}")
    return entries

"""`shiplap explain decision`: a recorded decision made again, by this version or another, also with other manifests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shiplap import __version__
from shiplap.disruption.commands import Decision, DisruptionProposal
from shiplap.errors import InvalidInput
from shiplap.instances.offerings.node_prices import Price
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.custom_resources import Manifests
from shiplap.records.disruption_record import (
    DisruptionRecord,
    Outline,
    OutlinedClaim,
    Recorded,
    decided_again,
    outline_with,
    read,
)
from shiplap.records.disruption_record import encode as encode_disruption
from shiplap.records.scheduling_record import SchedulingRecord, encode
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import NodeClassCatalog, Snapshot
from shiplap_cli.installs.find_install import STACK, Bucket, DeployedInstall, Dev, Stack, find_install
from shiplap_cli.installs.other_version import OtherDecision, decide_with
from shiplap_cli.installs.records import open_record
from shiplap_cli.money import Money, dollars
from shiplap_cli.output import Format, Output, Printed, counted, emit, progress, summary


class _DecisionDifference(Printed, frozen=True):
    """The actions of one decision that the other lacks, in words.

    `outlines` when no more than the outlines of the two could be compared.
    """

    recorded: tuple[str, ...] = ()
    again: tuple[str, ...] = ()
    outlines: bool | msgspec.UnsetType = msgspec.UNSET


class HourlyOfBoth(Printed, frozen=True):
    """USD per hour of the decision as it was recorded, and as it was made again."""

    recorded: float
    again: float


class ReplayDocument(Printed, frozen=True, kw_only=True):
    """A decision that was made again."""

    record: str
    kind: str
    cluster: str
    at: str
    epoch: int
    recorded_by: str
    replayed_by: str
    same: bool
    hourly: HourlyOfBoth
    difference: _DecisionDifference


class OutlineDocument(Printed, frozen=True, kw_only=True):
    """The part of a record that is readable in any version."""

    kind: str
    cluster: str
    at: str
    epoch: int
    pods: int
    nodes: int
    claims: tuple[OutlinedClaim, ...]
    removed: tuple[str, ...]
    unschedulable: int


class UnreadableDocument(Printed, frozen=True):
    """A decision that this version cannot make again: the outline of its record."""

    recorded_by: str
    replayed_by: str
    problem: str
    outline: OutlineDocument


def _outline_document(outline: Outline) -> OutlineDocument:
    values = {name: getattr(outline, name) for name in outline.__struct_fields__}
    return OutlineDocument(**values | {"at": rfc3339(outline.at)})


def decision(
    record: Annotated[
        str,
        typer.Argument(help="An id (CLUSTER/DATE/TIME-EPOCH-DIGEST), s3://BUCKET/KEY, or a file.", metavar="RECORD"),
    ],
    *,
    manifests: Annotated[
        list[Path] | None,
        typer.Option("--with", help="Decide on what was seen then, but with these NodePools: files or folders."),
    ] = None,
    version: Annotated[
        Path | None,
        typer.Option(
            "--with-version",
            help="Have another version decide: its virtual environment, interpreter, library layer (zip) or source "
            "tree.",
        ),
    ] = None,
    bucket: Bucket = "",
    stack: Stack = STACK,
    dev: Dev = False,
    output: Output = Format.TABLE,
) -> int:
    """Make a recorded decision again, and compare byte for byte.

    A decision reads nothing but what was recorded, so the same version decides the same. With other manifests, or by
    another version, the difference is shown. Exit code 0 when the decision is the same, 1 when it is not, 2 for bad
    input.

    Example: shiplap explain decision prod/2026-01-31/142502-17-3fb2c1d0aa51 --with pools/

    Example: shiplap explain decision record.bin --with-version ~/shiplap-next/.venv
    """

    def install() -> DeployedInstall:
        return find_install(bucket=bucket, stack=stack, dev=dev)

    with progress("reading the record"):
        document, recorded = open_record(record, install)
    if recorded.record is None and (version is None or manifests):
        return _emit_unreadable(recorded, recorded.problem, output)
    if recorded.record is not None and manifests:
        document = _encoded(_with_manifests(recorded.record, manifests))
    with progress("deciding again"):
        other = decide_with(version, document) if version is not None else _decide_here(document)
    if other.problem:
        return _emit_unreadable(
            recorded, f"version {other.version} of {version} says: {other.problem}", output, other.version
        )
    same = other.written == recorded.written
    change, hourly = (_DecisionDifference(), None) if same else _compare(recorded, document, other.written)
    answer = ReplayDocument(
        record=record,
        kind=recorded.outline.kind,
        cluster=recorded.outline.cluster,
        at=rfc3339(recorded.outline.at),
        epoch=recorded.outline.epoch,
        recorded_by=recorded.version,
        replayed_by=other.version,
        same=same,
        hourly=HourlyOfBoth(*(hourly or (_hourly_of_outline(recorded.outline),) * 2)),
        difference=change,
    )
    emit(answer, output, lambda: _page(recorded, other.version, change, hourly))
    return 0 if same else 1


def _emit_unreadable(recorded: Recorded, problem: str, output: Format, by: str = __version__) -> int:
    """The decision cannot be made again; the outline of the record is shown."""
    answer = UnreadableDocument(recorded.version, by, problem, _outline_document(recorded.outline))
    emit(
        answer,
        output,
        lambda: Group(_headline(recorded), _outline_table(recorded.outline), Text(problem, style="yellow")),
    )
    return 1


def _decide_here(document: bytes) -> OtherDecision:
    made = read(document, "record").record
    if made is None:
        raise InvalidInput("record", "it can no longer be read")
    return OtherDecision(__version__, decided_again(made))


def _encoded(record: SchedulingRecord | DisruptionRecord) -> bytes:
    return encode(record) if isinstance(record, SchedulingRecord) else encode_disruption(record)


def _compare(recorded: Recorded, document: bytes, written: bytes) -> tuple[_DecisionDifference, tuple[float, float]]:
    """The differences, and the dollars per hour of both.

    Two decisions that this version can read are compared deed by deed; others by their outlines.
    """
    kind: type[Decision] | type[Plan] = Decision if recorded.outline.kind == "disrupt" else Plan
    try:
        before: Plan | Decision = msgspec.msgpack.decode(recorded.written, type=kind)
        after: Plan | Decision = msgspec.msgpack.decode(written, type=kind)
    except msgspec.DecodeError:
        again = outline_with(document, written)
        deeds = [_actions_of_outline(recorded.outline), _actions_of_outline(again)]
        change = _DecisionDifference(
            tuple(sorted(deeds[0] - deeds[1])), tuple(sorted(deeds[1] - deeds[0])), outlines=True
        )
        return change, (_hourly_of_outline(recorded.outline), _hourly_of_outline(again))
    return _difference_of(before, after, _money(recorded.record)), (_hourly(before), _hourly(after))


def _actions_of_outline(outline: Outline) -> set[str]:
    """The actions that the outline of a decision of any version shows, written as by `_actions`."""
    launches = Counter(
        f"launch {claim.instance_type} {claim.capacity_type} in {claim.zone} of pool {claim.node_pool} at "
        f"${claim.price:.4f}/h for {counted(claim.pods, 'pod')}"
        for claim in outline.claims
    )
    deeds = {f"{number} times {what}" if number > 1 else what for what, number in launches.items()}
    deeds |= {f"remove {node}" for node in outline.removed}
    left_out = f"without a place: {counted(outline.unschedulable, 'pod')}"
    return deeds | ({left_out} if outline.unschedulable else set())


def _hourly_of_outline(outline: Outline) -> float:
    return sum(claim.price for claim in outline.claims)


def _with_manifests(
    record: SchedulingRecord | DisruptionRecord, paths: list[Path]
) -> SchedulingRecord | DisruptionRecord:
    """The recorded snapshot with other manifests.

    Raises:
        InvalidInput: the manifests are wrong, or name an EC2NodeClass whose types were not recorded.
    """
    from shiplap.manifests.files.loading import load_manifests  # noqa: PLC0415 - only here

    written = load_manifests(paths)
    if not written.node_pools:
        raise InvalidInput("--with", "there is no NodePool among the manifests")
    if isinstance(record, SchedulingRecord):
        return replace(record, snapshot=_snapshot_with(record.snapshot, written))
    disruption = record.snapshot
    return replace(record, snapshot=replace(disruption, scheduling=_snapshot_with(disruption.scheduling, written)))


def _snapshot_with(snapshot: Snapshot, written: Manifests) -> Snapshot:
    known = {catalog.node_class for catalog in snapshot.catalogs}
    wanted = {pool.spec.template.spec.node_class_ref.name for pool in written.node_pools}
    missing = sorted(wanted - known)
    if missing and not known:
        raise InvalidInput("--with", "the record holds no instance types")
    lacking = "its instance types were not looked at when this was recorded"
    added = tuple(NodeClassCatalog(name, not_ready=f"EC2NodeClass {name}: {lacking}") for name in missing)
    return replace(snapshot, manifests=written, catalogs=(*snapshot.catalogs, *added))


def _money(record: SchedulingRecord | DisruptionRecord | None) -> Money | None:
    """The recorded prices, where this version can read them."""
    if record is None:
        return None
    return Money(record.snapshot if isinstance(record, SchedulingRecord) else record.snapshot.scheduling)


def _difference_of(recorded: Plan | Decision, again: Plan | Decision, money: Money | None) -> _DecisionDifference:
    before, after = _actions(recorded, money), _actions(again, money)
    return _DecisionDifference(tuple(sorted(before - after)), tuple(sorted(after - before)))


def _actions(decided: Plan | Decision, money: Money | None) -> set[str]:
    """Everything decided, each as a sentence that is equal when the thing decided is."""
    if isinstance(decided, Decision):
        deeds = {_command_action(command, money) for command in decided.commands}
        return deeds | {f"{entry.node} stays: {entry.reason}" for entry in decided.blocked}
    deeds = {_launch_action(claim, money) for claim in decided.node_claims}
    deeds |= {f"{pod.key} on {place.name}" for place in decided.existing_nodes for pod in place.pods}
    deeds |= {f"{entry.pod.key} has no place: {entry.message}" for entry in decided.unschedulable}
    return deeds | {f"{entry.pod.key} is left alone: {entry.message}" for entry in decided.ignored}


def _launch_action(claim: PlannedClaim, money: Money | None) -> str:
    price = money.of_launch(claim) if money is not None else Price(claim.launch.price)
    launch, tier = claim.launch, f" tier {claim.tier}" if claim.tier else ""
    pods = summary([pod.key for pod in claim.pods])
    return (
        f"launch {launch.instance_type} {launch.capacity_type} in {launch.zone} of pool {claim.node_pool}{tier} "
        f"at {dollars(price)}/h for {pods or 'no pod'}"
    )


def _command_action(command: DisruptionProposal, money: Money | None) -> str:
    new = "; ".join(_launch_action(claim, money) for claim in command.replacements)
    return f"remove {summary(command.nodes)} ({command.reason})" + (f", {new}" if new else "")


def _hourly(decided: Plan | Decision) -> float:
    """USD per hour that are launched."""
    if isinstance(decided, Plan):
        return decided.hourly
    return sum(claim.launch.price for command in decided.commands for claim in command.replacements)


def _page(
    recorded: Recorded, by: str, change: _DecisionDifference, hourly: tuple[float, float] | None
) -> RenderableType:
    """The comparison for people; `hourly` is None when the decision is the same."""
    parts: list[RenderableType] = [_headline(recorded), _outline_table(recorded.outline), Text()]
    if hourly is None:
        return Group(*parts, Text("The same decision, byte for byte.", style="green"))
    parts += [Text.assemble(("- ", "red bold"), line) for line in change.recorded]
    parts += [Text.assemble(("+ ", "green bold"), line) for line in change.again]
    if not change.recorded and not change.again:
        parts.append(Text("The same nodes and pods; reasons, names or lists of types differ.", style="yellow"))
    if change.outlines is True:
        said = f"Version {__version__} cannot read both decisions: only their outlines are compared."
        parts.append(Text(said, style="yellow"))
    before, after = hourly
    parts += [
        Text(),
        Text(f"Launched: ${before:.4f}/h recorded, ${after:.4f}/h again ({after - before:+.4f})", style="bold"),
    ]
    if recorded.version != by:
        writer = recorded.version or "a version that did not say which"
        parts.append(Text(f"Recorded by {writer}, decided again by {by}: the versions may differ.", style="yellow"))
    return Group(*parts)


def _headline(recorded: Recorded) -> Text:
    outline = recorded.outline
    by = f", by version {recorded.version}" if recorded.version else ""
    return Text.assemble(
        (f"{outline.kind} ", "bold"),
        f"decision of cluster {outline.cluster or '?'} at {rfc3339(outline.at)}, epoch {outline.epoch}{by}: "
        f"{counted(outline.pods, 'pod')} and {counted(outline.nodes, 'node')} seen",
    )


def _outline_table(outline: Outline) -> RenderableType:
    parts: list[RenderableType] = []
    if outline.removed:
        parts.append(Text(f"removed: {summary(outline.removed)}"))
    if outline.claims:
        table = Table("claim", "pool", "launch", "$/h", "pods", box=None, pad_edge=False)
        for claim in outline.claims:
            launch = f"{claim.instance_type} {claim.capacity_type} in {claim.zone}"
            table.add_row(claim.name, claim.node_pool, launch, f"{claim.price:.4f}", str(claim.pods))
        parts.append(table)
    if outline.unschedulable:
        parts.append(Text(f"without a place: {counted(outline.unschedulable, 'pod')}"))
    return Group(*parts)

"""`shiplap explain`: the full account of one pod, one claim or one node.

From files as `shiplap plan` takes them, or from the record of a decision that was made in the cloud.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from shiplap.cli.output import Format, Output, emit
from shiplap.cli.pages import account_page, claim_page
from shiplap.cli.sources import (
    CapacityFile,
    CatalogFile,
    ImproveSeconds,
    ManifestFiles,
    MemoryOverhead,
    MinValuesPolicy,
    Now,
    PreferencePolicy,
    PrefixDelegation,
    Region,
    ReservedEnis,
    SchedulerConfigFile,
    Sources,
    StateFiles,
    snapshot_of,
)
from shiplap.errors import InvalidInput
from shiplap.scheduling.account import account_of
from shiplap.scheduling.claim_account import ClaimAccounts
from shiplap.scheduling.plan import Plan
from shiplap.scheduling.planner import plan
from shiplap.scheduling.record import decode
from shiplap.scheduling.snapshot import Snapshot
from shiplap.scheduling.world import compile_world
from shiplap.settings import IMPROVE_S

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Why a pod or a claim is where it is, and what would change it.",
)

_RecordFile = Annotated[
    Path | None, typer.Option("--record", help="A flight record (records/… of the state bucket), instead of files.")
]
_StateFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--cluster-state", help="Kubernetes objects as YAML or JSON: files, folders, or - for standard input."
    ),
]
_ManifestFiles = Annotated[
    list[Path] | None, typer.Option("--manifests", help="NodePools, EC2NodeClasses, NodeOverlays: files or folders.")
]


@app.command("pod")
def pod(
    name: Annotated[str, typer.Argument(help="The pod as NAMESPACE/NAME, or NAME in the namespace default.")],
    *,
    record: _RecordFile = None,
    cluster_state: _StateFiles = None,
    manifests: _ManifestFiles = None,
    catalog: CatalogFile = None,
    capacity: CapacityFile = None,
    now: Now = None,
    region: Region = "us-east-1",
    vm_memory_overhead_percent: MemoryOverhead = 0.075,
    reserved_enis: ReservedEnis = 0,
    prefix_delegation: PrefixDelegation = "auto",
    min_values_policy: MinValuesPolicy = "Strict",
    preference_policy: PreferencePolicy = "Respect",
    scheduler_config: SchedulerConfigFile = None,
    improve_seconds: ImproveSeconds = IMPROVE_S,
    output: Output = Format.TABLE,
) -> int:
    """Why a pod is where it is, or why it has no place and the smallest change that would give it one.

    Exit code 0 when the pod has a place or needs none, 1 when it has none, 2 for bad input.
    """
    sources = Sources(
        cluster_state=cluster_state or (),
        manifests=manifests or (),
        catalog=catalog,
        capacity=capacity,
        now=now,
        region=region,
        vm_memory_overhead_percent=vm_memory_overhead_percent,
        reserved_enis=reserved_enis,
        prefix_delegation=prefix_delegation,
        min_values_policy=min_values_policy,
        preference_policy=preference_policy,
        scheduler_config=scheduler_config,
        improve_s=improve_seconds,
    )
    snapshot, decided = _decision(record, sources)
    account = account_of(snapshot, decided, name)
    emit(account, output, lambda: account_page(account))
    return 1 if account.state == "unschedulable" else 0


@app.command("claim")
def claim(
    name: Annotated[str, typer.Argument(help="The claim, as `shiplap plan` or the flight record names it.")],
    *,
    record: _RecordFile = None,
    cluster_state: _StateFiles = None,
    manifests: _ManifestFiles = None,
    catalog: CatalogFile = None,
    capacity: CapacityFile = None,
    now: Now = None,
    region: Region = "us-east-1",
    improve_seconds: ImproveSeconds = IMPROVE_S,
    output: Output = Format.TABLE,
) -> None:
    """Why a claim of the plan is in its pool and tier, why it lists its types, and why it costs what it does."""
    sources = Sources(
        cluster_state=cluster_state or (),
        manifests=manifests or (),
        catalog=catalog,
        capacity=capacity,
        now=now,
        region=region,
        improve_s=improve_seconds,
    )
    snapshot, decided = _decision(record, sources)
    names = [each.name for each in decided.node_claims]
    if name not in names:
        near = get_close_matches(name, names, n=3, cutoff=0.5) or names[:3]
        hint = f"; did you mean {', '.join(near)}?" if near else ": it launches nothing"
        raise InvalidInput("claim", f"the plan has no claim {name}{hint}")
    found = decided.node_claims[names.index(name)]
    account = ClaimAccounts(compile_world(snapshot)).of(found)
    emit({"claim": found, "account": account}, output, lambda: claim_page(found, account))


@app.command("node")
def node(
    name: Annotated[str, typer.Argument(help="The node's name.")],
    *,
    cluster_state: StateFiles,
    manifests: ManifestFiles,
    catalog: CatalogFile = None,
    capacity: CapacityFile = None,
    now: Now = None,
    region: Region = "us-east-1",
    output: Output = Format.TABLE,
) -> None:
    """What a node costs, which pods it holds, and whether `shiplap disrupt` would remove it or what keeps it."""
    from shiplap.cli.disrupt import command_document, disruption_snapshot  # noqa: PLC0415 - only here
    from shiplap.cli.node_page import node_page  # noqa: PLC0415 - as above
    from shiplap.disruption.account import account_of as account_of_node  # noqa: PLC0415 - as above
    from shiplap.disruption.settings import DisruptionSettings  # noqa: PLC0415 - as above

    sources = Sources(
        cluster_state=cluster_state, manifests=manifests, catalog=catalog, capacity=capacity, now=now, region=region
    )
    account = account_of_node(disruption_snapshot(sources, DisruptionSettings()), name)
    written = msgspec.to_builtins(account)
    written["command"] = command_document(account.command) if account.command is not None else None
    emit(written, output, lambda: node_page(account))


def _decision(record: Path | None, sources: Sources) -> tuple[Snapshot, Plan]:
    """The decision to speak of: the recorded one, or the one these files lead to."""
    if record is not None:
        if sources.cluster_state or sources.manifests:
            raise InvalidInput("--record", "is a decision by itself; give it, or --cluster-state and --manifests")
        try:
            document = record.read_bytes()
        except OSError as error:
            raise InvalidInput(str(record), f"cannot be read: {error.strerror or error}") from error
        found = decode(document, str(record))
        return found.snapshot, found.plan
    for option, given in (("--cluster-state", sources.cluster_state), ("--manifests", sources.manifests)):
        if not given:
            raise InvalidInput(option, "is missing; give the files `shiplap plan` takes, or a flight record (--record)")
    snapshot = snapshot_of(sources)
    return snapshot, plan(snapshot)

"""`shiplap explain`: the full account of one pod, claim, node or pool, or its story on a live install.

The account is of a decision: on a cluster or files as `shiplap plan` takes them, or a recorded one. The story is what
was written down when it happened.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from shiplap.errors import ClusterError, InvalidInput
from shiplap.instances.offerings.node_prices import UNKNOWN_PRICE
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.scheduling_record import SchedulingRecord
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap.scheduling.planner import plan
from shiplap_cli.explain.claim_account import ClaimAccounts
from shiplap_cli.explain.pod_account import pod_account_of
from shiplap_cli.history.history import History
from shiplap_cli.history.history_options import (
    HistoryOptions,
    history_page,
    read_history,
    reject_conflicts,
    require_known,
)
from shiplap_cli.inputs.loaded_inputs import LoadedInputs, load_inputs
from shiplap_cli.installs.find_install import STACK, find_install
from shiplap_cli.installs.records import open_record
from shiplap_cli.money import Money
from shiplap_cli.options import Sources, takes_sources
from shiplap_cli.output import Format, Output, emit
from shiplap_cli.render.decision_documents import caveat_lines, caveats_document
from shiplap_cli.render.pages import account_page, claim_page

if TYPE_CHECKING:
    from shiplap_cli.history.present_state import PresentState

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Why a pod, claim, node or pool is as it is, and what would change it; its story on a live install.",
)

_Recorded = Annotated[
    str,
    typer.Option(
        "--record", help="A recorded decision, instead of files: its id, s3://BUCKET/KEY, or a file.", metavar="RECORD"
    ),
]


@app.command("pod")
@takes_sources
def pod(
    name: Annotated[str, typer.Argument(help="The pod as NAMESPACE/NAME, or NAME in the namespace default.")],
    *,
    record: _Recorded = "",
    where: HistoryOptions,
    sources: Sources,
    output: Output = Format.TABLE,
) -> int:
    """Why a pod is where it is, or why it has no place and the smallest change that would give it one.

    With --cluster, its story: events heard, decisions and what they weighed, what EC2 gave, what was learned; with
    --context as well, how it would fare now. Exit code 0 when the pod has a place or needs none, 1 when it has none, 2
    for bad input.

    Example: shiplap explain pod web/api-0 --context prod --manifests pools/

    Example: shiplap explain pod web/api-0 --cluster prod
    """
    reject_conflicts(where, sources, record)
    story = read_history(where, lambda teller: teller.pod(name)) if where.given and not record else None
    if story is not None and not _has_cluster(sources, where):
        return _emit_history(story, output)

    def decide() -> _CurrentAnswer:
        decision = _read_decision(record, sources, where)
        account = pod_account_of(decision.snapshot, decision.plan, name)
        written = _document(account, decision.reading)
        price = UNKNOWN_PRICE
        if account.home is not None and account.home.launch is not None:
            launched = {claim.name: claim for claim in decision.plan.node_claims}
            price = Money(decision.snapshot).of_launch(launched[account.home.name])
            written["home"]["launch"]["priceEstimated"] = price.estimated
        page = Group(account_page(account, price), *decision.lines)
        return _CurrentAnswer(written, page, 1 if account.state == "unschedulable" else 0)

    return _emit_current(story, decide, output)


@app.command("claim")
@takes_sources
def claim(
    name: Annotated[str, typer.Argument(help="The claim, as `shiplap plan` or the flight record names it.")],
    *,
    record: _Recorded = "",
    where: HistoryOptions,
    sources: Sources,
    output: Output = Format.TABLE,
) -> int:
    """Why a claim of the plan is in its pool and tier, why it lists its types, and why it costs what it does.

    With --cluster, its story on a live install, from the event that was heard to where it stands; with --context as
    well, how it stands now: its Node, conditions and pods, and what keeps it from being disrupted. A claim that is no
    part of the plan, but of the cluster, is told of in that way too.

    Example: shiplap explain claim general-x7kq2mzp --record prod/2026-01-31/142502-17-3fb2c1d0aa51

    Example: shiplap explain claim general-x7kq2mzp --cluster prod --context prod
    """
    reject_conflicts(where, sources, record)
    if where.given and not record:
        story = read_history(where, lambda teller: require_known(teller.claim(name), "claim", name, teller.names()))
        if not _has_cluster(sources, where):
            return _emit_history(story, output)
        return _emit_claim(story, sources, where, output)
    decision = _read_decision(record, sources, where)
    names = [each.name for each in decision.plan.node_claims]
    if name in names:
        found = decision.plan.node_claims[names.index(name)]
        account = ClaimAccounts(compile_snapshot(decision.snapshot)).of(found)
        money = Money(decision.snapshot)
        page = Group(claim_page(found, account, money), *decision.lines)
        written = _document({"claim": found, "account": account}, decision.reading)
        written["claim"]["launch"]["priceEstimated"] = money.of_launch(found).estimated
        emit(written, output, lambda: page)
        return 0
    now = _present_state(name, decision.reading)
    if now is not None:
        from shiplap_cli.history.present_state import present_state_page  # noqa: PLC0415 - only here

        emit(now, output, lambda: present_state_page(now))
        return 0
    near = get_close_matches(name, names, n=3, cutoff=0.5) or names[:3]
    hint = f"; did you mean {', '.join(near)}?" if near else ": it launches nothing"
    raise InvalidInput("claim", f"the plan has no claim {name}{hint}")


@app.command("node")
@takes_sources
def node(
    name: Annotated[str, typer.Argument(help="The node's name.")],
    *,
    where: HistoryOptions,
    sources: Sources,
    output: Output = Format.TABLE,
) -> int:
    """What a node costs, which pods it holds, and whether `shiplap disrupt` would remove it or what keeps it.

    With --cluster, its story on a live install: why it was launched, what it yielded, what became of it; with --context
    as well, what would become of it now.

    Example: shiplap explain node ip-10-0-12-7.eu-west-1.compute.internal --context prod --manifests pools/
    """
    reject_conflicts(where, sources)
    story = None
    if where.given:
        story = read_history(where, lambda teller: require_known(teller.claim(name), "node", name, teller.names()))
        if not _has_cluster(sources, where):
            return _emit_history(story, output)

    def decide() -> _CurrentAnswer:
        from shiplap_cli.explain.node_account import node_account_of  # noqa: PLC0415 - as above
        from shiplap_cli.inputs.disruption_inputs import disruption_snapshot  # noqa: PLC0415 - only here
        from shiplap_cli.render.decision_documents import command_document  # noqa: PLC0415 - only here
        from shiplap_cli.render.node_page import node_page  # noqa: PLC0415 - as above

        reading = load_inputs(sources, where, lax_budgets=True)
        looked_at = disruption_snapshot(reading)
        account, money = node_account_of(looked_at, name), Money(looked_at.scheduling)
        written, command = _document(account, reading), account.command
        written["command"] = command_document(command, money) if command is not None else None
        return _CurrentAnswer(written, Group(node_page(account, money), *caveat_lines(reading)))

    return _emit_current(story, decide, output)


@app.command("pool")
@takes_sources
def pool(
    name: Annotated[str, typer.Argument(help="The NodePool's name.")],
    *,
    record: _Recorded = "",
    where: HistoryOptions,
    sources: Sources,
    output: Output = Format.TABLE,
) -> int:
    """What a NodePool has and launches, what its limits leave, why it is passed over, what keeps pods away from it.

    With --cluster, its story on a live install: decisions, failures, what EC2 refuses; with --context as well, how it
    stands now. Exit code 1 when pods are left out.

    Example: shiplap explain pool general --context prod
    """
    from shiplap_cli.explain.pool_account import pool_account_of, pool_page  # noqa: PLC0415 - only here

    reject_conflicts(where, sources, record)
    story = None
    if where.given and not record:
        story = read_history(where, lambda teller: require_known(teller.pool(name), "pool", name, teller.pools()))
        if not _has_cluster(sources, where):
            return _emit_history(story, output)

    def decide() -> _CurrentAnswer:
        decision = _read_decision(record, sources, where)
        account = pool_account_of(decision.snapshot, decision.plan, name)
        page = Group(pool_page(account), *decision.lines)
        return _CurrentAnswer(_document(account, decision.reading), page, 1 if account.away else 0)

    return _emit_current(story, decide, output)


class _CurrentAnswer(msgspec.Struct, frozen=True):
    """What would be decided now, as data and as a page, and the exit code that answers with it."""

    value: object
    page: RenderableType
    code: int = 0


def _document(account: object, reading: LoadedInputs | None) -> dict[str, Any]:
    """An account as data, with what it rests on; a recorded decision rests on itself."""
    written: dict[str, Any] = msgspec.to_builtins(account)
    return written | (caveats_document(reading) if reading is not None else {})


def _has_cluster(sources: Sources, where: HistoryOptions) -> bool:
    """Whether a cluster can be asked beside the install: that of `shiplap dev` always can."""
    return bool(sources.context or sources.kubeconfig or where.dev)


def _emit_current(story: History | None, decide: Callable[[], _CurrentAnswer], output: Format) -> int:
    """The decision alone, or after the story; what has gone, or does not answer, takes nothing from the story."""
    try:
        now = decide()
    except InvalidInput as error:
        missed = isinstance(error.__cause__, ClusterError) or error.source in ("pod", "node", "pool")
        if story is None or (story.kind == "pod" and not story.entries) or not missed:
            raise
        unseen = str(error)
        page = Group(history_page(story), Text(), Text.assemble(("! ", "yellow bold"), (f"now: {unseen}", "yellow")))
        emit({"story": story, "now": None, "unseen": [unseen]}, output, lambda: page)
        return 0
    if story is not None:
        _emit_both(story, now.value, output, now.page)
    else:
        emit(now.value, output, lambda: now.page)
    return now.code


def _emit_history(story: History, output: Format) -> int:
    emit(story, output, lambda: history_page(story))
    return 1 if story.kind == "pod" and not story.entries else 0


def _emit_claim(story: History, sources: Sources, where: HistoryOptions, output: Format) -> int:
    """The story of a claim and how it stands; a cluster that does not answer takes nothing from the story."""
    from shiplap_cli.history.present_state import present_state_page, unreachable_state  # noqa: PLC0415 - only here

    try:
        now = _present_state(story.name, load_inputs(sources, where, lax_budgets=True))
    except InvalidInput as error:
        if not isinstance(error.__cause__, ClusterError):
            raise
        now = unreachable_state(story.name, str(error))
    now = now or unreachable_state(story.name, "neither claims nor Nodes that were seen know it any more")
    _emit_both(story, now, output, present_state_page(now), "Now:")
    return 0


def _present_state(name: str, reading: LoadedInputs | None) -> PresentState | None:
    """How a claim stands in a cluster; None for a recorded decision and for what the cluster does not know."""
    from shiplap_cli.history.present_state import present_state_of  # noqa: PLC0415 - only for claims

    return present_state_of(name, reading) if reading is not None else None


def _emit_both(story: History, now: object, output: Format, page: RenderableType, title: str = "Decided now:") -> None:
    """What has happened, and what would be decided now."""
    both = Group(history_page(story), Text(), Text(title, style="italic"), page)
    emit({"story": story, "now": now}, output, lambda: both)


class _Decision(msgspec.Struct, frozen=True):
    """A decision to speak of, what it does not rest on, in lines, and what was read for it, unless it is recorded."""

    snapshot: Snapshot
    plan: Plan
    lines: list[RenderableType] = []
    reading: LoadedInputs | None = None


def _read_decision(record: str, sources: Sources, where: HistoryOptions) -> _Decision:
    """The recorded one, or the one that these objects lead to."""
    if not record:
        reading = load_inputs(sources, where)
        return _Decision(reading.snapshot, plan(reading.snapshot), caveat_lines(reading), reading)
    if sources.cluster_state or sources.manifests or sources.context or sources.kubeconfig:
        raise InvalidInput("--record", "is a decision by itself; give it, or a cluster and manifests")
    _, found = open_record(record, lambda: find_install(bucket="", stack=where.stack or STACK, dev=where.dev))
    if isinstance(found.record, SchedulingRecord):
        return _Decision(found.record.snapshot, found.record.plan)
    unlike = "is a decision to disrupt nodes" if found.outline.kind == "disrupt" else found.problem
    raise InvalidInput(record, f"{unlike}; `shiplap replay {record}` shows what it holds")

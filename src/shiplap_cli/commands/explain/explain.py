"""`shiplap explain`: the full account of one pod, claim, node or pool, or its history on a live install.

The account explains a decision: on a cluster, on files as `shiplap plan` takes them, or a recorded one. The history
lists the events that an install recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from shiplap.errors import ClusterError, InvalidInput
from shiplap.instances.offerings.node_prices import UNKNOWN_PRICE
from shiplap.records.scheduling_record import SchedulingRecord
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap_cli.accounts.claim_account import ClaimAccounts
from shiplap_cli.accounts.pod_account import pod_account_of
from shiplap_cli.commands.explain.explain_answers import OfCommand, OfHome, OfLaunch, OfPlan, Story, priced
from shiplap_cli.commands.explain.history import History, HistoryReader, lacks_place
from shiplap_cli.commands.explain.history_options import (
    HistoryOptions,
    history_page,
    read_history,
    reject_conflicts,
    require_known,
)
from shiplap_cli.inputs.loaded_inputs import LoadedInputs, load_inputs
from shiplap_cli.installs.find_install import STACK, find_install
from shiplap_cli.installs.records import open_record
from shiplap_cli.joined_documents import joined
from shiplap_cli.money import Money
from shiplap_cli.options import Sources, takes_sources
from shiplap_cli.output import Format, Output, emit, warning_line
from shiplap_cli.render.decision_documents import Caveats, caveat_lines, caveats_of, command_document
from shiplap_cli.render.pages import account_page, claim_page, node_page

if TYPE_CHECKING:
    from shiplap_cli.commands.explain.present_state import PresentState

_Recorded = Annotated[
    str,
    typer.Option(
        "--record", help="A recorded decision, instead of files: its id, s3://BUCKET/KEY, or a file.", metavar="RECORD"
    ),
]


@takes_sources
def pod(
    name: Annotated[
        str,
        typer.Argument(
            help="NAMESPACE/NAME, or NAME in the namespace default: a pod, or a workload, for one of its pods."
        ),
    ],
    *,
    record: _Recorded = "",
    options: HistoryOptions,
    sources: Sources,
    output: Output = Format.TABLE,
) -> int:
    """Why a pod is where it is, or why it has no place and the smallest change that would give it one.

    With --cluster, its history: events, decisions and their alternatives, launches and learned capacity; with
    --context as well, how it would fare now. Exit code 0 when the pod has a place or is left alone, 1 when it has none,
    2 for bad input.

    Example: shiplap explain pod web/api-0 --context prod --manifests pools/

    Example: shiplap explain pod web/api-0 --cluster prod
    """

    def decide() -> _CurrentAnswer:
        decision = _read_decision(record, sources, options)
        installed = decision.inputs.decision if decision.inputs is not None else None
        claims = installed.installed.claims if installed is not None else None
        account = pod_account_of(decision.snapshot, decision.plan, name, claims)
        price = UNKNOWN_PRICE
        home: msgspec.Struct | None = account.home
        if account.home is not None and account.home.launch is not None:
            launched = {claim.name: claim for claim in decision.plan.node_claims}
            price = Money(decision.snapshot).of_launch(launched[account.home.name])
            home = joined(account.home, OfLaunch(priced(account.home.launch, price)))
        written = joined(account, OfHome(home), *_caveats(decision.inputs))
        page = Group(account_page(account, price), *decision.lines)
        return _CurrentAnswer(written, page, 1 if account.state == "unschedulable" else 0)

    return _answer(lambda reader: reader.pod(name), decide, options, sources, output, record)


@takes_sources
def claim(
    name: Annotated[str, typer.Argument(help="The claim, as `shiplap plan` or the flight record names it.")],
    *,
    record: _Recorded = "",
    options: HistoryOptions,
    sources: Sources,
    output: Output = Format.TABLE,
) -> int:
    """Why a claim of the plan is in its pool and tier, why it lists its types, and why it costs what it does.

    With --cluster, its history on a live install, from the first event to its present state; with --context as
    well, how it stands now: its Node, conditions and pods, and what keeps it from being disrupted. A claim of
    the cluster that is not part of the plan is explained in the same way.

    Example: shiplap explain claim general-x7kq2mzp --record prod/2026-01-31/142502-17-3fb2c1d0aa51

    Example: shiplap explain claim general-x7kq2mzp --cluster prod --context prod
    """
    reject_conflicts(options, sources, record)
    if options.given and not record:
        history = read_history(options, lambda reader: require_known(reader.claim(name), "claim", name, reader.names()))
        if not _has_cluster(sources, options):
            return _emit_history(history, output)
        return _emit_claim(history, sources, options, output)
    decision = _read_decision(record, sources, options)
    names = [each.name for each in decision.plan.node_claims]
    if name in names:
        planned = decision.plan.node_claims[names.index(name)]
        account = ClaimAccounts(compile_snapshot(decision.snapshot)).of(planned)
        money = Money(decision.snapshot)
        page = Group(claim_page(planned, account, money), *decision.lines)
        claim = joined(planned, OfLaunch(priced(planned.launch, money.of_launch(planned))))
        emit(joined(OfPlan(claim, account), *_caveats(decision.inputs)), output, lambda: page)
        return 0
    now = _present_state(name, decision.inputs)
    if now is not None:
        from shiplap_cli.commands.explain.present_state import present_state_page  # noqa: PLC0415 - only here

        emit(now, output, lambda: present_state_page(now))
        return 0
    near = get_close_matches(name, names, n=3, cutoff=0.5) or names[:3]
    hint = f"; did you mean {', '.join(near)}?" if near else ": it launches nothing"
    raise InvalidInput("claim", f"the plan has no claim {name}{hint}")


@takes_sources
def node(
    name: Annotated[str, typer.Argument(help="The node's name.")],
    *,
    options: HistoryOptions,
    sources: Sources,
    output: Output = Format.TABLE,
) -> int:
    """What a node costs, which pods it holds, and whether `shiplap disrupt` would remove it or what keeps it.

    With --cluster, its history on a live install: why it was launched, its capacity, how it ended; with --context
    as well, what would become of it now.

    Example: shiplap explain node ip-10-0-12-7.eu-west-1.compute.internal --context prod --manifests pools/
    """

    def known(reader: HistoryReader) -> History:
        return require_known(reader.claim(name), "node", name, reader.names())

    def decide() -> _CurrentAnswer:
        from shiplap_cli.accounts.node_account import node_account_of  # noqa: PLC0415 - as above
        from shiplap_cli.inputs.disruption_inputs import disruption_snapshot  # noqa: PLC0415 - only here

        inputs = load_inputs(sources, options, lax_budgets=True)
        disruption = disruption_snapshot(inputs)
        account, money = node_account_of(disruption, name), Money(disruption.scheduling)
        command = command_document(account.command, money) if account.command is not None else None
        written = joined(account, OfCommand(command), caveats_of(inputs))
        return _CurrentAnswer(written, Group(node_page(account, money), *caveat_lines(inputs)))

    return _answer(known, decide, options, sources, output)


@takes_sources
def pool(
    name: Annotated[str, typer.Argument(help="The NodePool's name.")],
    *,
    record: _Recorded = "",
    options: HistoryOptions,
    sources: Sources,
    output: Output = Format.TABLE,
) -> int:
    """What a NodePool has and launches, what its limits leave, why it is passed over, what keeps pods away from it.

    With --cluster, its history on a live install: decisions, failures, what EC2 refuses; with --context as well, how it
    stands now. Exit code 1 when pods are left out.

    Example: shiplap explain pool general --context prod
    """
    from shiplap_cli.accounts.pool_account import pool_account_of, pool_page  # noqa: PLC0415 - only here

    def known(reader: HistoryReader) -> History:
        return require_known(reader.pool(name), "pool", name, reader.pools())

    def decide() -> _CurrentAnswer:
        decision = _read_decision(record, sources, options)
        account = pool_account_of(decision.snapshot, decision.plan, name)
        page = Group(pool_page(account), *decision.lines)
        written = joined(account, *_caveats(decision.inputs))
        return _CurrentAnswer(written, page, 1 if account.away else 0)

    return _answer(known, decide, options, sources, output, record)


class _CurrentAnswer(msgspec.Struct, frozen=True):
    """The decision of now as data and as a page, with the exit code."""

    value: object
    page: RenderableType
    code: int = 0


def _caveats(inputs: LoadedInputs | None) -> tuple[Caveats, ...]:
    """What an account rests on; a recorded decision rests on itself."""
    return () if inputs is None else (caveats_of(inputs),)


def _has_cluster(sources: Sources, options: HistoryOptions) -> bool:
    """True if the command can ask a cluster beside the install: it can always ask that of `shiplap lab dev`."""
    return bool(sources.context or sources.kubeconfig or options.dev)


def _answer(
    ask: Callable[[HistoryReader], History],
    decide: Callable[[], _CurrentAnswer],
    options: HistoryOptions,
    sources: Sources,
    output: Format,
    record: str = "",
) -> int:
    """The history where an install is named, and the decision of now where there is something to decide on."""
    reject_conflicts(options, sources, record)
    history = read_history(options, ask) if options.given and not record else None
    if history is not None and not _has_cluster(sources, options):
        return _emit_history(history, output)
    return _emit_current(history, decide, output)


def _emit_current(history: History | None, decide: Callable[[], _CurrentAnswer], output: Format) -> int:
    """The decision, after the history if there is one. If the cluster does not answer, the history is shown alone."""
    try:
        now = decide()
    except InvalidInput as error:
        missed = isinstance(error.__cause__, ClusterError) or error.source in ("pod", "node", "pool")
        if history is None or (history.kind == "pod" and not history.entries) or not missed:
            raise
        unseen = str(error)
        page = Group(history_page(history), Text(), warning_line(f"now: {unseen}"))
        emit(Story(history, None, (unseen,)), output, lambda: page)
        return 1 if lacks_place(history) else 0
    if history is not None:
        _emit_both(history, now.value, output, now.page)
    else:
        emit(now.value, output, lambda: now.page)
    return now.code


def _emit_history(history: History, output: Format) -> int:
    emit(history, output, lambda: history_page(history))
    return 1 if lacks_place(history) else 0


def _emit_claim(history: History, sources: Sources, options: HistoryOptions, output: Format) -> int:
    """The history of a claim and its present state, which says so if the cluster does not answer."""
    from shiplap_cli.commands.explain.present_state import present_state_page, unreachable_state  # noqa: PLC0415 - only here

    try:
        now = _present_state(history.name, load_inputs(sources, options, lax_budgets=True))
    except InvalidInput as error:
        if not isinstance(error.__cause__, ClusterError):
            raise
        now = unreachable_state(history.name, str(error))
    now = now or unreachable_state(history.name, "neither claims nor Nodes that were seen know it any more")
    _emit_both(history, now, output, present_state_page(now), "Now:")
    return 0


def _present_state(name: str, inputs: LoadedInputs | None) -> PresentState | None:
    """Return the state of a claim in a cluster; None for a recorded decision and for a claim unknown to the cluster."""
    from shiplap_cli.commands.explain.present_state import present_state_of  # noqa: PLC0415 - only for claims

    return present_state_of(name, inputs) if inputs is not None else None


def _emit_both(
    history: History, now: object, output: Format, page: RenderableType, title: str = "Decided now:"
) -> None:
    """The history, then the decision of now."""
    both = Group(history_page(history), Text(), Text(title, style="italic"), page)
    emit(Story(history, now), output, lambda: both)


class _Decision(msgspec.Struct, frozen=True):
    """A decision to speak of, what it does not rest on, in lines, and what was read for it, unless it is recorded."""

    snapshot: Snapshot
    plan: Plan
    lines: list[RenderableType] = []
    inputs: LoadedInputs | None = None


def _read_decision(record: str, sources: Sources, options: HistoryOptions) -> _Decision:
    """The recorded one, or the one that these objects lead to."""
    if not record:
        inputs = load_inputs(sources, options)
        return _Decision(*inputs.decided(), caveat_lines(inputs), inputs)
    if sources.cluster_state or sources.manifests or sources.context or sources.kubeconfig:
        raise InvalidInput("--record", "is a decision by itself; give it, or a cluster and manifests")
    _, recorded = open_record(record, lambda: find_install(bucket="", stack=options.stack or STACK, dev=options.dev))
    if isinstance(recorded.record, SchedulingRecord):
        return _Decision(recorded.record.snapshot, recorded.record.plan)
    unlike = "is a decision to disrupt nodes" if recorded.outline.kind == "disrupt" else recorded.problem
    raise InvalidInput(record, f"{unlike}; `shiplap explain decision {record}` shows what it holds")

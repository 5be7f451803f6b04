"""`shiplap status spending`: what a cluster costs this month, by NodePool and by namespace, beside its ceilings.

It is what the ledger in table `state` holds; the cluster itself is not asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from shiplap.errors import AwsError, InvalidInput, StoreError
from shiplap.flows.policies.ceilings_inputs import ceilings_in_use, read_spending
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.ceilings.ceiling_use import ClusterSpending
from shiplap.policies.ceilings.ceilings import CeilingUse
from shiplap.spending.ledger import SpendingLedger
from shiplap_cli.hints import with_hint
from shiplap_cli.installs.find_install import (
    STACK,
    DeployedInstall,
    Dev,
    Stack,
    aws_client,
    find_install,
    sole_cluster,
)
from shiplap_cli.installs.installed import cluster_settings_of, settings_of
from shiplap_cli.output import Format, Output, Printed, counted, emit, fail
from shiplap_cli.render.focus import ClusterLedger, focus_charges, focus_csv

OTHERS = "(others)"
"""Nodes of no NodePool, and of what nodes cost the part that no pod requested."""


class CeilingShare(Printed, frozen=True):
    """A ceiling in USD, and what is used of it: of a month, spent and reserved."""

    title: str
    mode: str
    limit: float
    used: float


class SpendingDocument(Printed, frozen=True):
    """The output of the command, in USD. Amounts by namespace are those of the hours before `posted_until`."""

    cluster: str
    month: str
    spent: float
    reserved: float
    forecast: float
    last_month: float
    posted_until: str
    node_pools: dict[str, float]
    namespaces: dict[str, float]
    ceilings: tuple[CeilingShare, ...]

    @property
    def page(self) -> RenderableType:
        """For people."""
        head = f"{self.cluster} in {self.month}: ${self.spent:.2f} spent, ${self.reserved:.2f} reserved"
        rest = f"forecast ${self.forecast:.2f}; last month ${self.last_month:.2f}"
        used = _table("ceiling", "used", "of", "mode")
        for item in self.ceilings:
            used.add_row(item.title, f"${item.used:.2f}", f"{item.used / item.limit:.0%}", item.mode)
        ends = f"Namespaces: by requests of their pods, until {self.posted_until}."
        tables = [_amounts("NodePool", self.node_pools), _amounts("namespace", self.namespaces)]
        return Group(head, rest, *tables, *([used] if self.ceilings else []), ends)


def spending(
    cluster: Annotated[str, typer.Argument(help="The cluster; the install's only one without.")] = "",
    *,
    stack: Stack = STACK,
    dev: Dev = False,
    focus: Annotated[
        Path | None,
        typer.Option(help="Write the posted charges as CSV of FOCUS 1.2 instead; of all clusters if none is named."),
    ] = None,
    output: Output = Format.TABLE,
) -> int:
    """What a cluster costs this month, by NodePool and by namespace, its forecast, and how much of ceilings is used.

    The ledger is kept where shiplap.yaml has `ceilings`, with `mode: warn` too. Volumes, traffic and the control plane
    are not in it. Exit code 1 without a ledger, 2 when AWS could not be asked.

    Example: shiplap status spending

    Example: shiplap status spending prod -o json

    Example: shiplap status spending --focus november.csv
    """
    now = time.time()
    try:
        install = find_install(bucket="", stack=stack, dev=dev)
        if focus is not None:
            return _write_focus(focus, install, cluster, now, output)
        name = cluster or sole_cluster(install, "CLUSTER")
        settings, table = cluster_settings_of(install, name), install.state()
        state = table.read(name, now)
        if state.ledger is None:
            fail(f"cluster {name} keeps no ledger yet: write `ceilings` in shiplap.yaml, and wait for the next hour")
            return 1
        found = read_spending(settings, state, table, now)
    except (AwsError, StoreError) as error:
        raise InvalidInput(f"stack {stack}", f"what is spent is not known: {with_hint(error)}") from error
    document = spending_document(name, state.ledger, found, ceilings_in_use(settings, state, found))
    emit(document, output, lambda: document.page)
    return 0


class WrittenCharges(Printed, frozen=True):
    """The output with --focus: the file, its charges, the clusters that they are of, and those without a ledger."""

    file: str
    charges: int
    clusters: tuple[str, ...]
    without_ledger: tuple[str, ...]

    @property
    def page(self) -> RenderableType:
        """For people."""
        lacking = f"; no ledger yet: {', '.join(self.without_ledger)}" if self.without_ledger else ""
        charges = f"{counted(self.charges, 'charge')} of {', '.join(self.clusters) or 'no cluster'}"
        return Text(f"wrote {self.file}: {charges}{lacking}")


def _write_focus(path: Path, install: DeployedInstall, cluster: str, now: float, output: Format) -> int:
    """Exit code 1 when no cluster has a ledger. Raises AwsError, StoreError, InvalidInput, OSError."""
    named = [cluster_settings_of(install, cluster)] if cluster else settings_of(install).clusters
    table, account = install.state(), account_id()
    states = {each.name: table.read(each.name, now) for each in named}
    ledgers = [
        ClusterLedger(each.name, each.region, account, ledger)
        for each in named
        if (ledger := states[each.name].ledger) is not None
    ]
    path.write_text(focus_csv(ledgers), encoding="utf-8")
    document = WrittenCharges(
        str(path),
        sum(len(list(focus_charges(each))) for each in ledgers),
        tuple(sorted(each.cluster for each in ledgers)),
        tuple(sorted(name for name, state in states.items() if state.ledger is None)),
    )
    emit(document, output, lambda: document.page)
    return 0 if ledgers else 1


def account_id() -> str:
    """The account that AWS is asked in. Raises AwsThrottled, AwsError."""
    from shiplap.aws.ec2_errors import aws_errors  # noqa: PLC0415 - botocore

    with aws_errors("tell the account"):
        return str(aws_client("sts").get_caller_identity()["Account"])


def spending_document(
    cluster: str, ledger: SpendingLedger, found: ClusterSpending, ceilings: Iterable[CeilingUse]
) -> SpendingDocument:
    """The document of a ledger, of what has been spent since, and of ceilings."""
    posted = ledger.this_month if ledger.this_month.month == found.month else None
    namespaces = dict(found.by_namespace)
    namespaces[OTHERS] = (posted.spent if posted is not None else 0) - sum(namespaces.values())
    before = ledger.last_month if posted is not None else ledger.this_month
    return SpendingDocument(
        cluster,
        found.month,
        found.total_spent / MICROS,
        (found.total - found.total_spent) / MICROS,
        found.forecast(ledger) / MICROS,
        before.spent / MICROS,
        rfc3339(ledger.posted_until),
        _by_amount({pool or OTHERS: amount for pool, amount in found.spent.items()}),
        _by_amount(namespaces),
        tuple(CeilingShare(item.title, item.mode, item.limit / MICROS, item.used / MICROS) for item in ceilings),
    )


def _by_amount(amounts: Mapping[str, int]) -> dict[str, float]:
    """In USD, the largest first."""
    return {name: amount / MICROS for name, amount in sorted(amounts.items(), key=lambda item: (-item[1], item[0]))}


def _amounts(of: str, amounts: Mapping[str, float]) -> Table:
    table = _table(of, "USD", "share")
    whole = sum(amounts.values())
    for name, amount in amounts.items():
        table.add_row(name, f"{amount:.2f}", f"{amount / whole:.0%}" if whole else "")
    return table


def _table(first: str, *others: str) -> Table:
    columns = (Column(first, overflow="fold"), *(Column(name, justify="right") for name in others))
    return Table(*columns, box=None, pad_edge=False)

"""Explains a claim: why these types are on its list, why the rest is not, and why it costs what it does."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import Requirements
from shiplap.manifests.nodeclaim import PodReference
from shiplap.scheduling.explain.nearest import amount, dollars, some
from shiplap.scheduling.model.resources import Bools, Floats, Ints
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.packing.compiled_snapshot import CompiledSnapshot
from shiplap.scheduling.supply.instance_arrays import TypeTable
from shiplap.scheduling.supply.templates import NodeClaimTemplate
from shiplap_cli.output import Printed

_NARROWED = frozenset({labels.INSTANCE_TYPE, labels.ZONE, labels.CAPACITY_TYPE})
"""Labels that a claim's list and offerings were narrowed to: what it may be follows from its pods and its pool."""

_CHEAPER = 3


class ClaimAccount(Printed, frozen=True):
    """The reasons for one claim, each a sentence. `skipped` are better templates, `cheaper` types that cost less."""

    pool: str
    skipped: tuple[str, ...]
    types: str
    price: str
    cheaper: tuple[str, ...] = ()


class ClaimAccounts:
    """Accounts of the claims of one plan."""

    def __init__(self, compiled: CompiledSnapshot) -> None:
        self._compiled = compiled
        self._templates = {(item.pool.metadata.name, item.tier.index): item for item in compiled.templates}
        self._tables = {template.pool.metadata.name: template.table for template in compiled.templates}
        self._class_of = {
            pod.key: pod_class for pod_class in (*compiled.classes, *compiled.virtual) for pod in pod_class.members
        }

    def of(self, claim: PlannedClaim) -> ClaimAccount:
        """The account of a claim of the plan made of this world."""
        template = self._templates.get((claim.node_pool, claim.tier))
        if template is None:
            return _account_of_static_claim(claim, self._tables.get(claim.node_pool))
        table = template.table
        wanted = self._wanted(template, claim)
        prices = template.prices_of_rows(wanted)
        load = self._load((*claim.pods, *claim.virtual_pods))
        careful = table.careful_rows & ~_rows_of_types(template, claim.relies_on_estimate)
        usable = careful | (table.row_estimate & _rows_of_types(template, claim.relies_on_estimate))
        rows = np.flatnonzero(usable & template.rows_of_variants(Requirements.of(claim.requirements)))
        holds = (template.net[rows] >= load).all(axis=1)
        suits = table.offered(wanted, template.given).suits[table.row_type[rows]]
        return ClaimAccount(
            pool=_why_pool(template, claim),
            skipped=claim.reasons,
            types=_why_types(template, claim, suits, holds, np.isfinite(prices[rows])),
            price=_why_price(template, claim, wanted),
            cheaper=_cheaper(template, claim, rows, suits, prices[rows], load),
        )

    def _wanted(self, template: NodeClaimTemplate, claim: PlannedClaim) -> Requirements:
        """The requirements of pool and pods, without those that the list of types was narrowed to afterwards."""
        pods = (*claim.pods, *claim.virtual_pods)
        own = [entry for entry in template.requirements.values() if entry.key in _NARROWED]
        asked = [
            entry
            for pod_class in dict.fromkeys(
                self._class_of[key] for key in (pod.key for pod in pods) if key in self._class_of
            )
            for entry in (pod_class.terms[0].values() if len(pod_class.terms) == 1 else ())
            if entry.key in _NARROWED
        ]
        rest = [entry for entry in Requirements.of(claim.requirements).values() if entry.key not in _NARROWED]
        return Requirements([*rest, *own, *asked])

    def _load(self, pods: Iterable[PodReference]) -> Ints:
        load = np.zeros(len(self._compiled.axis), np.int64)
        for pod in pods:
            pod_class = self._class_of.get(pod.key)
            if pod_class is not None:
                load += self._compiled.axis.vector(pod_class.requests)
        return load


def _account_of_static_claim(claim: PlannedClaim, table: TypeTable | None) -> ClaimAccount:
    """A claim that keeps a static pool at its replicas: no pod chose its template."""
    launch = claim.launch
    return ClaimAccount(
        pool=f"pool {claim.node_pool}: {', '.join(claim.reasons) or 'launched for no pod'}",
        skipped=(),
        types=f"{len(claim.instance_types)} listed ({some(claim.instance_types)})",
        price=f"{launch.instance_type} {launch.capacity_type} in {launch.zone} at "
        f"{dollars(table, launch.instance_type, launch.price)}",
    )


def _why_pool(template: NodeClaimTemplate, claim: PlannedClaim) -> str:
    pool = template.pool.metadata.name
    weight = f", weight {template.pool.spec.weight}" if template.pool.spec.weight else ""
    tier = f", tier {template.tier.index} ({template.tier.text})" if template.tier.text else ""
    if claim.reasons:
        before = f"{len(claim.reasons)} before it could not hold its first pod"
    else:
        before = "the first in order of weight, tier and name that can hold its pods"
    return f"pool {pool}{weight}{tier}: {before}"


def _why_types(template: NodeClaimTemplate, claim: PlannedClaim, suits: Bools, holds: Bools, buyable: Bools) -> str:
    total, listed = len(template.table.names), len(claim.instance_types)
    fits = int((suits & holds).sum())
    sold = int((suits & holds & buyable).sum())
    text = f"of {total} types {int(suits.sum())} meet the requirements, {fits} of them hold the pods"
    if sold < fits:
        text += f", {sold} of these can be bought now"
    if listed < sold:
        text += f"; {listed} are listed, the others being dearer, exotic, beyond a limit or held by another pilot"
    return f"{text} ({some(claim.instance_types)})"


def _why_price(template: NodeClaimTemplate, claim: PlannedClaim, wanted: Requirements) -> str:
    table, launch = template.table, claim.launch
    indices = [table.index[name] for name in claim.instance_types]
    prices: Floats = np.where(table.cells(wanted), table.prices, np.inf)[indices]
    offers = int(np.isfinite(prices).sum())
    price = dollars(table, launch.instance_type, launch.price)
    head = f"{launch.instance_type} {launch.capacity_type} in {launch.zone} at {price} is the "
    text = head + (f"cheapest of {offers} offerings" if offers > 1 else "only offering")
    per_type = prices.min(axis=(1, 2), initial=np.inf)
    others = [index for index in range(1, len(indices)) if np.isfinite(per_type[index])]
    if others:
        name = claim.instance_types[others[0]]
        text += f"; the next type is {name} at {dollars(table, name, per_type[others[0]])}"
    return text


def _cheaper(
    template: NodeClaimTemplate, claim: PlannedClaim, rows: Ints, suits: Bools, price: Floats, load: Ints
) -> tuple[str, ...]:
    """Types that would cost less but are not on the list, nearest in price first, with what they are short of."""
    table = template.table
    cheaper = []
    listed = set(claim.instance_types)
    for number in np.argsort(-price, kind="stable").tolist():
        name = table.names[table.row_type[rows[number]]]
        if not suits[number] or name in listed or not price[number] < claim.launch.price:
            continue
        short = load - template.net[rows[number]]
        parts = [
            f"{table.axis.names[column]} short by {amount(table.axis.names[column], int(short[column]))}"
            for column in np.flatnonzero(short > 0).tolist()
        ]
        why = ", ".join(parts) or "exotic, beyond a limit or held by another pilot"
        if parts and _would_suffice(table, int(rows[number]), short):
            why += " of its careful bound; its estimate would do, but no node of it has reported yet"
        cheaper.append(f"{name} at {dollars(table, name, price[number])}: {why}")
        if len(cheaper) == _CHEAPER:
            break
    return tuple(cheaper)


def _would_suffice(table: TypeTable, row: int, short: Ints) -> bool:
    """True if the estimate of a type holds what its careful bound is short of."""
    item, columns = table.types[table.row_type[row]], np.flatnonzero(short > 0).tolist()
    amounts = table.allocatable_amounts(row)
    names = [table.axis.names[column] for column in columns]
    return all(
        item.allocatable.get(name, 0) - amounts.get(name, 0) >= short[column]
        for name, column in zip(names, columns, strict=True)
    )


def _rows_of_types(template: NodeClaimTemplate, names: Iterable[str]) -> Bools:
    known = set(names)
    return np.array([template.table.names[index] in known for index in template.table.row_type.tolist()], np.bool_)

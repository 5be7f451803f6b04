"""Measures how far a template is from holding a pod, in numbers: which type comes closest and what it lacks.

A miss compares a template with a pod after everything else has been decided, so the numbers are those a person can act
on: so much memory less, so much of a limit more, this offering available again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

import msgspec
import numpy as np

from shiplap.instances.capacity.described_capacity import MIB
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import CPU, MEMORY, format_amount
from shiplap.kubernetes.requirements import Requirements
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import PLENTY, Bools, Ints
from shiplap.scheduling.model.scheduling_plan import NearestMiss
from shiplap.scheduling.supply.existing_nodes import ExistingNodes
from shiplap.scheduling.supply.instance_arrays import TypeTable
from shiplap.scheduling.supply.limits import HOURLY, SPOT_VCPUS
from shiplap.scheduling.supply.open_claims import PlacementAttempt, Refusal
from shiplap.scheduling.supply.templates import NodeClaimTemplate

SHRINKS = 0.5
"""A pod that would have to shrink by more than this share is farther away than one that lacks a toleration."""

CLOSE, ONE_RULE, FAR, NEVER = range(4)
"""Ranks: something runs short; one rule is in the way; much runs short; no type has it at all."""


class RuleRank(IntEnum):
    """The order of misses by one rule: one beside taints and labels; a taint, where labels fit; a label."""

    FITS = 0
    UNTOLERATED = 1
    UNLABELLED = 2


class Miss(msgspec.Struct, frozen=True):
    """The distance of one template from holding a pod; `rank` sorts the nearest first.

    `short` are the resources that are missing, canonical; with `of_limit` what the limits would have to grow by.
    `sold_out` is the type with each zone and capacity type it would be bought in, were it available.
    """

    rank: tuple[int, int, float, str]
    text: str
    nearest: NearestMiss
    short: Mapping[str, int] = {}
    of_limit: bool = False
    sold_out: frozenset[tuple[str, str, str]] = frozenset()


def resource_miss(refusal: Refusal, rows: Ints) -> Miss:
    """Of `rows`, which may be bought, the one with the fewest short resources, then the least share missing."""
    template, attempt = refusal.template, refusal.attempt
    absent = np.flatnonzero((attempt.requests > 0) & (template.table.allocatable[rows] <= 0).all(axis=0))
    if len(absent):
        return _absent(refusal, int(absent[0]))
    short = attempt.requests - template.net[rows]
    lacking = short > 0
    relative = np.where(lacking, short / np.maximum(attempt.requests, 1), 0.0)
    best = int(np.lexsort((rows, relative.sum(axis=1), lacking.sum(axis=1)))[0])
    row = int(rows[best])
    item = template.table.types[template.table.row_type[row]]
    columns = np.flatnonzero(lacking[best]).tolist()
    parts = [_shortage(template, attempt, row, column, int(short[best][column]), item) for column in columns]
    worst = int(np.argmax(np.where(lacking[best], relative[best], -1.0)))
    resource = template.table.axis.names[worst]
    level = FAR if float(relative[best][worst]) > SHRINKS else CLOSE
    return Miss(
        (level, len(columns), float(relative[best].sum()), item.name),
        f"{item.name} in {template.name}: {'; '.join(parts)}",
        NearestMiss(item.name, template.pool.metadata.name, resource, int(short[best][worst])),
        {template.table.axis.names[column]: int(short[best][column]) for column in columns},
    )


def _absent(refusal: Refusal, column: int) -> Miss:
    """A resource that no suitable type has: no type is nearer than another, but some may have it under other labels."""
    template, attempt = refusal.template, refusal.attempt
    resource, needed = template.table.axis.names[column], int(attempt.requests[column])
    owners = [
        name for name, has in zip(template.table.names, template.table.capacity[:, column] > 0, strict=True) if has
    ]
    elsewhere = f"; {some(owners)} would have it" if owners else ""
    return Miss(
        (NEVER, 1, 1.0, resource),
        f"{template.name}: no type that suits the pod has {resource} ({amount(resource, needed)} needed){elsewhere}",
        NearestMiss("", template.pool.metadata.name, resource, needed),
        {resource: needed},
    )


def offering_miss(refusal: Refusal, requirements: Requirements, rows: Ints) -> Miss:
    """Of `rows`, which would hold the pod, one whose offerings are sold out, or else are not sold as asked."""
    template = refusal.template
    table = template.table
    places = table.row_type[rows]
    asked = table.cells(requirements)[0]
    sold = (table.sold[places] & asked).any(axis=(1, 2))
    place = int(places[sold][0] if sold.any() else places[0])
    name = table.names[place]
    if sold.any():
        level = CLOSE
        cells = np.argwhere(table.sold[place] & asked).tolist()
        sold_out = frozenset((name, table.zones[zone], table.capacity_types[kind]) for zone, kind in cells)
        dear = above_ceiling(template, [place])
        words = f"none of its offerings is available now ({_offers(table, table.sold[place] & asked)})"
        words += f"; {dear}" if dear else ""
    else:
        level, sold_out = ONE_RULE, frozenset[tuple[str, str, str]]()
        words = f"it is not sold {_asked(table, asked)}; it is {_offers(table, table.sold[place]) or 'not sold at all'}"
    return Miss(
        (level, 0, 0.0, name),
        f"{name} in {template.name}: would hold the pod, but {words}",
        NearestMiss(name, template.pool.metadata.name),
        sold_out=sold_out,
    )


def above_ceiling(template: NodeClaimTemplate, places: Iterable[int]) -> str:
    """Of types [indexes in the catalogue] the offering that exceeds the pool's price ceilings by the least share.

    Empty if none exceeds them.
    """
    rules, found = template.rules, []
    for item in (template.table.types[place] for place in places):
        for price in {offering.price for offering in item.offerings}:
            vcpus = max(item.capacity.get(CPU, 0) / 1000, 0.001)
            for each, most, unit, name in (
                (price, rules.max_node_price, "per hour", "max-node-price"),
                (price / vcpus, rules.max_vcpu_price, "per vCPU and hour", "max-vcpu-price"),
            ):
                if most is not None and each > most:
                    text = f"{item.name} costs ${each:.4f} {unit}, ${each - most:.4f} above {name}"
                    found.append((each / most if most else each, text))
    return min(found)[1] if found else ""


def _offers(table: TypeTable, cells: Bools) -> str:
    """`spot in a, b; on-demand in a` for the zones and capacity types [zones, capacity types] marked."""
    parts = []
    for column, kind in enumerate(table.capacity_types):
        zones = [zone for zone, has in zip(table.zones, cells[:, column], strict=True) if has]
        if zones:
            parts.append(f"{kind} in {', '.join(zones)}")
    return "; ".join(parts)


def _asked(table: TypeTable, asked: Bools) -> str:
    zones = [zone for zone, has in zip(table.zones, asked.any(axis=1), strict=True) if has]
    kinds = [kind for kind, has in zip(table.capacity_types, asked.any(axis=0), strict=True) if has]
    if not zones or not kinds:
        return "in any zone and capacity type asked for"
    return f"as {' or '.join(kinds)} in {' or '.join(zones)}"


def limit_miss(refusal: Refusal, rows: Ints) -> Miss | None:
    """Of `rows` that hold the pod the type that is over the limits by the least share; None if none holds it.

    Where nothing is left each type is over by all that it has: the smallest is nearest.
    """
    template, attempt = refusal.template, refusal.attempt
    rows = rows[(template.net[rows] >= attempt.requests).all(axis=1)]
    if not len(rows):
        return None
    capacity = template.table.capacity[template.table.row_type[rows]]
    over = np.maximum(capacity - np.maximum(refusal.left, 0), 0)
    relative = (over / np.maximum(capacity, 1)).sum(axis=1)
    absolute = (over / np.maximum(capacity.max(axis=0), 1)).sum(axis=1)
    best = int(np.lexsort((rows, absolute, relative))[0])
    column = int(np.argmax(over[best] / np.maximum(capacity[best], 1)))
    resource = template.table.axis.names[column]
    name = template.table.names[template.table.row_type[rows[best]]]
    left = amount(resource, max(int(refusal.left[column]), 0))
    text = (
        f"{name} in {template.name}: {resource} limit short by {amount(resource, int(over[best][column]))}: "
        f"{amount(resource, int(capacity[best][column]))} needed, {left} left"
    )
    # What is over a limit already has to come back as well before anything fits.
    missing = capacity[best] - refusal.left
    return Miss(
        (CLOSE, 0, float(relative[best]), name),
        text,
        NearestMiss(name, template.pool.metadata.name, resource, int(over[best][column])),
        {
            template.table.axis.names[place]: int(missing[place])
            for place in template.limits.columns.tolist()
            if over[best][place] > 0
        },
        of_limit=True,
    )


def nearest_node(item: PodClass, nodes: ExistingNodes) -> Miss | None:
    """Of the nodes whose labels and taints suit a class, the one that lacks least; None when no node suits."""
    suited = np.flatnonzero(nodes.fits(item, soft=True)) if nodes.all else np.zeros(0, np.int64)
    if not len(suited):
        return None
    requests = nodes.axis.vector(item.requests)
    short = np.where(requests > 0, requests - nodes.free[suited], 0)
    lacking = short > 0
    relative = np.where(lacking, short / np.maximum(requests, 1), 0.0)
    best = int(np.lexsort((suited, relative.sum(axis=1), lacking.sum(axis=1)))[0])
    node = nodes.all[int(suited[best])]
    head = f"of {len(nodes.all)} nodes {len(suited)} suit its constraints, none has room: {node.name}"
    kind, pool = node.labels.get(labels.INSTANCE_TYPE, ""), node.labels.get(labels.NODE_POOL, "")
    if not lacking[best].any():
        text = f"{head} has the resources, but not {_beside_resources(item)}"
        return Miss((ONE_RULE, 0, 0.0, node.name), text, NearestMiss(kind, pool))
    column = int(np.argmax(relative[best]))
    resource, missing = nodes.axis.names[column], int(short[best][column])
    free = max(int(requests[column]) - missing, 0)
    text = (
        f"{head} is nearest, {resource} short by {amount(resource, missing)}: "
        f"{amount(resource, int(requests[column]))} needed, {amount(resource, free)} free"
    )
    # One that would take the pod with a little more room is nearer than a template whose labels keep the pod off.
    # Where much runs short, a template is named before a node: nodes are launched, not enlarged.
    level = (FAR, PLENTY) if float(relative[best][column]) > SHRINKS else (ONE_RULE, 0)
    return Miss(
        (*level, float(relative[best].sum()), node.name),
        text,
        NearestMiss(kind, pool, resource, missing),
        nodes.axis.amounts(np.maximum(short[best], 0)),
    )


def _beside_resources(item: PodClass) -> str:
    """Return in words what pods of a class need of a node beside resources."""
    parts = ["a free host port"] if item.ports else []
    parts += ["room for its volumes"] if item.volumes.attaches else []
    parts += ["a place that its topology constraints allow"] if item.topological else []
    return " or ".join(parts) or "with what is certain about it"


def _shortage(
    template: NodeClaimTemplate, attempt: PlacementAttempt, row: int, column: int, short: int, item: InstanceType
) -> str:
    """`memory short by 6846Mi: 246400Mi needed (pod 245760Mi + daemonsets 640Mi), 239554Mi allocatable, …`."""
    resource = template.table.axis.names[column]
    pod = int(attempt.requests[column])
    daemons = int(template.daemons.overhead[row][column])
    allocatable = int(template.table.allocatable[row][column])
    needed = f"{amount(resource, pod + daemons)} needed"
    if daemons:
        needed += f" (pod {amount(resource, pod)} + daemonsets {amount(resource, daemons)})"
    source = origin(item, resource, careful=not item.verified and not bool(template.table.row_estimate[row]))
    source = f", {source}" if source else ""
    text = (
        f"{resource} short by {amount(resource, short)}: {needed}, {amount(resource, allocatable)} allocatable{source}"
    )
    estimates = template.table.row_estimate & (template.table.row_type == template.table.row_type[row])
    estimates &= template.variant_of_rows == template.variant_of_rows[row]
    if not attempt.pod_class.missed and (template.net[estimates] >= attempt.requests).all(axis=1).any():
        text += "; it may fit, which the first node of this type will tell"
    return text


def origin(item: InstanceType, resource: str, *, careful: bool = False) -> str:
    """Return where the figure of a resource comes from, in words; nothing for figures that nobody needs to doubt."""
    source = item.sources.get(resource, "")
    ami = item.ami or "its AMI"
    if source.startswith(("learned", "reported")):
        return f"learned from nodes of {ami}"
    if source.startswith("imported"):
        return f"as low as nodes of other installs reported, never measured here on {ami}"
    if source.startswith("override"):
        return "set by a NodeOverlay"
    if resource != MEMORY or not source:
        return ""
    known = f"never measured on {ami}"
    if source.startswith("sibling"):
        return f"inferred from other types on {ami}, {known}"
    percent = _overhead_percent(item)
    predicted = f"predicted from {percent:g} % overhead" if percent is not None else "predicted by the formula"
    if careful:
        predicted += ", carefully rounded down"
    return f"{predicted}, {known}"


def _overhead_percent(item: InstanceType) -> float | None:
    """The share of EC2's memory figure that the prediction holds back, from the type's own memory label (MiB)."""
    label = next((r for r in item.requirements if r.key == f"{labels.AWS_PREFIX}instance-memory"), None)
    if label is None or label.complement or len(label.values) != 1:
        return None
    total = int(next(iter(label.values))) * MIB
    return round(100 * (1 - item.capacity.get(MEMORY, 0) / total), 1) if total else None


def amount(resource: str, value: int) -> str:
    """An amount for reading: memory and storage in whole Mi, rounded up, money in dollars, everything else exact."""
    if resource == MEMORY or resource.endswith("storage"):
        return f"{-(-value // MIB)}Mi"
    if resource == HOURLY:
        return f"{value / MICROS:g}"
    if resource == SPOT_VCPUS:
        return f"{value / 1000:g}"
    return format_amount(resource, value)


def unmet(template: NodeClaimTemplate, requirements: Requirements) -> str:
    """Name the labels that leave no type of a template's catalogue, with what its types have instead.

    The text is empty when no label does.
    """
    table = template.table
    keys = unmet_labels(template, requirements)
    number = {key: int(_suits(template, requirements, key).sum()) for key in keys}
    if any(not many for many in number.values()):
        return "; ".join(f"no type has {requirements[key]}{_instead(table, key)}" for key in keys)
    parts = [f"{number[key]} of {len(table.names)} types have {requirements[key]}" for key in keys]
    return f"{', '.join(parts)}, none has all" if parts else ""


def unmet_labels(template: NodeClaimTemplate, requirements: Requirements) -> list[str]:
    """The labels, those of offerings aside, that leave no type: each alone if there are such, else the rarest three."""
    left = {}
    for key in sorted(requirements):
        if key not in (labels.ZONE, labels.ZONE_ID, labels.CAPACITY_TYPE):
            suits = _suits(template, requirements, key)
            if not suits.all():
                left[key] = suits
    impossible = [key for key, suits in left.items() if not suits.any()]
    if impossible or not left or np.array(list(left.values())).all(axis=0).any():
        return impossible
    return sorted(left, key=lambda key: (int(left[key].sum()), key))[:3]


def _suits(template: NodeClaimTemplate, requirements: Requirements, key: str) -> Bools:
    return template.table.offered(Requirements((requirements[key],)), template.given).suits


def _instead(table: TypeTable, key: str) -> str:
    if key == labels.INSTANCE_TYPE:
        return f" among the {len(table.names)} that can be launched"
    values = sorted(table.values_of(key))
    return f" (they have {some(values)})" if values else ""


def some(names: Sequence[str], most: int = 3) -> str:
    """The first few names and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def dollars(table: TypeTable | None, name: str, price: float) -> str:
    """`$0.0960/h` of an instance type; `~$0.0960/h` where that price of it is guessed from hardware."""
    known = table is not None and name in table.index
    offered = table.types[table.index[name]].offerings if table is not None and known else ()
    guessed = any(offering.price_estimated and offering.price == price for offering in offered)
    return f"{'~' if guessed else ''}${price:.4f}/h"

"""Why a pod was left out and why a claim is where it is, with the nearest miss in numbers.

Nothing here runs for a pod that was placed in the first lane, so a plan that works out costs no explanations.
"""

from __future__ import annotations

import msgspec
import numpy as np

from shiplap.instances.types import InstanceType
from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import CPU, MEMORY, format_amount
from shiplap.kubernetes.taints import untolerated
from shiplap.scheduling.classes import PodClass
from shiplap.scheduling.lanes import Lane
from shiplap.scheduling.open_claims import Kind, OpenClaim, Refusal, Want
from shiplap.scheduling.pack import Packing
from shiplap.scheduling.plan import NearestMiss
from shiplap.scheduling.resources import Bools, Ints
from shiplap.scheduling.topology import Terms
from shiplap.scheduling.world import World

_MEBI = 2**20
_MILLION_CORES_M = 10**9


class _Miss(msgspec.Struct, frozen=True):
    """How far one lane is from holding a pod; `rank` sorts the nearest first."""

    rank: tuple[int, float, str]
    text: str
    nearest: NearestMiss


class Explainer:
    """Words for one packing; texts are remembered per class and lane."""

    def __init__(self, world: World, packing: Packing) -> None:
        self._world = world
        self._packing = packing
        self._words: dict[tuple[int, int, Kind], str] = {}

    def reasons(self, claim: OpenClaim) -> list[str]:
        """Why the lanes before the claim's own were not used for its first pod."""
        result = []
        for refusal in claim.skipped:
            key = (refusal.want.constraint, refusal.lane.index, refusal.kind)
            if refusal.kind in (Kind.TYPES, Kind.LIMITS, Kind.NODES, Kind.MIN_VALUES):
                key = (-1 - refusal.want.item.index, refusal.lane.index, refusal.kind)
            if key not in self._words:
                self._words[key] = f"{refusal.lane.name}: {self._reason(refusal)}"
            result.append(self._words[key])
        return result

    def truncated(self, claim: OpenClaim, most: int) -> str:
        """Why a claim cannot be written within the longest list of types."""
        pool = claim.group.lane.pool.metadata.name
        return (
            f"pod didn't schedule because NodePool couldn't meet minValues requirements: "
            f'no {most} instance types of nodepool "{pool}" hold the required distinct values'
        )

    def unschedulable(self, item: PodClass) -> tuple[str, NearestMiss | None]:
        """The message for a class of which pods were left out, and what came closest."""
        if item.problem:
            return item.problem, None
        if not self._world.lanes:
            return "no dynamic nodepools found" + self._no_room(item), None
        openings = self._packing.openings
        want = self._packing.wants.of(item)[-1]
        misses = []
        texts = []
        for lane in self._world.lanes:
            entry = openings.entry(lane, want)
            if not isinstance(entry, Kind) and item.topological:
                texts.append(f"{lane.name}: {unsatisfied(item, self._world.ground.terms)}")
                continue
            kind = entry if isinstance(entry, Kind) else Kind.LIMITS
            refusal = Refusal(lane, kind, want, openings.budgets[lane.pool.metadata.name].left)
            miss = self._nearest(refusal) if kind in (Kind.TYPES, Kind.LIMITS) else None
            if miss is not None:
                misses.append(miss)
            texts.append(f"{lane.name}: {self._vocabulary(refusal)}")
        if not misses:
            return "; ".join(texts), None
        nearest = min(misses, key=lambda miss: miss.rank)
        return f"{nearest.text} ({'; '.join(texts)})", nearest.nearest

    def _no_room(self, item: PodClass) -> str:
        if not self._world.nodes.rooms:
            return ""
        fits = int(self._world.nodes.fits(item).sum())
        return f"; of {len(self._world.nodes.rooms)} nodes {fits} suit its constraints, none has room"

    def _reason(self, refusal: Refusal) -> str:
        miss = self._nearest(refusal) if refusal.kind is Kind.TYPES else None
        vocabulary = self._vocabulary(refusal)
        return f"{vocabulary}: {miss.text}" if miss is not None else vocabulary

    def _vocabulary(self, refusal: Refusal) -> str:
        """The reason in the words Karpenter uses for it."""
        lane, want = refusal.lane, refusal.want
        pool = lane.pool.metadata.name
        match refusal.kind:
            case Kind.BLOCKED:
                words = lane.blocked
            case Kind.TAINT:
                words = f"did not tolerate taint {_taint(refusal)}"
            case Kind.REQUIREMENTS:
                words = f"incompatible requirements, {lane.template.conflict(want.term, lane.allow_undefined)}"
            case Kind.NODES:
                words = f'node limits have been exhausted for nodepool "{pool}"'
            case Kind.LIMITS:
                words = f'all available instance types exceed limits for nodepool "{pool}"{_left(refusal)}'
            case Kind.MIN_VALUES:
                words = f"pod didn't schedule because NodePool couldn't meet minValues requirements{_minimums(refusal)}"
            case Kind.TYPES:
                words = _no_type(refusal, self._packing.openings.allowed_rows(lane, want))
        return words

    def _nearest(self, refusal: Refusal) -> _Miss | None:
        """The instance type that came closest, when something other than its labels is in the way."""
        lane, want = refusal.lane, refusal.want
        offered = lane.table.offered(lane.template.and_(want.term.values()), lane.given)
        rows = np.flatnonzero(offered.suits[lane.table.row_type] & self._packing.openings.allowed_rows(lane, want))
        if not len(rows):
            return None
        buyable = np.isfinite(offered.price[lane.table.row_type[rows]])
        if refusal.kind is Kind.LIMITS:
            return _limit_miss(refusal, rows[buyable]) if buyable.any() else None
        short = want.requests - lane.net[rows]
        if buyable.any():
            rows, short = rows[buyable], short[buyable]
            return _resource_miss(refusal, rows, short)
        fits = (short <= 0).all(axis=1)
        if not fits.any():
            return _resource_miss(refusal, rows, short)
        row = int(rows[fits][0])
        name = lane.table.names[lane.table.row_type[row]]
        text = f"{name} in {lane.name}: would hold the pod, but none of its offerings is available now"
        return _Miss((0, 0.0, name), text, NearestMiss(name, lane.pool.metadata.name))


def unsatisfied(item: PodClass, terms: Terms) -> str:
    """Which topology constraints leave no domain for a class."""
    demands = item.constraints
    avoided = sorted(item.selected & terms.anti - set(demands.anti))
    parts = [f"topology spread over {spread.key} (maxSkew {spread.max_skew})" for spread in demands.spreads]
    parts += [f"pod affinity over {terms.all[term].key}" for term in demands.affinity]
    parts += [f"pod anti-affinity over {terms.all[term].key}" for term in demands.anti]
    parts += [f"anti-affinity of other pods over {terms.all[term].key}" for term in avoided]
    named = ", ".join(parts) or "being counted by other pods' constraints"
    return f"unsatisfiable topology constraint: no domain is left by {named}"


def _resource_miss(refusal: Refusal, rows: Ints, short: Ints) -> _Miss:
    """The row with the fewest short resources, then the smallest relative shortage, then the first by name."""
    lane, want = refusal.lane, refusal.want
    lacking = short > 0
    relative = np.where(lacking, short / np.maximum(want.requests, 1), 0.0).sum(axis=1)
    best = int(np.lexsort((rows, relative, lacking.sum(axis=1)))[0])
    row = int(rows[best])
    place = int(lane.table.row_type[row])
    item = lane.table.types[place]
    worst = int(np.argmax(np.where(lacking[best], short[best] / np.maximum(want.requests, 1), -1.0)))
    parts = [
        _shortage(lane, want, row, column, int(short[best][column]), item)
        for column in np.flatnonzero(lacking[best]).tolist()
    ]
    resource = lane.table.axis.names[worst]
    return _Miss(
        (int(lacking[best].sum()), float(relative[best]), item.name),
        f"{item.name} in {lane.name}: {'; '.join(parts)}",
        NearestMiss(item.name, lane.pool.metadata.name, resource, int(short[best][worst])),
    )


def _shortage(lane: Lane, want: Want, row: int, column: int, short: int, item: InstanceType) -> str:
    """`memory short by 6846Mi: 246400Mi needed (pod 245760Mi + daemonsets 640Mi), 239554Mi allocatable, …`."""
    resource = lane.table.axis.names[column]
    pod = int(want.requests[column])
    daemons = int(lane.daemons.overhead[lane.table.row_type[row]][column])
    allocatable = int(lane.table.allocatable[row][column])
    needed = f"{amount(resource, pod + daemons)} needed"
    if daemons:
        needed += f" (pod {amount(resource, pod)} + daemonsets {amount(resource, daemons)})"
    source = origin(item, resource, careful=not item.verified and not bool(lane.table.row_estimate[row]))
    source = f", {source}" if source else ""
    text = (
        f"{resource} short by {amount(resource, short)}: {needed}, {amount(resource, allocatable)} allocatable{source}"
    )
    estimates = lane.table.row_estimate & (lane.table.row_type == lane.table.row_type[row])
    if not want.item.missed and (lane.net[estimates] >= want.requests).all(axis=1).any():
        text += "; it may fit, which the first node of this type will tell"
    return text


def origin(item: InstanceType, resource: str, *, careful: bool = False) -> str:
    """Where the figure of a resource comes from, in words; nothing for figures that nobody needs to doubt."""
    source = item.sources.get(resource, "")
    ami = item.ami or "its AMI"
    if source.startswith("learned"):
        return f"learned from nodes of {ami}"
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
    total = int(next(iter(label.values))) * _MEBI
    return round(100 * (1 - item.capacity.get(MEMORY, 0) / total), 1) if total else None


def amount(resource: str, value: int) -> str:
    """An amount for reading: memory and storage in whole Mi, rounded up, everything else exact."""
    if resource == MEMORY or resource.endswith("storage"):
        return f"{-(-value // _MEBI)}Mi"
    return format_amount(resource, value)


def _limit_miss(refusal: Refusal, rows: Ints) -> _Miss | None:
    """The smallest type that would hold the pod, measured against what the limits leave."""
    lane, want = refusal.lane, refusal.want
    rows = rows[(lane.net[rows] >= want.requests).all(axis=1)]
    if not len(rows):
        return None
    capacity = lane.table.capacity[lane.table.row_type[rows]]
    over = np.maximum(capacity - np.maximum(refusal.left, 0), 0)
    relative = (over / np.maximum(capacity, 1)).sum(axis=1)
    best = int(np.lexsort((rows, relative))[0])
    column = int(np.argmax(over[best] / np.maximum(capacity[best], 1)))
    resource = lane.table.axis.names[column]
    name = lane.table.names[lane.table.row_type[rows[best]]]
    left = amount(resource, max(int(refusal.left[column]), 0))
    text = (
        f"{name} in {lane.name}: {resource} limit short by {amount(resource, int(over[best][column]))}: "
        f"{amount(resource, int(capacity[best][column]))} needed, {left} left"
    )
    return _Miss(
        (0, float(relative[best]), name),
        text,
        NearestMiss(name, lane.pool.metadata.name, resource, int(over[best][column])),
    )


def _left(refusal: Refusal) -> str:
    budget = refusal.lane.budget
    left = np.maximum(refusal.left, 0).tolist()
    parts = [
        f"{resource} {amount(resource, left[column])} of {amount(resource, budget.limits[resource])} left"
        for column, resource in zip(budget.columns.tolist(), budget.resources(), strict=True)
    ]
    return f" ({', '.join(parts)})" if parts else ""


def _minimums(refusal: Refusal) -> str:
    lane, want = refusal.lane, refusal.want
    joined = lane.template.and_(want.term.values())
    parts = [f"{key} needs {entry.min_values}" for key, entry in sorted(joined.items()) if entry.min_values]
    return f" ({', '.join(parts)})" if parts else ""


def _no_type(refusal: Refusal, allowed: Bools) -> str:
    """Which of labels, resources and offerings leave no instance type, most specific wording first."""
    lane, want = refusal.lane, refusal.want
    offered = lane.table.offered(lane.template.and_(want.term.values()), lane.given)
    types = lane.table.row_type
    suits = offered.suits[types]
    buyable = np.isfinite(offered.price)[types]
    holds = (lane.net >= want.requests).all(axis=1) & allowed
    verdicts = (
        (suits, "no instance type met all requirements"),
        (holds, "no instance type has enough resources" + _cpu_hint(want)),
        (buyable, "no instance type has a required offering available"),
        (suits & holds, "no instance type which met the scheduling requirements had enough resources"),
        (suits & buyable, "no instance type which met the scheduling requirements had a required offering"),
        (holds & buyable, "no instance type which had enough resources had a required offering"),
    )
    everything = "no instance type met the scheduling requirements or had enough resources or had a required offering"
    return next((words for left, words in verdicts if not left.any()), everything)


def _cpu_hint(want: Want) -> str:
    return (
        ' (cpu request >= 1 million cores; was "m" meant?)'
        if want.item.requests.get(CPU, 0) >= _MILLION_CORES_M
        else ""
    )


def _taint(refusal: Refusal) -> str:
    taints = refusal.lane.pool.spec.template.spec.taints
    taint = untolerated(taints, refusal.want.item.tolerations, ignore_preferences=refusal.want.soft)
    if taint is None:
        return ""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"

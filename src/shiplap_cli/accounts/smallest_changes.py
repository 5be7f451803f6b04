"""The smallest change that would give a pod a place, or those it starts with, found by trying: each has been planned.

For each template the obstacle it names is removed from a copy of the snapshot and the decision made again, until the
pod has a place or the template names nothing that can be changed. What worked is then weakened: parts without which
the pod has a place as well are left out, and amounts are changed by no more than it takes, in the unit a person would
write. What blocks a NodePool that fits is named unplanned: nothing is known of its types until then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import IntEnum

import msgspec
import numpy as np

from shiplap.instances.catalog.memory_probes import probes, stated_memory
from shiplap.instances.catalog.type_catalog import InstanceType, huge_pages
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import (
    Affinity,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
    Toleration,
)
from shiplap.kubernetes.quantity import CPU, MEMORY, format_amount, parse_amount, parse_resources
from shiplap.kubernetes.related_objects import has_claims
from shiplap.kubernetes.requirements import Requirements
from shiplap.kubernetes.taints import untolerated
from shiplap.manifests.custom_resources import (
    NodeOverlay,
    NodeOverlaySpec,
    NodePool,
    NodePoolTemplate,
    Quantity,
    RequirementSpec,
)
from shiplap.manifests.shiplap_annotations import MAX_HOURLY_PRICE, MICROS, PROBE_UNMEASURED_TYPES
from shiplap.scheduling.explain.nearest import SHRINKS, Miss, amount, dollars, nearest_node, unmet_labels
from shiplap.scheduling.explain.refusal_words import conflicting, labels_to_add
from shiplap.scheduling.explain.unschedulable import Explainer, TemplateVerdict
from shiplap.scheduling.model.pod_classes import PodClass, contradicted, node_terms
from shiplap.scheduling.model.pod_volumes import PodVolumes
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing.compiled_snapshot import CompiledSnapshot
from shiplap.scheduling.packing.pack import Packing
from shiplap.scheduling.planner import plan, solve, write
from shiplap.scheduling.supply.limits import HOURLY, NODES
from shiplap.scheduling.supply.open_claims import RefusalKind
from shiplap.scheduling.supply.templates import NodeClaimTemplate
from shiplap_cli.output import counted
from shiplap_cli.policy_views import Together

_MOST_CHANGES = 6
"""Obstacles removed on the way to one template; a template farther off is no suggestion."""

_MOST_TEMPLATES = 6
"""Templates tried, nearest first: each costs a few decisions."""

_MOST_TRIES = 60
"""Decisions spent on weakening one proposal; those that work by then are as weak as was found."""

_GIBI, _MEBI = 2**30, 2**20

_ONE_RULE = 0.5
"""The size of a change that lifts one rule; a changed amount counts by its share."""

_ONE_WISH = 0.6
"""The size of a change by which a pod gives up what it asks of nodes: people mean that, so other rules go first."""

_WAITING = 0.1
"""The size of a change that asks nothing of pods and NodePools."""

_REQUESTS = "requests "
"""The begin of what a change of requests changes."""

_NEEDED = frozenset({labels.ARCH, labels.OS})
"""Labels that a pod never gives up: its image would not start."""

replace = msgspec.structs.replace


class ChangeProposal(msgspec.Struct, frozen=True):
    """Changes that together gave the pod a place, and where that was. `size` grows with what is asked for."""

    changes: tuple[str, ...]
    place: str
    size: float


class _ProposalOrder(IntEnum):
    """The order of proposals by what they disturb; those that are alike are sorted by number and size of changes."""

    POD_ON_NODE = 0
    NO_DRIFT = 1
    DRIFT = 2


class _Found(msgspec.Struct, frozen=True):
    """A proposal and its place in the order."""

    order: _ProposalOrder
    proposal: ChangeProposal


class _SubjectPod(msgspec.Struct, frozen=True):
    """The pod, `namespace/name`, what it requests and what NodePools, by name, limit before anything changed.

    `left_out` are the pods without a place by then. Pods that have places together are served if `together` is; `alike`
    are those of them that change with the pod.
    """

    key: str
    requests: Mapping[str, int]
    limits: Mapping[str, Mapping[str, Quantity]]
    left_out: frozenset[str]
    alike: frozenset[str]
    together: Together | None = None

    @property
    def members(self) -> frozenset[str]:
        """The pods that start together with it, itself among them; none where it starts alone."""
        return self.together.members if self.together is not None else frozenset()


class _ChangePart(msgspec.Struct, frozen=True):
    """A part of a change that could be weaker: an amount that went from `now` to `to`, or a rule lifted (0 to 1).

    `unit` is what the amount is written in.
    """

    now: int = 0
    to: int = 1
    unit: int = 1


class _Change(msgspec.Struct, frozen=True):
    """One thing changed. Of several steps that change the same (`of`) the last one counts.

    `parts` are what it consists of, and `make` makes it again of some of them, on another snapshot; None if nothing is
    left of it then.
    """

    snapshot: Snapshot
    of: str
    text: str
    size: float
    parts: Mapping[str, _ChangePart]
    make: Callable[[Snapshot, Mapping[str, _ChangePart]], _Change | None]


_WHOLE: Mapping[str, _ChangePart] = {"": _ChangePart()}


def _indivisible(
    of: str, text: str, size: float, change: Callable[[Snapshot], Snapshot], snapshot: Snapshot
) -> _Change:
    """A step that has no parts."""
    return _Change(
        change(snapshot), of, text, size, _WHOLE, lambda other, _: _indivisible(of, text, size, change, other)
    )


class _Attempt(msgspec.Struct, frozen=True, eq=False):
    """One decision: what was decided on, the pod's class in it, whether the pod was left out, and all that were.

    `plan` is that of pods that have places together, which is more than what their packing says.
    """

    snapshot: Snapshot
    compiled: CompiledSnapshot
    packing: Packing
    pod_class: PodClass
    left_out: bool
    others_out: frozenset[str]
    plan: Plan | None = None

    @classmethod
    def of(
        cls, snapshot: Snapshot, compiled: CompiledSnapshot, packing: Packing, key: str, together: Together | None
    ) -> _Attempt | None:
        """None when the pod is not planned, or nothing could hold it as it is."""
        pod_class = next(
            (pod_class for pod_class in compiled.classes if any(pod.key == key for pod in pod_class.members)), None
        )
        if pod_class is None or pod_class.problem:
            return None
        if together is not None:
            made = plan(snapshot)
            out = frozenset(entry.pod.key for entry in made.unschedulable)
            return cls(snapshot, compiled, packing, pod_class, not together.is_served(made), out, made)
        out = _unplaced(packing)
        return cls(snapshot, compiled, packing, pod_class, key in out, out)

    @property
    def written(self) -> Plan:
        """The plan of the decision."""
        return self.plan or write(self.snapshot, self.compiled, self.packing)


def _unplaced(packing: Packing) -> frozenset[str]:
    return frozenset(pod.key for pods in packing.unplaced.values() for pod in pods)


def change_proposals(
    snapshot: Snapshot,
    compiled: CompiledSnapshot,
    packing: Packing,
    key: str,
    together: Together | None = None,
    most: int = 3,
) -> tuple[ChangeProposal, ...]:
    """The changes that would give the pod `namespace/name` a place, least disturbing first; empty if no attempt did.

    Nothing that costs another pod its place is proposed. `compiled` and `packing` are what `solve(snapshot)` gave. Of
    pods that have places `together` or not at all, the changes are those that give places to as many as are needed.
    """
    if together is not None:
        key = min(together.members & _unplaced(packing), default="")
    first = _Attempt.of(snapshot, compiled, packing, key, together)
    if first is not None:
        starts = [_Start(snapshot, first, [])] if first.left_out else []
    else:
        starts = list(_starts_with_volumes(snapshot, key)) if together is None else []
    limits = {pool.metadata.name: _limits_of(pool) for pool in snapshot.manifests.node_pools}
    found: list[_Found | None] = []
    for start in starts:
        pod_class = start.attempt.pod_class
        alike = {pod.key for pod in pod_class.members} & together.members if together is not None else {key}
        left_out = first.others_out if first is not None else _unplaced(packing) | {key}
        subject = _SubjectPod(key, pod_class.requests, limits, left_out, frozenset(alike), together)
        found += _proposals_from(start, subject)
    distinct = {item.proposal.changes: item for item in found if item is not None}
    ordered = sorted(
        distinct.values(),
        key=lambda item: (item.order, len(item.proposal.changes), item.proposal.size, item.proposal.changes),
    )
    return tuple(item.proposal for item in ordered[:most])


class _Start(msgspec.Struct, frozen=True, eq=False):
    """The snapshot as it is, and the decision that a search starts from, with the steps that led to it."""

    snapshot: Snapshot
    attempt: _Attempt
    steps: list[_Change]


def _starts_with_volumes(snapshot: Snapshot, key: str) -> Iterator[_Start]:
    """Yield the pod without the node selection that its volumes contradict; nothing if something else is wrong."""
    pod = next((pod for pod in snapshot.view.pods if pod.key == key), None)
    if pod is None or not has_claims(pod):
        return
    try:
        own, needs = node_terms(pod.spec, strict=True), PodVolumes(snapshot.view).needs(pod)
    except ValueError:
        return  # the pod says what cannot be read, or what contradicts itself
    unwanted = {contradicted(term, other): term for term in own for other in needs.alternatives}
    for labels_of_pod, term in sorted(unwanted.items(), key=lambda item: (len(item[0]), item[0]))[:_MOST_TEMPLATES]:
        step = _without_labels(snapshot, {key}, term, labels_of_pod)
        attempt = _Attempt.of(step.snapshot, *solve(step.snapshot), key, None) if step is not None else None
        if step is not None and attempt is not None:
            yield _Start(snapshot, attempt, [step])


def _proposals_from(start: _Start, subject: _SubjectPod) -> list[_Found | None]:
    """Search a place from one decision on, for a pod that is still left out, over the nearest templates and a node."""
    attempt = start.attempt
    if not attempt.left_out:
        return [_minimized(start.snapshot, attempt, start.steps, subject)]
    verdicts = [v for v in Explainer(attempt.compiled, attempt.packing).verdicts(attempt.pod_class) if v.kind]
    verdicts.sort(key=lambda verdict: verdict.miss.rank if verdict.miss is not None else (9, 0, 0.0, ""))
    nearest = verdicts[:_MOST_TEMPLATES]
    found = [way for verdict in nearest for way in _ways(start, subject, verdict.template.name)]
    snapshot, node = attempt.snapshot, nearest_node(attempt.pod_class, attempt.packing.nodes)
    others = [_request_less(snapshot, subject, attempt.pod_class, node)] if node is not None and node.short else []
    others += _measurements(snapshot, attempt.pod_class, nearest)
    blocked = [verdict for verdict in nearest if verdict.kind == RefusalKind.BLOCKED and verdict.miss is not None]
    tolerating = (_tolerate(snapshot, subject.alike, verdict.template, attempt.pod_class) for verdict in blocked)
    others += [step for step in tolerating if step.size]
    tried = (_minimized(start.snapshot, _attempt(s.snapshot, subject), [*start.steps, s], subject) for s in others)
    reasons = {verdict.text: verdict for verdict in reversed(blocked)}
    return [*found, *tried, *(_mended(start, verdict) for verdict in reasons.values())]


def _mended(start: _Start, verdict: TemplateVerdict) -> _Found:
    """The proposal to mend what blocks a NodePool that fits. It is not planned: its types are known only then."""
    name = verdict.template.pool.metadata.name
    changes = (*(step.text for step in start.steps), f"mend what blocks pool {name} ({verdict.text})")
    size = sum(step.size for step in start.steps) + _WAITING
    place = f"a node of pool {name}, if one of its types holds the pod"
    return _Found(_ProposalOrder.NO_DRIFT, ChangeProposal(changes, place, size))


def _attempt(snapshot: Snapshot, subject: _SubjectPod) -> _Attempt | None:
    return _Attempt.of(snapshot, *solve(snapshot), subject.key, subject.together)


def _ways(start: _Start, subject: _SubjectPod, name: str) -> Iterator[_Found | None]:
    """Search a place on a template: the pod gives up what it asks of nodes or, where that differs, the pool allows it.

    Each way has further steps of its own.
    """
    narrow, differs = _search(start, subject, name, widening=False)
    yield narrow
    if differs:
        yield _search(start, subject, name, widening=True)[0]


def _search(start: _Start, subject: _SubjectPod, name: str, *, widening: bool) -> tuple[_Found | None, bool]:
    """Remove what one template names, step by step. Also returns whether its NodePool could have allowed a step."""
    outcome: _Attempt | None = start.attempt
    steps, differs = list(start.steps), False
    while outcome is not None and outcome.left_out and len(steps) < _MOST_CHANGES:
        verdicts = Explainer(outcome.compiled, outcome.packing).verdicts(outcome.pod_class)
        verdict = next((verdict for verdict in verdicts if verdict.template.name == name), None)
        if verdict is None:
            return None, differs
        wider = _change_for(outcome.snapshot, subject, outcome.pod_class, verdict, widening=True)
        step = wider
        if not widening:
            step = _change_for(outcome.snapshot, subject, outcome.pod_class, verdict, widening=False)
        differs |= wider is not None and (step is None or wider.of != step.of)
        if step is None:
            return None, differs
        steps.append(step)
        outcome = _attempt(step.snapshot, subject)
    return _minimized(start.snapshot, outcome, steps, subject), differs


def _minimized(
    snapshot: Snapshot, outcome: _Attempt | None, steps: list[_Change], subject: _SubjectPod
) -> _Found | None:
    """The proposal made as weak as it may be, if the plan made with it places the pod and leaves out nobody else."""
    if not _is_acceptable(outcome, subject):
        return None
    known = _Minimizer(snapshot, subject, {step.of: step for step in steps})
    outcome, chosen = known.weakest()
    if outcome is None:
        return None
    place = _placement_text(outcome.written, outcome.compiled, subject)
    if not place:
        return None
    place += _others_placed(subject, outcome)
    proposal = ChangeProposal(tuple(step.text for step in chosen), place, sum(step.size for step in chosen))
    return _Found(_order_of(snapshot, outcome, chosen, subject), proposal)


def _order_of(before: Snapshot, outcome: _Attempt, chosen: Sequence[_Change], subject: _SubjectPod) -> _ProposalOrder:
    """Giving up more than half of a request counts for as much as nodes that drift."""
    after = outcome.snapshot
    pools = zip(before.manifests.node_pools, after.manifests.node_pools, strict=True)
    drifts = any(_drifting(old) != _drifting(new) for old, new in pools)
    if drifts or any(step.of.startswith(_REQUESTS) and step.size > SHRINKS for step in chosen):
        return _ProposalOrder.DRIFT
    of_pod = (before.manifests, before.catalogs, before.settings) == (after.manifests, after.catalogs, after.settings)
    wanted = subject.alike if subject.together is not None else {subject.key}
    on_node = any(entry.key in wanted for node in outcome.written.existing_nodes for entry in node.pods)
    return _ProposalOrder.POD_ON_NODE if of_pod and on_node else _ProposalOrder.NO_DRIFT


def _drifting(pool: NodePool) -> NodePoolTemplate:
    """The part of a NodePool whose changes make nodes drift; proposals only widen its requirements."""
    template = pool.spec.template
    return replace(template, spec=replace(template.spec, requirements=()))


def _others_placed(subject: _SubjectPod, outcome: _Attempt) -> str:
    """Return in words how many other pods get a place, too: a raised limit counts what they take of it."""
    others = len(subject.left_out - outcome.others_out - subject.members - {subject.key})
    return f", counting {counted(others, 'other pod')} that had no place" if others else ""


def _is_acceptable(outcome: _Attempt | None, subject: _SubjectPod) -> bool:
    return outcome is not None and not outcome.left_out and outcome.others_out <= subject.left_out


class _Minimizer:
    """Makes a change that works weaker, part by part; every try is a decision."""

    def __init__(self, snapshot: Snapshot, subject: _SubjectPod, steps: Mapping[str, _Change]) -> None:
        self._snapshot = snapshot
        self._subject = subject
        self._steps = steps
        self._parts = {(of, name): part for of, step in steps.items() for name, part in step.parts.items()}
        self._left = _MOST_TRIES

    def weakest(self) -> tuple[_Attempt | None, list[_Change]]:
        """The outcome and the steps that are left; no outcome if the steps do not work one by one."""
        if not self._works(self._parts):
            return None, []
        for key in reversed(list(self._parts)):
            without = {other: part for other, part in self._parts.items() if other != key}
            if without and self._works(without):
                self._parts = without
        for key, part in list(self._parts.items()):
            self._parts[key] = self._least(key, part)
        return self._outcome(self._parts)

    def _least(self, key: tuple[str, str], part: _ChangePart) -> _ChangePart:
        """An amount changed by as little as works: the nearest to what it is now, in whole units."""
        sign = 1 if part.to > part.now else -1
        if part.unit == 1 and abs(part.to - part.now) == 1:
            return part
        # Whole units away from zero where the amount grows, towards it where it shrinks.
        fails = part.now // part.unit if sign > 0 else -(-part.now // part.unit)
        works = -(-part.to // part.unit) if sign > 0 else part.to // part.unit

        def holds(units: int) -> bool:
            return self._works(self._parts | {key: msgspec.structs.replace(part, to=units * part.unit)})

        if not holds(works):
            return part
        next_one = works - sign
        while works - sign != fails and holds(next_one):
            works = next_one
            next_one = (works + fails) // 2 if abs(works - fails) > 1 else works
        low = fails if next_one == works else next_one
        while abs(works - low) > 1:
            middle = (works + low) // 2
            if holds(middle):
                works = middle
            else:
                low = middle
        return msgspec.structs.replace(part, to=works * part.unit)

    def _works(self, parts: Mapping[tuple[str, str], _ChangePart]) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        return _is_acceptable(self._outcome(parts)[0], self._subject)

    def _outcome(self, parts: Mapping[tuple[str, str], _ChangePart]) -> tuple[_Attempt | None, list[_Change]]:
        snapshot, changes = self._snapshot, []
        for of, step in self._steps.items():
            kept = {name: part for (owner, name), part in parts.items() if owner == of}
            again = step.make(snapshot, kept) if kept else None
            if again is not None:
                snapshot = again.snapshot
                changes.append(again)
        return _attempt(snapshot, self._subject), changes


def _placement_text(decided: Plan, compiled: CompiledSnapshot, subject: _SubjectPod) -> str:
    """Return in words where the pod is; of pods that have places together, where the first of them is."""
    tables = {template.pool.metadata.name: template.table for template in compiled.templates}
    wanted = subject.alike if subject.together is not None else {subject.key}
    with_it = f", with {subject.together.needed} that start together" if subject.together is not None else ""
    for claim in decided.node_claims:
        if any(entry.key in wanted for entry in claim.pods):
            launch = claim.launch
            what = f"{launch.instance_type} {launch.capacity_type} in {launch.zone}"
            price = dollars(tables.get(claim.node_pool), launch.instance_type, launch.price)
            return f"{what} of pool {claim.node_pool}, {price}{with_it}{_all_cost(decided, subject, price)}"
    for node in decided.existing_nodes:
        if any(entry.key in wanted for entry in node.pods):
            return f"node {node.name}{with_it}"
    return ""


def _all_cost(decided: Plan, subject: _SubjectPod, price: str) -> str:
    """Return in words what several new nodes of pods that start together cost; `price` is that of one."""
    theirs = [claim for claim in decided.node_claims if any(entry.key in subject.members for entry in claim.pods)]
    if len(theirs) < 2:
        return ""
    about = "~" if price.startswith("~") else ""
    return f" on {len(theirs)} nodes for {about}${sum(claim.launch.price for claim in theirs):.4f}/h"


def _change_for(
    snapshot: Snapshot, subject: _SubjectPod, pod_class: PodClass, verdict: TemplateVerdict, *, widening: bool
) -> _Change | None:
    """The change that removes what a template names; None when it is not for a pod or a NodePool to change."""
    template, want = verdict.template, verdict.attempt
    if want is None or not verdict.kind:
        return None
    match verdict.kind:
        case "topology":
            step = _relax_topology(snapshot, subject.alike)
        case RefusalKind.TAINT:
            step = _tolerate(snapshot, subject.alike, template, pod_class)
        case RefusalKind.REQUIREMENTS:
            conflicts, pool = conflicting(template, want), template.pool.metadata.name
            if added := labels_to_add(template, want, conflicts):
                step = _add_labels(snapshot, pool, added)
            elif widening:
                step = _allow(snapshot, pool, {key: want.term[key].values for key in conflicts})
            else:
                step = _without_labels(snapshot, subject.alike, want.term, conflicts)
        case RefusalKind.MIN_VALUES:
            step = _indivisible("minValues", "minValues as BestEffort", _ONE_RULE, _best_effort, snapshot)
        case RefusalKind.BLOCKED:
            step = None
        case _:
            step = _change_for_shortfall(snapshot, subject, pod_class, verdict, want.term, widening=widening)
    return step


def _change_for_shortfall(
    snapshot: Snapshot,
    subject: _SubjectPod,
    pod_class: PodClass,
    verdict: TemplateVerdict,
    term: Requirements,
    *,
    widening: bool,
) -> _Change | None:
    """The change that makes up for what the nearest type lacks."""
    template, miss = verdict.template, verdict.miss
    if miss is not None and miss.sold_out:
        return _restock(snapshot, template.pool.spec.template.spec.node_class_ref.name, miss)
    if miss is not None and miss.short:
        if miss.of_limit:
            return _raise_limit(snapshot, subject, template, miss)
        if widening:
            return _allow_cheapest(snapshot, template, pod_class, term)
        return _request_less(snapshot, subject, pod_class, miss)
    asked = unmet_labels(template, template.requirements.and_(term.values()))
    # A type that would do is not sold in the zone or as the capacity type that the pod asks for.
    asked = asked or [label for label in (labels.ZONE, labels.ZONE_ID, labels.CAPACITY_TYPE) if label in term]
    return _without_labels(snapshot, subject.alike, term, [label for label in asked if label in term])


def _add_labels(snapshot: Snapshot, name: str, added: Mapping[str, str]) -> _Change:
    """The NodePool whose nodes have these labels, too. Its present nodes drift by that."""

    def labelled(pool: NodePool) -> NodePool:
        template = pool.spec.template
        metadata = replace(template.metadata, labels={**template.metadata.labels, **added})
        return replace(pool, spec=replace(pool.spec, template=replace(template, metadata=metadata)))

    lines = ", ".join(f"{key}: {value}" for key, value in added.items())
    text = f"add {lines} to the template's labels of pool {name}, whose nodes drift by that"
    size = _ONE_RULE * len(added)
    return _indivisible(f"labels of {name}", text, size, lambda other: _with_pool(other, name, labelled), snapshot)


def _allow(snapshot: Snapshot, name: str, asked: Mapping[str, Collection[str]]) -> _Change | None:
    """The NodePool whose requirements allow these values of labels, too; None if its requirements forbid none.

    Its present nodes do not drift: they still meet what has become wider.
    """

    def wider(line: RequirementSpec) -> RequirementSpec:
        values = asked.get(_normalized(line.key), ())
        if line.operator == "In":
            return replace(line, values=(*line.values, *sorted(set(values).difference(line.values))))
        if line.operator == "NotIn":
            return replace(line, values=tuple(value for value in line.values if value not in values))
        return line

    def allowing(pool: NodePool) -> NodePool:
        spec = pool.spec.template.spec
        lines = tuple(line for line in map(wider, spec.requirements) if line.values or line.operator != "NotIn")
        template = replace(pool.spec.template, spec=replace(spec, requirements=lines))
        return replace(pool, spec=replace(pool.spec, template=template))

    after = _with_pool(snapshot, name, allowing)
    if after.manifests == snapshot.manifests:
        return None
    each = [(key, value) for key, values in sorted(asked.items()) for value in sorted(values)]
    by_key = (f"{' and '.join(sorted(asked[key]))} in requirement {key}" for key in sorted(asked))
    return _Change(
        after,
        f"requirements of {name}: {', '.join(sorted(asked))}",
        f"allow {', '.join(by_key)} of pool {name}",
        _ONE_RULE * len(each),
        {f"{key}={value}": _ChangePart() for key, value in each},
        lambda other, kept: _allow(other, name, _values_by_key(kept)),
    )


def _allow_cheapest(
    snapshot: Snapshot, template: NodeClaimTemplate, pod_class: PodClass, term: Requirements
) -> _Change | None:
    """The NodePool that allows the cheapest type which holds the pod; None if not its own requirements forbid that."""
    table, pool = template.table, template.pool
    holds = [
        all(kind.allocatable.get(n, 0) >= least for n, least in pod_class.requests.items()) for kind in table.types
    ]
    offered = table.offered(term, template.given)
    suits = {
        key: table.with_label(template.requirements[key], template.given)
        for key in sorted(template.requirements)
        if table.tells_types(key)
    }
    listed = {_normalized(line.key) for line in pool.spec.template.spec.requirements if line.operator in _LISTING}
    able = np.array(holds, np.bool_) & offered.suits & np.isfinite(offered.price)
    for key in suits.keys() - listed:
        able &= suits[key]
    cheapest = min(np.flatnonzero(able).tolist(), key=lambda one: (offered.price[one], table.names[one]), default=None)
    if cheapest is None:
        return None
    said = {key: table.label(cheapest, key) for key, mask in suits.items() if not mask[cheapest]}
    return _allow(snapshot, pool.metadata.name, {key: known.values for key, known in said.items() if known is not None})


_LISTING = ("In", "NotIn")
"""Operators of requirements that may be widened by a value."""


def _values_by_key(parts: Collection[str]) -> dict[str, list[str]]:
    """The values by label of parts `label=value`; a label holds no `=`."""
    values: dict[str, list[str]] = {}
    for part in parts:
        key, _, value = part.partition("=")
        values.setdefault(key, []).append(value)
    return values


def _tolerate(snapshot: Snapshot, keys: Collection[str], template: NodeClaimTemplate, pod_class: PodClass) -> _Change:
    taints = [
        taint
        for taint in template.pool.spec.template.spec.taints
        if untolerated((taint,), pod_class.tolerations, ignore_preferences=True) is not None
    ]
    added = tuple(Toleration(t.key, "Equal" if t.value else "Exists", t.value, t.effect) for t in taints)
    named = ", ".join(f"{t.key}{'=' if t.value else ''}{t.value}:{t.effect}" for t in taints)

    def tolerating(other: Snapshot) -> Snapshot:
        return _with_spec(other, keys, lambda spec: replace(spec, tolerations=(*spec.tolerations, *added)))

    return _indivisible("tolerations", f"tolerate {named}", _ONE_RULE * len(taints), tolerating, snapshot)


def _best_effort(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, settings=replace(snapshot.settings, min_values_policy="BestEffort"))


def _request_less(snapshot: Snapshot, subject: _SubjectPod, pod_class: PodClass, miss: Miss) -> _Change:
    """The pod with as much less as is short."""
    parts = {
        resource: _ChangePart(
            subject.requests.get(resource, 0), max(pod_class.requests.get(resource, 0) - short, 0), unit
        )
        for resource, short in miss.short.items()
        for unit in [_MEBI if _is_bytes(resource) else 1]
    }
    return _with_requests(snapshot, subject, parts)


def _with_requests(snapshot: Snapshot, subject: _SubjectPod, parts: Mapping[str, _ChangePart]) -> _Change:
    def shrunk(spec: PodSpec) -> PodSpec:
        overhead = parse_resources(spec.overhead)
        known = spec.resources or ResourceRequirements()
        # Requests of the pod as a whole replace those of its containers, whatever they add up to.
        new = {name: format_amount(name, max(part.to - overhead.get(name, 0), 0)) for name, part in parts.items()}
        return replace(spec, resources=replace(known, requests={**known.requests, **new}))

    texts = [
        f"request {_exactly(name, part.to)} {name} instead of {_as_written(name, part.now)}"
        if part.to
        else f"request no {name}"
        for name, part in sorted(parts.items())
    ]
    size = max((part.now - part.to) / max(part.now, 1) for part in parts.values())
    return _Change(
        _with_spec(snapshot, subject.alike, shrunk),
        _REQUESTS + ", ".join(sorted(parts)),
        ", ".join(texts),
        min(size, 1.0),
        parts,
        lambda other, kept: _with_requests(other, subject, kept),
    )


def _is_bytes(resource: str) -> bool:
    return resource == "memory" or resource.endswith("storage")


def _as_written(resource: str, value: int) -> str:
    """The present request; memory in whole Gi or Mi where it is a whole number of them."""
    return _exactly(resource, value) if _is_bytes(resource) and value % _MEBI == 0 else amount(resource, value)


def _exactly(resource: str, value: int) -> str:
    """An amount that may be written: memory in whole Gi if it is that, else in whole Mi, rounded down to fit."""
    if _is_bytes(resource):
        return f"{value // _GIBI}Gi" if value and value % _GIBI == 0 else f"{value // _MEBI}Mi"
    return format_amount(resource, value)


def _limits_of(pool: NodePool) -> Mapping[str, Quantity]:
    """The limits of a NodePool as they are written, that in dollars among them."""
    dollars_an_hour = pool.metadata.annotations.get(MAX_HOURLY_PRICE)
    return pool.spec.limits if dollars_an_hour is None else {**pool.spec.limits, HOURLY: dollars_an_hour}


def _limit(resource: str, written: Quantity) -> int:
    return int(Decimal(written) * MICROS) if resource == HOURLY else parse_amount(resource, written)


def _raise_limit(snapshot: Snapshot, subject: _SubjectPod, template: NodeClaimTemplate, miss: Miss) -> _Change | None:
    """The NodePool with limits that are high enough for the pods; None if they are not limits of its own."""
    pool = template.pool.metadata.name
    known = _limits_of(next(p for p in snapshot.manifests.node_pools if p.metadata.name == pool))
    if not known.keys() >= miss.short.keys():
        return None
    nodes = subject.together.needed if subject.together is not None else 1
    before = {resource: subject.limits[pool][resource] for resource in miss.short}
    parts = {}
    kind = template.table.types[template.table.index[miss.nearest.instance_type]]
    for resource, short in miss.short.items():
        to = _limit(resource, known[resource]) + short
        to += (nodes - 1) * (1 if resource == NODES else kind.capacity.get(resource, short))
        parts[resource] = _ChangePart(_limit(resource, before[resource]), to, _unit_of_limit(resource, to))
    return _with_limits(snapshot, pool, {resource: str(limit) for resource, limit in before.items()}, parts)


def _unit_of_limit(resource: str, value: int) -> int:
    """The unit of a limit of this size: whole cents, cores and Gi, unless it is less than a few."""
    if resource == HOURLY:
        return MICROS // 100
    if _is_bytes(resource):
        return _GIBI if value >= 4 * _GIBI else _MEBI
    return 1000 if resource == CPU and value >= 1000 else 1


def _with_limits(snapshot: Snapshot, pool: str, before: Mapping[str, str], parts: Mapping[str, _ChangePart]) -> _Change:
    raised = {resource: _exactly_above(resource, part.to) for resource, part in parts.items()}

    def changed(node_pool: NodePool) -> NodePool:
        limits = node_pool.spec.limits | {name: limit for name, limit in raised.items() if name != HOURLY}
        node_pool = replace(node_pool, spec=replace(node_pool.spec, limits=limits))
        return _annotated(node_pool, MAX_HOURLY_PRICE, raised[HOURLY]) if HOURLY in raised else node_pool

    text = ", ".join(
        f"raise {MAX_HOURLY_PRICE if resource == HOURLY else f'the {resource} limit'} of pool {pool} "
        f"from {before[resource]} to {raised[resource]}"
        for resource in sorted(parts)
    )
    size = sum((p.to - p.now) / max(p.now, p.to - p.now, 1) for p in parts.values())
    return _Change(
        _with_pool(snapshot, pool, changed),
        f"limits of {pool}: {', '.join(sorted(parts))}",
        text,
        size,
        parts,
        lambda other, kept: _with_limits(other, pool, before, kept),
    )


def _exactly_above(resource: str, value: int) -> str:
    """A limit as it may be written; dollars that are no whole cents, and memory no whole Mi, are rounded up."""
    if resource == HOURLY:
        return f"{-(-value * 100 // MICROS) / 100:.2f}"
    return _exactly(resource, -(-value // _MEBI) * _MEBI if _is_bytes(resource) else value)


def _measurements(snapshot: Snapshot, pod_class: PodClass, verdicts: Sequence[TemplateVerdict]) -> Iterator[_Change]:
    """Changes that admit an unmeasured type: a node that measures it, or an overlay that states its memory."""
    for verdict in verdicts:
        template, miss = verdict.template, verdict.miss
        if miss is None or set(miss.short) != {MEMORY} or miss.of_limit or pod_class.missed:
            continue
        index = template.table.index.get(miss.nearest.instance_type)
        kind = template.table.types[index] if index is not None else None
        if index is None or kind is None or kind.verified:
            continue
        if not probes(template.pool):
            yield _probe(snapshot, template.pool.metadata.name)
        requirements = template.requirements.and_(pod_class.terms[0].values())
        daemons = template.daemons_of_types((index,), requirements)[0, template.table.axis.names.index(MEMORY)]
        needed = (
            pod_class.requests.get(MEMORY, 0) + int(daemons) + kind.overhead.get(MEMORY, 0) + huge_pages(kind.capacity)
        )
        if needed <= stated_memory(kind):
            yield _state_memory(snapshot, kind.name, -(-needed // _MEBI) * _MEBI)


def _probe(snapshot: Snapshot, pool: str) -> _Change:
    def annotated(node_pool: NodePool) -> NodePool:
        return _annotated(node_pool, PROBE_UNMEASURED_TYPES, "on")

    text = f"annotate pool {pool} with {PROBE_UNMEASURED_TYPES}: on, so that one node finds out"
    return _indivisible("probe", text, _ONE_RULE, lambda other: _with_pool(other, pool, annotated), snapshot)


def _annotated(node_pool: NodePool, key: str, value: str) -> NodePool:
    marked = node_pool.metadata.annotations | {key: value}
    return replace(node_pool, metadata=replace(node_pool.metadata, annotations=marked))


def _state_memory(snapshot: Snapshot, kind: str, memory: int) -> _Change:
    only = RequirementSpec(labels.INSTANCE_TYPE, "In", (kind,))
    written = _exactly(MEMORY, memory)
    overlay = NodeOverlay(
        ObjectMeta(name=f"memory-of-{kind}".replace(".", "-")),
        NodeOverlaySpec(requirements=(only,), capacity={MEMORY: written}),
    )

    def changed(other: Snapshot) -> Snapshot:
        overlays = (*other.manifests.node_overlays, overlay)
        return replace(other, manifests=replace(other.manifests, node_overlays=overlays))

    text = f"a NodeOverlay that states {written} memory as the capacity of {kind}, if you have measured it"
    return _indivisible("overlay", text, 2 * _ONE_RULE, changed, snapshot)


def _restock(snapshot: Snapshot, node_class: str, miss: Miss) -> _Change:
    """The catalogue with one type's offerings available again."""
    names = {name for name, _, _ in miss.sold_out}

    def back(kind: InstanceType) -> InstanceType:
        offerings = tuple(
            replace(offer, available=True) if (kind.name, offer.zone, offer.capacity_type) in miss.sold_out else offer
            for offer in kind.offerings
        )
        return replace(kind, offerings=offerings) if kind.name in names else kind

    def restocked(other: Snapshot) -> Snapshot:
        catalogs = tuple(
            replace(known, instance_types=tuple(map(back, known.instance_types)))
            if known.node_class == node_class
            else known
            for known in other.catalogs
        )
        return replace(other, catalogs=catalogs)

    offers = ", ".join(f"{capacity_type} in {zone}" for _, zone, capacity_type in sorted(miss.sold_out))
    return _indivisible(
        "offerings", f"wait until {min(names)} is available again ({offers})", _WAITING, restocked, snapshot
    )


def _without_labels(
    snapshot: Snapshot, keys: Collection[str], term: Requirements, unwanted: Collection[str]
) -> _Change | None:
    """The pod without its node selection by these labels; None if another must, or if its image needs one."""
    if not unwanted or _NEEDED.intersection(unwanted):
        return None
    gone = frozenset(unwanted)

    def freed(spec: PodSpec) -> PodSpec:
        selector = {name: value for name, value in spec.node_selector.items() if _normalized(name) not in gone}
        affinity = spec.affinity
        if affinity is not None and affinity.node_affinity is not None and affinity.node_affinity.required is not None:
            terms = tuple(
                NodeSelectorTerm(
                    tuple(e for e in t.match_expressions if _normalized(e.key) not in gone), t.match_fields
                )
                for t in affinity.node_affinity.required.node_selector_terms
            )
            # A term without expressions would match no node.
            left = all(t.match_expressions or t.match_fields for t in terms)
            required = replace(affinity.node_affinity.required, node_selector_terms=terms) if left else None
            affinity = replace(affinity, node_affinity=replace(affinity.node_affinity, required=required))
        return replace(spec, node_selector=selector, affinity=affinity)

    after = _with_spec(snapshot, keys, freed)
    if after == snapshot:
        return None
    return _Change(
        after,
        f"labels {', '.join(sorted(gone))}",
        f"do not ask for {', '.join(str(term[label]) for label in sorted(gone))}",
        _ONE_WISH * len(gone),
        dict.fromkeys(sorted(gone), _ChangePart()),
        lambda other, kept: _without_labels(other, keys, term, kept),
    )


def _relax_topology(snapshot: Snapshot, keys: Collection[str]) -> _Change | None:
    """The pod with one more in every required spread; without spreads, without its required affinity."""
    pod = next(pod for pod in snapshot.view.pods if pod.key in keys)
    hard = {
        str(number): _ChangePart(rule.max_skew, rule.max_skew + 1)
        for number, rule in enumerate(pod.spec.topology_spread_constraints)
        if rule.when_unsatisfiable != "ScheduleAnyway"
    }
    if hard:
        return _with_skews(snapshot, keys, hard)
    affinity = pod.spec.affinity
    for field in ("pod_anti_affinity", "pod_affinity") if affinity is not None else ():
        part = getattr(affinity, field)
        if part is not None and part.required:
            return _prefer(snapshot, keys, field, sorted({term.topology_key for term in part.required}))
    return None


def _with_skews(snapshot: Snapshot, keys: Collection[str], parts: Mapping[str, _ChangePart]) -> _Change:
    """The pod with these skews, by the place of their constraints, which ask for no number of domains any more."""
    pod = next(pod for pod in snapshot.view.pods if pod.key in keys)
    spreads = pod.spec.topology_spread_constraints
    wider = tuple(
        replace(rule, max_skew=parts[str(number)].to, min_domains=None) if str(number) in parts else rule
        for number, rule in enumerate(spreads)
    )
    return _Change(
        _with_spec(snapshot, keys, lambda spec: replace(spec, topology_spread_constraints=wider)),
        "spread",
        "; ".join(f"maxSkew {part.to} over {spreads[int(number)].topology_key}" for number, part in parts.items()),
        0.25,
        parts,
        lambda other, kept: _with_skews(other, keys, kept),
    )


def _prefer(snapshot: Snapshot, keys: Collection[str], field: str, topology_keys: Sequence[str]) -> _Change:
    """The pod with its required terms of `field` lifted."""

    def freed(spec: PodSpec) -> PodSpec:
        affinity = spec.affinity or Affinity()
        part = getattr(affinity, field)
        return replace(spec, affinity=replace(affinity, **{field: replace(part, required=())}))

    named = "anti-affinity" if field == "pod_anti_affinity" else "affinity"
    text = f"prefer rather than require pod {named} over {', '.join(topology_keys)}"
    return _indivisible(field, text, _ONE_RULE, lambda other: _with_spec(other, keys, freed), snapshot)


def _with_pool(snapshot: Snapshot, name: str, change: Callable[[NodePool], NodePool]) -> Snapshot:
    pools = tuple(change(pool) if pool.metadata.name == name else pool for pool in snapshot.manifests.node_pools)
    return replace(snapshot, manifests=replace(snapshot.manifests, node_pools=pools))


def _with_spec(snapshot: Snapshot, keys: Collection[str], change: Callable[[PodSpec], PodSpec]) -> Snapshot:
    def changed(pod: Pod) -> Pod:
        return replace(pod, spec=change(pod.spec)) if pod.key in keys else pod

    return replace(snapshot, view=replace(snapshot.view, pods=tuple(map(changed, snapshot.view.pods))))


def _normalized(label: str) -> str:
    return labels.NORMALIZED.get(label, label)

"""The smallest change that would give a pod a place, found by trying: every proposal has been planned.

For each lane the obstacle it names is removed from a copy of the snapshot and the decision made again, until the pod
has a place or the lane names nothing that can be changed. What is removed is exactly what the nearest miss measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from shiplap.api.nodeclaim import PodReference
from shiplap.api.types import NodePool
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import NodeSelectorTerm, Pod, PodSpec, ResourceRequirements, Toleration
from shiplap.kubernetes.quantity import format_amount, parse_amount, parse_resources
from shiplap.kubernetes.requirements import Requirements
from shiplap.kubernetes.taints import untolerated
from shiplap.scheduling.classes import PodClass
from shiplap.scheduling.explain import Explainer, Verdict
from shiplap.scheduling.lanes import Lane
from shiplap.scheduling.nearest import Miss, amount, dollars, nearest_node, unmet_labels
from shiplap.scheduling.open_claims import Kind
from shiplap.scheduling.pack import Packing
from shiplap.scheduling.plan import Plan
from shiplap.scheduling.planner import solve, write
from shiplap.scheduling.snapshot import Snapshot
from shiplap.scheduling.words import conflicting
from shiplap.scheduling.world import World

_STEPS = 6
"""Obstacles removed on the way to one lane; a lane farther off is no suggestion."""

_LANES = 6
"""Lanes tried, nearest first: each costs a few decisions."""

_ONE_RULE = 0.5
"""How large a change it is to lift one rule; amounts count by the share they change."""

replace = msgspec.structs.replace


class Proposal(msgspec.Struct, frozen=True):
    """Changes that together gave the pod a place, and where that was. `size` grows with what is asked for."""

    changes: tuple[str, ...]
    place: str
    size: float


class _Asker(msgspec.Struct, frozen=True):
    """The pod, `namespace/name`, what it requests as it stands, and which pods had no place before anything changed."""

    key: str
    requests: Mapping[str, int]
    left_out: frozenset[str]


class _Step(msgspec.Struct, frozen=True):
    """One thing changed. Of several steps that change the same (`of`) the last one's words count."""

    snapshot: Snapshot
    of: str
    text: str
    size: float


class _Outcome(msgspec.Struct, frozen=True, eq=False):
    """One decision: what was decided on, the pod's class in it, and whether the pod was left out."""

    snapshot: Snapshot
    world: World
    packing: Packing
    item: PodClass
    left_out: bool

    @classmethod
    def of(cls, snapshot: Snapshot, world: World, packing: Packing, key: str) -> _Outcome | None:
        """None when the pod is not planned, or nothing could hold it as it is."""
        item = next((item for item in world.classes if any(pod.key == key for pod in item.members)), None)
        if item is None or item.problem:
            return None
        left = any(pod.key == key for pod in packing.unplaced.get(item.index, ()))
        return cls(snapshot, world, packing, item, left)


def proposals(snapshot: Snapshot, world: World, packing: Packing, key: str, most: int = 3) -> tuple[Proposal, ...]:
    """What would give the pod `namespace/name` a place, smallest first; nothing if nothing tried did.

    Nothing that costs another pod its place is proposed. `world` and `packing` are what `solve(snapshot)` gave.
    """
    first = _Outcome.of(snapshot, world, packing, key)
    if first is None or not first.left_out:
        return ()
    asker = _Asker(key, first.item.requests, frozenset(pod.key for pods in packing.unplaced.values() for pod in pods))
    verdicts = [verdict for verdict in Explainer(world, packing).verdicts(first.item) if verdict.kind]
    verdicts.sort(key=lambda verdict: verdict.miss.rank if verdict.miss is not None else (9, 0, 0.0, ""))
    found = [_toward(first, asker, verdict.lane.name) for verdict in verdicts[:_LANES]]
    node = nearest_node(first.item, packing.nodes)
    if node is not None and node.short:
        step = _shrink(snapshot, asker, first.item, node)
        found.append(_tried(_Outcome.of(step.snapshot, *solve(step.snapshot), key), [step], asker))
    distinct = {proposal.changes: proposal for proposal in found if proposal is not None}
    return tuple(sorted(distinct.values(), key=lambda p: (len(p.changes), p.size, p.changes))[:most])


def _toward(first: _Outcome, asker: _Asker, lane: str) -> Proposal | None:
    """Remove what one lane names, step by step."""
    outcome: _Outcome | None = first
    steps: list[_Step] = []
    while outcome is not None and outcome.left_out and len(steps) < _STEPS:
        verdicts = Explainer(outcome.world, outcome.packing).verdicts(outcome.item)
        verdict = next((verdict for verdict in verdicts if verdict.lane.name == lane), None)
        step = _step(outcome.snapshot, asker, outcome.item, verdict) if verdict is not None else None
        if step is None:
            return None
        steps.append(step)
        outcome = _Outcome.of(step.snapshot, *solve(step.snapshot), asker.key)
    return _tried(outcome, steps, asker)


def _tried(outcome: _Outcome | None, steps: list[_Step], asker: _Asker) -> Proposal | None:
    """The proposal, if the plan made with it places the pod and leaves out nobody else."""
    if outcome is None or outcome.left_out:
        return None
    if any(pod.key not in asker.left_out for pods in outcome.packing.unplaced.values() for pod in pods):
        return None
    place = _place(write(outcome.snapshot, outcome.world, outcome.packing), outcome.world, asker.key)
    texts = {step.of: step.text for step in steps}
    return Proposal(tuple(texts.values()), place, sum(step.size for step in steps)) if place else None


def _place(decided: Plan, world: World, key: str) -> str:
    tables = {lane.pool.metadata.name: lane.table for lane in world.lanes}
    for claim in decided.node_claims:
        if any(_key(entry) == key for entry in claim.pods):
            launch = claim.launch
            what = f"{launch.instance_type} {launch.capacity_type} in {launch.zone}"
            price = dollars(tables.get(claim.node_pool), launch.instance_type, launch.price)
            return f"{what} of pool {claim.node_pool}, {price}"
    for node in decided.existing_nodes:
        if any(_key(entry) == key for entry in node.pods):
            return f"node {node.name}"
    return ""


def _step(snapshot: Snapshot, asker: _Asker, item: PodClass, verdict: Verdict) -> _Step | None:
    """The change that removes what a lane names; None when it is not for a pod or a NodePool to change."""
    lane, want = verdict.lane, verdict.want
    if want is None:
        return None
    match verdict.kind:
        case "topology":
            step = _loosen(snapshot, asker.key)
        case Kind.TAINT:
            step = _tolerate(snapshot, asker.key, lane, item)
        case Kind.REQUIREMENTS:
            step = _without_labels(snapshot, asker.key, want.term, conflicting(lane, want))
        case Kind.MIN_VALUES:
            settings = replace(snapshot.settings, min_values_policy="BestEffort")
            step = _Step(replace(snapshot, settings=settings), "minValues", "minValues as BestEffort", _ONE_RULE)
        case Kind.BLOCKED:
            step = None
        case _:
            step = _nearer(snapshot, asker, item, verdict, want.term)
    return step


def _nearer(snapshot: Snapshot, asker: _Asker, item: PodClass, verdict: Verdict, term: Requirements) -> _Step | None:
    """The change that makes up for what the nearest type lacks."""
    lane, miss = verdict.lane, verdict.miss
    if miss is not None and miss.sold_out:
        return _available(snapshot, lane.pool.spec.template.spec.node_class_ref.name, miss)
    if miss is not None and miss.short:
        return _raise(snapshot, lane, miss) if miss.of_limit else _shrink(snapshot, asker, item, miss)
    asked = unmet_labels(lane, lane.template.and_(term.values()))
    # A type that would do is not sold in the zone or as the capacity type that the pod asks for.
    asked = asked or [label for label in (labels.ZONE, labels.ZONE_ID, labels.CAPACITY_TYPE) if label in term]
    return _without_labels(snapshot, asker.key, term, [label for label in asked if label in term])


def _tolerate(snapshot: Snapshot, key: str, lane: Lane, item: PodClass) -> _Step:
    taints = [
        taint
        for taint in lane.pool.spec.template.spec.taints
        if untolerated((taint,), item.tolerations, ignore_preferences=True) is not None
    ]
    added = tuple(Toleration(t.key, "Equal" if t.value else "Exists", t.value, t.effect) for t in taints)
    named = ", ".join(f"{t.key}{'=' if t.value else ''}{t.value}:{t.effect}" for t in taints)
    after = _with_spec(snapshot, key, lambda spec: replace(spec, tolerations=(*spec.tolerations, *added)))
    return _Step(after, "tolerations", f"tolerate {named}", _ONE_RULE * len(taints))


def _shrink(snapshot: Snapshot, asker: _Asker, item: PodClass, miss: Miss) -> _Step:
    """The pod with as much less as is short."""
    targets = {resource: max(item.requests.get(resource, 0) - short, 0) for resource, short in miss.short.items()}

    def shrunk(spec: PodSpec) -> PodSpec:
        overhead = parse_resources(spec.overhead)
        known = spec.resources or ResourceRequirements()
        # Requests of the pod as a whole replace those of its containers, whatever they add up to.
        new = {name: format_amount(name, max(value - overhead.get(name, 0), 0)) for name, value in targets.items()}
        return replace(spec, resources=replace(known, requests={**known.requests, **new}))

    parts = [
        f"request {_exactly(name, value)} {name} instead of {amount(name, asker.requests.get(name, 0))}"
        if value
        else f"request no {name}"
        for name, value in sorted(targets.items())
    ]
    size = max(short / max(item.requests.get(resource, 0), 1) for resource, short in miss.short.items())
    after = _with_spec(snapshot, asker.key, shrunk)
    return _Step(after, f"requests {', '.join(sorted(targets))}", ", ".join(parts), min(size, 1.0))


def _exactly(resource: str, value: int) -> str:
    """An amount that may be requested: memory in whole Mi, rounded down so that it still fits."""
    if resource == "memory" or resource.endswith("storage"):
        return f"{value // 2**20}Mi"
    return format_amount(resource, value)


def _raise(snapshot: Snapshot, lane: Lane, miss: Miss) -> _Step:
    """The NodePool with limits that are just high enough."""
    pool = lane.pool.metadata.name
    known = next(p for p in snapshot.manifests.node_pools if p.metadata.name == pool)
    limits = {resource: parse_amount(resource, known.spec.limits[resource]) for resource in miss.short}
    raised = {resource: format_amount(resource, limits[resource] + short) for resource, short in miss.short.items()}

    def changed(item: NodePool) -> NodePool:
        return replace(item, spec=replace(item.spec, limits={**item.spec.limits, **raised}))

    text = ", ".join(
        f"raise the {resource} limit of pool {pool} from {known.spec.limits[resource]} to {raised[resource]}"
        for resource in sorted(miss.short)
    )
    size = sum(short / max(limits[resource], short, 1) for resource, short in miss.short.items())
    pools = tuple(changed(p) if p.metadata.name == pool else p for p in snapshot.manifests.node_pools)
    return _Step(
        replace(snapshot, manifests=replace(snapshot.manifests, node_pools=pools)),
        f"limits {sorted(miss.short)}",
        text,
        size,
    )


def _available(snapshot: Snapshot, node_class: str, miss: Miss) -> _Step:
    """The catalogue with one type's offerings available again."""
    names = {name for name, _, _ in miss.sold_out}
    catalogs = tuple(
        replace(
            catalog,
            instance_types=tuple(
                replace(
                    item,
                    offerings=tuple(
                        replace(offer, available=True)
                        if (item.name, offer.zone, offer.capacity_type) in miss.sold_out
                        else offer
                        for offer in item.offerings
                    ),
                )
                if item.name in names
                else item
                for item in catalog.instance_types
            ),
        )
        if catalog.node_class == node_class
        else catalog
        for catalog in snapshot.catalogs
    )
    offers = ", ".join(f"{kind} in {zone}" for _, zone, kind in sorted(miss.sold_out))
    return _Step(
        replace(snapshot, catalogs=catalogs), "offerings", f"wait until {min(names)} is available again ({offers})", 0.1
    )


def _without_labels(snapshot: Snapshot, key: str, term: Requirements, unwanted: Collection[str]) -> _Step | None:
    """The pod without its node selection by these labels; None if it is not the pod that selects by them."""
    if not unwanted:
        return None
    gone = frozenset(unwanted)

    def freed(spec: PodSpec) -> PodSpec:
        selector = {name: value for name, value in spec.node_selector.items() if _stable(name) not in gone}
        affinity = spec.affinity
        if affinity is not None and affinity.node_affinity is not None and affinity.node_affinity.required is not None:
            terms = tuple(
                NodeSelectorTerm(tuple(e for e in t.match_expressions if _stable(e.key) not in gone), t.match_fields)
                for t in affinity.node_affinity.required.node_selector_terms
            )
            # A term without expressions would match no node.
            left = all(t.match_expressions or t.match_fields for t in terms)
            required = replace(affinity.node_affinity.required, node_selector_terms=terms) if left else None
            affinity = replace(affinity, node_affinity=replace(affinity.node_affinity, required=required))
        return replace(spec, node_selector=selector, affinity=affinity)

    after = _with_spec(snapshot, key, freed)
    if after == snapshot:
        return None
    text = f"do not ask for {', '.join(str(term[label]) for label in sorted(gone))}"
    return _Step(after, text, text, _ONE_RULE * len(gone))


def _loosen(snapshot: Snapshot, key: str) -> _Step | None:
    """The pod with one more in every required spread; without spreads, without its required affinity."""
    pod = next(pod for pod in snapshot.view.pods if pod.key == key)
    spreads = pod.spec.topology_spread_constraints
    hard = [rule for rule in spreads if rule.when_unsatisfiable != "ScheduleAnyway"]
    if hard:
        wider = tuple(replace(r, max_skew=r.max_skew + 1, min_domains=None) if r in hard else r for r in spreads)
        text = "; ".join(f"maxSkew {r.max_skew + 1} over {r.topology_key}" for r in hard)
        return _Step(
            _with_spec(snapshot, key, lambda s: replace(s, topology_spread_constraints=wider)), "spread", text, 0.25
        )
    affinity = pod.spec.affinity
    if affinity is None:
        return None
    for field in ("pod_anti_affinity", "pod_affinity"):
        part = getattr(affinity, field)
        if part is not None and part.required:
            freed = replace(affinity, **{field: replace(part, required=())})
            over = ", ".join(sorted({term.topology_key for term in part.required}))
            named = "anti-affinity" if field == "pod_anti_affinity" else "affinity"
            after = _with_spec(snapshot, key, lambda s, freed=freed: replace(s, affinity=freed))  # type: ignore[misc]
            return _Step(after, field, f"prefer rather than require pod {named} over {over}", _ONE_RULE)
    return None


def _with_spec(snapshot: Snapshot, key: str, change: Callable[[PodSpec], PodSpec]) -> Snapshot:
    def changed(pod: Pod) -> Pod:
        return replace(pod, spec=change(pod.spec)) if pod.key == key else pod

    return replace(snapshot, view=replace(snapshot.view, pods=tuple(map(changed, snapshot.view.pods))))


def _key(pod: PodReference) -> str:
    return f"{pod.namespace}/{pod.name}"


def _stable(label: str) -> str:
    return labels.NORMALIZED.get(label, label)

"""The decision: a snapshot in, a plan out.

A pure function of the snapshot: equal snapshots give equal plans, and the order of its lists does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.garbage_collection import garbage_collection_paused
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import (
    Container,
    ObjectMeta,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Toleration,
)
from shiplap.kubernetes.quantity import CPU, MEMORY
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.nodeclaim import PodReference
from shiplap.manifests.standalone_claims import StandaloneClaim
from shiplap.manifests.template_hash import POOL_HASH, POOL_HASH_VERSION
from shiplap.scheduling.explain.unschedulable import Explainer
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.scheduling_plan import (
    BufferState,
    Placement,
    Plan,
    PlannedClaim,
    PlanStats,
    Unschedulable,
    shortened,
)
from shiplap.scheduling.model.snapshot import ClusterView, PlanStage, PolicyInput, Snapshot
from shiplap.scheduling.packing.compiled_snapshot import CompiledSnapshot, compile_snapshot
from shiplap.scheduling.packing.pack import Packer, Packing
from shiplap.scheduling.packing.planned_claims import ClaimWriter, pod_reference
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.topology.late_domains import joined

Decide = Callable[[Snapshot], Plan]
"""Plans a snapshot. It does not look at what an outer step has decided."""

_CENTS = 1e-9

_MOST_LATE_DOMAINS = 4
"""Times that pods are placed again for domains that appeared late. Each time there is at least one more domain."""

_FEW_PODS, _FREE_LAST_PODS = 30, 2_000
"""Batches of more than few pods, and up to so many, also have those that no constraint concerns placed last."""

_MOST_PODS, _MOST_JOINING = 600, 2_000
_MOST_CLASSES = 32
"""Up to so many pods of so many classes are also placed step by step: each pod takes its time. Larger batches are where
pods may join nodes of lighter NodePools: in bulk, pods with rules on nodes open nodes of their own in each."""


def _most_nodes(pod_class: PodClass) -> tuple[int, ...]:
    """By how many nodes a rule on nodes spreads the pods over, then by cpu."""
    most = [spread.max_skew for spread in pod_class.constraints.spreads if spread.key == labels.HOSTNAME]
    most += [1 for term in pod_class.constraints.anti if term in pod_class.selected]
    return -(len(pod_class.members) // min(most)) if most else 0, pod_class.index


def _largest_memory(pod_class: PodClass) -> tuple[int, ...]:
    return -pod_class.requests.get(MEMORY, 0), -pod_class.requests.get(CPU, 0)


def _unconstrained(pod_class: PodClass) -> tuple[int, ...]:
    return (int(pod_class.topological),)


_ORDERS = (_most_nodes, _largest_memory, _unconstrained)
"""In which the classes of a small batch are placed step by step: which node a pod finds decides much."""

_MOST_AGAIN = 200
"""Up to so many pods are placed in other orders, too, because pods are left out: some 0.2 s an order."""

_MOST_FIRST = 3
"""Times that pods that have found no place go before all others."""

_CLEARLY = 0.005
"""The least part of the price that this has to save where it gives something up."""


def plan(snapshot: Snapshot) -> Plan:
    """Decide where every pending pod goes.

    Raises:
        InvalidInput: a quantity, requirement or timestamp of a NodePool, Node or event is malformed. Validated
            manifests and objects of an API server never are; a malformed pod is reported as unschedulable instead.
    """
    with garbage_collection_paused():
        decided = _planned(snapshot)
    unread = unreadable_pods(snapshot.view)
    return replace(decided, unschedulable=(*decided.unschedulable, *unread)) if unread else decided


def _planned(snapshot: Snapshot) -> Plan:
    """Plan within the policies, in the order of their stages: the first stage is the outermost.

    NodeClaims of users are added after the stages that decide what may be launched for pods, and before those that
    decide at which prices.
    """
    inner = _steps(snapshot, _INNER_STAGES, _at_its_prices)
    standalone = partial(_with_standalone_claims, inner)
    return _steps(snapshot, _OUTER_STAGES, standalone)(snapshot)


_OUTER_STAGES, _INNER_STAGES = (PlanStage.PODS, PlanStage.ADMISSION), (PlanStage.PRICES,)


def _steps(snapshot: Snapshot, stages: Sequence[PlanStage], decide: Decide) -> Decide:
    """Compose the steps of the snapshot's policies around `decide`."""
    for policy in reversed(snapshot.policies):
        if policy.stage in stages:
            decide = partial(_step_of, type(policy), decide)
    return decide


def _step_of(kind: type[PolicyInput], decide: Decide, snapshot: Snapshot) -> Plan:
    """Plan by the input that the snapshot has now: an outer step may have changed it or left it out."""
    policy = snapshot.policy(kind)
    return decide(snapshot) if policy is None else policy.plan(snapshot, decide)


def _at_its_prices(snapshot: Snapshot) -> Plan:
    return write(snapshot, *solve(snapshot))


def _with_standalone_claims(decide: Decide, snapshot: Snapshot) -> Plan:
    decided = decide(snapshot)
    if not snapshot.standalone_claims:
        return decided
    planned = [
        claim for item in snapshot.standalone_claims if (claim := plan_standalone(snapshot, item)[0]) is not None
    ]
    return replace(
        decided,
        node_claims=tuple(sorted((*decided.node_claims, *planned), key=lambda claim: claim.name)),
        hourly=round(decided.hourly + sum(claim.launch.price for claim in planned), 6),
    )


def plan_standalone(snapshot: Snapshot, item: StandaloneClaim) -> tuple[PlannedClaim | None, str]:
    """The node that a NodeClaim asks for: what one pod of its requests would get; or None and why there is none.

    As with Karpenter, its requests are all that must fit: DaemonSets are not added to them. Nothing else of the
    snapshot takes part, neither limits nor overlays, which NodePools have.
    """
    pool = item.as_pool()
    alone = replace(
        snapshot,
        view=ClusterView(pods=(_pod_of(item),)),
        claims=(),
        manifests=Manifests(node_pools=(pool,), node_classes=snapshot.manifests.node_classes),
        missed_pods=frozenset(),
        policies=(),
        settings=replace(snapshot.settings, default_spread=(), claim_rules=(), explore=False),
        standalone_claims=(),
    )
    decided = write(alone, *solve(alone))
    if not decided.node_claims:
        return None, decided.unschedulable[0].message if decided.unschedulable else "no instance type has room for it"
    claim = decided.node_claims[0]
    return replace(
        claim,
        name=item.claim,
        node_pool="",
        requirements=tuple(line for line in claim.requirements if line.key != labels.NODE_POOL),
        labels={key: value for key, value in claim.labels.items() if key != labels.NODE_POOL},
        annotations={
            key: value for key, value in claim.annotations.items() if key not in (POOL_HASH, POOL_HASH_VERSION)
        },
        pods=(),
        reasons=("NodeClaim of a user",),
    ), ""


def _pod_of(item: StandaloneClaim) -> Pod:
    """A pod that asks for as much as a NodeClaim and goes wherever its node is."""
    return Pod(
        metadata=ObjectMeta(name=item.claim, namespace="default", uid=item.uid),
        spec=PodSpec(
            containers=(Container("node", ResourceRequirements(dict(item.requests))),),
            tolerations=(Toleration(operator="Exists"),),
        ),
        status=PodStatus(conditions=(PodCondition("PodScheduled", "False", "Unschedulable"),)),
    )


def unreadable_pods(view: ClusterView) -> tuple[Unschedulable, ...]:
    """Pods without a node that cannot be read, so that nothing can be planned for them, as their users are told."""
    return tuple(
        Unschedulable(PodReference(pod.namespace, pod.name, pod.uid), f"it cannot be read: {pod.reason}")
        for pod in view.unreadable
        if pod.waits
    )


def solve(snapshot: Snapshot) -> tuple[CompiledSnapshot, Packing]:
    """The decision before it is written down: the compiled snapshot and where its pods went. Raises as `plan` does."""
    try:
        compiled = compile_snapshot(snapshot)
    except ValueError as error:
        raise InvalidInput("snapshot", str(error)) from error
    return compiled, pack(snapshot, compiled)


def pack(snapshot: Snapshot, compiled: CompiledSnapshot) -> Packing:
    """Place the pods of a compiled snapshot.

    Where nodes for other pods turn out to be domains of a spread, the planner places the pods again, and
    the spread counts these domains from the beginning.
    """
    packing = _pack_within_limits(snapshot, compiled)
    for _ in range(_MOST_LATE_DOMAINS):
        if not packing.late:
            break
        compiled = replace(compiled, expected_domains=joined(compiled.expected_domains, packing.late))
        packing = _pack_within_limits(snapshot, compiled)
    return packing


def _pack_within_limits(snapshot: Snapshot, compiled: CompiledSnapshot) -> Packing:
    """Place the pods: the largest first; by priority only if that places more important pods.

    Limits of a NodePool count while pods are placed only if its nodes in the plan without them do not fit into them.
    So among several ways to place pods none is chosen for a limit that has room for the best.

    So priority decides nothing while there is room for all, nor where an important pod has no place anyway. Classes are
    compared pod by pod: one of which a part is placed may lack the rest.
    """
    packing = _pack(snapshot, compiled)
    if packing.over_limits and not packing.attempt_budget.is_laborious:
        packing = _pack(snapshot, replace(compiled, bound=packing.over_limits))
    if packing.over_limits:
        packing = _pack(snapshot, replace(compiled, bound=frozenset(compiled.limits)))
    return packing


def _pack(snapshot: Snapshot, compiled: CompiledSnapshot) -> Packing:
    plannable = [pod_class for pod_class in compiled.classes if not pod_class.problem and not pod_class.keeps_off]
    packing = _pack_cheapest(snapshot, compiled, plannable)
    if not packing.unplaced or packing.over_limits:
        return packing
    lowest = min((pod_class.priority for pod_class in plannable if _placed(packing, pod_class)), default=0)
    wronged = [
        pod_class for pod_class in plannable if pod_class.index in packing.unplaced and pod_class.priority > lowest
    ]
    for priority in sorted({pod_class.priority for pod_class in wronged}, reverse=True):
        peers = _by_priority(pod_class for pod_class in plannable if pod_class.priority >= priority)
        among_peers = _pack_once(snapshot, compiled, peers)
        if any(
            _placed(among_peers, pod_class) > _placed(packing, pod_class)
            for pod_class in wronged
            if pod_class.priority == priority
        ):
            ordered = _pack_once(snapshot, compiled, _by_priority(plannable))
            return ordered if _ranks(ordered, plannable) > _ranks(packing, plannable) else packing
    return packing


def _pack_cheapest(snapshot: Snapshot, compiled: CompiledSnapshot, plannable: list[PodClass]) -> Packing:
    """In bulk, or for a small batch step by step where that is clearly cheaper.

    In bulk every pod has its domain before nodes are filled, which leaves much of the few nodes of a small batch empty.
    But it keeps spreads level in whatever order the pods bind, so it is only given up for a saving worth it. So is that
    no pod enlarges a node of a lighter NodePool than it could have: it may if a larger pod opened that node.
    """
    packing, pods = _pack_in_bulk(snapshot, compiled, plannable), _pods(plannable)
    if packing.unplaced and not packing.over_limits:
        packing = _with_fewer_left_out(snapshot, compiled, plannable, packing)
    if packing.unplaced:
        return packing
    if len(packing.claims) < 2:
        return packing
    if _FEW_PODS < pods <= _FREE_LAST_PODS:
        packing = _free_last(snapshot, compiled, plannable, packing)
    topological = any(item.topological for item in plannable)
    if pods > (_MOST_JOINING if topological else _MOST_PODS) or len(plannable) > _MOST_CLASSES:
        return packing
    if not topological and len({claim.group.index for claim in packing.claims}) == 1:
        return packing  # one problem, which was filled in several ways
    orders = _orders(plannable) if pods <= _MOST_PODS else []
    best = _step_by_step(snapshot, compiled, orders, packing, saving=_CLEARLY if topological else 0.0)
    if len({template.level[0] for template in compiled.templates if not template.blocked}) == 1:
        return best
    return _step_by_step(snapshot, compiled, [plannable], best, saving=_CLEARLY, joining=True)


def _with_fewer_left_out(
    snapshot: Snapshot, compiled: CompiledSnapshot, plannable: list[PodClass], known: Packing
) -> Packing:
    """Return the packing that leaves out the fewest pods of a small batch, of `known` and other orders.

    Important pods count first.
    Which pod opens a node decides how much of a limit is left to the others, and where pods that require each other
    start decides how many of them have room there. Each pod goes where it adds least to the price, or, where nodes are
    what is limited, onto an open node while there is room. Preferences go first that cost a pod its place. At last pods
    that have found no place go before all others, a few times.
    """
    few = _pods(plannable) <= _MOST_AGAIN and len(plannable) <= _MOST_CLASSES
    if not few or known.attempt_budget.is_laborious or not _has_hope(known, plannable):
        return known
    best, most = known, (_ranks(known, plannable), not known.crowded)
    ways = [(ordered, True, False) for ordered in _orders(plannable)]
    ways += [(plannable, False, False), (plannable, False, True)]
    for ordered, cheaply, relaxed in ways:
        other = _pack_once(snapshot, compiled, ordered, cheaply=cheaply, relaxed=relaxed)
        if (ranks := (_ranks(other, plannable), not other.crowded)) > most:
            best, most = other, ranks
        if not best.unplaced and not best.crowded:
            break
    last, ordered = best, plannable
    for _ in range(_MOST_FIRST):
        again = _left_out_first(ordered, last)
        if not best.unplaced or again == ordered:
            break
        last, ordered = _pack_once(snapshot, compiled, again), again
        if (ranks := (_ranks(last, plannable), not last.crowded)) > most:
            best, most = last, ranks
    return best


def _left_out_first(ordered: Iterable[PodClass], packing: Packing) -> list[PodClass]:
    """These classes, but those of which a packing left pods out first, by priority."""
    return sorted(ordered, key=lambda item: (0, -item.priority) if item.index in packing.unplaced else (1, 0))


def _has_hope(packing: Packing, plannable: Iterable[PodClass]) -> bool:
    """True if a NodePool has nodes for a pod that was left out, whatever limits and other pods leave of them."""
    possible = packing.openings.possible
    return any(
        possible.has_node(template, attempt)
        for pod_class in plannable
        if pod_class.index in packing.unplaced
        for attempt in packing.attempts.relaxed(pod_class)
        for template in possible.templates
    )


def _orders(plannable: Iterable[PodClass]) -> list[list[PodClass]]:
    """The orders that differ: a few classes often stand the same by several rules."""
    by_rule = (sorted(plannable, key=rule) for rule in _ORDERS)
    return list({tuple(item.index for item in ordered): ordered for ordered in by_rule}.values())


def _free_last(snapshot: Snapshot, compiled: CompiledSnapshot, plannable: list[PodClass], known: Packing) -> Packing:
    """Return a plan that places pods without constraints last, if it costs less than `known`, else `known`."""
    if not known.has_free:
        return known
    other = _pack_once(snapshot, compiled, plannable, bulk=Effort.of(0.0), free_last=True)
    cheaper = other.hourly() < known.hourly() - _CENTS
    return other if cheaper and not other.unplaced and not other.crowded else known


def _step_by_step(
    snapshot: Snapshot,
    compiled: CompiledSnapshot,
    orders: Iterable[list[PodClass]],
    known: Packing,
    *,
    saving: float,
    joining: bool = False,
) -> Packing:
    """The cheapest of what placing all classes in these orders gives, if it saves this part of what is known.

    It saves nothing that pods bind in one order only, so what is known may cost less if it is so.
    """
    best, most = known, np.inf if known.crowded else known.hourly() * (1 - saving) - _CENTS
    for ordered in orders:
        other = _pack_once(snapshot, compiled, ordered, cheaply=True, joining=joining, most_hourly=most)
        hourly = other.hourly()
        if not other.unplaced and not other.crowded and hourly < most:
            best, most = other, hourly - _CENTS
    return best


def _pods(classes: Iterable[PodClass]) -> int:
    return sum(len(item.members) for item in classes)


def _pack_in_bulk(snapshot: Snapshot, compiled: CompiledSnapshot, plannable: list[PodClass]) -> Packing:
    """With the cost search, unless it lost more between its parcels than it saved within them."""
    improved = _pack_once(snapshot, compiled, plannable, bulk=Effort.of(snapshot.settings.improve_s))
    if np.isinf(improved.baseline_hourly):
        return improved
    cost = improved.hourly()
    if not improved.unplaced and cost <= improved.baseline_hourly + _CENTS:
        return improved
    plain = _pack_once(snapshot, compiled, plannable, bulk=Effort.of(0.0))
    placed, plainly = _ranks(improved, plannable), _ranks(plain, plannable)
    if placed != plainly:
        return improved if placed > plainly else plain
    return improved if cost <= plain.hourly() + _CENTS else plain


def _by_priority(classes: Iterable[PodClass]) -> list[PodClass]:
    return sorted(classes, key=lambda pod_class: (-pod_class.priority, pod_class.index))


def _placed(packing: Packing, pod_class: PodClass) -> int:
    return len(pod_class.members) - len(packing.unplaced.get(pod_class.index, ()))


def _ranks(packing: Packing, classes: Sequence[PodClass]) -> list[int]:
    """Return how many pods are placed of each priority, the highest first."""
    counts = Counter[int]()
    for pod_class in classes:
        counts[pod_class.priority] += _placed(packing, pod_class)
    return [counts[priority] for priority in sorted(counts, reverse=True)]


def _pack_once(
    snapshot: Snapshot,
    compiled: CompiledSnapshot,
    ordered: list[PodClass],
    *,
    bulk: Effort | None = None,
    free_last: bool = False,
    cheaply: bool = False,
    joining: bool = False,
    relaxed: bool = False,
    most_hourly: float = np.inf,
) -> Packing:
    best_effort = snapshot.settings.min_values_policy == "BestEffort"
    strict = snapshot.settings.reserved_policy == "Strict"
    packer = Packer(
        compiled,
        best_effort=best_effort,
        strictly_reserved=strict,
        last=[pod_class for pod_class in compiled.virtual if not pod_class.problem],
        cheaply=cheaply,
        joining=joining,
        relaxed=relaxed,
        most_hourly=most_hourly,
        most_types=max(snapshot.settings.max_instance_types, 1),
    )
    return packer.run(ordered, bulk=bulk, free_last=free_last)


def write(snapshot: Snapshot, compiled: CompiledSnapshot, packing: Packing) -> Plan:
    """The plan that says what `solve` decided."""
    explainer = Explainer(compiled, packing)
    virtual = frozenset(pod_class.index for pod_class in compiled.virtual)
    unreal = {id(pod) for pod_class in compiled.virtual for pod in pod_class.members}
    most = max(snapshot.settings.max_instance_types, 1)
    origin = "/".join(filter(None, (snapshot.install, snapshot.cluster)))
    writer = ClaimWriter(origin, snapshot.epoch, most, compiled.taken, virtual)
    planned: list[PlannedClaim] = []
    unschedulable = []
    for claim, written in zip(packing.claims, writer.write(packing.claims, packing.used), strict=True):
        if written is not None:
            planned.append(explainer.explained(claim, written))
        else:
            message = shortened(explainer.truncated(claim, snapshot.settings.max_instance_types))
            unschedulable += [
                Unschedulable(pod_reference(pod), message)
                for pod_class, pods in claim.pods
                for pod in pods
                if pod_class.index not in virtual
            ]
    if compiled.static is not None:
        written_for_pools = writer.write(compiled.static.claims, compiled.static.used)
        planned += [replace(claim, reasons=("static pool",)) for claim in written_for_pools if claim is not None]
    ignored = [Unschedulable(pod_reference(pod), shortened(reason)) for pod, reason in compiled.pods.ignored]
    for pod_class in compiled.classes:
        if pod_class.keeps_off:
            reason = "asks to stay off provisioned nodes"
            ignored += [Unschedulable(pod_reference(pod), reason) for pod in pod_class.members]
            continue
        left = pod_class.members if pod_class.problem else packing.unplaced.get(pod_class.index, ())
        if left:
            message, nearest = explainer.unschedulable(pod_class)
            message = shortened(message)
            unschedulable += [Unschedulable(pod_reference(pod), message, nearest) for pod in left]
    planned.sort(key=lambda claim: claim.name)
    for policy in snapshot.policies:
        planned = list(policy.marked(planned, snapshot))
    buffers = _buffers(compiled, planned, packing)
    return Plan(
        node_claims=tuple(planned),
        existing_nodes=tuple(
            Placement(node.name, tuple(sorted(map(pod_reference, real))))
            for node, pods in sorted(
                zip(packing.nodes.all, packing.nodes.placed, strict=True), key=lambda pair: pair[0].name
            )
            if (real := [pod for pod in pods if id(pod) not in unreal])
        ),
        unschedulable=tuple(sorted(unschedulable, key=lambda entry: entry.pod)),
        ignored=tuple(sorted(ignored, key=lambda entry: entry.pod)),
        hourly=round(sum((claim.launch.price for claim in planned), 0.0), 6),
        stats=PlanStats(sum(len(pod_class.members) for pod_class in compiled.classes), len(compiled.classes)),
        static_pools=compiled.static.pools if compiled.static is not None else (),
        buffers=buffers,
        unsettled=packing.waits and (bool(unschedulable) or any(buffer.missing for buffer in buffers)),
    )


def _buffers(compiled: CompiledSnapshot, planned: list[PlannedClaim], packing: Packing) -> tuple[BufferState, ...]:
    if not compiled.buffers:
        return ()
    from shiplap.scheduling.packing.buffers import states_of  # noqa: PLC0415 - few installs have buffers

    problems = {
        id(pod): pod_class.problem for pod_class in compiled.virtual if pod_class.problem for pod in pod_class.members
    }
    on_nodes = zip((node.name for node in packing.nodes.all), packing.nodes.placed, strict=True)
    on_claims = (pod for claim in planned for pod in claim.virtual_pods)
    return states_of(compiled.buffers, on_claims, on_nodes, problems)

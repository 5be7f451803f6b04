"""The decision: a snapshot in, a plan out.

A pure function of the snapshot: equal snapshots give equal plans, and the order of its lists does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.nodeclaim import PodReference
from shiplap.manifests.standalone_claims import StandaloneClaim
from shiplap.manifests.template_hash import POOL_HASH, POOL_HASH_VERSION
from shiplap.scheduling.explain.unschedulable import Explainer
from shiplap.scheduling.model.bounds import BOUNDS
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
from shiplap.scheduling.packing.pack import Packing
from shiplap.scheduling.packing.planned_claims import ClaimWriter
from shiplap.scheduling.packing.strategies import Batch, best_packing
from shiplap.scheduling.topology.late_domains import joined

Decide = Callable[[Snapshot], Plan]
"""Plans a snapshot. It does not look at what an outer step has decided."""

PlanStep = Callable[[Decide, Snapshot], Plan]
"""Plans a snapshot by means of the steps within it."""


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
    decide: Decide = _at_its_prices
    for step in reversed(steps_of(snapshot)):
        decide = partial(step, decide)
    return decide(snapshot)


def steps_of(snapshot: Snapshot) -> list[PlanStep]:
    """The steps within which a snapshot is planned, the outermost first: those of its policies by their stage.

    NodeClaims of users are added after the stages that decide what may be launched for pods, and before those that
    decide at which prices.
    """
    by_stage = sorted(snapshot.policies, key=lambda policy: policy.stage)
    outer = [policy for policy in by_stage if policy.stage <= PlanStage.ADMISSION]
    inner = [policy for policy in by_stage if policy.stage is PlanStage.PRICES]
    return [*map(_step_of, outer), _with_standalone_claims, *map(_step_of, inner)]


def _step_of(policy: PolicyInput) -> PlanStep:
    """Plan by the input that the snapshot has then: an outer step may have changed it or left it out."""

    def step(decide: Decide, snapshot: Snapshot) -> Plan:
        now = snapshot.policy(type(policy))
        return decide(snapshot) if now is None else now.plan(snapshot, decide)

    return step


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
    for _ in range(BOUNDS.late_rounds):
        late = packing.find_late()
        if not late:
            break
        compiled = replace(compiled, expected_domains=joined(compiled.expected_domains, late))
        packing = _pack_within_limits(snapshot, compiled)
    return packing


def _pack_within_limits(snapshot: Snapshot, compiled: CompiledSnapshot) -> Packing:
    """Place the pods by the strategies.

    Limits of a NodePool count while pods are placed only if its nodes in the plan without them do not fit into them.
    So among several ways to place pods none is chosen for a limit that has room for the best.
    """
    packing = best_packing(Batch.of(snapshot, compiled))
    if packing.over_limits and not packing.attempt_budget.is_laborious:
        packing = best_packing(Batch.of(snapshot, replace(compiled, bound=packing.over_limits)))
    if packing.over_limits:
        packing = best_packing(Batch.of(snapshot, replace(compiled, bound=frozenset(compiled.limits))))
    return packing


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
                Unschedulable(PodReference.of(pod), message)
                for pod_class, pods in claim.pods
                for pod in pods
                if pod_class.index not in virtual
            ]
    if compiled.static is not None:
        written_for_pools = writer.write(compiled.static.claims, compiled.static.used)
        planned += [replace(claim, reasons=("static pool",)) for claim in written_for_pools if claim is not None]
    ignored = [Unschedulable(PodReference.of(pod), shortened(reason)) for pod, reason in compiled.pods.ignored]
    for pod_class in compiled.classes:
        if pod_class.keeps_off:
            reason = "asks to stay off provisioned nodes"
            ignored += [Unschedulable(PodReference.of(pod), reason) for pod in pod_class.members]
            continue
        left = pod_class.members if pod_class.problem else packing.unplaced.get(pod_class.index, ())
        if left:
            message, nearest = explainer.unschedulable(pod_class)
            message = shortened(message)
            unschedulable += [Unschedulable(PodReference.of(pod), message, nearest) for pod in left]
    planned.sort(key=lambda claim: claim.name)
    for policy in snapshot.policies:
        planned = list(policy.marked(planned, snapshot))
    buffers = _buffers(compiled, planned, packing)
    return Plan(
        node_claims=tuple(planned),
        existing_nodes=tuple(
            Placement(node.name, tuple(sorted(map(PodReference.of, real))))
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

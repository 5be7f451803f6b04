"""Launches that are only tried out: what permissions and policies forbid is known before pods depend on it.

The request is the one that a first pod of a NodePool would lead to, planned like any other, so that a policy about
instance types or tenancy is met where a real launch would meet it. It is asked by the function that launches, because
no other may; the inspection of EC2NodeClasses, which may not, reads what was answered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from shiplap.errors import AwsThrottled, NodeClassNotReady, ShiplapError
from shiplap.flows.context import FlowContext
from shiplap.flows.optional.optional_calls import LAUNCH_TRIALS, TRIED_LAUNCHES
from shiplap.flows.planning.decision_inputs import DecisionInputs, LaunchSupply, read_supply
from shiplap.flows.planning.decision_snapshots import PricedSnapshot, priced_snapshot
from shiplap.flows.planning.planned_launches import ClaimOrigin, fleet_options, records_of, with_token
from shiplap.instances.readiness.nodeclass_status import DryRun, dry_run, untried_dry_run
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements, Toleration
from shiplap.manifests.custom_resources import EC2NodeClass, NodePool
from shiplap.ports import DecisionState, DryRunStore, FleetRequest
from shiplap.scheduling.model.snapshot import ClusterView, SchedulingSettings
from shiplap.scheduling.planner import plan
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

ALLOWANCE_S = 15.0
"""No EC2NodeClass is tried out with less time than this left, in seconds."""


def dry_run_launches(settings: ClusterSettings, context: FlowContext, *, deadline: float) -> None:
    """Try out EC2NodeClasses that are new, have changed, or were last tried long ago; tell when something forbids.

    Whatever goes wrong here keeps no pod waiting: it is tried again by the next sweep.

    Args:
        settings: the cluster; without `dry_run` nothing is done.
        context: the ports; without rehearsals nothing is done.
        deadline: epoch seconds at which this invocation ends at the latest.
    """
    if context.dry_runs is None or settings.paused or not settings.dry_run:
        return
    compute, catalog = context.within(LAUNCH_TRIALS, context.compute), context.within(TRIED_LAUNCHES, context.catalog)
    capacity = context.within(TRIED_LAUNCHES, context.capacity)
    bounded = replace(context, compute=compute, catalog=catalog, capacity=capacity)
    try:
        _dry_run_due(settings, bounded, context.within(TRIED_LAUNCHES, context.dry_runs), deadline)
    except ShiplapError as error:
        context.meter.count("RehearsalsIncomplete")
        _LOG.info("launches not tried out: %s", error, extra={"cluster": settings.name})


def _dry_run_due(settings: ClusterSettings, context: FlowContext, store: DryRunStore, deadline: float) -> None:
    pools = settings.manifests.node_pools
    used = {pool.spec.template.spec.node_class_ref.name for pool in pools}
    classes = [item for item in settings.manifests.node_classes if item.metadata.name in used]
    known = store.load(settings.name)
    due = known.due(classes, context.clock.now())
    if not due:
        return
    # A refusal of before must not keep its EC2NodeClass from being tried again.
    supply = read_supply(settings, replace(context, status=None))
    priced = _first_pods(settings, due, supply, context)
    fresh = []
    try:
        for node_class, request in _requests(settings, due, supply, priced, context):
            if context.clock.now() + ALLOWANCE_S > deadline:
                break
            fresh.append(_dry_run(node_class, request, context))
    finally:  # what was answered before EC2 asked to slow down is known
        if fresh:
            store.save(settings.name, known.with_news(fresh, classes))


def _dry_run(node_class: EC2NodeClass, request: FleetRequest | None, context: FlowContext) -> DryRun:
    now = context.clock.now()
    if request is None:
        return untried_dry_run(node_class, now)
    try:
        problem = context.compute.dry_run(request)
    except AwsThrottled:
        raise
    except NodeClassNotReady:  # the inspection finds it, too, and says more
        return untried_dry_run(node_class, now)
    if problem is not None:
        context.meter.count("LaunchesForbidden")
        about = {"cluster": request.claim.cluster, "node_class": node_class.metadata.name}
        _LOG.warning("EC2 would not launch: %s: %s", problem.reason, problem.message, extra=about)
    return dry_run(node_class, now, problem)


def _first_pods(
    settings: ClusterSettings, due: Iterable[EC2NodeClass], supply: LaunchSupply, context: FlowContext
) -> PricedSnapshot:
    """A cluster without nodes, in which one pod waits for each NodePool whose EC2NodeClass is due."""
    pods = tuple(_pod(pool) for node_class in due for pool in _pools_of(settings, node_class))
    inputs = DecisionInputs(context.clock.now(), DecisionState(0), ClusterView(pods=pods), frozenset())
    policies = tuple(item for item in settings.policies if not item.settings.leaves_pods_out)
    bare = replace(settings, manifests=replace(settings.manifests, capacity_buffers=()), policies=policies)
    priced = priced_snapshot(bare, inputs, supply, context)
    plain = SchedulingSettings(min_values_policy="BestEffort")
    return PricedSnapshot(replace(priced.snapshot, settings=plain, piloted=frozenset()))


def _requests(
    settings: ClusterSettings,
    due: Iterable[EC2NodeClass],
    supply: LaunchSupply,
    priced: PricedSnapshot,
    context: FlowContext,
) -> Iterator[tuple[EC2NodeClass, FleetRequest | None]]:
    """Yield each EC2NodeClass with the request of its foremost NodePool that would launch anything; else None."""
    origin = ClaimOrigin(cluster=settings.name, owner="rehearsal", at=context.clock.now(), lease_s=0.0)
    records = records_of(plan(priced.snapshot).node_claims, origin, priced.snapshot)
    claims = {claim.plan.node_pool: claim for claim in reversed(records)}
    for node_class in due:
        item = supply.node_classes[node_class.metadata.name]
        found = [claims[pool.metadata.name] for pool in _pools_of(settings, node_class) if pool.metadata.name in claims]
        request = None
        if found and item.resolved is not None:
            (claim,) = with_token(found[:1], 0, settings.install)
            options = fleet_options(claim, priced.types_for(claim), [net.zone for net in item.resolved.subnets])
            if options.overrides:
                request = FleetRequest(
                    claims=(claim,),
                    node_class=item.node_class,
                    resolved=item.resolved,
                    capacity_type=options.capacity_type,
                    overrides=options.overrides,
                    token=claim.launch.token,
                )
        yield node_class, request


def _pools_of(settings: ClusterSettings, node_class: EC2NodeClass) -> list[NodePool]:
    """Return the NodePools that launch from an EC2NodeClass, the foremost first."""
    name = node_class.metadata.name
    pools = [p for p in settings.manifests.node_pools if p.spec.template.spec.node_class_ref.name == name]
    return sorted(pools, key=lambda pool: (-pool.spec.weight, pool.metadata.name))


def _pod(pool: NodePool) -> Pod:
    name = pool.metadata.name
    return Pod(
        ObjectMeta(name=name, namespace="shiplap-rehearsal", uid=f"rehearsal/{name}"),
        PodSpec(
            node_selector={labels.NODE_POOL: label_value_of(name)},
            tolerations=(Toleration(operator="Exists"),),
            containers=(Container(resources=ResourceRequirements(requests={"cpu": "10m"})),),
        ),
    )

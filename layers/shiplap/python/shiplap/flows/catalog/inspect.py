"""The inspection of EC2NodeClasses: everything a launch from them needs is tried out before pods depend on it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from math import inf

import msgspec

from shiplap.aws.userdata.bootstrap import bootstrap_of_claim
from shiplap.aws.userdata.render import user_data
from shiplap.errors import AwsError, InvalidInput, NodeClassNotReady, StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.optional.optional_calls import NO_ANSWER, limited
from shiplap.instances.capacity.capacity_setting import cluster_setting
from shiplap.instances.catalog.drain_times import drain_time_s
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.resolved_nodeclass import NodeClassProblem, ResolvedNodeClass, SecurityGroup
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.readiness import nodeclass_status
from shiplap.instances.readiness.nodeclass_status import (
    ClusterStatus,
    DryRuns,
    NodeClassStatus,
    PoolStatus,
    manifest_digest,
)
from shiplap.instances.resolve import remembered_types
from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import PODS
from shiplap.manifests.custom_resources import EC2NodeClass, NodePool
from shiplap.manifests.decoding import field_name
from shiplap.manifests.nodeclaim import ClaimPlan, NodeClaim
from shiplap.manifests.validation.kubelet_rules import first_kubelet_problem
from shiplap.manifests.validation.user_data_rules import LIMIT_BYTES
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

_NEARLY_FULL_BYTES = LIMIT_BYTES * 9 // 10

INSPECTION_S = 20.0
"""For so long AWS may tell of one EC2NodeClass, in seconds: it takes up to ten requests, of half a second each."""


def inspect(
    settings: ClusterSettings,
    catalog: Catalog,
    context: FlowContext,
    *,
    before: ClusterStatus | None = None,
    since: float = inf,
    until: float = inf,
) -> ClusterStatus:
    """The status of a cluster's EC2NodeClasses and NodePools now.

    Those that are new, or were inspected longest ago, come first. An EC2NodeClass of which AWS tells nothing in time
    ends it. Those that are left have the status that they had before.

    Args:
        settings: the cluster.
        catalog: what its Region sells.
        context: the ports.
        before: the status that is known.
        since: EC2NodeClasses that were inspected at this moment or later, epoch seconds, are left as they are.
        until: no further inspection begins then, epoch seconds; the first always begins.
    """
    dry_runs = _read_dry_runs(settings, context)
    known = _as_written(settings, before)
    due = due_classes(settings, before, since)
    for place, node_class in enumerate(due):
        if place and context.clock.now() >= until:
            break
        status = _status(settings, node_class, catalog, dry_runs, context)
        known[status.name] = msgspec.structs.replace(status, checked_at=context.clock.now())
        if is_silent(status):
            break
    classes = tuple(known[name] for item in settings.manifests.node_classes if (name := item.metadata.name) in known)
    checked_at = min((item.checked_at for item in classes), default=context.clock.now())
    pools = tuple(_pool(item, settings, known) for item in settings.manifests.node_pools)
    return ClusterStatus(settings.name, settings.region, checked_at, classes, pools, settings.policies_on)


def due_classes(settings: ClusterSettings, before: ClusterStatus | None, since: float) -> list[EC2NodeClass]:
    """EC2NodeClasses that have not been inspected since, in the order in which they are to be; see `inspect`."""
    known = _as_written(settings, before)
    ages = {name: status.checked_at for name, status in known.items()}
    due = [item for item in settings.manifests.node_classes if ages.get(item.metadata.name, 0.0) < since]
    return sorted(due, key=lambda item: (ages.get(item.metadata.name, 0.0), item.metadata.name))


def waits_since(settings: ClusterSettings, before: ClusterStatus | None) -> tuple[float, float]:
    """Return when the EC2NodeClass that is to be first was inspected, and when the last one was.

    Both are epoch seconds, 0 for never.
    Clusters that have never had a turn come before those whose turn was too short.
    """
    known = _as_written(settings, before)
    ages = [status.checked_at for status in known.values()]
    if before is None or len(known) < len(settings.manifests.node_classes):
        return 0.0, max(ages, default=0.0)
    return min(ages, default=before.checked_at), max(ages, default=before.checked_at)


def is_silent(status: NodeClassStatus) -> bool:
    """True if AWS did not answer about an EC2NodeClass in time."""
    return status.ready.reason == NO_ANSWER


def _as_written(settings: ClusterSettings, before: ClusterStatus | None) -> dict[str, NodeClassStatus]:
    """Statuses by name, without those of EC2NodeClasses that have been edited or removed since."""
    digests = {item.metadata.name: manifest_digest(item) for item in settings.manifests.node_classes}
    known = before.node_classes if before is not None else ()
    return {item.name: item for item in known if digests.get(item.name) == item.manifest}


def _pool(pool: NodePool, settings: ClusterSettings, known: Mapping[str, NodeClassStatus]) -> PoolStatus:
    name = pool.spec.template.spec.node_class_ref.name
    status = known.get(name)
    if status is None and all(item.metadata.name != name for item in settings.manifests.node_classes):
        ready, reason = nodeclass_status.FALSE, f"there is no EC2NodeClass {name!r}"
    elif status is None:
        ready, reason = nodeclass_status.UNKNOWN, f"EC2NodeClass {name!r} is not inspected yet"
    else:
        ready, reason = status.ready.status, status.ready.message
    return PoolStatus(pool.metadata.name, name, ready, pool.spec.weight, reason, pool.spec.limits)


def _read_dry_runs(settings: ClusterSettings, context: FlowContext) -> DryRuns:
    """EC2's answers to dry runs. If they cannot be read, no EC2NodeClass is held back for it."""
    if context.dry_runs is None or not settings.dry_run:
        return DryRuns()
    try:
        return context.dry_runs.load(settings.name)
    except StoreError as error:
        _LOG.warning("rehearsals not read: %s", error, extra={"cluster": settings.name})
        return DryRuns()


def _status(
    settings: ClusterSettings, node_class: EC2NodeClass, catalog: Catalog, dry_runs: DryRuns, context: FlowContext
) -> NodeClassStatus:
    name, manifest = node_class.metadata.name, manifest_digest(node_class)
    try:
        found = limited(context.optional, context.compute, INSPECTION_S).inspect(node_class)
    except AwsError as error:
        _LOG.warning("node class cannot be inspected: %s", error, extra={"cluster": settings.name, "code": error.code})
        return NodeClassStatus(
            name, manifest, nodeclass_status.unknown_conditions(error.code or "NoAnswer", str(error))
        )
    problems = [*found.problems]
    types: tuple[InstanceType, ...] = ()
    size = 0
    if not problems:
        types, problems = _types(settings, node_class, found, catalog)
    if not problems:
        size, problems = _user_data(settings, node_class, found, types)
    if not problems and (forbidden := dry_runs.problem(node_class)):
        problems = [forbidden]
    if problems:
        context.meter.count("NodeClassNotReady")
        _LOG.warning("node class is not ready: %s", problems[0].message, extra={"cluster": settings.name})
    return NodeClassStatus(
        name=name,
        manifest=manifest,
        conditions=nodeclass_status.conditions(problems),
        family=found.family,
        subnets=found.subnets,
        security_groups=tuple(map(SecurityGroup, found.security_groups, found.security_group_names)),
        amis=found.amis,
        capacity_reservations=found.capacity_reservations,
        upcoming_reservations=found.upcoming_reservations,
        drain_s=drain_time_s(settings.manifests, name),
        placement_group=found.placement_group,
        instance_profile=found.instance_profile,
        instance_types=len(types),
        warnings=tuple(_warnings(found, types, size)),
    )


def _types(
    settings: ClusterSettings, node_class: EC2NodeClass, found: ResolvedNodeClass, catalog: Catalog
) -> tuple[tuple[InstanceType, ...], list[NodeClassProblem]]:
    """Return the types that the EC2NodeClass can launch, or why its kubelet settings cannot be read or worked out."""
    if wrong := first_kubelet_problem(node_class):
        reason, (path, text) = wrong
        return (), [NodeClassProblem(nodeclass_status.VALIDATION, reason, f"{field_name(path)}: {text}")]
    try:
        types = remembered_types(
            catalog, node_class, cluster_setting(settings, ()), resolved=found, learned=(), unavailable=()
        )
    except InvalidInput as error:
        of_kubelet = error.field.startswith("spec.kubelet")
        reason = "KubeletExpressionEvaluationFailed" if of_kubelet else "InvalidAnnotations"
        return (), [NodeClassProblem(nodeclass_status.VALIDATION, reason, error.what)]
    if not types:
        text = f"none of the {len(catalog.types)} instance types of {catalog.region} meets the requirements of an AMI"
        return (), [NodeClassProblem(nodeclass_status.AMIS, "NoInstanceTypes", text)]
    return types, []


def _user_data(
    settings: ClusterSettings, node_class: EC2NodeClass, found: ResolvedNodeClass, types: Sequence[InstanceType]
) -> tuple[int, list[NodeClassProblem]]:
    """The bytes of the longest user data that any pool's nodes would get, or why there is none."""
    try:
        return max(len(text.encode()) for text in user_data_texts(settings, node_class, found, types)), []
    except NodeClassNotReady as error:
        return 0, [NodeClassProblem(nodeclass_status.VALIDATION, error.code, str(error))]


def user_data_texts(
    settings: ClusterSettings, node_class: EC2NodeClass, found: ResolvedNodeClass, types: Sequence[InstanceType]
) -> Iterator[str]:
    """User data of a node of every NodePool that uses the EC2NodeClass, or of none if none does.

    Raises:
        NodeClassNotReady: it cannot be made.
    """
    name = node_class.metadata.name
    using = [pool for pool in settings.manifests.node_pools if pool.spec.template.spec.node_class_ref.name == name]
    values = max((item.kubelet_values for item in types), key=lambda values: sum(len(text) for *_, text in values))
    pods = max(item.capacity[PODS] for item in types)
    for pool in using or (None,):
        template = pool.spec.template if pool is not None else None
        plan = ClaimPlan(
            node_pool=pool.metadata.name if pool is not None else "",
            node_class=name,
            labels=template.metadata.labels if template is not None else {},
            taints=template.spec.taints if template is not None else (),
            startup_taints=template.spec.startup_taints if template is not None else (),
        )
        claim = NodeClaim(cluster=settings.name, name="inspected", plan=plan)
        yield user_data(bootstrap_of_claim(claim, node_class, found, labels.ON_DEMAND, pods, values))


def _warnings(found: ResolvedNodeClass, types: Sequence[InstanceType], user_data_bytes: int) -> Iterator[str]:
    used = {item.ami for item in types}
    for ami in found.amis:
        if ami.deprecated and ami.id in used:
            yield f"{ami.id} ({ami.name}) is deprecated, and no newer AMI fits its instance types"
    if user_data_bytes >= _NEARLY_FULL_BYTES:
        yield f"user data is {user_data_bytes} bytes; EC2 takes {LIMIT_BYTES}"

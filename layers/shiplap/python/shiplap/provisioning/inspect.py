"""The inspection of EC2NodeClasses: everything a launch from them needs is tried out before pods depend on it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from shiplap.api.kubelet_rules import kubelet_problems
from shiplap.api.nodeclaim import NodeClaim
from shiplap.api.types import EC2NodeClass, NodePool
from shiplap.aws.userdata.bootstrap import of_claim
from shiplap.aws.userdata.render import LIMIT_BYTES, user_data
from shiplap.errors import AwsError, InvalidInput, NodeClassNotReady
from shiplap.instances import conditions
from shiplap.instances.catalog import Catalog
from shiplap.instances.nodeclass import Problem, ResolvedNodeClass, SecurityGroup
from shiplap.instances.resolve import instance_types
from shiplap.instances.setting import from_cluster
from shiplap.instances.status import ClusterStatus, NodeClassStatus, PoolStatus, digest
from shiplap.instances.types import InstanceType
from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import PODS
from shiplap.provisioning.world import World
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

_NEARLY_FULL_BYTES = LIMIT_BYTES * 9 // 10


def inspect(settings: ClusterSettings, catalog: Catalog, world: World) -> ClusterStatus:
    """The status of a cluster's EC2NodeClasses and NodePools now."""
    classes = tuple(_status(settings, item, catalog, world) for item in settings.manifests.node_classes)
    known = {status.name: status for status in classes}
    pools = tuple(_pool(item, known) for item in settings.manifests.node_pools)
    return ClusterStatus(settings.name, settings.region, world.clock.now(), classes, pools)


def _pool(pool: NodePool, known: dict[str, NodeClassStatus]) -> PoolStatus:
    name = pool.spec.template.spec.node_class_ref.name
    status = known.get(name)
    shown = PoolStatus(pool.metadata.name, name, conditions.UNKNOWN, pool.spec.weight)
    if status is None:
        return PoolStatus(shown.name, name, conditions.FALSE, shown.weight, f"there is no EC2NodeClass {name!r}")
    ready = status.ready
    return PoolStatus(shown.name, name, ready.status, shown.weight, ready.message)


def _status(settings: ClusterSettings, node_class: EC2NodeClass, catalog: Catalog, world: World) -> NodeClassStatus:
    name, manifest = node_class.metadata.name, digest(node_class)
    try:
        found = world.compute.inspect(node_class)
    except AwsError as error:
        _LOG.warning("node class cannot be inspected: %s", error, extra={"cluster": settings.name, "code": error.code})
        return NodeClassStatus(name, manifest, conditions.unknown(error.code or "NoAnswer", str(error)))
    problems = [*found.problems]
    types: tuple[InstanceType, ...] = ()
    if not problems:
        types, wrong = _types(settings, node_class, found, catalog)
        problems += wrong or _user_data_problems(settings, node_class, found, types)
    if problems:
        world.meter.count("NodeClassNotReady")
        _LOG.warning("node class is not ready: %s", problems[0].message, extra={"cluster": settings.name})
    return NodeClassStatus(
        name=name,
        manifest=manifest,
        conditions=conditions.conditions(problems),
        family=found.family,
        subnets=found.subnets,
        security_groups=tuple(map(SecurityGroup, found.security_groups, found.security_group_names)),
        amis=found.amis,
        capacity_reservations=found.capacity_reservations,
        placement_group=found.placement_group,
        instance_profile=found.instance_profile,
        instance_types=len(types),
        warnings=tuple(_warnings(settings, node_class, found, types)),
    )


def _types(
    settings: ClusterSettings, node_class: EC2NodeClass, found: ResolvedNodeClass, catalog: Catalog
) -> tuple[tuple[InstanceType, ...], list[Problem]]:
    """What the EC2NodeClass can launch, or why its kubelet settings cannot be read or worked out."""
    for path, reason in kubelet_problems(node_class):
        field = ".".join(map(str, path))
        return (), [Problem(conditions.VALIDATION, "InvalidKubeletConfiguration", f"{field}: {reason}")]
    try:
        types = instance_types(
            catalog, node_class, from_cluster(settings, ()), resolved=found, learned=(), unavailable=()
        )
    except InvalidInput as error:
        return (), [Problem(conditions.VALIDATION, "KubeletExpressionEvaluationFailed", str(error))]
    if not types:
        text = f"none of the {len(catalog.types)} instance types of {catalog.region} meets the requirements of an AMI"
        return (), [Problem(conditions.AMIS, "NoInstanceTypes", text)]
    return types, []


def _user_data_problems(
    settings: ClusterSettings, node_class: EC2NodeClass, found: ResolvedNodeClass, types: Sequence[InstanceType]
) -> list[Problem]:
    try:
        for _ in _texts(settings, node_class, found, types):
            pass
    except NodeClassNotReady as error:
        return [Problem(conditions.VALIDATION, error.code, str(error))]
    return []


def _texts(
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
        claim = NodeClaim(
            cluster=settings.name,
            name="inspected",
            node_pool=pool.metadata.name if pool is not None else "",
            node_class=name,
            labels=template.metadata.labels if template is not None else {},
            taints=template.spec.taints if template is not None else (),
            startup_taints=template.spec.startup_taints if template is not None else (),
        )
        yield user_data(of_claim(claim, node_class, found, labels.ON_DEMAND, pods, values))


def _warnings(
    settings: ClusterSettings, node_class: EC2NodeClass, found: ResolvedNodeClass, types: Sequence[InstanceType]
) -> Iterator[str]:
    used = {item.ami for item in types}
    for ami in found.amis:
        if ami.deprecated and ami.id in used:
            yield f"{ami.id} ({ami.name}) is deprecated, and no newer AMI fits its instance types"
    if types and not _user_data_problems(settings, node_class, found, types):
        size = max(len(text.encode()) for text in _texts(settings, node_class, found, types))
        if size >= _NEARLY_FULL_BYTES:
            yield f"user data is {size} bytes; EC2 takes {LIMIT_BYTES}"

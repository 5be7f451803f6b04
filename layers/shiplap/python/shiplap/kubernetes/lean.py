"""A bound pod without what no decision reads: what is left of equal pods is equal, so that it can be kept once.

Pods differ in much that decisions never look at: versions, addresses, checksums, tokens' volumes, the times of their
conditions. A pod keeps its identity, where it is, what it takes of its node, what topology and budgets see of it, and
what protects it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import (
    Container,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""How much a pod's controller would rather keep it."""

_ANNOTATIONS = (labels.DO_NOT_DISRUPT, DELETION_COST)
_NO_STATUS: tuple[ContainerStatus, ...] = ()


def lean(pod: Pod) -> Pod:
    """The pod as decisions see it; leaning twice changes nothing.

    Decisions about bound pods read nothing else: neither a pod's resourceVersion, nor other annotations than the two
    that speak to them, nor volumes without a claim, nor ports that no host gives. A container's status counts only
    while the kubelet holds other amounts for it than it asks for, the start only where it ends a protection.
    """
    meta = pod.metadata
    annotations = {key: meta.annotations[key] for key in _ANNOTATIONS if key in meta.annotations}
    return Pod(
        ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            labels=meta.labels,
            annotations=annotations,
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=meta.deletion_timestamp,
            owner_references=meta.owner_references,
        ),
        _lean_spec(pod.spec),
        _lean_status(pod, timed=labels.DO_NOT_DISRUPT in annotations),
    )


def together(pending: Sequence[Pod], bound: Sequence[Pod]) -> tuple[Pod, ...]:
    """All pods of a cluster, each once, whichever of the two was looked at first.

    One that is in both was bound in between. Of two with one name the younger exists: the other had to go before.
    """
    waiting = {(pod.metadata.namespace, pod.metadata.name): pod for pod in pending}
    gone = set()
    for pod in bound if waiting else ():
        key = (pod.metadata.namespace, pod.metadata.name)
        other = waiting.get(key)
        if other is not None:
            same = other.metadata.uid == pod.metadata.uid
            if not same and (other.metadata.creation_timestamp or "") >= (pod.metadata.creation_timestamp or ""):
                gone.add(pod.metadata.uid)
            else:
                del waiting[key]
    staying = [pod for pod in bound if pod.metadata.uid not in gone] if gone else bound
    return (*waiting.values(), *staying)


def _lean_spec(spec: PodSpec) -> PodSpec:
    return replace(
        spec,
        containers=tuple(map(_without_own_ports, spec.containers)),
        init_containers=tuple(map(_without_own_ports, spec.init_containers)),
        volumes=tuple(item for item in spec.volumes if item.persistent_volume_claim or item.ephemeral),
    )


def _without_own_ports(container: Container) -> Container:
    if not container.ports:
        return container
    return replace(container, ports=tuple(port for port in container.ports if port.host_port))


def _lean_status(pod: Pod, *, timed: bool) -> PodStatus:
    status, spec = pod.status, pod.spec
    by_itself = spec.resources is not None  # otherwise what the kubelet says of the pod as a whole is not asked for
    return PodStatus(
        phase=status.phase,
        nominated_node_name="" if spec.node_name else status.nominated_node_name,
        start_time=status.start_time if timed else "",
        conditions=tuple(
            PodCondition(type=item.type, status=item.status) for item in status.conditions if item.type == "Ready"
        ),
        container_statuses=_resizing(status.container_statuses, spec.containers),
        init_container_statuses=_resizing(status.init_container_statuses, spec.init_containers),
        resources=status.resources if by_itself else None,
        allocated_resources=status.allocated_resources if by_itself else {},
    )


def _resizing(statuses: Sequence[ContainerStatus], containers: Sequence[Container]) -> tuple[ContainerStatus, ...]:
    """The statuses that change what the pod takes: the others say again what the container asks for."""
    if not statuses:
        return _NO_STATUS
    asked = {container.name: container.resources.requests for container in containers}
    return tuple(
        ContainerStatus(
            name=item.name,
            allocated_resources=item.allocated_resources,
            resources=None if item.resources is None else ResourceRequirements(requests=item.resources.requests),
        )
        for item in statuses
        if item.name in asked and not _says_the_same(item, asked[item.name])
    )


def _says_the_same(status: ContainerStatus, requests: Mapping[str, str | int | float]) -> bool:
    allocated, actual = status.allocated_resources, status.resources
    return (not allocated or allocated == requests) and (actual is None or actual.requests == requests)

"""Computes what a pod requests of a node, by kube-scheduler's rule for containers, sidecars and init containers.

A decision converts every pod of the cluster, so pods without init containers, overhead or a resize skip that work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shiplap.kubernetes.objects import (
    MOST_ENTRIES,
    Container,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from shiplap.kubernetes.quantity import PODS, add_resources, parse_amount, parse_resources

RESIZE_PENDING = "PodResizePending"
"""The condition of a pod whose resize the kubelet has not accepted; the reason is Deferred or Infeasible."""


def pod_requests(pod: Pod) -> dict[str, int]:
    """The resources to set aside for a pod, in canonical units, `pods: 1` included and zero amounts left out.

    The rule is Kubernetes' (component-helpers, resource.PodRequests): the containers and sidecars together, or the
    largest step of the init sequence if that is more (each init container next to the sidecars started before it);
    pod-level resources replace that sum per resource; RuntimeClass overhead comes on top. While a resize is under way
    or deferred, the larger of what is wanted and what the kubelet still holds counts; of a resize that the kubelet
    calls infeasible, only what it holds. A limit without a request is a request.

    Where versions of Kubernetes differ, the larger amount counts. From 1.37 on, kube-scheduler counts what init
    containers and containers without actual resources hold, and compares sums over the containers: the sum of the
    larger amounts, which older versions count, is never less.

    Raises:
        ValueError: a quantity is malformed, and the message names the resource; or there are more than `MOST_ENTRIES`
            resources.
    """
    spec = pod.spec
    total = _running(spec, pod.status)
    if spec.init_containers:
        total = _with_init_sequence(spec, pod.status, total)
    if spec.resources is not None:
        total |= _pod_level(spec.resources, pod.status, total)
    if spec.overhead:
        total = add_resources(total, parse_resources(spec.overhead))
    for resource in [resource for resource, amount in total.items() if amount == 0]:
        del total[resource]
    total[PODS] = 1
    return total


def _running(spec: PodSpec, status: PodStatus) -> dict[str, int]:
    """The sum of the containers proper, in a dict of its own."""
    total: dict[str, int] = {}
    known = {container.name: container for container in status.container_statuses}
    for container in spec.containers:
        wanted = _held(container, known, status)
        if total:
            for resource, amount in wanted.items():
                total[resource] = total.get(resource, 0) + amount
        else:
            total = wanted
        _check_number(total)
    return total


def _check_number(resources: Mapping[str, int]) -> None:
    if len(resources) > MOST_ENTRIES:
        raise ValueError(f"asks for more than {MOST_ENTRIES} resources")


def _with_init_sequence(spec: PodSpec, status: PodStatus, running: Mapping[str, int]) -> dict[str, int]:
    """Containers and sidecars together, or the largest init step, whichever is more, per resource."""
    known = {container.name: container for container in status.init_container_statuses}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.init_containers:
        stays = container.restart_policy == "Always"
        for resource, amount in _held(container, known, status).items():
            step = sidecars.get(resource, 0) + amount
            if step > peak.get(resource, -1):
                peak[resource] = step
            if stays:
                sidecars[resource] = step
        _check_number(peak)
    return _larger((add_resources(running, sidecars), peak))


def _pod_level(resources: ResourceRequirements, status: PodStatus, containers: Mapping[str, int]) -> dict[str, int]:
    """The pod-level resources; a limit without a request counts only for resources that no container requests."""
    wanted = parse_resources(resources.requests)
    for resource, amount in parse_resources(resources.limits).items():
        if resource not in containers:
            wanted.setdefault(resource, amount)
    if status.resources is None:
        return wanted
    held = _larger((parse_resources(status.allocated_resources), parse_resources(status.resources.requests)))
    counted = {resource: amount for resource, amount in held.items() if resource in wanted}
    return wanted | counted if is_resize_infeasible(status) else _larger((wanted, counted))


def _held(container: Container, known: Mapping[str, ContainerStatus], pod: PodStatus) -> dict[str, int]:
    """A container's requests, or what its kubelet still holds for it if that is more."""
    wanted = _declared(container.resources)
    status = known.get(container.name)
    if status is None:
        return wanted
    requests, allocated, actual = container.resources.requests, status.allocated_resources, status.resources
    # Equal text is the rule once a pod runs; only a resize makes a difference worth parsing.
    if (not allocated or allocated == requests) and (actual is None or actual.requests == requests):
        return wanted
    if actual is None:  # before 1.37, kube-scheduler counts what is wanted
        return _larger((wanted, parse_resources(allocated)))
    held = (parse_resources(allocated), parse_resources(actual.requests))
    return _larger(held if is_resize_infeasible(pod) else (wanted, *held))


def is_resize_infeasible(status: PodStatus) -> bool:
    """True if the kubelet refuses a pod's resize for good; a resize that it defers may still come."""
    for condition in status.conditions:
        if condition.type == RESIZE_PENDING:
            return condition.reason == "Infeasible"
    return False


def _declared(resources: ResourceRequirements) -> dict[str, int]:
    """Requests in canonical units, with limits standing in for requests that are absent."""
    try:
        amounts = {resource: parse_amount(resource, text) for resource, text in resources.requests.items()}
        for resource, text in resources.limits.items():
            if resource not in amounts:
                amounts[resource] = parse_amount(resource, text)
    except ValueError:
        # Parsed again by the slower function, whose message names the resource.
        return parse_resources({**resources.limits, **resources.requests})
    return amounts


def _larger(lists: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The maximum per resource."""
    largest: dict[str, int] = {}
    for amounts in lists:
        for resource, amount in amounts.items():
            if amount > largest.get(resource, -1):
                largest[resource] = amount
    return largest

"""Adds to pods what an API server adds: its own defaults, and those of classes and LimitRanges of the cluster.

A ServiceAccount adds a token and secrets for images, DefaultTolerationSeconds tolerations of failing nodes: none
of them changes where a pod can run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes.objects import Container, DaemonSet, ObjectMeta, Pod, PodSpec, Quantity, Toleration

_Amounts = dict[str, str | int | float]

_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""PriorityClasses that every API server makes (SystemPriorityClasses of scheduling.k8s.io)."""


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Overhead(_Fields, frozen=True):
    pod_fixed: _Amounts = {}


class _Scheduling(_Fields, frozen=True):
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(_Fields, frozen=True):
    """node.k8s.io/v1."""

    metadata: ObjectMeta
    overhead: _Overhead = _Overhead()
    scheduling: _Scheduling = _Scheduling()


class PriorityClass(_Fields, frozen=True):
    """scheduling.k8s.io/v1."""

    metadata: ObjectMeta
    value: int = 0
    global_default: bool = False


class LimitRangeItem(_Fields, frozen=True):
    """Amounts of what `type` names; only those of a Container are defaults."""

    type: str = ""
    default: _Amounts = {}
    default_request: _Amounts = {}
    max: _Amounts = {}
    min: _Amounts = {}


class _LimitRangeSpec(_Fields, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(_Fields, frozen=True):
    """v1."""

    metadata: ObjectMeta
    spec: _LimitRangeSpec = _LimitRangeSpec()


class Admission:
    """Fills in what an API server would have, if these were all classes and LimitRanges of the cluster."""

    def __init__(
        self,
        runtimes: Iterable[RuntimeClass],
        priorities: Iterable[PriorityClass],
        limit_ranges: Iterable[LimitRange] = (),
    ) -> None:
        classes = sorted(priorities, key=lambda item: item.metadata.name)
        self._runtimes = {runtime_class.metadata.name: runtime_class for runtime_class in runtimes}
        self._priorities = _SYSTEM_PRIORITIES | {item.metadata.name: item.value for item in classes}
        # Two defaults cannot be made any more, but may be older than that rule: the lowest counts then.
        defaults = [item for item in classes if item.global_default]
        self._default = min(defaults, key=lambda item: item.value).metadata.name if defaults else ""
        self._limits: dict[str, list[LimitRangeItem]] = {}
        for limit_range in sorted(limit_ranges, key=lambda item: item.metadata.name):
            of_containers = [item for item in limit_range.spec.limits if item.type == "Container"]
            self._limits.setdefault(limit_range.metadata.namespace or "default", []).extend(of_containers)

    def pod(self, pod: Pod) -> Pod:
        """A pod of a file as an API server has it: one without a uid has not been created yet."""
        if not pod.metadata.uid:
            return self.new_pod(pod)
        spec = self._with_classes(pod.spec)
        return pod if spec is pod.spec else replace(pod, spec=spec)

    def new_pod(self, pod: Pod) -> Pod:
        """A pod that is yet to be created, as an API server will have it."""
        return replace(pod, spec=self._new(pod.spec, pod.metadata.namespace or "default"))

    def daemon_set(self, item: DaemonSet) -> DaemonSet:
        """The set with a template as its pods would be."""
        template = item.spec.template
        spec = self._new(template.spec, item.metadata.namespace or "default")
        if spec is template.spec:
            return item
        return replace(item, spec=replace(item.spec, template=replace(template, spec=spec)))

    def priority(self, class_name: str) -> int | None:
        """The priority of a class, or of the default one where none is named; None where there is no such class."""
        return self._priorities.get(class_name or self._default)

    def _new(self, spec: PodSpec, namespace: str) -> PodSpec:
        if spec.host_network:
            spec = _each_container(spec, _with_host_ports)
        for item in self._limits.get(namespace, ()):
            spec = _each_container(spec, partial(_within, item))
        if not spec.priority_class_name and self._default:
            spec = replace(spec, priority_class_name=self._default)
        return self._with_classes(spec)

    def _with_classes(self, spec: PodSpec) -> PodSpec:
        priority = self._priorities.get(spec.priority_class_name, 0)
        if priority and not spec.priority:
            spec = replace(spec, priority=priority)
        runtime = self._runtimes.get(spec.runtime_class_name)
        if runtime is None or spec.overhead:
            return spec
        added = [entry for entry in runtime.scheduling.tolerations if entry not in spec.tolerations]
        return replace(
            spec,
            overhead=runtime.overhead.pod_fixed,
            node_selector={**runtime.scheduling.node_selector, **spec.node_selector},
            tolerations=(*spec.tolerations, *added),
        )


def _each_container(spec: PodSpec, change: Callable[[Container], Container]) -> PodSpec:
    return replace(
        spec,
        containers=tuple(map(change, spec.containers)),
        init_containers=tuple(map(change, spec.init_containers)),
    )


def _with_host_ports(container: Container) -> Container:
    """With the ports that a container on the network of its host takes there: those it names."""
    ports = tuple(port if port.host_port else replace(port, host_port=port.container_port) for port in container.ports)
    return replace(container, ports=ports)


def _within(item: LimitRangeItem, container: Container) -> Container:
    """With what a LimitRange gives to containers that say nothing of a resource.

    A container's own limit is its request before that; the LimitRange's maximum is its default, its default limit its
    default request, and its minimum the request otherwise (SetDefaults_LimitRangeItem).
    """
    default: Mapping[str, Quantity] = {**item.max, **item.default}
    default_request = {**item.min, **default, **item.default_request}
    own = container.resources
    resources = replace(
        own,
        requests={**default_request, **own.limits, **own.requests},
        limits={**default, **own.limits},
    )
    return replace(container, resources=resources)

"""What an API server fills in when it admits a pod, for pods in files that no API server has seen.

A RuntimeClass adds its overhead and where its pods may run, a PriorityClass its number. Pods that were admitted have
all of it already and stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes.objects import DaemonSet, ObjectMeta, Pod, PodSpec, Toleration


class _Fields(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Overhead(_Fields, frozen=True):
    pod_fixed: dict[str, str | int | float] = {}


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


class Admission:
    """Fills in what the classes of a cluster say."""

    def __init__(self, runtimes: Iterable[RuntimeClass], priorities: Iterable[PriorityClass]) -> None:
        self._runtimes = {item.metadata.name: item for item in runtimes}
        self._priorities = {item.metadata.name: item.value for item in priorities}

    def pod(self, pod: Pod) -> Pod:
        """The pod as an API server would have it."""
        spec = self._admitted(pod.spec)
        return pod if spec is pod.spec else replace(pod, spec=spec)

    def daemon_set(self, item: DaemonSet) -> DaemonSet:
        """The set with a template as its pods would be."""
        template = item.spec.template
        spec = self._admitted(template.spec)
        if spec is template.spec:
            return item
        return replace(item, spec=replace(item.spec, template=replace(template, spec=spec)))

    def _admitted(self, spec: PodSpec) -> PodSpec:
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

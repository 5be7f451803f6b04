"""Typed views of the objects around pods that topology constraints may ask about: namespaces, Services, controllers.

Apart from `objects`, because most decisions read none of them: namespaces are listed only when a pod selects them by
their labels, the others only where a cluster has default spread constraints.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shiplap.kubernetes.objects import ApiObject, LabelSelector, Pod, PodTemplateSpec

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label every namespace carries: its name."""


class ObjectIdentity(ApiObject, frozen=True):
    """The fields kept of an object's metadata: annotations may hold whole manifests with secrets of users."""

    name: str = ""
    namespace: str = ""
    creation_timestamp: str | None = ""


class LabelledIdentity(ObjectIdentity, frozen=True):
    labels: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it


class Namespace(ApiObject, frozen=True):
    metadata: LabelledIdentity = LabelledIdentity()


class ServiceSpec(ApiObject, frozen=True):
    """`selector` is empty for a Service whose endpoints are managed elsewhere, and null for one that is only a name."""

    selector: dict[str, str] | None = None


class Service(ApiObject, frozen=True):
    metadata: ObjectIdentity = ObjectIdentity()
    spec: ServiceSpec = ServiceSpec()


class ControllerSpec(ApiObject, frozen=True):
    selector: LabelSelector | None = None


class ReplicaSet(ApiObject, frozen=True):
    metadata: ObjectIdentity = ObjectIdentity()
    spec: ControllerSpec = ControllerSpec()


class StatefulSet(ApiObject, frozen=True):
    metadata: ObjectIdentity = ObjectIdentity()
    spec: ControllerSpec = ControllerSpec()


class ReplicationController(ApiObject, frozen=True):
    """Selects by plain labels, as a Service does."""

    metadata: ObjectIdentity = ObjectIdentity()
    spec: ServiceSpec = ServiceSpec()


class ScalableSpec(ApiObject, frozen=True):
    replicas: int | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class Scalable(ApiObject, frozen=True):
    """A Deployment, StatefulSet or ReplicaSet, as far as its number and its pods go; absent replicas are 1."""

    kind: str = ""
    metadata: ObjectIdentity = ObjectIdentity()
    spec: ScalableSpec = ScalableSpec()


class ScalableName(msgspec.Struct, frozen=True, order=True):
    """Which workload is meant; `kind` is one of SCALABLE_PLURALS."""

    namespace: str
    kind: str
    name: str


SCALABLE_PLURALS = {"Deployment": "deployments", "ReplicaSet": "replicasets", "StatefulSet": "statefulsets"}
"""How URLs call the kinds of apps/v1 that a CapacityBuffer may be made of."""


def needs_namespaces(pods: Iterable[Pod]) -> bool:
    """Whether any pod, bound or pending, selects namespaces by labels other than their names."""
    return any(pod.spec.affinity is not None and _selects_namespaces(pod) for pod in pods)


def selects_by_name_only(selector: LabelSelector) -> bool:
    """Whether a selector over namespaces asks for nothing but their names, so that it needs no other labels."""
    expressions = selector.match_expressions
    return selector.match_labels.keys() <= {NAMESPACE_NAME} and all(item.key == NAMESPACE_NAME for item in expressions)


def _selects_namespaces(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ():
        if part is None:
            continue
        for term in (*part.required, *(entry.pod_affinity_term for entry in part.preferred)):
            if term.namespace_selector is not None and not selects_by_name_only(term.namespace_selector):
                return True
    return False

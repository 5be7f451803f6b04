"""Reads from pods which gang they belong to, in the words of each scheduler that knows gangs.

What a pod says itself counts: labels and annotations. Where it only names a PodGroup, that object says how many members
the gang needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes.labels import ANNOTATIONS_OF_CONSUMERS
from shiplap.kubernetes.names import has_no_object
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.shiplap_annotations import PREFIX
from shiplap.manifests.times import go_seconds

KUBERNETES = "scheduling.k8s.io"
KUEUE = "kueue.x-k8s.io"
SCHEDULER_PLUGINS = "scheduling.x-k8s.io"
VOLCANO = "scheduling.volcano.sh"
KAI = "scheduling.run.ai"
OWNER = "owner"
"""Groups of APIs, and the mark of gangs whose members have one owner."""

REQUESTS = "autoscaling.x-k8s.io"
"""The group of ProvisioningRequests, whose pods have no objects."""

REQUEST = ANNOTATIONS_OF_CONSUMERS[0]
REQUESTED = f"{PREFIX}requested-pods"
"""Annotations of pods without objects: the name of their request, and how many pods it asks for."""

POD_GROUP_APIS = (KUBERNETES, SCHEDULER_PLUGINS, VOLCANO, KAI)
"""The groups of APIs that have PodGroups."""

MINIMUM = f"{PREFIX}gang-minimum"
"""Annotation of pods: so many pods of their owner are needed together."""

DEADLINE = f"{PREFIX}gang-deadline"
"""Annotation of pods: a duration since their creation, after which their gang is given up."""

_KUEUE_GROUP = f"{KUEUE}/pod-group-name"
_KUEUE_TOTAL = f"{KUEUE}/pod-group-total-count"
_KUEUE_TOPOLOGY = f"{KUEUE}/podset-required-topology"
_PLUGINS_GROUP = f"{SCHEDULER_PLUGINS}/pod-group"
_VOLCANO_GROUPS = ("scheduling.k8s.io/group-name", f"{VOLCANO}/group-name")
_KAI_GROUP = "pod-group-name"
_DIGITS = 6
"""More digits than the number of pods of a cluster has."""

_OWNERS = (
    ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"),
    ("jobset.sigs.k8s.io/jobset-name",),
    ("ray.io/cluster",),
    ("training.kubeflow.org/job-name",),
)
"""Labels by which pods name the object above their controllers, each group of labels as a whole."""


class Membership(msgspec.Struct, frozen=True):
    """The gang that a pod says to be of. A `minimum` of 0 is said by the PodGroup."""

    api: str
    name: str
    minimum: int = 0
    topology: str = ""
    deadline_s: float = 0.0
    problem: str = ""


def membership(pod: Pod) -> Membership | None:
    """Return the gang that a pod belongs to; None if it is of none."""
    meta = pod.metadata
    if has_no_object(meta.name):
        return _counted(REQUESTS, meta.annotations.get(REQUEST, ""), REQUESTED, meta.annotations)
    if pod.spec.scheduling_group is not None and pod.spec.scheduling_group.pod_group_name:
        return _timed(Membership(KUBERNETES, pod.spec.scheduling_group.pod_group_name), meta.annotations)
    found = _by_label(meta.labels, meta.annotations) if meta.labels else None
    if found is None and meta.annotations:
        found = _by_annotation(pod)
    return _timed(found, meta.annotations) if found is not None else None


def _timed(found: Membership, annotations: Mapping[str, str]) -> Membership:
    """Return the membership with the deadline that the pod states."""
    text = annotations.get(DEADLINE)
    if text is None:
        return found
    try:
        lasts_s = go_seconds(text)
    except ValueError as error:
        return replace(found, problem=f"annotation {DEADLINE}: {error}")
    if lasts_s <= 0:
        return replace(found, problem=f"annotation {DEADLINE} is {text!r}: it must be longer than nothing")
    return replace(found, deadline_s=lasts_s)


def _by_label(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Membership | None:
    if name := labels.get(_KUEUE_GROUP):
        return _counted(KUEUE, name, _KUEUE_TOTAL, annotations)
    if name := labels.get(_PLUGINS_GROUP):
        return Membership(SCHEDULER_PLUGINS, name)
    return None


def _by_annotation(pod: Pod) -> Membership | None:
    annotations = pod.metadata.annotations
    if group := next((annotations[key] for key in _VOLCANO_GROUPS if annotations.get(key)), ""):
        return Membership(VOLCANO, group)
    if name := annotations.get(_KAI_GROUP):
        return Membership(KAI, name)
    return _counted(OWNER, _owner_of(pod), MINIMUM, annotations) if MINIMUM in annotations else None


def _counted(api: str, name: str, key: str, annotations: Mapping[str, str]) -> Membership:
    text = annotations.get(key, "")
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text)):
        said = f"is {text!r}" if key in annotations else "is missing"
        return Membership(api, name, problem=f"annotation {key} {said}: it must be how many pods are needed together")
    return Membership(api, name, int(text), annotations.get(_KUEUE_TOPOLOGY, ""))


def _owner_of(pod: Pod) -> str:
    """Name what the members of a gang have in common: the object that made them; a pod without any is alone."""
    labels = pod.metadata.labels
    for keys in _OWNERS:
        if all(labels.get(key) for key in keys):
            return "-".join(labels[key] for key in keys)
    owners = pod.metadata.owner_references
    controller = next((owner for owner in owners if owner.controller), owners[0] if owners else None)
    return controller.name if controller is not None else pod.metadata.name


Asked = tuple[str, str, str]
"""Group of the API, namespace and name of a PodGroup."""


def named_pod_groups(pods: Iterable[Pod]) -> tuple[Asked, ...]:
    """The PodGroups that pods name and that alone say how large the gang is, sorted."""
    named = set()
    for pod in pods:
        item = membership(pod)
        if item is not None and item.api in POD_GROUP_APIS:
            named.add((item.api, pod.metadata.namespace or "default", item.name))
    return tuple(sorted(named))

"""Requests to the Kubernetes API: selectors of lists and bodies of writes.

The adapter and the in-memory fake both use these, so that the fake receives exactly what an API server would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2s
from typing import Any

import msgspec

from shiplap.kubernetes.objects import TERMINAL_PHASES, Event, Pod, Taint

_NOT_FINISHED = ",".join(f"status.phase!={phase}" for phase in TERMINAL_PHASES)

PENDING_PODS = f"spec.nodeName=,{_NOT_FINISHED}"
"""Field selector of pods that wait for a node; finished pods hold no resources and are left out."""

BOUND_PODS = f"spec.nodeName!=,{_NOT_FINISHED}"
"""Field selector of pods that hold a node's resources."""

SCALE_UP_EVENTS = "reason=TriggeredScaleUp"
"""Field selector of Cluster Autoscaler's events about pods it has just scaled up for."""


def pending_pod(name: str) -> str:
    """One pod of a namespace, while it waits for a node: API servers look it up by its key, without a search."""
    return f"metadata.name={name},{PENDING_PODS}"


def pods_on(node: str) -> str:
    """Field selector of the unfinished pods of one node."""
    return f"spec.nodeName={node},{_NOT_FINISHED}"


def registration_patch(
    labels: Mapping[str, str | None],
    annotations: Mapping[str, str],
    taints: Sequence[Taint],
    resource_version: str,
    owner: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A JSON merge patch of a Node: labels and annotations are merged, taints replaced; a label of None goes.

    `owner` becomes its only owner.

    The resourceVersion makes the API server refuse the patch when the node changed since it was read; without it, a
    taint added in between would be lost.
    """
    return {
        "metadata": {
            "resourceVersion": resource_version,
            "labels": dict(labels),
            "annotations": dict(annotations),
            **({"ownerReferences": [dict(owner)]} if owner is not None else {}),
        },
        "spec": {"taints": msgspec.to_builtins(tuple(taints))},
    }


def template_patch(annotations: Mapping[str, str], uid: str, resource_version: str) -> dict[str, Any]:
    """A JSON merge patch of a workload's pod template; uid and resourceVersion keep it from what was not read."""
    return {
        "metadata": {"uid": uid, "resourceVersion": resource_version},
        "spec": {"template": {"metadata": {"annotations": dict(annotations)}}},
    }


def pod_annotations_patch(pod: Pod, annotations: Mapping[str, str | None]) -> dict[str, Any]:
    """A JSON merge patch of a pod's annotations, None removes one; uid and resourceVersion as in `template_patch`."""
    metadata = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    return {"metadata": {**metadata, "annotations": dict(annotations)}}


def nomination_patch(pod: Pod, node: str) -> dict[str, Any]:
    """A JSON merge patch of a pod's status; the uid keeps it from a pod recreated under the same name."""
    return {"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": node}}


def eviction_body(pod: Pod, grace_s: int | None) -> dict[str, Any]:
    """An Eviction; the uid keeps it from a pod recreated under the same name. Without `grace_s` the pod's own holds."""
    options: dict[str, Any] = {"preconditions": {"uid": pod.metadata.uid}}
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
        "deleteOptions": options,
    }


def binding_body(pod: Pod, node: str) -> dict[str, Any]:
    """A Binding of a pod to a node; the uid keeps it from a pod recreated under the same name."""
    metadata = pod.metadata
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def deletion_body(uid: str, grace_s: int | None = None) -> dict[str, Any]:
    """DeleteOptions for the object with this uid and no other of its name."""
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
    return options if grace_s is None else {**options, "gracePeriodSeconds": grace_s}


def event_body(event: Event) -> dict[str, Any]:
    """An Event ready to be created: named after its object and content, in its object's namespace.

    The name is a digest of all but the time, so that an equal event creates nothing while the first one is kept (an
    hour): no memory is needed to avoid repetitions.
    """
    involved = event.involved_object
    content = (involved, event.reason, event.message, event.type, event.reporting_component, event.source)
    digest = blake2s(msgspec.json.encode(content), digest_size=8).hexdigest()
    body: dict[str, Any] = {"count": 1, "firstTimestamp": event.last_timestamp or None} | msgspec.to_builtins(event)
    body["metadata"] = {
        **body.get("metadata", {}),
        "name": event.metadata.name or f"{involved.name}.{digest}",
        "namespace": event.metadata.namespace or involved.namespace or "default",
    }
    return body

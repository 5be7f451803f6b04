"""PersistentVolumeClaims of pods, as kube-scheduler and a CSI provisioner of zonal disks treat them.

A bound claim keeps its pod to the nodes that its volume's node affinity allows. One that waits for its first consumer
gets a volume in the zone of the node that is chosen, if its StorageClass allows the zone. Limits of attached volumes
and volumes made in advance are not imitated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shiplap.errors import ObjectNotFound
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.related_objects import PersistentVolume, PersistentVolumeClaim, StorageClass
from shiplap.kubernetes.selectors import term_matches
from shiplap_lab.api_server.server import ApiServer

CONFLICT = "node(s) had volume node affinity conflict"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"

_BOUND = "pv.kubernetes.io/bind-completed"
"""What the volume controller writes on a claim at last."""

_WAITS = "WaitForFirstConsumer"


class VolumeFilter:
    """Keeps one pod off nodes because of its volumes. `problem` keeps it off all nodes."""

    def __init__(self, problem: str, volumes: Sequence[PersistentVolume], classes: Sequence[StorageClass]) -> None:
        self.problem = problem
        self._volumes, self._classes = volumes, classes

    def refusals(self, node: Node) -> list[str]:
        """Return why the pod must not be on this node, in kube-scheduler's words; empty if it may."""
        if self.problem:
            return [self.problem]
        if not all(_is_reachable(volume, node) for volume in self._volumes):
            return [CONFLICT]
        return [] if all(_allows(item, node) for item in self._classes) else [NO_VOLUME]


class VolumeBinder:
    """The claims of pods in one cluster."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def filter(self, pod: Pod) -> VolumeFilter:
        """Return the filter for nodes that the pod's claims allow now."""
        volumes, classes = [], []
        for name in claims_of(pod):
            claim = self._claim(pod, name)
            if claim is None:
                return VolumeFilter(f'persistentvolumeclaim "{name}" not found', (), ())
            if claim.spec.volume_name and claim.metadata.annotations.get(_BOUND):
                stored = self._server.get("persistentvolumes", claim.spec.volume_name)
                volumes.append(self._server.typed(stored, PersistentVolume))
                continue
            storage_class = self._class(claim)
            if storage_class is None or storage_class.volume_binding_mode != _WAITS:
                return VolumeFilter(UNBOUND, (), ())
            classes.append(storage_class)
        return VolumeFilter("", volumes, classes)

    def bind(self, pod: Pod, node: Node) -> None:
        """Make the volumes that the pod's claims still lack, in the node's zone."""
        for name in claims_of(pod):
            claim = self._claim(pod, name)
            storage_class = self._class(claim) if claim is not None and not claim.spec.volume_name else None
            if claim is not None and storage_class is not None:
                self._provision(claim, storage_class, node.metadata.labels.get(labels.ZONE, ""))

    def _provision(self, claim: PersistentVolumeClaim, storage_class: StorageClass, zone: str) -> None:
        metadata = claim.metadata
        volume = f"pvc-{metadata.uid or metadata.name}"
        stored = self._server.get("persistentvolumeclaims", metadata.name, metadata.namespace)
        asked = ((stored["spec"].get("resources") or {}).get("requests") or {}).get("storage")
        capacity = {"capacity": {"storage": asked}} if asked else {}
        body = _volume(volume, claim, storage_class, zone)
        self._server.create("persistentvolumes", {**body, "spec": {**body["spec"], **capacity}})
        spec = {"metadata": {"annotations": {_BOUND: "yes"}}, "spec": {"volumeName": volume}}
        self._server.patch("persistentvolumeclaims", metadata.name, spec, metadata.namespace)
        status = {"status": {"phase": "Bound", **capacity}}
        self._server.patch("persistentvolumeclaims", metadata.name, status, metadata.namespace, subresource="status")

    def _claim(self, pod: Pod, name: str) -> PersistentVolumeClaim | None:
        try:
            stored = self._server.get("persistentvolumeclaims", name, pod.metadata.namespace)
        except ObjectNotFound:
            return None
        return self._server.typed(stored, PersistentVolumeClaim)

    def _class(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        try:
            stored = self._server.get("storageclasses", claim.spec.storage_class_name or "")
        except ObjectNotFound:
            return None
        return self._server.typed(stored, StorageClass)


def claims_of(pod: Pod) -> list[str]:
    """The names of the pod's claims."""
    named = (volume.persistent_volume_claim for volume in pod.spec.volumes)
    return [source.claim_name for source in named if source is not None]


def _is_reachable(volume: PersistentVolume, node: Node) -> bool:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(term_matches(term, node) for term in affinity.required.node_selector_terms)


def _allows(storage_class: StorageClass, node: Node) -> bool:
    terms = storage_class.allowed_topologies
    return not terms or any(
        all(node.metadata.labels.get(item.key) in item.values for item in term.match_label_expressions)
        for term in terms
    )


def _volume(name: str, claim: PersistentVolumeClaim, storage_class: StorageClass, zone: str) -> dict[str, Any]:
    expression = {"key": labels.ZONE, "operator": "In", "values": [zone]}
    reference = {"kind": "PersistentVolumeClaim", "namespace": claim.metadata.namespace, "name": claim.metadata.name}
    return {
        "metadata": {"name": name},
        "spec": {
            "csi": {"driver": storage_class.provisioner, "volumeHandle": name},
            "storageClassName": storage_class.metadata.name,
            "accessModes": list(claim.spec.access_modes),
            "claimRef": reference,
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
        "status": {"phase": "Bound"},
    }

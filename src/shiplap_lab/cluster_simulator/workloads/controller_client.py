"""The API as a controller of workloads sees it during one step: what belongs to whom, and the writes it makes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, TypeVar

import msgspec

from shiplap.errors import ObjectConflict, ObjectNotFound
from shiplap.kubernetes.objects import TERMINAL_PHASES, LabelSelector, OwnerReference, Pod
from shiplap.kubernetes.selectors import matches
from shiplap.kubernetes.timestamps import epoch, rfc3339
from shiplap_lab.api_server.changelog import Object
from shiplap_lab.api_server.server import ApiServer, ListOptions

Spec = TypeVar("Spec", bound=msgspec.Struct)

MOST_PODS = 1000
"""Pods that have not ended, in a cluster: workloads make no more, as under a ResourceQuota."""

_BURST = 500
"""Pods that one workload makes in a step."""

_DEPENDENTS = ("replicasets", "jobs", "controllerrevisions")


class ControllerClient:
    """Reads are of the moment at which the step began; writes go to the server at once.

    Attributes:
        now: epoch seconds.
        wake_at: when somebody has to look again although nothing changes.
    """

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.now = server.now
        self.wake_at = inf
        self._pods: dict[str, list[Pod]] = defaultdict(list)
        self._lone_pods: dict[str, list[Pod]] = defaultdict(list)
        self._owned: dict[tuple[str, str], list[Object]] = defaultdict(list)
        self._alive = 0
        for item in server.list("pods").items:
            pod = server.typed(item, Pod)
            self._alive += pod.status.phase not in TERMINAL_PHASES
            owner = controller_of(pod.metadata.owner_references)
            if owner is None:
                self._lone_pods[pod.metadata.namespace].append(pod)
            else:
                self._pods[owner.uid].append(pod)
        for plural in _DEPENDENTS:
            for item in server.list(plural).items:
                self._owned[plural, _controller_uid(item)].append(item)

    def spec(self, item: Object, kind: type[Spec]) -> Spec:
        """The spec of a workload; fields that are null have their defaults."""
        given = {name: value for name, value in (item.get("spec") or {}).items() if value is not None}
        return msgspec.convert(given, kind)

    def pods_of(self, item: Object) -> list[Pod]:
        """Every pod whose controller the object is, by name."""
        return self._pods.get(item["metadata"]["uid"], [])

    def owned(self, plural: str, item: Object) -> list[Object]:
        """The objects of a kind whose controller the object is, by name."""
        return self._owned.get((plural, item["metadata"]["uid"]), [])

    def claimed_pods(self, item: Object, selector: LabelSelector) -> list[Pod]:
        """The pods that a selector gives to their controller: strays are adopted, those that left it are released."""
        kept = []
        for pod in self.pods_of(item):
            if matches(selector, pod.metadata.labels) or pod.metadata.deletion_timestamp:
                kept.append(pod)
            else:
                self.patch_metadata("pods", pod.metadata.name, pod.metadata.namespace, {"ownerReferences": None})
        lone = self._lone_pods.get(item["metadata"]["namespace"], [])
        for pod in [pod for pod in lone if matches(selector, pod.metadata.labels) and is_active(pod)]:
            lone.remove(pod)
            owners = {"ownerReferences": [owner_reference(item)]}
            self.patch_metadata("pods", pod.metadata.name, pod.metadata.namespace, owners)
            kept.append(pod)
        return kept

    def adopted(self, plural: str, item: Object, selector: LabelSelector) -> list[Object]:
        """The objects of a kind that belong to the object, and strays in its namespace that its selector matches."""
        found = list(self.owned(plural, item))
        for stray in self._owned.get((plural, ""), []):
            metadata = stray["metadata"]
            near = metadata["namespace"] == item["metadata"]["namespace"]
            if near and matches(selector, metadata.get("labels") or {}):
                owners = {"ownerReferences": [owner_reference(item)]}
                found.append(self.patch_metadata(plural, metadata["name"], metadata["namespace"], owners))
        return found

    def patch_metadata(self, plural: str, name: str, namespace: str, metadata: dict[str, Any]) -> Object:
        """Change what metadata an object has."""
        return self.server.patch(plural, name, {"metadata": metadata}, namespace)

    def set_status(self, plural: str, item: Object, status: dict[str, Any]) -> None:
        """Report; nothing is written when the report is the same as before."""
        metadata = item["metadata"]
        try:
            current = self.server.get(plural, metadata["name"], metadata["namespace"])
        except ObjectNotFound:
            return  # its deletion ends what its controller reports
        report = {name: value for name, value in status.items() if value not in (None, "", [])}
        if current.get("status") != report:
            self.server.replace(plural, {**current, "status": report}, subresource="status")

    def scale(self, plural: str, item: Object, replicas: int) -> None:
        """Set how many pods an object wants."""
        metadata = item["metadata"]
        self.server.patch(plural, metadata["name"], {"spec": {"replicas": replicas}}, metadata["namespace"])

    def create_pods(self, item: Object, bodies: Iterable[Object], missing: int) -> str:
        """Create pods that are missing, some of them in this step; why one was refused, else nothing."""
        metadata = item["metadata"]
        for body, _ in zip(bodies, range(min(missing, _BURST)), strict=False):
            if self._alive >= MOST_PODS:
                wanted = body["metadata"].get("name") or body["metadata"]["generateName"]
                return (
                    f'pods "{wanted}" is forbidden: exceeded quota: playground, requested: pods=1, '
                    f"used: pods={self._alive}, limited: pods={MOST_PODS}"
                )
            try:
                self.server.create("pods", body, metadata["namespace"])
            except ObjectConflict as error:
                return str(error)
            self._alive += 1
        if missing > _BURST:
            self.wake_at = self.now
        return ""

    def delete(self, plural: str, name: str, namespace: str) -> None:
        """Delete what may be gone already."""
        try:
            self.server.delete(plural, name, namespace)
        except ObjectNotFound:
            return

    def delete_pods(self, pods: Sequence[Pod]) -> None:
        """Delete pods, each within its grace period."""
        for pod in pods:
            self.delete("pods", pod.metadata.name, pod.metadata.namespace)

    def event(self, item: Object, reason: str, message: str, kind: str = "Normal") -> None:
        """Tell people what was done about an object; a warning only once."""
        metadata, moment = item["metadata"], rfc3339(self.now)
        if kind == "Warning":
            told = self.server.list("events", ListOptions(metadata["namespace"], "", f"reason={reason}")).items
            if any(each["involvedObject"].get("uid") == metadata["uid"] for each in told):
                return
        involved = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion")}
        body = {
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            "involvedObject": {"kind": item["kind"], "apiVersion": item["apiVersion"], **involved},
            "reason": reason,
            "message": message,
            "type": kind,
            "source": {"component": f"{item['kind'].lower()}-controller"},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        self.server.create("events", body)

    def is_available(self, pod: Pod, min_ready_s: int) -> bool:
        """True if a pod has been Ready for so long."""
        for condition in pod.status.conditions:
            if condition.type == "Ready" and condition.status == "True":
                if not min_ready_s:
                    return True
                since = epoch(condition.last_transition_time or rfc3339(self.now))
                if since + min_ready_s > self.now:
                    self.wake_at = min(self.wake_at, since + min_ready_s)
                return since + min_ready_s <= self.now
        return False


def is_active(pod: Pod) -> bool:
    """True if a pod counts as a replica: it has not ended and nobody has deleted it."""
    return pod.status.phase not in TERMINAL_PHASES and not pod.metadata.deletion_timestamp


def controller_of(owners: Iterable[OwnerReference]) -> OwnerReference | None:
    """The owner that controls an object."""
    return next((owner for owner in owners if owner.controller), None)


def _controller_uid(item: Object) -> str:
    owners = item["metadata"].get("ownerReferences") or []
    return next((owner.get("uid", "") for owner in owners if owner.get("controller")), "")


def owner_reference(item: Object) -> dict[str, Any]:
    """The reference by which an object's pods name it as their controller."""
    metadata = item["metadata"]
    return {
        "apiVersion": item["apiVersion"],
        "kind": item["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }

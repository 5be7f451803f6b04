"""Pods without a node as a watch looks at them: few fields, so that a thousand pods of 1.5 MiB hold next to nothing.

Annotations, labels and specifications are skipped as they are decoded. `schedule` reads them, from lists of its own.
"""

from __future__ import annotations

from shiplap.kubernetes.objects import ApiObject, Few, ObjectMeta, OwnerReference, Pod, PodCondition, PodSpec, PodStatus
from shiplap.kubernetes.reading import Page, Reader, ReadObject


class _Condition(ApiObject, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""


class _Metadata(ApiObject, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    owner_references: Few[OwnerReference] = ()


class _Spec(ApiObject, frozen=True):
    node_name: str = ""


class _Status(ApiObject, frozen=True):
    phase: str = ""
    nominated_node_name: str = ""
    conditions: Few[_Condition] = ()


class PendingPod(ApiObject, frozen=True):
    """The fields of a pod that identify it and decide whether it needs a node."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def as_pod(self) -> Pod:
        """A pod of these fields alone."""
        meta, status = self.metadata, self.status
        conditions = tuple(PodCondition(each.type, each.status, each.reason) for each in status.conditions)
        return Pod(
            ObjectMeta(
                name=meta.name,
                namespace=meta.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
                deletion_timestamp=meta.deletion_timestamp,
                owner_references=meta.owner_references,
            ),
            PodSpec(node_name=self.spec.node_name),
            PodStatus(phase=status.phase, nominated_node_name=status.nominated_node_name, conditions=conditions),
        )


class PendingPodReader(Reader[Pod]):
    """Reads pods, and keeps of them what a `PendingPod` has."""

    def __init__(self) -> None:
        super().__init__(Pod)
        self._lean = Reader(PendingPod, "Pod")

    def page(self, body: bytes) -> Page[Pod]:
        """A page of a list. Raises msgspec.DecodeError: it is none."""
        page = self._lean.page(body)
        return Page(tuple(item.as_pod() for item in page.items), page.version, page.token, page.unreadable)

    def one(self, body: bytes) -> ReadObject[Pod]:
        """One object."""
        read = self._lean.one(body)
        return ReadObject(None if read.item is None else read.item.as_pod(), read.unreadable)

"""Pods whose kind is a letter."""

from __future__ import annotations

from shiplap.kubernetes.objects import ObjectMeta, OwnerReference, Pod, PodSpec, PodStatus


def pod(name: str, kind: str = "a", *, node: str = "", phase: str = "Running", owner: str = "ReplicaSet") -> Pod:
    owners = (OwnerReference(kind=owner, name="owner", controller=True),)
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", owner_references=owners),
        spec=PodSpec(node_name=node, node_selector={"kind": kind}),
        status=PodStatus(phase=phase),
    )

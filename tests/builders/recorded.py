"""Snapshots large enough for their parts to be stored as chunks."""

from __future__ import annotations

from collections.abc import Iterable

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes.objects import ObjectMeta, Pod
from shiplap.kubernetes.requirements import Requirement
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, Snapshot


def sold_types(number: int = 400, price: float = 0.1) -> tuple[InstanceType, ...]:
    """So many types, each sold in two zones; 400 of them are more than 64 KiB."""
    return tuple(
        InstanceType(
            f"m{place}.large",
            (Requirement("kubernetes.io/arch", False, frozenset({"arm64", "amd64"})), Requirement("cpu", True)),
            {"cpu": 2000 + place, "memory": 1 << 33, "pods": 29},
            {"cpu": 70},
            tuple(Offering(zone, "spot", price + place / 1000) for zone in ("a", "b")),
            verified=place % 2 == 0,
        )
        for place in range(number)
    )


def seen_pods(names: Iterable[str]) -> tuple[Pod, ...]:
    """Pods with names; 400 of them are more than 64 KiB."""
    labels = {"app": "a-name-of-ordinary-length", "team": "platform-of-some-department", "hash": "7f9c6d5b4"}
    labels["app.kubernetes.io/instance"] = "the-same-name-with-its-environment-and-region"
    metadata = (ObjectMeta(name=name, namespace="web", uid=f"uid-{name}", labels=labels) for name in names)
    return tuple(map(Pod, metadata))


def large_snapshot(
    *, cluster: str = "blue", now: float, types: tuple[InstanceType, ...] = (), pods: tuple[Pod, ...] = ()
) -> Snapshot:
    """A snapshot with these instance types and pods beside an EC2NodeClass that is not ready."""
    catalogs = (NodeClassCatalog("broken", not_ready="AMINotFound"), NodeClassCatalog("default", types, spec_hash="h"))
    return Snapshot(cluster=cluster, now=now, view=ClusterView(pods, version="7"), catalogs=catalogs, epoch=41)

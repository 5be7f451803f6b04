"""Workloads as users write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shiplap_cli.inputs.cluster_files import read_cluster_state
from shiplap_cli.inputs.workloads import read_scale
from tests.commands import listed

Object = dict[str, Any]


TEMPLATE: Object = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    },
}


def workload(kind: str, name: str = "web", owner: tuple[str, str] | None = None, **spec: Any) -> Object:
    return {
        "kind": kind,
        "metadata": {"name": name, "namespace": "shop"} | owners(owner),
        "spec": {"template": TEMPLATE} | spec,
    }


def owners(owner: tuple[str, str] | None) -> Object:
    if owner is None:
        return {}
    return {"ownerReferences": [{"kind": owner[0], "name": owner[1], "uid": owner[1], "controller": True}]}


def owned(name: str, owner: tuple[str, str], phase: str = "Pending", **metadata: Any) -> Object:
    meta = {"name": name, "namespace": "shop", "labels": {"app": "web", "pod-template-hash": "5d9"}} | metadata
    return {
        "kind": "Pod",
        "metadata": meta | owners(owner),
        "spec": TEMPLATE["spec"],
        "status": {"phase": phase},
    }


def added(folder: Path, *objects: Object, scale: tuple[str, ...] = ()) -> list[str]:
    """The names of the pods that workloads have still to make."""
    file = folder / "all.json"
    file.write_text(listed(*objects))
    view = read_cluster_state([file], [read_scale(text) for text in scale]).view
    there = {item["metadata"]["name"] for item in objects if item["kind"] == "Pod"}
    return [pod.metadata.name for pod in view.pods if pod.metadata.name not in there]

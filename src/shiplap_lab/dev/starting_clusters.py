"""Clusters of a Region as they start: the objects that they have, and the install that serves them.

With `live` the manifests are objects of the clusters, so that what kubectl applies counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shiplap_lab.api_server.api_resources import RESOURCES
from shiplap_lab.api_server.changelog import Object
from shiplap_lab.api_server.stored_claims import DEFAULT_CLASS
from shiplap_lab.scenarios.scenario import Play, ScenarioCluster

_NODE_CLASS = "EC2NodeClass"
_COMMON: tuple[Object, ...] = (
    *(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "status": {"phase": "Active"}}
        for name in ("default", "kube-node-lease", "kube-public", "kube-system")
    ),
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "gp3", "annotations": {DEFAULT_CLASS: "true"}},
        "provisioner": "ebs.csi.aws.com",
        "parameters": {"type": "gp3"},
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    },
)
"""Namespaces, and a default StorageClass, by which claims of StatefulSets are bound."""


_CUSTOM: tuple[Object, ...] = tuple(
    {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{item.plural}.{item.group}"},
        "spec": {
            "group": item.group,
            "names": {"plural": item.plural, "kind": item.kind},
            "scope": "Namespaced" if item.namespaced else "Cluster",
            "versions": [{"name": item.version, "served": True, "storage": True}],
        },
    }
    for item in RESOURCES.values()
    if item.group.startswith(("karpenter.", "autoscaling.x-k8s.io"))
)
"""The CRDs of manifests: functions that read them look whether one is being deleted."""


def starting_objects(play: Play, cluster: ScenarioCluster, *, live: bool) -> Iterator[Object]:
    """Yield the objects that a cluster has from its first moment on; the scenario's own ones replace common ones."""
    own = {(item["kind"], item["metadata"]["name"]) for item in cluster.objects}
    yield from (item for item in _COMMON if (item["kind"], item["metadata"]["name"]) not in own)
    yield from (*_CUSTOM, *play.written[cluster.name]) if live else ()
    yield from cluster.objects


def node_roles(written: Iterable[Object]) -> tuple[str, ...]:
    """The roles of a cluster's EC2NodeClasses, sorted: others do not exist in the emulated account."""
    roles = {str((item.get("spec") or {}).get("role") or "") for item in written if item.get("kind") == _NODE_CLASS}
    return tuple(sorted(roles - {""}))


def warning_of_role(item: Object, roles: Sequence[str]) -> str:
    """Warn of an EC2NodeClass that launches nothing, for its role does not exist; empty of any other object."""
    role = (item.get("spec") or {}).get("role") if item.get("kind") == _NODE_CLASS else None
    if not role or role in roles:
        return ""
    return f"spec.role {role} does not exist here, so nothing is launched: write {' or '.join(roles)}"


def write_install(play: Play, folder: Path, region: str, endpoints: Mapping[str, str], *, live: bool) -> Path:
    """Write the shiplap.yaml of an install that serves all clusters, and their manifests; returns its path."""
    clusters = []
    for cluster in play.scenario.clusters:
        written = play.written[cluster.name]
        if live:
            manifests: dict[str, Any] = {"manifests": "cluster", "nodeRoles": list(node_roles(written))}
        else:
            manifests = {"manifests": cluster.name}
            (folder / cluster.name).mkdir(parents=True)
            (folder / cluster.name / "nodes.yaml").write_bytes(b"---\n".join(map(msgspec.yaml.encode, written)))
        clusters.append(
            {
                "name": cluster.name,
                **manifests,
                "endpoint": endpoints[cluster.name],
                "kubernetesVersion": cluster.kubernetes_version,
                "serviceCIDR": "172.20.0.0/16",
                "vmMemoryOverheadPercent": cluster.vm_memory_overhead_percent,
                "reservedENIs": cluster.reserved_enis,
                "prefixDelegation": cluster.prefix_delegation,
                "watch": False,
            }
        )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "shiplap.yaml"
    path.write_bytes(msgspec.yaml.encode({"region": region, "clusters": clusters}))
    return path

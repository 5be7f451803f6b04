"""Installs whose templates are held against the rules that AWS publishes."""

from __future__ import annotations

import json
from pathlib import Path

MANIFESTS = Path(__file__).parents[1] / "infra" / "install" / "manifests"

_SECRET = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:edge-kubeconfig-AbCdEf"


def _network(number: int) -> dict[str, object]:
    """The first network goes without a name."""
    name = {"name": f"network{number}"} if number > 1 else {}
    return name | {
        "subnets": [f"subnet-{number:07x}1", f"subnet-{number:07x}2"],
        "securityGroups": [f"sg-{number:08x}"],
    }


PUBLIC = {
    "region": "eu-west-1",
    "clusters": [{"name": "production", "manifests": str(MANIFESTS / "production")}],
}
"""As small as an install gets: one cluster with a public endpoint, every setting as it comes."""

PRIVATE = {
    "region": "eu-west-1",
    "alarmTopic": "arn:aws:sns:eu-west-1:123456789012:platform-alarms",
    "tracing": True,
    "snapStart": True,
    "clusters": [
        {
            "name": "production",
            "manifests": str(MANIFESTS / "production"),
            "audit": True,
            "zonalShift": True,
            "vpc": _network(1),
        },
        {
            "name": "edge",
            "manifests": str(MANIFESTS / "edge"),
            "endpoint": "https://10.1.0.10",
            "kubeconfigSecret": _SECRET,
            "nodeRoles": ["path/windows-nodes"],
            "vpc": _network(1),
        },
    ],
}
"""Everything that an install can be given: a VPC, traces, snapshots, audit logs, keys, a cluster outside EKS."""


def many_clusters(folder: Path, count: int, networks: int) -> dict[str, object]:
    """Clusters with the longest names there are, in several VPCs, each with a node role of its own."""
    clusters = []
    for number in range(count):
        name = f"{f'cluster-{number:03d}':-<99}z"
        manifests = folder / f"{number}.yaml"
        text = (MANIFESTS / "production" / "nodes.yaml").read_text()
        manifests.write_text(text.replace("role: shiplap-node-production", f"role: nodes-{number:03d}"))
        clusters.append(
            {
                "name": name,
                "manifests": str(manifests),
                "audit": number % 2 == 0,
                **({"vpc": _network(1 + number % networks)} if networks else {}),
            }
        )
    return {"region": "eu-west-1", "clusters": clusters}


def write(folder: Path, install: object) -> Path:
    """Write an install's shiplap.yaml; JSON is YAML."""
    path = folder / "shiplap.yaml"
    path.write_text(json.dumps(install))
    return path

"""Valid manifests to spoil, and how to see what is said about them."""

from __future__ import annotations

import copy
from typing import Any

from shiplap.manifests.files.documents import Document
from shiplap.manifests.files.loading import check_documents

ABSENT = object()
"""Stands for a field that is taken away."""

NODE_POOL: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
            }
        }
    },
}
EC2_NODE_CLASS: dict[str, Any] = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "default"},
    "spec": {
        "role": "node",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "*"}}],
        "securityGroupSelectorTerms": [{"id": "sg-0123abcd"}],
    },
}
NODE_OVERLAY: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1alpha1",
    "kind": "NodeOverlay",
    "metadata": {"name": "measured"},
    "spec": {
        "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["r5a.8xlarge"]}]
    },
}


def changed(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with the field at a path (`spec.a.b`; dots of keys written as `~`) set, or taken away by ABSENT."""
    result = copy.deepcopy(base)
    *steps, last = [step.replace("~", ".") for step in path.split(".")]
    place = result
    for step in steps:
        place = place.setdefault(step, {})
    if value is ABSENT:
        del place[last]
    else:
        place[last] = value
    return result


def problems_of(*objects: dict[str, Any]) -> list[tuple[str, str]]:
    """(field, reason) of every problem."""
    documents = [
        Document("given", index, 1, f"{data.get('kind')}/{data.get('metadata', {}).get('name')}", data)
        for index, data in enumerate(objects)
    ]
    return [(problem.field, problem.reason) for problem in check_documents(documents).problems]


def fields_of(*objects: dict[str, Any]) -> list[str]:
    """The fields that are complained about."""
    return [field for field, _ in problems_of(*objects)]

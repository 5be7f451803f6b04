"""NodePools and the rules that they are written with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shiplap.manifests.custom_resources import NodePool, RequirementSpec

ANY_NUMBER = ({"nodes": "100%"},)


def rule(key: str, operator: str, *values: str, min_values: int | None = None) -> dict[str, Any]:
    """One requirement, as pools and affinity terms write it."""
    written: dict[str, Any] = {"key": key, "operator": operator}
    if values:
        written["values"] = list(values)
    if min_values is not None:
        written["minValues"] = min_values
    return written


def pool(
    name: str = "default",
    *rules: RequirementSpec | Mapping[str, Any],
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    startup_taints: Sequence[Mapping[str, str]] = (),
    limits: Mapping[str, str] | None = None,
    weight: int = 0,
    node_class: str = "default",
    deleting: bool = False,
    replicas: int | None = None,
    budgets: Sequence[Mapping[str, Any]] = ANY_NUMBER,
    policy: str = "WhenEmptyOrUnderutilized",
    after: str = "0s",
    expire_after: str = "Never",
    grace: str | None = None,
    annotations: Mapping[str, str] | None = None,
    capacity_types: Sequence[str] = ("spot", "on-demand", "reserved"),
) -> NodePool:
    """A NodePool that allows every disruption at once, unless told otherwise.

    It takes spot, on-demand and reserved capacity, limited to 2000 cpu; with `replicas` it is static.
    """
    kinds = [rule("karpenter.sh/capacity-type", "In", *capacity_types)] if capacity_types else []
    template = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": node_class},
        "requirements": [*kinds, *rules],
        "taints": list(taints),
        "startupTaints": list(startup_taints),
        "expireAfter": expire_after,
        **({} if grace is None else {"terminationGracePeriod": grace}),
    }
    static = {} if replicas is None else {"replicas": replicas}
    spec = {
        "template": {"metadata": {"labels": dict(labels or {})}, "spec": template},
        "limits": {} if static else dict(limits) if limits is not None else {"cpu": "2000"},
        "weight": weight,
        "disruption": {"budgets": list(budgets), "consolidationPolicy": policy, "consolidateAfter": after},
        **static,
    }
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
    return msgspec.convert(
        {"metadata": {"name": name, "annotations": dict(annotations or {}), **gone}, "spec": spec}, NodePool
    )


def family_pool(
    name: str,
    families: Sequence[str],
    *,
    sizes: Sequence[str] = ("2xlarge", "large", "xlarge"),
    weight: int = 0,
    capacity_types: Sequence[str] = ("on-demand",),
) -> NodePool:
    """A NodePool of these families in these sizes, with Karpenter's defaults for all else."""
    rules = [
        rule("karpenter.k8s.aws/instance-family", "In", *families),
        rule("karpenter.k8s.aws/instance-size", "In", *sizes),
        rule("karpenter.sh/capacity-type", "In", *capacity_types),
    ]
    spec = {"nodeClassRef": {"name": "default"}, "requirements": rules}
    document = {"metadata": {"name": name}, "spec": {"weight": weight, "template": {"spec": spec}}}
    return msgspec.convert(document, NodePool)

"""The content of every family's user data: where the cluster is, and how its kubelet must register.

For families whose bootstrap scripts take nothing else, the kubelet map becomes kubelet flags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from shiplap.instances.capacity.kubelet_settings import FormulaValues, with_formula_values
from shiplap.instances.catalog.resolved_nodeclass import ResolvedNodeClass
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.objects import Taint
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.manifests.nodeclaim import NodeClaim

UNREGISTERED = Taint(labels.UNREGISTERED_TAINT, "NoExecute")
"""Keeps pods off a node until the lifecycle flow has seen it."""

_RELEASE_IN_NAME = re.compile(r"-v(\d+\.\d+\.\d+)", re.ASCII)
_RESERVED_DOMAINS = ("kubernetes.io", "k8s.io")
_KUBELET_MAY_SET = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.kubernetes.io/region",
        "failure-domain.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_KUBELET_MAY_SET_UNDER = ("kubelet.kubernetes.io", "node.kubernetes.io")


class Bootstrap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything user data says. `ca` is base64, `max_pods` 0 leaves the number to the node, `kubelet` is the open map.

    `release` is the version in the alias, by which Bottlerocket's abilities are judged; empty when unknown.
    """

    cluster: str
    endpoint: str
    ca: str
    family: str
    service_cidr: str = ""
    dns: str = ""
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    kubelet: dict[str, Any] = {}
    max_pods: int = 0
    raid0: bool = False
    release: str = ""
    custom: str = ""


def bootstrap_of_claim(
    claim: NodeClaim,
    node_class: EC2NodeClass,
    resolved: ResolvedNodeClass,
    capacity_type: str,
    max_pods: int,
    kubelet_values: FormulaValues = (),
    ami: str = "",
) -> Bootstrap:
    """Return the bootstrap that nodes of a claim's pool need.

    It holds nothing of the single claim, so that claims share launch templates.
    `kubelet_values` take the places of expressions in the kubelet settings; `ami` is the id of the image they boot.

    Labels that follow from the instance type and its place are left to the registration: they differ between claims.
    """
    wanted = {
        **{key: value for key, value in claim.plan.labels.items() if key not in labels.WELL_KNOWN},
        **labels.of_pool(claim.plan.node_pool),
        labels.NODE_CLASS: label_value_of(claim.plan.node_class),
        labels.CAPACITY_TYPE: capacity_type,
        labels.DO_NOT_SYNC_TAINTS: "true",
    }
    return Bootstrap(
        cluster=claim.cluster,
        endpoint=resolved.cluster_endpoint,
        ca=resolved.cluster_ca,
        family=resolved.family,
        service_cidr=resolved.service_cidr,
        dns=_dns(node_class.spec.kubelet, resolved),
        labels=settable_labels(wanted),
        taints=(*claim.plan.taints, *claim.plan.startup_taints, UNREGISTERED),
        kubelet=with_formula_values(node_class.spec.kubelet, kubelet_values),
        max_pods=max_pods,
        raid0=node_class.spec.instance_store_policy == "RAID0",
        release=_release(node_class, resolved, ami),
        custom=node_class.spec.user_data or "",
    )


def settable_labels(wanted: Mapping[str, str]) -> dict[str, str]:
    """The labels a kubelet may give itself, sorted; the NodeRestriction admission refuses the node otherwise.

    The others are set through the API once the node is there.
    """
    return {key: wanted[key] for key in sorted(wanted) if is_settable(key)}


def is_settable(key: str) -> bool:
    """Return true if a kubelet may set this label on its own node."""
    domain, slash, _ = key.rpartition("/")
    if not slash or not any(domain == reserved or domain.endswith(f".{reserved}") for reserved in _RESERVED_DOMAINS):
        return True
    under = any(domain == free or domain.endswith(f".{free}") for free in _KUBELET_MAY_SET_UNDER)
    return key in _KUBELET_MAY_SET or under


def _dns(kubelet: Mapping[str, Any], resolved: ResolvedNodeClass) -> str:
    written = kubelet.get("clusterDNS") or ()
    return str(written[0]) if written else resolved.cluster_dns


def _release(node_class: EC2NodeClass, resolved: ResolvedNodeClass, ami: str) -> str:
    """As the alias says it, else as the image's own name does (`bottlerocket-aws-k8s-1.33-x86_64-v1.46.0-431fe75a`)."""
    for term in node_class.spec.ami_selector_terms:
        if term.alias:
            return term.alias.partition("@")[2]
    found = (_RELEASE_IN_NAME.search(item.name) for item in resolved.amis if item.id == ami)
    return next((match.group(1) for match in found if match is not None), "")


def taint_text(taint: Taint) -> str:
    """A taint as kubelet's flag wants it: `key=value:Effect`, without the equals sign when there is no value."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def kubelet_flags(wanted: Bootstrap) -> list[str]:
    """The flags, each as one word, in a fixed order."""
    flags = [f"--max-pods={wanted.max_pods}"] if wanted.max_pods else []
    flags += _of_map(wanted.kubelet)
    if wanted.labels:
        flags.append("--node-labels=" + ",".join(f"{key}={value}" for key, value in wanted.labels.items()))
    if wanted.taints:
        flags.append("--register-with-taints=" + ",".join(taint_text(taint) for taint in wanted.taints))
    return flags


_TABLES = (
    ("systemReserved", "system-reserved", "="),
    ("kubeReserved", "kube-reserved", "="),
    ("evictionHard", "eviction-hard", "<"),
    ("evictionSoft", "eviction-soft", "<"),
    ("evictionSoftGracePeriod", "eviction-soft-grace-period", "="),
)
_NUMBERS = (
    ("podsPerCore", "pods-per-core"),
    ("evictionMaxPodGracePeriod", "eviction-max-pod-grace-period"),
    ("imageGCHighThresholdPercent", "image-gc-high-threshold"),
    ("imageGCLowThresholdPercent", "image-gc-low-threshold"),
)


def _of_map(kubelet: Mapping[str, Any]) -> Iterator[str]:
    for key, flag, sign in _TABLES:
        table = kubelet.get(key)
        if table:
            yield f"--{flag}=" + ",".join(f"{name}{sign}{table[name]}" for name in sorted(table))
    for key, flag in _NUMBERS:
        if kubelet.get(key) is not None:
            yield f"--{flag}={kubelet[key]}"
    if kubelet.get("cpuCFSQuota") is not None:
        yield f"--cpu-cfs-quota={'true' if kubelet['cpuCFSQuota'] else 'false'}"

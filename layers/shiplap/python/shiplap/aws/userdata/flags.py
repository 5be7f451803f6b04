"""An EC2NodeClass's kubelet map as kubelet flags, for the families whose bootstrap scripts take nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shiplap.aws.userdata.bootstrap import Bootstrap, taint_text


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

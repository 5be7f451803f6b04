"""The part of a node's capacity that kubelet keeps back: kube-reserved, system-reserved and the eviction thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from shiplap.instances.capacity.described_capacity import MIB
from shiplap.instances.capacity.kubelet_settings import KubeletSettings, Threshold
from shiplap.kubernetes.quantity import CPU, EPHEMERAL_STORAGE, MEMORY

_GIB = 2**30
_CPU_BANDS = ((1, 600), (2, 100), (4, 50))
"""Up to so many vCPUs, hundredths of a per cent of each core that are kept back; 25 beyond."""

_DEFAULT_EVICTION = {MEMORY: Threshold(amount=100 * MIB), EPHEMERAL_STORAGE: Threshold(percent=10)}


def reserved_cpu(v_cpus: int) -> int:
    """Millicores kept back by default: 6 % of the first core, 1 % of the second, 0.5 % of two more, 0.25 % of the rest.

    Each band is cut to whole millicores before they are added, as on EKS.
    """
    total, below = 0, 0
    for upper, share in (*_CPU_BANDS, (v_cpus, 25)):
        cores = min(v_cpus, upper) - below
        if cores > 0:
            total += cores * 1000 * share // 10_000
            below += cores
    return total


def reserved_memory(pods: int) -> int:
    """Bytes kept back by default: 11 MiB for each pod and 255 MiB."""
    return (11 * pods + 255) * MIB


def overhead(capacity: Mapping[str, int], v_cpus: int, counted_pods: int, kubelet: KubeletSettings) -> dict[str, int]:
    """The amount kept back of each resource, canonical units.

    `counted_pods` is the number of pods the memory reserve is sized for; it depends on the AMI family (see
    `AmiFamily.eni_limited_overhead`). Percentages are of `capacity`, so a better estimate of that changes them.
    """
    kept = {
        CPU: reserved_cpu(v_cpus),
        MEMORY: reserved_memory(counted_pods),
        EPHEMERAL_STORAGE: _GIB,
    }
    if kubelet.kube_reserved:
        kept.update(kubelet.kube_reserved)
    for resource, amount in kubelet.system_reserved.items():
        kept[resource] += amount
    for resource, default in _DEFAULT_EVICTION.items():
        threshold = kubelet.eviction.get(resource, default)
        kept[resource] += threshold_bytes(threshold, capacity[resource])
    return kept


def overhead_fraction(kubelet: KubeletSettings) -> dict[str, float]:
    """The share of further capacity that is kept back too, per resource: eviction thresholds written in per cent."""
    thresholds = {resource: kubelet.eviction.get(resource, default) for resource, default in _DEFAULT_EVICTION.items()}
    return {
        resource: threshold.percent / 100
        for resource, threshold in thresholds.items()
        if threshold.percent is not None and 0 < threshold.percent < 100
    }


def threshold_bytes(threshold: Threshold, capacity: int) -> int:
    """Bytes below which kubelet evicts. 100 % means that the signal is off."""
    if threshold.percent is None:
        return threshold.amount
    return 0 if threshold.percent >= 100 else ceil(capacity / 100 * threshold.percent)

"""Taints and tolerations, by the rules of kube-scheduler."""

from __future__ import annotations

from collections.abc import Iterable

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Taint, Toleration

DISRUPTED = Taint(labels.DISRUPTED_TAINT, "NoSchedule")
"""Keeps new pods off a node that is to go. A pod that tolerates it stays to the end, and nobody waits for it."""

_EPHEMERAL = (
    ("node.kubernetes.io/not-ready", "NoSchedule"),
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoSchedule"),
    ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration matches one taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in ("", "Equal") and toleration.value == taint.value


def untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], *, ignore_preferences: bool = False
) -> Taint | None:
    """The first taint that keeps the pod away, or None. PreferNoSchedule counts unless `ignore_preferences`."""
    tolerations = tuple(tolerations)
    for taint in taints:
        if ignore_preferences and taint.effect == "PreferNoSchedule":
            continue
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def is_ephemeral(taint: Taint) -> bool:
    """Taints that a starting node carries for a moment and that planning ignores on nodes not yet initialised."""
    return (
        (taint.key, taint.effect) in _EPHEMERAL
        or taint.key == labels.UNREGISTERED_TAINT
        or taint.key.startswith("readiness.k8s.io/")
    )

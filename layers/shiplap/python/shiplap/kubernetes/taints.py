"""Taints and tolerations, by the rules of kube-scheduler."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Taint, Toleration

DISRUPTED = Taint(labels.DISRUPTED_TAINT, "NoSchedule")
"""Keeps new pods off a node that is about to go. A pod that tolerates it stays to the end, unawaited."""

REBOOTING = Taint(labels.REBOOTING_TAINT, "NoSchedule")
"""Keeps new pods off a node that is about to be rebooted, until it has booted anew."""

_DECIMAL = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_EPHEMERAL = (
    ("node.kubernetes.io/not-ready", "NoSchedule"),
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoSchedule"),
    ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
    (REBOOTING.key, REBOOTING.effect),
)


def is_disrupted(taints: Iterable[Taint]) -> bool:
    """True if a node with these taints is cordoned by a disruption: it is about to go."""
    return any((taint.key, taint.effect) == (DISRUPTED.key, DISRUPTED.effect) for taint in taints)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """True if one toleration matches one taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("Gt", "Lt"):
        return bool(toleration.key) and _compares(toleration, taint.value)
    return bool(toleration.key) and toleration.operator in ("", "Equal") and toleration.value == taint.value


def _compares(toleration: Toleration, text: str) -> bool:
    """True if a taint's value is above (`Gt`) or below (`Lt`) a toleration's value.

    A text that is no integer is neither.
    """
    limit, value = _int64(toleration.value), _int64(text)
    if limit is None or value is None:
        return False
    return value > limit if toleration.operator == "Gt" else value < limit


def _int64(text: str) -> int | None:
    """A decimal integer of 64 bits without plus sign or leading zeros, as Kubernetes reads it."""
    value = int(text) if _DECIMAL.fullmatch(text) else None
    return value if value is not None and -(2**63) <= value < 2**63 else None


def untolerated(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], *, ignore_preferences: bool = False
) -> Taint | None:
    """The first taint that keeps the pod away, or None. PreferNoSchedule counts unless `ignore_preferences`."""
    tolerations = tuple(tolerations)
    for taint in taints:
        if ignore_preferences and taint.effect == "PreferNoSchedule":
            continue
        for toleration in tolerations:
            if tolerates(toleration, taint):
                break
        else:
            return taint
    return None


def with_lacking(present: Sequence[Taint], wanted: Iterable[Taint]) -> tuple[Taint, ...]:
    """The present taints and those wanted of which no taint has the key and the effect, each once."""
    known = {(taint.key, taint.effect) for taint in present}
    return (*present, *(taint for taint in dict.fromkeys(wanted) if (taint.key, taint.effect) not in known))


def is_ephemeral(taint: Taint) -> bool:
    """Taints that a starting node carries for a moment and that planning ignores on nodes not yet initialised."""
    return (
        (taint.key, taint.effect) in _EPHEMERAL
        or taint.key == labels.UNREGISTERED_TAINT
        or taint.key.startswith("readiness.k8s.io/")
    )

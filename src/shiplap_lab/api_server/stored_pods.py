"""Does to pods what the API server does beyond storing them: defaults, binding and eviction."""

from __future__ import annotations

from typing import Any

import msgspec

from shiplap.errors import ClusterError, ObjectConflict, TooManyRequests
from shiplap.kubernetes.labels import NOT_READY_TAINT, UNREACHABLE_TAINT
from shiplap.kubernetes.names import namespaced_name
from shiplap.kubernetes.objects import TERMINAL_PHASES, LabelSelector, Pod
from shiplap.kubernetes.pod_disruption_budgets import (
    EvictionRefusal,
    PodDisruptionBudget,
    PodDisruptionBudgetStatus,
    computed_counts,
    eviction_refusal,
)
from shiplap.kubernetes.selectors import matches

Object = dict[str, Any]

_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def defaulted(pod: Object, now: str) -> Object:
    """A pod as admission leaves it: Pending, with a grace period, a scheduler, a priority and node tolerations."""
    spec = {
        "schedulerName": "default-scheduler",
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        **pod.get("spec", {}),
    }
    if "priority" not in spec and spec.get("priorityClassName") in _PRIORITIES:
        spec["priority"] = _PRIORITIES[spec["priorityClassName"]]
    tolerations = list(spec.get("tolerations") or [])
    for key in (NOT_READY_TAINT, UNREACHABLE_TAINT):
        if not any(t.get("key") in (key, None) and t.get("effect") in ("NoExecute", None) for t in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    spec["tolerations"] = tolerations
    status = {"phase": "Pending", **pod.get("status", {})}
    if spec.get("schedulingGates"):
        gated = condition(
            "PodScheduled", "False", now, "SchedulingGated", "Scheduling is blocked due to non-empty gates"
        )
        status["conditions"] = [*status.get("conditions", []), gated]
    return {**pod, "spec": spec, "status": status}


def condition(kind: str, status: str, now: str, reason: str = "", message: str = "") -> Object:
    """A pod or node condition; `now` in RFC 3339."""
    built = {"type": kind, "status": status, "lastTransitionTime": now}
    if reason:
        built |= {"reason": reason, "message": message}
    return built


def bound(pod: Object, node: str, now: str) -> Object:
    """The pod once its binding to a node is accepted; a nomination has served its purpose then.

    Raises:
        ObjectConflict: it is bound already, being deleted, or held by scheduling gates.
    """
    key = namespaced_name(pod["metadata"]["namespace"], pod["metadata"]["name"])
    if pod["spec"].get("nodeName"):
        raise ObjectConflict(f"pod {key} is already assigned to node {pod['spec']['nodeName']!r}", status=409)
    if pod["metadata"].get("deletionTimestamp"):
        raise ObjectConflict(f"pod {key} is being deleted, cannot be assigned to a host", status=409)
    if pod["spec"].get("schedulingGates"):
        raise ObjectConflict(f"pod {key} has non-empty .spec.schedulingGates", status=409)
    if not node:
        raise ClusterError("target.name: Required value", status=422)
    others = [known for known in pod["status"].get("conditions", []) if known["type"] != "PodScheduled"]
    status = {**pod["status"], "conditions": [*others, condition("PodScheduled", "True", now)]}
    status.pop("nominatedNodeName", None)
    return {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}


def nominated_too_late(before: Object, after: Object) -> bool:
    """True if an update nominates a pod that has a node already."""
    was, is_now = (str((pod.get("status") or {}).get("nominatedNodeName") or "") for pod in (before, after))
    return bool(before["spec"].get("nodeName") and is_now and is_now != was)


def deletion_grace_s(pod: Object) -> int:
    """Seconds a deleted pod is given: none unless it has reached a node and still runs."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in TERMINAL_PHASES:
        return 0
    return int(pod["spec"].get("terminationGracePeriodSeconds", 30))


def check_eviction(pod: Object, pods: list[Object], budgets: list[Object]) -> None:
    """Check that the namespace's PodDisruptionBudgets allow the pod to go now.

    The disruption controller is played here, too: counts are those of this moment. A status that was stored says only
    of which spec it is and which evictions are not confirmed. The number of pods a percentage refers to is that of the
    pods the budget selects.

    Raises:
        TooManyRequests: a budget forbids it for now; status 403 where its status cannot be true.
        ClusterError: status 500, more than one budget selects the pod.
    """
    selecting = [budget for budget in budgets if _selects(budget, pod)]
    typed = [msgspec.convert(budget, PodDisruptionBudget, strict=False) for budget in selecting]
    counts = {
        known.key: _counted_now(known, [other for other in pods if _selects(budget, other)])
        for known, budget in zip(typed, selecting, strict=True)
    }
    refusal = eviction_refusal(msgspec.convert(pod, Pod), typed, counts, unhealthy=not _is_healthy(pod))
    if refusal is None:
        return
    if refusal is EvictionRefusal.SEVERAL:
        raise ClusterError(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            status=500,
        )
    (budget,) = typed
    name, now = budget.metadata.name, counts[budget.key]
    if refusal in (EvictionRefusal.NEGATIVE, EvictionRefusal.UNCONFIRMED):
        raise TooManyRequests(f'poddisruptionbudget.policy "{name}" is forbidden: {refusal.value}', status=403)
    if refusal is EvictionRefusal.STALE:
        raise TooManyRequests(
            f"Cannot evict pod: the disruption budget {name} is still being processed by the server.", status=429
        )
    raise TooManyRequests(
        "Cannot evict pod as it would violate the pod's disruption budget: "
        f"{name} needs {now.desired_healthy} healthy pods and has {now.current_healthy} currently",
        status=429,
    )


def _counted_now(budget: PodDisruptionBudget, selected: list[Object]) -> PodDisruptionBudgetStatus:
    present = [pod for pod in selected if pod["status"].get("phase") not in TERMINAL_PHASES]
    counts = computed_counts(budget, len(present), sum(map(_is_healthy, present)))
    if budget.status is None:
        return counts
    return msgspec.structs.replace(
        counts,
        disruptions_allowed=-1 if budget.status.disruptions_allowed < 0 else counts.disruptions_allowed,
        observed_generation=budget.status.observed_generation,
        disrupted_pods=budget.status.disrupted_pods,
    )


def _selects(budget: Object, pod: Object) -> bool:
    selector = budget["spec"].get("selector")
    if selector is None:
        return False
    return matches(msgspec.convert(selector, LabelSelector), pod["metadata"].get("labels") or {})


def _is_healthy(pod: Object) -> bool:
    if pod["metadata"].get("deletionTimestamp"):
        return False
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))

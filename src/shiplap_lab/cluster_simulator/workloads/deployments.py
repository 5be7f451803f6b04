"""The Deployment controller: a ReplicaSet for each template, rolling updates, and the history that `undo` reads."""

from __future__ import annotations

from typing import Any

import msgspec

from shiplap.errors import ObjectConflict
from shiplap.kubernetes.objects import Pod, is_ready
from shiplap.kubernetes.related_objects import REVISION, surge_and_unavailable
from shiplap.kubernetes.timestamps import epoch
from shiplap_lab.api_server.changelog import Object
from shiplap_lab.cluster_simulator.workloads.condition_lists import Condition, condition_of, renewed
from shiplap_lab.cluster_simulator.workloads.controller_client import ControllerClient, is_active, owner_reference
from shiplap_lab.cluster_simulator.workloads.deployment_rollout import SetSize, next_sizes
from shiplap_lab.cluster_simulator.workloads.templated_pods import template_hash
from shiplap_lab.cluster_simulator.workloads.workload_labels import TEMPLATE_HASH
from shiplap_lab.cluster_simulator.workloads.workload_specs import DeploymentSpec

PLURAL = "deployments"
_SETS = "replicasets"
_CHANGE_CAUSE = "kubernetes.io/change-cause"


class _Sets(msgspec.Struct):
    """The ReplicaSets of a Deployment; the old ones in the order of their revisions."""

    new: Object | None
    old: list[Object]
    active: dict[str, list[Pod]]
    """Pods that count, by the name of their ReplicaSet."""
    ending: bool
    """True if a pod of an old ReplicaSet is still there, though it may be deleted."""


def reconcile_deployment(client: ControllerClient, item: Object) -> None:
    """Take a rollout one step further, and report how far it is."""
    spec = client.spec(item, DeploymentSpec)
    sets = _sets_of(client, item, spec)
    if not item["metadata"].get("deletionTimestamp"):
        if not spec.paused:
            sets.new = _of_template(client, item, sets)
        sizes = _sizes(client, spec, sets)
        known = {each["metadata"]["name"]: each for each in (*sets.old, *([sets.new] if sets.new else []))}
        for name, size in sizes.items():
            _scale(client, item, known[name], size)
        if not spec.paused and not sizes:
            _forget(client, spec, sets)
    _report(client, item, spec, sets)


def _sets_of(client: ControllerClient, item: Object, spec: DeploymentSpec) -> _Sets:
    wanted = template_hash(item["spec"]["template"])
    found = sorted(client.adopted(_SETS, item, spec.selector), key=lambda each: (_revision(each), _name(each)))
    new = next((each for each in found if each["metadata"].get("labels", {}).get(TEMPLATE_HASH) == wanted), None)
    old = [each for each in found if each is not new]
    active = {_name(each): [pod for pod in client.pods_of(each) if is_active(pod)] for each in found}
    return _Sets(new, old, active, any(client.pods_of(each) for each in old))


def _of_template(client: ControllerClient, item: Object, sets: _Sets) -> Object | None:
    """The ReplicaSet of the current template, created when there is none yet, with the newest revision."""
    newest = max(map(_revision, sets.old), default=0)
    new = sets.new
    if new is None:
        try:
            new = client.server.create(_SETS, _new_set(item, newest + 1), item["metadata"]["namespace"])
        except ObjectConflict:
            return None  # somebody else's has this name
        sets.active[_name(new)] = []
    elif _revision(new) <= newest:
        annotations = {"annotations": {REVISION: str(newest + 1)}}
        new = client.patch_metadata(_SETS, _name(new), item["metadata"]["namespace"], annotations)
    if _revision(item) != _revision(new):
        annotations = {"annotations": {REVISION: str(_revision(new))}}
        client.patch_metadata(PLURAL, _name(item), item["metadata"]["namespace"], annotations)
    return new


def _new_set(item: Object, revision: int) -> Object:
    spec, hashed = item["spec"], template_hash(item["spec"]["template"])
    template, selector = spec["template"], spec["selector"]
    metadata = template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), TEMPLATE_HASH: hashed}
    cause = {name: text for name, text in (item["metadata"].get("annotations") or {}).items() if name == _CHANGE_CAUSE}
    return {
        "metadata": {
            "name": f"{_name(item)}-{hashed}",
            "labels": labels,
            "annotations": {**cause, REVISION: str(revision)},
            "ownerReferences": [owner_reference(item)],
        },
        "spec": {
            "replicas": 0,
            "minReadySeconds": spec.get("minReadySeconds") or 0,
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), TEMPLATE_HASH: hashed}},
            "template": {**template, "metadata": {**metadata, "labels": labels}},
        },
    }


def _sizes(client: ControllerClient, spec: DeploymentSpec, sets: _Sets) -> dict[str, int]:
    if sets.new is None:
        return {}
    name, min_ready_s = _name(sets.new), spec.min_ready_seconds
    new, *old = (
        SetSize(
            _name(each),
            _wanted(each),
            sum(client.is_available(pod, min_ready_s) for pod in sets.active[_name(each)]),
        )
        for each in (sets.new, *sets.old)
    )
    if spec.paused:
        rest = spec.replicas - sum(each.wanted for each in old)
        return {name: rest} if rest != new.wanted and rest >= 0 else {}
    if spec.strategy.type == "Recreate":
        shrunk = {each.name: 0 for each in old if each.wanted}
        return shrunk or ({name: spec.replicas} if new.wanted != spec.replicas and not sets.ending else {})
    surge, unavailable = surge_and_unavailable(spec.strategy.rolling, spec.replicas)
    return next_sizes(new, old, spec.replicas, surge=surge, unavailable=unavailable)


def _scale(client: ControllerClient, item: Object, which: Object, size: int) -> None:
    before = _wanted(which)
    client.scale(_SETS, which, size)
    direction = "up" if size > before else "down"
    message = f"Scaled {direction} replica set {_name(which)} from {before} to {size}"
    client.event(item, "ScalingReplicaSet", message)


def _forget(client: ControllerClient, spec: DeploymentSpec, sets: _Sets) -> None:
    """Delete the oldest ReplicaSets without pods beyond the limit of the history."""
    empty = [each for each in sets.old if not _wanted(each) and not client.pods_of(each)]
    for each in empty[: max(len(empty) - spec.revision_history_limit, 0)]:
        client.delete(_SETS, _name(each), each["metadata"]["namespace"])


def _report(client: ControllerClient, item: Object, spec: DeploymentSpec, sets: _Sets) -> None:
    pods = [pod for active in sets.active.values() for pod in active]
    updated = sets.active.get(_name(sets.new), []) if sets.new else []
    available = sum(client.is_available(pod, spec.min_ready_seconds) for pod in pods)
    counts = {
        "replicas": len(pods),
        "updatedReplicas": len(updated),
        "readyReplicas": sum(is_ready(pod.status) for pod in pods),
        "availableReplicas": available,
        "unavailableReplicas": max(max(len(pods), spec.replicas) - available, 0),
    }
    _, unavailable = surge_and_unavailable(spec.strategy.rolling, spec.replicas)
    least = spec.replicas - (unavailable if spec.strategy.type == "RollingUpdate" else 0)
    enough = available >= least
    reason, words = (
        ("MinimumReplicasAvailable", "Deployment has minimum availability.")
        if enough
        else ("MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    )
    conditions = [renewed(item, "Available", str(enough), reason, words, client.now, updated=False)]
    conditions.append(_progress(client, item, spec, sets, counts))
    failure = condition_of(sets.new, "ReplicaFailure") if sets.new else None
    status: dict[str, Any] = {
        **{name: count for name, count in counts.items() if count},
        "observedGeneration": item["metadata"].get("generation", 0),
        "conditions": [*conditions, *([failure] if failure else [])],
    }
    client.set_status(PLURAL, item, status)


def _progress(
    client: ControllerClient, item: Object, spec: DeploymentSpec, sets: _Sets, counts: dict[str, int]
) -> Condition:
    """The condition Progressing: complete, under way, paused, or standing still for too long."""
    name = _name(sets.new) if sets.new else _name(item)
    before, reported = condition_of(item, "Progressing") or {}, item.get("status") or {}
    moved = any(reported.get(field, 0) != counts[field] for field in ("replicas", "updatedReplicas", "readyReplicas"))
    whole = (spec.replicas, spec.replicas, spec.replicas)
    if (counts["replicas"], counts["updatedReplicas"], counts["availableReplicas"]) == whole:
        words = f'ReplicaSet "{name}" has successfully progressed.'
        return renewed(item, "Progressing", "True", "NewReplicaSetAvailable", words, client.now, updated=False)
    is_same = before.get("reason") == "NewReplicaSetAvailable" and f'"{name}"' in before["message"]
    if is_same and counts["replicas"] == counts["updatedReplicas"]:
        return before  # a pod that is replaced later is no rollout
    if spec.paused:
        words = "Deployment is paused"
        return renewed(item, "Progressing", "True", "DeploymentPaused", words, client.now, updated=False)
    is_rolling = before.get("reason") in ("ReplicaSetUpdated", "ProgressDeadlineExceeded")
    if is_rolling and not moved:
        late_at = epoch(before["lastUpdateTime"]) + spec.progress_deadline_seconds
        if before["status"] == "False" or client.now >= late_at:
            words = f'ReplicaSet "{name}" has timed out progressing.'
            return renewed(item, "Progressing", "False", "ProgressDeadlineExceeded", words, client.now, updated=False)
        client.wake_at = min(client.wake_at, late_at)
    words = f'ReplicaSet "{name}" is progressing.'
    return renewed(item, "Progressing", "True", "ReplicaSetUpdated", words, client.now, updated=moved)


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def _wanted(item: Object) -> int:
    return int(item["spec"].get("replicas", 1))


def _revision(item: Object) -> int:
    text = (item["metadata"].get("annotations") or {}).get(REVISION, "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0

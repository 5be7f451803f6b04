"""The Job controller: pods until enough of them have succeeded, or too many have failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from typing import Any

import msgspec

from shiplap.kubernetes.objects import TERMINAL_PHASES, Pod, is_ready
from shiplap.kubernetes.timestamps import epoch, rfc3339
from shiplap_lab.api_server.changelog import Object
from shiplap_lab.api_server.stored_pods import condition
from shiplap_lab.cluster_simulator.workloads.batch.job_runs import run_of
from shiplap_lab.cluster_simulator.workloads.condition_lists import condition_of, renewed
from shiplap_lab.cluster_simulator.workloads.controller_client import ControllerClient, is_active
from shiplap_lab.cluster_simulator.workloads.templated_pods import pod_from
from shiplap_lab.cluster_simulator.workloads.workload_labels import (
    JOB_INDEX,
    JOB_TRACKING,
    free_indexes,
    index_ranges,
    index_text,
    without_tracking,
)
from shiplap_lab.cluster_simulator.workloads.workload_specs import JobSpec

PLURAL = "jobs"
_MOST_INDEXES = 100_000
_BACKOFF_S, _MOST_BACKOFF_S = 10.0, 360.0


Verdict = tuple[str, str, str]
"""The condition that ends a Job, its reason and its words."""


class _Progress(msgspec.Struct):
    """How far a Job is."""

    succeeded: int
    failed: int
    done: set[int]
    """Indexes that have succeeded, of an Indexed Job."""
    active: list[Pod]
    failed_at: float = 0.0


def reconcile_job(client: ControllerClient, item: Object) -> None:
    """Let pods end whose time has come, count them, and start as many as are missing."""
    spec = client.spec(item, JobSpec)
    if any(condition_of(item, kind) for kind in ("Complete", "Failed")):
        _expire(client, item, spec)
        return
    if item["metadata"].get("deletionTimestamp"):
        _let_go(client, item)
        return
    if spec.managed_by != "kubernetes.io/job-controller":
        return
    pods = [_ended(client, pod) for pod in client.pods_of(item)]
    progress = _counted(client, item, spec, pods)
    started = (item.get("status") or {}).get("startTime") or rfc3339(client.now)
    verdict = _verdict(client, spec, progress, epoch(started))
    missing = 0 if verdict or spec.suspend else _wanted(spec, progress) - len(progress.active)
    if missing < 0 or verdict or spec.suspend:
        client.delete_pods(progress.active if verdict or spec.suspend else progress.active[missing:])
    elif missing and not _backs_off(client, progress):
        refused = client.create_pods(item, _bodies(item, spec, progress, missing), missing)
        if refused:
            client.event(item, "FailedCreate", f"Error creating: {refused}", "Warning")
    _report(client, item, spec, progress, started, verdict)


def _ended(client: ControllerClient, pod: Pod) -> Pod:
    """The pod, ended when its container has run for as long as it does."""
    name, namespace = pod.metadata.name, pod.metadata.namespace
    if pod.status.phase != "Running" or pod.metadata.deletion_timestamp or not pod.status.start_time:
        return pod
    stored = client.server.get("pods", name, namespace)
    run = run_of(stored)
    if run.seconds is None:
        return pod
    ends_at = epoch(pod.status.start_time) + run.seconds
    if ends_at > client.now:
        client.wake_at = min(client.wake_at, ends_at)
        return pod
    moment = rfc3339(client.now)
    phase = "Failed" if run.exit_code else "Succeeded"
    conditions = [condition(kind, "False", moment, "PodCompleted") for kind in ("Ready", "ContainersReady")]
    ended = {"exitCode": run.exit_code, "reason": "Error" if run.exit_code else "Completed", "finishedAt": moment}
    containers = [
        {"name": each["name"], "ready": False, "restartCount": 0, "state": {"terminated": ended}}
        for each in stored["spec"]["containers"]
    ]
    status = {"phase": phase, "conditions": conditions, "containerStatuses": containers}
    patch = {"status": status}
    changed = client.server.patch("pods", name, patch, namespace, strategic=True, subresource="status")
    return client.server.typed(changed, Pod)


def _counted(client: ControllerClient, item: Object, spec: JobSpec, pods: Sequence[Pod]) -> _Progress:
    status = item.get("status") or {}
    active = [pod for pod in pods if is_active(pod)]
    done = _done(str(status.get("completedIndexes", "")))
    progress = _Progress(status.get("succeeded", 0), status.get("failed", 0), done, active)
    for pod in pods:
        over = pod.status.phase in TERMINAL_PHASES
        if pod.status.phase == "Failed":
            ready = [each for each in pod.status.conditions if each.type == "Ready" and each.last_transition_time]
            progress.failed_at = max([progress.failed_at, *(epoch(each.last_transition_time or "") for each in ready)])
        stored = client.server.get("pods", pod.metadata.name, pod.metadata.namespace)["metadata"]
        gone = stored.get("deletionTimestamp") and stored.get("deletionGracePeriodSeconds") == 0
        if JOB_TRACKING not in pod.metadata.finalizers or not (over or gone):
            continue
        index = _index_of(pod)
        if pod.status.phase == "Succeeded":
            progress.succeeded += spec.is_indexed is False or index not in done
            done.add(index)
        else:
            progress.failed += 1
        client.patch_metadata("pods", pod.metadata.name, pod.metadata.namespace, without_tracking(stored))
    return progress


def _done(text: str) -> set[int]:
    """The indexes of a text; none of a text that only another client than this one can have written."""
    try:
        ranges = [*index_ranges(text)]
    except ValueError:
        return set()
    if sum(max(last - first + 1, 0) for first, last in ranges) > _MOST_INDEXES:
        return set()
    return {index for first, last in ranges for index in range(first, last + 1)}


def _index_of(pod: Pod) -> int:
    text = pod.metadata.annotations.get(JOB_INDEX, "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _wanted(spec: JobSpec, progress: _Progress) -> int:
    if spec.completions is None:  # of a work queue: nobody is started once one has succeeded
        return len(progress.active) if progress.succeeded else spec.parallelism
    return max(min(spec.parallelism, spec.completions - progress.succeeded), 0)


def _verdict(
    client: ControllerClient, spec: JobSpec, progress: _Progress, started: float
) -> tuple[str, str, str] | None:
    """The condition that ends the Job, with its reason and words."""
    enough = 1 if spec.completions is None else spec.completions
    if progress.succeeded >= enough and not (spec.completions is None and progress.active):
        return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
    if progress.failed > spec.backoff_limit:
        return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    if spec.active_deadline_seconds is not None and not spec.suspend:
        ends_at = started + spec.active_deadline_seconds
        if client.now >= ends_at:
            return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
        client.wake_at = min(client.wake_at, ends_at)
    return None


def _backs_off(client: ControllerClient, progress: _Progress) -> bool:
    if not progress.failed or not progress.failed_at:
        return False
    ends_at = progress.failed_at + min(_BACKOFF_S * 2.0 ** min(progress.failed - 1, 10), _MOST_BACKOFF_S)
    if ends_at > client.now:
        client.wake_at = min(client.wake_at, ends_at)
    return ends_at > client.now


def _bodies(item: Object, spec: JobSpec, progress: _Progress, missing: int) -> Iterator[Object]:
    if not spec.is_indexed:
        yield from repeat(_tracked(pod_from(item)), missing)
        return
    running = {str(_index_of(pod)) for pod in progress.active}
    ended = [*index_ranges(index_text(progress.done))]
    for index in islice(free_indexes(ended, running), missing):
        mark = {JOB_INDEX: str(index)}
        pod = _tracked(pod_from(item, labels=mark, annotations=mark))
        pod["metadata"]["generateName"] = f"{item['metadata']['name']}-{index}-"
        pod["spec"]["hostname"] = f"{item['metadata']['name']}-{index}"
        yield pod


def _tracked(pod: Object) -> Object:
    pod["metadata"]["finalizers"] = [*pod["metadata"]["finalizers"], JOB_TRACKING]
    return pod


def _report(
    client: ControllerClient,
    item: Object,
    spec: JobSpec,
    progress: _Progress,
    started: str,
    verdict: Verdict | None,
) -> None:
    conditions = []
    status: dict[str, Any] = {
        "startTime": None if spec.suspend else started,
        "active": 0 if verdict or spec.suspend else len(progress.active),
        "ready": sum(is_ready(pod.status) for pod in progress.active),
        "succeeded": progress.succeeded,
        "failed": progress.failed,
        "completedIndexes": index_text(progress.done) if spec.is_indexed else None,
    }
    if verdict:
        kind, reason, words = verdict
        before = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
        conditions = [renewed(item, each, "True", reason, words, client.now) for each in (before, kind)]
        status["completionTime"] = rfc3339(client.now) if kind == "Complete" else None
        client.event(
            item, "Completed" if kind == "Complete" else reason, words, "Normal" if kind == "Complete" else "Warning"
        )
    elif spec.suspend:
        conditions = [renewed(item, "Suspended", "True", "JobSuspended", "Job suspended", client.now)]
    client.set_status(
        PLURAL, item, {name: value for name, value in status.items() if value != 0} | {"conditions": conditions}
    )


def _expire(client: ControllerClient, item: Object, spec: JobSpec) -> None:
    """Let the pods of an ended Job go when they are deleted, and the Job itself when its time is over."""
    _let_go(client, item)
    if spec.ttl_seconds_after_finished is None:
        return
    ends = [epoch(each["lastTransitionTime"]) for kind in ("Complete", "Failed") if (each := condition_of(item, kind))]
    expires_at = max(ends) + spec.ttl_seconds_after_finished
    if client.now >= expires_at:
        client.delete(PLURAL, item["metadata"]["name"], item["metadata"]["namespace"])
    else:
        client.wake_at = min(client.wake_at, expires_at)


def _let_go(client: ControllerClient, item: Object) -> None:
    for pod in client.pods_of(item):
        name, namespace = pod.metadata.name, pod.metadata.namespace
        if JOB_TRACKING in pod.metadata.finalizers:
            stored = client.server.get("pods", name, namespace)["metadata"]
            client.patch_metadata("pods", name, namespace, without_tracking(stored))

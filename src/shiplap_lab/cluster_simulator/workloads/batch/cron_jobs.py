"""The CronJob controller: a Job for each moment of a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from shiplap.errors import ObjectConflict
from shiplap.kubernetes.timestamps import epoch, rfc3339
from shiplap.manifests.times import Cron, parse_cron
from shiplap_lab.api_server.changelog import Object
from shiplap_lab.api_server.stored_workloads import admitted
from shiplap_lab.cluster_simulator.workloads.condition_lists import condition_of
from shiplap_lab.cluster_simulator.workloads.controller_client import ControllerClient, owner_reference
from shiplap_lab.cluster_simulator.workloads.workload_specs import CronJobSpec

PLURAL = "cronjobs"
_JOBS = "jobs"
_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_LOOK_BACK_S = 86_400.0
"""Moments that passed longer ago begin no Job: nobody looked at the schedule for so long."""
_MOST_DAYS = 366 * 8 + 1
"""A schedule that names a day names one within so many: 29 February comes after eight years at the latest."""


def reconcile_cron_job(client: ControllerClient, item: Object) -> None:
    """Begin the Job of the newest moment that has come, and delete old Jobs beyond the limits of the history."""
    spec, metadata = client.spec(item, CronJobSpec), item["metadata"]
    if metadata.get("deletionTimestamp"):
        return
    jobs = client.owned(_JOBS, item)
    active = [job for job in jobs if not _ended(job)]
    status: dict[str, Any] = dict(item.get("status") or {})
    _forget(client, spec, jobs)
    if not spec.suspend:
        due = _due(client, spec, epoch(status.get("lastScheduleTime") or metadata["creationTimestamp"]))
        if due is not None and (started := _started(client, item, spec, active, due)) is not None:
            active = started
            status["lastScheduleTime"] = rfc3339(due)
    succeeded = [job["status"]["completionTime"] for job in jobs if condition_of(job, "Complete")]
    status["lastSuccessfulTime"] = max([*succeeded, status.get("lastSuccessfulTime") or ""])
    status["active"] = [_reference(job) for job in active]
    client.set_status(PLURAL, item, status)


def moments_after(cron: Cron, zone: ZoneInfo, at: float) -> Iterator[float]:
    """Yield the moments of a schedule after one, in epoch seconds and in their order; none of a day that never is."""
    first = datetime.fromtimestamp(at, zone).date()
    for number in range(_MOST_DAYS):
        day = first + timedelta(days=number)
        if not _names_day(cron, day):
            continue
        for hour in sorted(cron.hours):
            for minute in sorted(cron.minutes):
                moment = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone).timestamp()
                if moment > at:
                    yield moment


def _names_day(cron: Cron, day: date) -> bool:
    if day.month not in cron.months:
        return False
    of_month, of_week = day.day in cron.days, day.isoweekday() % 7 in cron.weekdays
    return of_month and of_week if cron.any_day or cron.any_weekday else of_month or of_week


def _due(client: ControllerClient, spec: CronJobSpec, since: float) -> float | None:
    """Return the newest moment that has come and for which no Job has begun; the next one wakes the controller."""
    newest = None
    since = max(since, client.now - _LOOK_BACK_S)
    for moment in moments_after(parse_cron(spec.schedule), ZoneInfo(spec.time_zone or "UTC"), since):
        if moment > client.now:
            client.wake_at = min(client.wake_at, moment)
            break
        newest = moment
    limit_s = spec.starting_deadline_seconds
    return None if newest is not None and limit_s is not None and client.now - newest > limit_s else newest


def _started(
    client: ControllerClient, item: Object, spec: CronJobSpec, active: list[Object], due: float
) -> list[Object] | None:
    """The Jobs that run once the one of a moment has begun; None if it has to wait for them."""
    if active and spec.concurrency_policy == "Forbid":
        words = "Not starting job because prior execution is running and concurrency policy is Forbid"
        client.event(item, "JobAlreadyActive", words, "Warning")
        return None
    if spec.concurrency_policy == "Replace":
        for job in active:
            client.delete(_JOBS, job["metadata"]["name"], job["metadata"]["namespace"])
        active = []
    body = _job(item, due)
    try:
        made = client.server.create(_JOBS, body, item["metadata"]["namespace"], admit=admitted)
    except ObjectConflict:
        return active  # it was begun before the status said so
    client.event(item, "SuccessfulCreate", f"Created job {made['metadata']['name']}")
    return [*active, made]


def _job(item: Object, due: float) -> Object:
    template = item["spec"]["jobTemplate"]
    metadata = template.get("metadata") or {}
    return {
        "metadata": {
            "name": f"{item['metadata']['name']}-{int(due) // 60}",
            "labels": dict(metadata.get("labels") or {}),
            "annotations": {**(metadata.get("annotations") or {}), _SCHEDULED: rfc3339(due)},
            "ownerReferences": [owner_reference(item)],
        },
        "spec": template.get("spec") or {},
    }


def _forget(client: ControllerClient, spec: CronJobSpec, jobs: list[Object]) -> None:
    ended = sorted((job for job in jobs if _ended(job)), key=lambda job: job["metadata"]["creationTimestamp"])
    for kind, limit in (
        ("Complete", spec.successful_jobs_history_limit),
        ("Failed", spec.failed_jobs_history_limit),
    ):
        kept = [job["metadata"] for job in ended if condition_of(job, kind)]
        for metadata in kept[: max(len(kept) - limit, 0)]:
            client.delete(_JOBS, metadata["name"], metadata["namespace"])


def _ended(job: Object) -> bool:
    return any(condition_of(job, kind) for kind in ("Complete", "Failed"))


def _reference(job: Object) -> dict[str, str]:
    metadata = job["metadata"]
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
    }

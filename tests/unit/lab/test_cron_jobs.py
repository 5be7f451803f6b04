"""CronJobs of a simulated cluster: Jobs at the moments of a schedule, by the cluster's own clock."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from shiplap.errors import ClusterError
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.times import parse_cron
from shiplap_lab.cluster_simulator.workloads.batch.cron_jobs import moments_after
from tests.builders.workloads import WorkloadWorld, cron_job_object


@pytest.fixture
def world() -> WorkloadWorld:
    return WorkloadWorld()


def run_minutes(world: WorkloadWorld, minutes: int) -> None:
    for _ in range(12 * minutes):
        world.step(5.0)


def created(world: WorkloadWorld, name: str = "beat", *command: str, **spec: Any) -> None:
    world.create("cronjobs", cron_job_object(name, *command, **spec))


def test_a_job_begins_at_each_moment_of_the_schedule_and_ended_ones_are_forgotten(world: WorkloadWorld) -> None:
    created(world, schedule="*/2 * * * *")
    run_minutes(world, 12)
    jobs = world.server.list("jobs").items
    minutes = [int(job["metadata"]["name"].removeprefix("beat-")) for job in jobs]
    assert len(minutes) == 3  # the limit of the history
    assert all(minute % 2 == 0 for minute in minutes)
    assert [later - earlier for earlier, later in pairwise(minutes)] == [2, 2]
    assert {job["metadata"]["ownerReferences"][0]["name"] for job in jobs} == {"beat"}
    status = world.status("cronjobs", "beat")
    assert epoch(status["lastScheduleTime"]) == 60 * minutes[-1]
    assert status["lastSuccessfulTime"] > status["lastScheduleTime"]
    world.server.delete("cronjobs", "beat")
    world.settle()
    assert (world.names("jobs"), world.names()) == ([], [])


def test_the_policy_says_what_happens_to_a_job_that_still_runs(world: WorkloadWorld) -> None:
    for policy in ("Allow", "Forbid", "Replace"):
        created(world, policy.lower(), "sleep", "150", schedule="* * * * *", concurrencyPolicy=policy)
    run_minutes(world, 3)
    counts = {policy: sum(name.startswith(policy) for name in world.names("jobs")) for policy in ("allow", "forbid")}
    assert counts["allow"] in (2, 3)
    assert counts["forbid"] == 1
    assert len(world.status("cronjobs", "replace")["active"]) == 1
    (replaced,) = [name for name in world.names("jobs") if name.startswith("replace")]
    assert epoch(world.status("cronjobs", "replace")["lastScheduleTime"]) == 60 * int(replaced.rpartition("-")[2])


def test_a_suspended_one_begins_nothing_and_a_late_start_may_be_given_up(world: WorkloadWorld) -> None:
    created(world, "still", schedule="* * * * *", suspend=True)
    created(world, "late", schedule="* * * * *", startingDeadlineSeconds=1)
    world.clock.advance(90.0 - world.clock.now() % 60)  # half a minute after a moment
    world.step(0.0)
    world.step(0.0)
    assert world.names("jobs") == []


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"schedule": "every day"}, "is not a schedule"),
        ({"schedule": "* * * * *", "timeZone": "Mars/Olympus"}, "is not a time zone"),
        ({"schedule": "* * * * *", "concurrencyPolicy": "Never"}, 'Unsupported value: "Never"'),
    ],
)
def test_what_no_controller_could_follow_is_refused(world: WorkloadWorld, spec: dict[str, Any], words: str) -> None:
    with pytest.raises(ClusterError, match=words) as caught:
        created(world, **spec)
    assert caught.value.status == 422


@pytest.mark.parametrize(
    ("schedule", "zone", "expected"),
    [
        ("0 9 * * MON-FRI", "UTC", ["2026-01-02 09:00", "2026-01-05 09:00", "2026-01-06 09:00"]),
        ("30 0 1 * *", "Europe/Berlin", ["2026-01-31 23:30", "2026-02-28 23:30", "2026-03-31 22:30"]),
        ("0 0 13 * FRI", "UTC", ["2026-01-02 00:00", "2026-01-09 00:00", "2026-01-13 00:00"]),
        ("0 0 29 2 *", "UTC", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 30 2 *", "UTC", []),
    ],
)
def test_moments_of_a_schedule(schedule: str, zone: str, expected: list[str]) -> None:
    at = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
    found = islice(moments_after(parse_cron(schedule), ZoneInfo(zone), at), 3)
    assert [f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M}" for moment in found] == expected

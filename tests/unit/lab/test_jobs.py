"""Jobs of a simulated cluster: completions, indexes, failures, deadlines, and one that never ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.errors import ClusterError
from shiplap_lab.cluster_simulator.workloads.batch.job_runs import RUNS_S, run_of
from shiplap_lab.cluster_simulator.workloads.garbage_collector import FOREGROUND, ORPHAN, delete
from shiplap_lab.cluster_simulator.workloads.workload_labels import free_indexes, index_ranges, index_text
from tests.builders.workloads import WorkloadWorld, job_object


@pytest.fixture
def world() -> WorkloadWorld:
    return WorkloadWorld()


def phases(world: WorkloadWorld) -> list[str]:
    return sorted(item["status"]["phase"] for item in world.server.list("pods").items)


def run_for(world: WorkloadWorld, seconds: int) -> None:
    for _ in range(seconds):
        world.step()


def test_a_job_runs_as_many_pods_at_a_time_as_it_may_and_completes(world: WorkloadWorld) -> None:
    stored = world.create("jobs", job_object("work", "sleep", "5", completions=5, parallelism=2))
    labels = stored["spec"]["template"]["metadata"]["labels"]
    assert labels["job-name"] == labels["batch.kubernetes.io/job-name"] == "work"
    assert stored["spec"]["selector"]["matchLabels"].items() <= labels.items()
    for _ in range(40):
        world.step()
        assert phases(world).count("Running") + phases(world).count("Pending") <= 2
    assert phases(world) == 5 * ["Succeeded"]
    status = world.status("jobs", "work")
    assert (status["succeeded"], "active" in status, "failed" in status) == (5, False, False)
    assert world.condition("jobs", "work", "Complete") == ("True", "CompletionsReached")
    assert status["completionTime"] > status["startTime"]
    assert all("finalizers" not in item["metadata"] for item in world.server.list("pods").items)
    world.server.delete("jobs", "work")
    world.settle()
    assert world.names() == []


def test_an_indexed_job_runs_each_index_once(world: WorkloadWorld) -> None:
    spec = {"completions": 4, "parallelism": 3, "completionMode": "Indexed"}
    world.create("jobs", job_object("work", "sleep", "3", **spec))
    run_for(world, 30)
    marks = [item["metadata"]["annotations"] for item in world.server.list("pods").items]
    assert sorted(mark["batch.kubernetes.io/job-completion-index"] for mark in marks) == ["0", "1", "2", "3"]
    assert world.status("jobs", "work")["completedIndexes"] == "0-3"
    assert world.names()[0].startswith("work-0-")


def test_failures_count_and_the_next_try_waits_longer(world: WorkloadWorld) -> None:
    world.create("jobs", job_object("work", "false", backoffLimit=2))
    run_for(world, 5)
    assert (phases(world), world.status("jobs", "work")["failed"]) == (["Failed"], 1)
    run_for(world, 15)
    assert world.status("jobs", "work")["failed"] == 2
    run_for(world, 60)
    assert world.condition("jobs", "work", "Failed") == ("True", "BackoffLimitExceeded")
    assert (phases(world), world.status("jobs", "work")["failed"]) == (3 * ["Failed"], 3)
    run_for(world, 400)
    assert len(world.names()) == 3


def test_a_job_that_never_ends_ends_at_its_deadline(world: WorkloadWorld) -> None:
    world.create("jobs", job_object("endless", "sleep", "infinity"))
    world.create("jobs", job_object("late", "sleep", "infinity", activeDeadlineSeconds=60))
    run_for(world, 50)
    assert phases(world) == ["Running", "Running"]
    run_for(world, 30)
    assert world.condition("jobs", "late", "Failed") == ("True", "DeadlineExceeded")
    assert [name.partition("-")[0] for name in world.names()] == ["endless"]
    version = world.server.resource_version
    run_for(world, 100)
    assert world.server.resource_version == version


def test_a_pod_that_is_lost_counts_once_and_is_replaced(world: WorkloadWorld) -> None:
    world.create("jobs", job_object("work", "sleep", "20"))
    run_for(world, 4)
    (lost,) = world.names()
    world.server.evict(lost)
    run_for(world, 4)
    (pod,) = world.names()
    assert (pod != lost, world.status("jobs", "work")["failed"]) == (True, 1)
    run_for(world, 30)
    assert world.condition("jobs", "work", "Complete")[0] == "True"


def test_a_suspended_job_has_no_pods(world: WorkloadWorld) -> None:
    world.create("jobs", job_object("work", "sleep", "100"))
    run_for(world, 4)
    world.change("jobs", "work", suspend=True)
    run_for(world, 4)
    assert (world.names(), world.condition("jobs", "work", "Suspended")[0]) == ([], "True")
    world.change("jobs", "work", suspend=False)
    run_for(world, 4)
    assert len(world.names()) == 1


def test_an_ended_job_goes_when_its_time_is_over(world: WorkloadWorld) -> None:
    world.create("jobs", job_object("work", "true", ttlSecondsAfterFinished=10))
    run_for(world, 8)
    assert world.names("jobs") == ["work"]
    run_for(world, 15)
    assert (world.names("jobs"), world.names()) == ([], [])


def test_a_work_queue_ends_when_all_its_workers_have(world: WorkloadWorld) -> None:
    world.create("jobs", job_object("work", "sleep", "5", parallelism=3))
    run_for(world, 20)
    assert (phases(world), world.condition("jobs", "work", "Complete")[0]) == (3 * ["Succeeded"], "True")


@pytest.mark.parametrize("finalizer", ["", FOREGROUND, ORPHAN])
def test_a_job_is_deleted_while_it_runs(finalizer: str, world: WorkloadWorld) -> None:
    world.create("jobs", job_object("work", "sleep", "100", parallelism=2))
    run_for(world, 4)
    delete(world.server, "jobs", "work", "default", finalizer)
    run_for(world, 5)
    assert (world.names("jobs"), len(world.names())) == ([], 2 if finalizer == ORPHAN else 0)
    for name in world.names():
        world.server.delete("pods", name)
    run_for(world, 5)
    assert world.names() == []


def test_a_billion_completions_end_at_the_quota() -> None:
    world = WorkloadWorld(nodes=0)
    world.create("jobs", job_object("work", completions=10**9, parallelism=10**9, completionMode="Indexed"))
    run_for(world, 6)
    assert len(world.names()) == 1000
    forged = {"status": {"completedIndexes": "0-999999999", "succeeded": 3}}
    world.server.patch("jobs", "work", forged, subresource="status")
    run_for(world, 2)
    world.server.patch("jobs", "work", {"status": {"completedIndexes": "many"}}, subresource="status")
    run_for(world, 2)
    assert len(world.names()) == 1000


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"parallelism": -1}, "spec.parallelism: Invalid value"),
        ({"backoffLimit": "six"}, "spec.backoffLimit: Invalid value"),
        ({"completionMode": "Sorted"}, 'spec.completionMode: Unsupported value: "Sorted"'),
        ({"completionMode": "Indexed", "parallelism": 1}, "spec.completions: Required value"),
        ({"policy": "Always"}, 'Unsupported value: "Always": supported values: "Never", "OnFailure"'),
        ({"template": None}, "spec.template: Required value"),
    ],
)
def test_a_job_that_could_never_work_is_refused(spec: dict[str, Any], words: str) -> None:
    world = WorkloadWorld(nodes=0)
    with pytest.raises(ClusterError) as caught:
        world.create("jobs", job_object("work", "true", **spec))
    assert (caught.value.status, words in str(caught.value)) == (422, True), str(caught.value)


def test_the_template_of_a_job_cannot_be_changed(world: WorkloadWorld) -> None:
    world.create("jobs", job_object("work", "true"))
    with pytest.raises(ClusterError, match=r"spec\.template: Invalid value: field is immutable"):
        world.change("jobs", "work", template={"spec": {"dnsPolicy": "Default"}})
    assert world.change("jobs", "work", parallelism=2)["spec"]["parallelism"] == 2


@pytest.mark.parametrize(
    ("command", "seconds", "exit_code"),
    [
        ([], RUNS_S, 0),
        (["sleep", "30"], 30.0, 0),
        (["/bin/sh", "-c", "echo a; sleep 2m; exit 3"], 120.0, 3),
        (["sh", "-c", "sleep 1 && sleep 0.5"], 1.5, 0),
        (["sleep", "infinity"], None, 0),
        (["true"], 0, 0),
        (["/bin/false"], 0, 1),
        (["sh", "-c", "sleep 5; false"], 5.0, 1),
        (["perl", "-e", "print bpi(2000)"], RUNS_S, 0),
        (["sleep", "9" * 30], RUNS_S, 0),
    ],
)
def test_a_container_runs_as_its_command_says(command: list[str], seconds: float | None, exit_code: int) -> None:
    run = run_of({"spec": {"containers": [{"name": "main", "command": command[:1], "args": command[1:]}]}})
    assert (run.seconds, run.exit_code) == (seconds, exit_code)


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_indexes_are_written_and_read_and_the_free_ones_are_the_others(done: set[int], running: set[int]) -> None:
    ranges = [*index_ranges(index_text(done))]
    assert {index for first, last in ranges for index in range(first, last + 1)} == done
    free = free_indexes(ranges, {str(index) for index in running - done})
    assert [next(free) for _ in range(5)] == [index for index in range(100) if index not in done | running][:5]

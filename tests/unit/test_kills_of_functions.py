"""The tool that kills functions: what it finds, keeps and explains."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from shiplap_lab.dev.kills import Gap, Kill, Ledger, explained, function_processes, said_between, summary
from shiplap_lab.dev.local_region import QueueDepth


def test_processes_of_functions_are_found_by_the_name_in_their_environment() -> None:
    environment = {**os.environ, "AWS_LAMBDA_FUNCTION_NAME": "shiplap-watch"}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment) as process:
        found = function_processes(os.getpid(), {"watch": "shiplap-watch", "schedule": "shiplap-schedule"})
        process.communicate(b"\n")

    assert found == {"watch": [process.pid]}


def test_a_ledger_goes_on_where_it_ended(tmp_path: Path) -> None:
    kill = Kill("a", "watch", 7, 100.0, 0.5)
    gap = Gap("a", 100.0, 230.0, 3, "", (QueueDepth("provisioning", 1, 0),), ("watch",))

    Ledger(tmp_path / "kills").add(kill)
    Ledger(tmp_path / "kills").add(gap)

    assert Ledger(tmp_path / "kills").kills() == (kill,)
    assert Ledger(tmp_path / "kills").gaps() == (gap,)


def test_only_the_lines_of_a_gap_are_kept(tmp_path: Path) -> None:
    began = time.mktime(time.strptime("2026-01-01 10:00:10", "%Y-%m-%d %H:%M:%S"))
    log = tmp_path / "log"
    log.write_text("2026-01-01 10:00:00 before\n2026-01-01 10:00:20 within\nits output\n2026-01-01 10:01:00 after\n")

    assert said_between(log, began, began + 20) == ["2026-01-01 10:00:20 within", "its output"]


def test_a_gap_is_explained_by_a_function_that_ended_no_invocation_well() -> None:
    began = time.mktime(time.strptime("2026-01-01 10:00:00", "%Y-%m-%d %H:%M:%S"))
    died = "2026-01-01 10:01:00 WARNING ESM: Lambda shiplap-lifecycle failed processing SQS batch"
    late = "2026-01-01 10:02:05 INFO ESM: Lambda shiplap-lifecycle processed 1 SQS messages"
    early = "2026-01-01 10:01:05 INFO ESM: Lambda shiplap-lifecycle processed 1 SQS messages"
    other = "2026-01-01 10:01:00 INFO ESM: Lambda shiplap-schedule processed 1 SQS messages"

    assert explained(began, began + 130, [died, other, late]).startswith("no lifecycle ended well for 125 s, 1 failed")
    assert explained(began, began + 130, [died, early, late]) == ""
    assert explained(began, began + 130, [other]) == ""


def test_the_summary_counts_kills_and_names_gaps_without_a_reason() -> None:
    said = summary([Kill("a", "watch", 7, 100.0, 0.5)], [Gap("a", 100.0, 230.0, 3, "", (), ("watch",))])

    assert "watch: killed 1 times" in said
    assert "1 gaps of 120 s or more, 1 without a reason" in said
    assert "a: 130 s, 3 pods waited, killed watch: no reason found" in said

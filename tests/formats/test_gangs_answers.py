"""Tests the answers of the command of gangs with `-o json`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import has_schema
from tests.formats.doors import shiplap
from tests.formats.golden import Golden
from tests.unit.cli.gangs_written import arguments, members, pod_template, request, request_status

COMMAND = ["explain", "provisioningrequest"]


def test_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    booked = request_status(("Provisioned", "True", "2026-01-31T12:00:00Z"), booked="0:n1=2,0:n2=1")
    answers = {}
    for title, nodes, stored in (("that waits", 1, {}), ("with a plan", 9, {}), ("that is booked", 9, booked)):
        given = arguments(tmp_path, nodes, pod_template(), {**request(3), "status": stored})
        found = shiplap(*COMMAND, "web/train", *given[1:], "--now", "2026-01-31T12:05:00Z", "-o", "json")
        has_schema(COMMAND, whole := json.loads(found.out))
        answers[title] = {"exit code": found.code, "answer": whole}
    golden.holds("commands/gangs-explain", answers)


def test_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    answers = {}
    for title, nodes in (("launched", 9), ("not launched", 2)):
        given = arguments(tmp_path, nodes, pod_template(), request(3), *members())
        found = shiplap(*given, "-o", "json")
        has_schema(["plan"], whole := json.loads(found.out))
        answers[title] = {"exit code": found.code, "gangs": whole["gangs"]}
    golden.holds("commands/gangs-plan", answers)

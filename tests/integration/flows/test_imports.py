"""Every import of a function costs time at each cold start: no function may import what it does not use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUNCTIONS = Path(__file__).parents[3] / "functions"
NEVER = {"yaml", "rich", "typer", "moto", "shiplap_lab", "shiplap_cli", "aws_xray_sdk", "pydantic"}
UNUSED = {
    "schedule": {"shiplap.manifests.files.documents"},
    "lifecycle": {"numpy", "shiplap.scheduling.planner"},
    "catalog": {"numpy", "shiplap.scheduling.planner"},
    "disrupt": {"shiplap.manifests.files.documents"},
    "watch": {"numpy", "shiplap.scheduling.planner"},
    "widget": {"numpy", "shiplap.scheduling.planner"},
    "audit": {"numpy", "shiplap.scheduling.planner"},
}


@pytest.mark.parametrize("name", sorted(UNUSED))
def test_a_function_imports_only_what_it_uses(name: str) -> None:
    script = "import handler, sys; print(*sorted(sys.modules))"
    folder = FUNCTIONS / name
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603
    loaded = set(done.stdout.split())
    assert "handler" in loaded
    assert not loaded & (NEVER | UNUSED[name])
    # Clients and what only they need are made when they are first used.
    assert not loaded & {"boto3", "botocore.session", "botocore.client"}

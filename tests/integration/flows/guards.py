"""Budgets that keep pods where they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.integration.flows.stage import Stage


def guard(stage: Stage, selector: Mapping[str, Any] | None = None, *, status: Mapping[str, Any] | None = None) -> None:
    """A budget that forbids every eviction of the pods of a selector."""
    for item in stage.server.list("pods").items:
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        stage.server.patch("pods", item["metadata"]["name"], {"status": status}, subresource="status")
    spec = {"maxUnavailable": 0, "selector": dict(selector or {})}
    budget = {"metadata": {"name": "all"}, "spec": spec, **({"status": dict(status)} if status else {})}
    stage.server.create("poddisruptionbudgets", budget)

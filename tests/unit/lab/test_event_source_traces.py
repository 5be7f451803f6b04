"""Invocations by the client of an event source: only its own carry a trace."""

from __future__ import annotations

from typing import Any

from shiplap_lab.emulated_aws import lineage
from shiplap_lab.emulated_aws.event_source import EventSourcePoller


def test_an_invocation_of_somebody_else_has_no_trace() -> None:
    source: Any = EventSourcePoller.__new__(EventSourcePoller)
    source._invocation = type("Invocation", (), {})()
    params: dict[str, Any] = {"headers": {}}
    source._trace(params)
    assert params["headers"] == {}
    source._invocation.trace = "Root=1"
    source._trace(params)
    assert params["headers"] == {lineage.HEADER: "Root=1"}

"""Invocations by the client of an event source: only its own carry a trace."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from shiplap_lab.emulated_aws import lineage
from shiplap_lab.emulated_aws.lineage import invoked, turns
from tests.event_source import EventSourcePoller


def test_an_invocation_of_somebody_else_has_no_trace() -> None:
    source: Any = EventSourcePoller.__new__(EventSourcePoller)
    source._invocation = type("Invocation", (), {})()
    params: dict[str, Any] = {"headers": {}}
    source._trace(params)
    assert params["headers"] == {}
    source._invocation.trace = "Root=1"
    source._trace(params)
    assert params["headers"] == {lineage.HEADER: "Root=1"}


def test_a_chain_through_two_functions_is_read_as_botocore_sends_it_on() -> None:
    """botocore quotes the header: `|` between two functions arrives as %7C."""
    trace = invoked(invoked("", "schedule"), "lifecycle")
    sent = quote(trace, safe="-=;:+&[]{}\"',")
    assert "%7C" in sent
    assert (turns(sent, "schedule"), turns(sent, "lifecycle")) == (1, 1)
    again = invoked(sent, "lifecycle")
    assert (turns(again, "schedule"), turns(again, "lifecycle")) == (1, 2)

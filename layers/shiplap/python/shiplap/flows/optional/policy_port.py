"""Names the ports that optional features have in a FlowContext."""

from __future__ import annotations

from typing import Generic, TypeVar

from shiplap.flows.optional.optional_calls import OptionalPart

P = TypeVar("P")


class PolicyPort(Generic[P]):
    """The key of one port: the feature's adapters give the port this name, and its calls are of the optional part.

    The parameter is the protocol of the port.
    """

    def __init__(self, name: str, part: OptionalPart) -> None:
        self.name, self.part = name, part

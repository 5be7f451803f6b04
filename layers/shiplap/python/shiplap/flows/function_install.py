"""Declares what the entry of a function needs of its process: a Lambda container, or a simulated one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

from shiplap.errors import ShiplapError
from shiplap.flows.context import FlowContext
from shiplap.flows.optional.optional_calls import OptionalCalls
from shiplap.flows.turns import ProbeExecutor
from shiplap.ports import (
    CatalogSource,
    CatalogStore,
    Clock,
    DeadLetters,
    KeptIdentityStore,
    MemoryStore,
    Meter,
    NodeIdentities,
    StateStore,
    StatusStore,
)
from shiplap.settings import ClusterSettings, Settings

_LOG = logging.getLogger(__name__)

_Kept = TypeVar("_Kept")


class InvocationContext(Protocol):
    """The part of Lambda's context object that entries use."""

    @property
    def aws_request_id(self) -> str:
        """The invocation's id."""

    @property
    def invoked_function_arn(self) -> str:
        """The function's ARN, with the alias that was invoked."""

    def get_remaining_time_in_millis(self) -> int:
        """Return how long the invocation may still last, in milliseconds."""


class WarmMemory:
    """The memory of a process from one invocation to the next: one object of each class. A new process has none."""

    def __init__(self) -> None:
        self._kept: dict[type[Any], Any] = {}

    def of(self, kind: type[_Kept]) -> _Kept:
        """The object of this class; it is made when it is first asked for."""
        known: _Kept | None = self._kept.get(kind)
        if known is None:
            known = self._kept[kind] = kind()
        return known


class FunctionInstall(Protocol):
    """The install as one process of a function has it.

    `served` are the clusters that the function reaches, `settings` those of the whole install. `state` is that of all
    clusters, `memory` what the disrupt function remembers in the bucket, `warm` what the process remembers. `pause`
    waits for some seconds; `memory_mib` is what the process has. `optional` bounds calls; without it none
    is bounded.
    """

    @property
    def settings(self) -> Settings: ...

    @property
    def served(self) -> Settings: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def meter(self) -> Meter: ...

    @property
    def warm(self) -> WarmMemory: ...

    @property
    def executor(self) -> ProbeExecutor: ...

    @property
    def optional(self) -> OptionalCalls | None: ...

    @property
    def state(self) -> StateStore: ...

    @property
    def dead_letters(self) -> DeadLetters: ...

    @property
    def memory(self) -> MemoryStore: ...

    @property
    def status(self) -> StatusStore: ...

    @property
    def memory_mib(self) -> int: ...

    def context(self, cluster: ClusterSettings) -> FlowContext:
        """The ports of a cluster."""

    def catalog_store(self, region: str) -> CatalogStore:
        """The catalogue of a region."""

    def catalog_source(self, region: str) -> CatalogSource:
        """Return the source of a region's catalogue."""

    def node_identities(self, region: str) -> NodeIdentities:
        """Instance profiles and node roles of the install in a region."""

    def kept_identities(self, region: str) -> KeptIdentityStore:
        """Return the store of identities that are kept for nodes that still run."""

    def pause(self, seconds: float) -> None:
        """Wait."""

    def reporting(self, request_id: str) -> AbstractContextManager[None]:
        """Around an invocation: its log lines carry its id, and an error that ends it is logged and counted."""


@contextmanager
def counted_errors(meter: Meter) -> Iterator[None]:
    """Log an error that ends an invocation and count it by its name; it goes on to Lambda."""
    try:
        yield
    except ShiplapError as error:
        meter.count(type(error).__name__)
        _LOG.error("not done: %s", error, extra={"error": type(error).__name__})
        raise

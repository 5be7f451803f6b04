"""Holds the settings in shiplap.yaml for sleep in one cluster: nothing sleeps that they do not name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import ClassVar

import msgspec

from shiplap.policies.policy_settings import PolicySettings
from shiplap.policies.sleep.sleep_windows import LONGEST_S, Span, merged, parse_window, spans_of

Where = tuple[str | int, ...]

_SOME_MONDAY = 1_704_067_200.0
"""Windows that come back each week are looked at for three weeks from here, in epoch seconds."""


class WindowSettings(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """A window and what sleeps in it: these NodePools, all armed ones without a name, or the pods of namespaces.

    `when` is in one of the forms of `sleep_windows.FORMS`.
    """

    when: str
    node_pools: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()

    def is_of_pool(self, name: str) -> bool:
        """True if an armed NodePool sleeps in the window."""
        return not self.namespaces and (not self.node_pools or name in self.node_pools)


class SleepSettings(
    PolicySettings, msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """`node_pools` are armed: nodes of no others leave for sleep, and never more than `most_nodes` in one sleep."""

    policy: ClassVar[str] = "sleep"
    leaves_pods_out: ClassVar[bool] = True

    node_pools: tuple[str, ...]
    most_nodes: int
    windows: tuple[WindowSettings, ...]

    def problems(self) -> Iterator[tuple[Where, str]]:
        """Invalid settings: the field as written, and the reason."""
        if not self.node_pools:
            yield ("nodePools",), "must name at least one NodePool whose nodes may leave"
        if self.most_nodes < 1:
            yield ("mostNodes",), f"{self.most_nodes} must be at least 1: the most nodes that one sleep may take"
        if not self.windows:
            yield ("windows",), "must hold at least one window"
        for place, window in enumerate(self.windows):
            where = ("windows", place)
            try:
                parse_window(window.when)
            except ValueError as error:
                yield (*where, "when"), str(error)
            if window.node_pools and window.namespaces:
                yield where, "is of nodePools or of namespaces: write two windows"
            for name in window.node_pools:
                if name not in self.node_pools:
                    yield (*where, "nodePools"), f"{name!r} is not armed: name it under `nodePools` of `sleep` too"
        for name in self._endless():
            yield ("windows",), f"{name} would sleep for more than 7 days on end: let it be awake for a minute"

    def _endless(self) -> Iterator[str]:
        """Whatever the windows that can be read never wake, by its name."""
        for name in self.node_pools:
            if _is_endless(item.when for item in self.windows if item.is_of_pool(name)):
                yield f"NodePool {name}"
        for name in sorted({name for item in self.windows for name in item.namespaces}):
            if _is_endless(item.when for item in self.windows if name in item.namespaces):
                yield f"namespace {name}"


def _is_endless(windows: Iterable[str]) -> bool:
    spans: list[Span] = []
    for text in windows:
        with suppress(ValueError):  # told of by itself
            spans += spans_of(parse_window(text), _SOME_MONDAY, _SOME_MONDAY + 3 * LONGEST_S)
    return any(span.end - span.start > LONGEST_S for span in merged(spans))

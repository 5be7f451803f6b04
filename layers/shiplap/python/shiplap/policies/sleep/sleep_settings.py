"""Holds the settings in shiplap.yaml for sleep in one cluster: nothing sleeps that they do not name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Annotated, ClassVar

import msgspec

from shiplap.manifests.decoding import demands
from shiplap.policies.policy_settings import PolicySettings
from shiplap.policies.sleep.sleep_windows import LONGEST_S, Span, merged, parse_window, spans_of

Where = tuple[str | int, ...]

_SOME_MONDAY = 1_704_067_200.0
"""Windows that come back each week are looked at for three weeks from here, in epoch seconds."""


class WindowSettings(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """A window and what sleeps in it: these NodePools, all armed ones without a name, or the pods of namespaces."""

    when: str
    """Days, hours and time zone, in one of the forms of the page on sleep."""
    node_pools: tuple[str, ...] = ()
    """Names of `sleep.nodePools` that sleep in the window; all without."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose pods sleep, instead of NodePools."""

    def is_of_pool(self, name: str) -> bool:
        """True if an armed NodePool sleeps in the window."""
        return not self.namespaces and (not self.node_pools or name in self.node_pools)


class SleepSettings(
    PolicySettings, msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """`sleep` of a cluster in shiplap.yaml: what may sleep, and when."""

    policy: ClassVar[str] = "sleep"
    leaves_pods_out: ClassVar[bool] = True

    node_pools: Annotated[tuple[str, ...], demands(fewest=1)]
    """NodePools whose nodes may leave for sleep; nodes of no other NodePool leave."""
    most_nodes: Annotated[int, demands(least=1)]
    """The most nodes that one sleep may take."""
    windows: Annotated[tuple[WindowSettings, ...], demands(fewest=1)]
    """The hours of sleep."""

    def problems(self) -> Iterator[tuple[Where, str]]:
        """Invalid settings: the field as written, and the reason."""
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

"""Holds the settings in shiplap.yaml for sleep in one cluster: nothing sleeps that they do not name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Annotated, ClassVar

import msgspec

from shiplap.manifests.decoding import demands
from shiplap.policies.policy_settings import PolicySettings
from shiplap.policies.sleep.sleep_windows import LEAST_SLEEP_S, LONGEST_S, Span, merged, parse_window, spans_of

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
        for name, spans in self._spans():
            if any(span.end - span.start > LONGEST_S for span in spans):
                yield ("windows",), f"{name} would sleep for more than 7 days on end: let it be awake for a minute"
            if any(span.end - span.start < LEAST_SLEEP_S for span in spans):
                yield (
                    ("windows",),
                    f"{name} sleeps for less than 15 minutes, for which no node leaves: make it longer",
                )

    def _spans(self) -> Iterator[tuple[str, list[Span]]]:
        """Yield the times in which each NodePool and namespace sleeps, as far as windows can be read, by its name."""
        for name in self.node_pools:
            yield f"NodePool {name}", _spans_of(item.when for item in self.windows if item.is_of_pool(name))
        for name in sorted({name for item in self.windows for name in item.namespaces}):
            yield f"namespace {name}", _spans_of(item.when for item in self.windows if name in item.namespaces)


def _spans_of(windows: Iterable[str]) -> list[Span]:
    """The merged spans of windows in three weeks, and of those that are not repeated."""
    spans: list[Span] = []
    for text in windows:
        with suppress(ValueError):  # told of by itself
            window = parse_window(text)
            spans += spans_of(window, *_looked_at(window.on))
    return merged(spans)


def _looked_at(day: date | None) -> tuple[float, float]:
    begin = _SOME_MONDAY if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() - LONGEST_S
    return begin, begin + 3 * LONGEST_S

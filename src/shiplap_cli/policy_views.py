"""The parts of the command line that an optional feature adds: notes on what it reads, and a launch in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from shiplap.policies.registry import parts
from shiplap.scheduling.model.scheduling_plan import PlannedClaim


class Unread(NamedTuple):
    """A source that may not be read, what follows from that, and the answer that takes its place."""

    what: str
    consequence: str
    otherwise: object


class PolicyView:
    """One feature on the command line. `shiplap_cli.policies.<name>_view` holds one as VIEW."""

    unread: ClassVar[Mapping[str, Unread]] = {}
    """What a note says of each port of the feature that refuses to be read, by the name of its `PolicyPort`."""

    def of_launch(self, claim: PlannedClaim) -> str:
        """Return what there is to say of a launch; empty for nothing."""
        return ""


def views() -> tuple[tuple[str, PolicyView], ...]:
    """Return the views of all features, each with the name of the feature."""
    return tuple((name, module.VIEW) for name, module in parts("shiplap_cli", "view"))


def launch_remarks(claim: PlannedClaim) -> Iterator[tuple[str, str]]:
    """Yield what features say of a launch, each with the feature in words."""
    for name, view in views():
        if text := view.of_launch(claim):
            yield name.replace("_", " "), text

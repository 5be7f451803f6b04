"""The parts of the command line that an optional feature adds: what it reads, and what it shows of a launch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from shiplap.aws.policy_adapters import MakePorts
from shiplap.policies.registry import parts
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.model.snapshot import PolicyInput
from shiplap.settings import ClusterSettings


class PolicyView:
    """One feature on the command line. `shiplap_cli.policies.<name>_view` holds one as VIEW."""

    unread: ClassVar[tuple[str, str]] = ("", "")
    """The source that the feature reads, and what follows if it may not be read: for a note."""

    def read(self, ports: MakePorts, now: float) -> Any:
        """Read what plans need, if the feature is on. Raises StoreError, AwsError."""
        return None

    def planning_input(self, settings: ClusterSettings, known: Any) -> PolicyInput | None:
        """Return the input of a plan, of what was read; `known` is None if nothing could be read."""
        return None

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

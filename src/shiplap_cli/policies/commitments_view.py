"""Commitments on the command line: what is left of them, and what they pay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import to_builtins

from shiplap.disruption.disruption_snapshot import DisruptionInput
from shiplap.policies.commitments.commitment_input import CommitmentInput
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap_cli.policies.commitments_lines import commitment_lines, used_lines
from shiplap_cli.policy_views import PolicyView, Unread


class CommitmentsView(PolicyView):
    """Takes an account whose commitments, or whose use of them, cannot be read for one without any."""

    unread: ClassVar[Mapping[str, Unread]] = {
        "commitments": Unread("commitments", "list prices count", None),
        "commitment_use": Unread("use of commitments", "list prices count", None),
    }

    def of_plan(self, snapshot: Snapshot, plan: Plan) -> Iterator[str]:
        """Yield what is left for new nodes, and what the plan has of it."""
        return commitment_lines(snapshot.policy(CommitmentInput), plan)

    def of_disruption(self, inputs: Iterable[DisruptionInput]) -> Iterator[str]:
        """Yield what commitments pay now."""
        return used_lines(inputs)

    def document(self, snapshot: Snapshot, plan: Plan, rehearsed: Sequence[str]) -> dict[str, Any] | None:  # noqa: ARG002 - room before the plan
        """Return what is left for new nodes."""
        known = snapshot.policy(CommitmentInput)
        return None if known is None else to_builtins(known.room)


VIEW = CommitmentsView()

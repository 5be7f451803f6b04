"""Commitments within decisions: they make the prices of the first nodes, and take part of what a removal saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from shiplap.disruption.disruption_snapshot import DisruptionInput, PaidNode
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes import labels
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import InstanceUse
from shiplap.policies.commitments.commitment_ledger import CommitmentLedger, CommitmentRoom
from shiplap.policies.commitments.commitment_passes import is_linux, plan_on_commitments, room_behind
from shiplap.policies.commitments.commitment_use import UsedCommitments
from shiplap.scheduling.model.scheduling_plan import LaunchChoice, Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import PlanStage, PolicyInput, Pricing, Snapshot


class CommitmentInput(PolicyInput, frozen=True):
    """The Savings Plans and Reserved Instances that new nodes may use."""

    room: CommitmentRoom

    stage: ClassVar[PlanStage] = PlanStage.PRICES
    recorded_as: ClassVar[str] = "commitments"

    def plan(self, snapshot: Snapshot, decide: Callable[[Snapshot], Plan]) -> Plan:
        """Make the plan with the lowest bill, if anything is left of the commitments."""
        if self.room.is_empty:
            return decide(snapshot)

        def decide_at(going: Snapshot, room: CommitmentRoom | None) -> Plan:
            if room is None:
                return decide(going.without_policy(CommitmentInput))
            return decide(going.with_policy(CommitmentInput(room)))

        return plan_on_commitments(snapshot, self.room, decide_at)

    def pricing(self) -> Pricing:
        """Return what one more Linux instance costs while the room is left."""
        ledger = CommitmentLedger(self.room)

        def compared(instance_type: InstanceType, zone: str, listed: float) -> float:
            if not is_linux(instance_type):
                return listed
            cover = ledger.quote(instance_type.name, zone, round(listed * MICROS))
            return (cover.uncovered + cover.weighed) / MICROS

        return compared

    def behind(self, claims: Sequence[PlannedClaim]) -> CommitmentInput:
        """Return what these claims leave of the room."""
        return CommitmentInput(room_behind(self.room, claims))


class CommitmentsInUse(DisruptionInput, frozen=True):
    """The commitments counted on, and who uses them, for a decision on disruption."""

    used: UsedCommitments

    recorded_as: ClassVar[str] = "commitments"

    def idle_hourly(self, removed: Sequence[PaidNode], added: Sequence[LaunchChoice]) -> float:
        """Return the part of a saving at list prices that would only leave commitments unused."""
        gone = [node for node in removed if node.labels.get(labels.CAPACITY_TYPE) == labels.ON_DEMAND]
        come = [launch for launch in added if launch.capacity_type == labels.ON_DEMAND]
        listed = {node.labels[labels.INSTANCE_TYPE]: round(node.hourly * MICROS) for node in gone}
        listed |= {launch.instance_type: round(launch.price * MICROS) for launch in come}
        removed_use = [
            InstanceUse(node.labels[labels.INSTANCE_TYPE], node.labels.get(labels.ZONE, ""), 1) for node in gone
        ]
        added_use = [InstanceUse(launch.instance_type, launch.zone, 1) for launch in come]
        return self.used.idle(removed_use, added_use, listed) / MICROS

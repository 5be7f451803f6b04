"""Shows what is left of commitments, in one line each: for `plan` and `disrupt`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import UNSET

from shiplap.disruption.disruption_snapshot import DisruptionInput
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import InstanceUse
from shiplap.policies.commitments.commitment_input import CommitmentInput, CommitmentsInUse
from shiplap.policies.commitments.commitment_ledger import CommitmentRoom
from shiplap.scheduling.model.scheduling_plan import Plan

_QUARTERS = 4


def commitment_lines(known: CommitmentInput | None, plan: Plan | None = None) -> Iterator[str]:
    """Nothing where no commitments are counted on."""
    if known is None:
        return
    left = list(_amounts(known.room))
    yield f"commitments: {'; '.join(left[:_MOST]) if left else 'nothing'} left for new nodes"
    if plan is not None:
        covered = [claim.covered for claim in plan.node_claims if claim.covered is not UNSET]
        if covered:
            yield f"commitments pay ${sum(covered):.4f} of ${plan.hourly:.4f} an hour, for {len(covered)} nodes"


def used_lines(policies: Iterable[DisruptionInput]) -> Iterator[str]:
    """Yield the use of the commitments by all clusters, in numbers; nothing where the install counts on none."""
    used = next((item.used for item in policies if isinstance(item, CommitmentsInUse)), None)
    if used is None:
        return
    listed = sum(used.listed.get(use.instance_type, 0) * use.count for use in used.uses)
    unpaid = used.unpaid(used.uses)
    yield (
        f"commitments pay ${(listed - unpaid) / MICROS:.4f} of the ${listed / MICROS:.4f} an hour of "
        f"{_number(used.uses)} on-demand nodes"
    )


_MOST = 2
"""Commitments named in a line, so that it stays one."""


def _amounts(room: CommitmentRoom) -> Iterator[str]:
    dollars = sum(plan.commitment for plan in room.savings_plans)
    if dollars:
        yield f"${dollars / MICROS:.4f} an hour of Savings Plans"
    reserved = sum(item.count for item in room.zonal)
    units = sum(item.quarters for item in room.regional) / _QUARTERS
    if units or reserved:
        parts = [f"{units:g} units" if units else "", f"{reserved} zonal" if reserved else ""]
        yield f"{' and '.join(filter(None, parts))} of Reserved Instances"


def _number(uses: tuple[InstanceUse, ...]) -> int:
    return sum(use.count for use in uses)

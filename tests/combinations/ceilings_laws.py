"""The law that ceilings with room to spare change nothing, and what a plan that is carried out takes of ceilings."""

from __future__ import annotations

from msgspec.structs import replace

from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.ceilings.ceiling_input import CeilingInput
from shiplap.policies.ceilings.ceilings import (
    HOURLY_PERIOD,
    CeilingMode,
    CeilingScope,
    CeilingUse,
    SpendingView,
    admit,
)
from shiplap.policies.ceilings.launch_costs import wanted_launches
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import PolicyInput, Snapshot

NAME = "a ceiling with room to spare changes nothing"


def idle(snapshot: Snapshot) -> Snapshot:
    """Ceilings that nothing comes near, of each mode, beside those that there are."""
    ceilings = snapshot.policy(CeilingInput)
    known = SpendingView(month_left_s=240 * 3600) if ceilings is None else ceilings.view
    ample = tuple(
        CeilingUse(scope, HOURLY_PERIOD, 10**6 * MICROS, 0, name, mode)
        for scope, name in ((CeilingScope.ACCOUNT, ""), (CeilingScope.CLUSTER, "test"))
        for mode in CeilingMode
    )
    return snapshot.with_policy(CeilingInput(replace(known, ceilings=(*known.ceilings, *ample))))


def carried_out(snapshot: Snapshot, plan: Plan) -> list[PolicyInput]:
    """Return what the nodes of a plan leave of the ceilings, if there are any."""
    known = snapshot.policy(CeilingInput)
    if known is None:
        return []
    return [CeilingInput(admit(known.view, wanted_launches(snapshot, known.view, plan.node_claims)).after)]

"""The options of ceilings."""

from __future__ import annotations

from msgspec.structs import replace

from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.ceilings.ceiling_input import CeilingInput
from shiplap.policies.ceilings.ceilings import (
    HOURLY_PERIOD,
    MONTHLY_PERIOD,
    CeilingMode,
    CeilingScope,
    CeilingUse,
    SpendingView,
)
from shiplap.spending.ledger import HOUR_S
from tests.combinations.cluster_draft import ClusterDraft


def hourly_ceiling(draft: ClusterDraft) -> None:
    """A ceiling that some plans reach."""
    _add_ceiling(
        draft,
        CeilingUse(
            CeilingScope.CLUSTER,
            HOURLY_PERIOD,
            draft.rng.choice([MICROS // 4, MICROS, 5 * MICROS]),
            MICROS // 10,
            "test",
            draft.rng.choice([CeilingMode.STOP, CeilingMode.CHEAPEST]),
        ),
    )


def monthly_pool_ceiling(draft: ClusterDraft) -> None:
    """A ceiling of one NodePool that pods of a high priority pass."""
    pool, limit = draft.some_pool().name, draft.rng.choice([100, 2000]) * MICROS
    use = CeilingUse(CeilingScope.NODE_POOL, MONTHLY_PERIOD, limit, 0, pool, CeilingMode.PRIORITY, above_priority=100)
    _add_ceiling(draft, use)


def _add_ceiling(draft: ClusterDraft, use: CeilingUse) -> None:
    before = draft.policy(CeilingInput)
    known = SpendingView(month_left_s=240 * HOUR_S) if before is None else before.view
    draft.add_policy(CeilingInput(replace(known, ceilings=(*known.ceilings, use))))

"""Tests the part of a cluster's spending that is lost, and that may be launched again out of the kept amount."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shiplap.disruption.commands import Reason
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.policies.ceilings.ceiling_use import cluster_spending
from tests.builders.claims import node_claim

NOW = int(datetime(2026, 11, 10, tzinfo=UTC).timestamp())


@pytest.mark.parametrize("state", [ClaimState.DRAINING, ClaimState.GONE])
@pytest.mark.parametrize("reason", [*Reason, "SpotInterruption"])
def test_only_what_is_unhealthy_or_taken_is_lost(reason: str, state: ClaimState) -> None:
    gone = node_claim(
        name="a",
        instance_id="i-a",
        hourly=0.36,
        state=state,
        created_at=NOW - 3600,
        changed_at=NOW,
        failure=str(reason),
    )

    lost = cluster_spending([gone], None, NOW + 60).lost

    assert lost == (360_000 if reason in (Reason.UNHEALTHY, "SpotInterruption") else 0)

"""A plan does not depend on what is remembered of the claims to whose price a pod adds least."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import HealthCheck, given, settings

from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap.scheduling.packing.pack import Way
from shiplap.scheduling.packing.strategies import Batch, pack_once
from shiplap.scheduling.supply.openings import Openings
from tests.property.drawn_topologies import clusters
from tests.thoroughness import draws

SETTINGS = settings(
    derandomize=True,
    deadline=None,
    max_examples=draws(100),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _placed(snapshot: Snapshot) -> list[tuple[str, list[str]]]:
    """The group and the pods of each claim, where each pod went where it adds least to the price."""
    batch = Batch.of(snapshot, compile_snapshot(snapshot))
    claims = pack_once(batch, batch.classes, Way(cheaply=True)).claims
    return [(claim.group.template.name, [pod.key for _, pods in claim.pods for pod in pods]) for claim in claims]


@SETTINGS
@given(clusters())
def test_pods_go_where_they_would_if_all_claims_were_asked(snapshot: Snapshot) -> None:
    remembering = _placed(snapshot)
    with patch.object(Openings, "_has_changed", return_value=True):
        assert _placed(snapshot) == remembering

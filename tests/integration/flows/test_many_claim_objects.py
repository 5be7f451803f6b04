"""The statuses of a cluster with 10,000 NodeClaims: how many requests a sweep makes, and that all have their turn."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.disruption.decision_memory import DecisionMemory
from shiplap.disruption.disruption_snapshot import NodeHistory
from shiplap.flows.sweep import manifest_statuses
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.ports import ClusterApi
from tests.integration.flows.crowded_stage import CrowdedStage
from tests.thoroughness import THOROUGH

CLAIMS = 10_000 if THOROUGH else 3_000
OTHER_REQUESTS = 10
"""Lists, the Lease, and the statuses of the manifests themselves."""


class CountingCluster:
    """A ClusterApi that counts its calls by method."""

    def __init__(self, cluster: ClusterApi) -> None:
        self.calls: Counter[str] = Counter()
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cluster, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls[name] += 1
            return method(*arguments, **named)

        return call


@pytest.fixture(scope="module")
def stage() -> CrowdedStage:
    """Every claim has an object, and every Node has the finalizer."""
    return CrowdedStage(CLAIMS)


def published(stage: CrowdedStage) -> Counter[str]:
    """Return the requests of one sweep to the API server for its statuses, counted by the port's methods."""
    cluster = CountingCluster(stage.cluster)
    manifest_statuses.publish_statuses(stage.read(), replace(stage.context, cluster=cluster), stage.known)
    return cluster.calls


def pods_come(stage: CrowdedStage) -> None:
    """To every node, and disruption has seen it."""
    now = stage.clock.now()
    histories = [NodeHistory(claim.node_name, initialized_at=1.0, last_pod_event_at=now) for claim in stage.claims()]
    stage.memory.save(stage.name, DecisionMemory(histories=tuple(histories)))


def test_a_sweep_makes_a_bounded_number_of_requests_and_all_claims_have_their_turn(
    stage: CrowdedStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(stage)
    quiet = published(stage)
    assert quiet.total() <= OTHER_REQUESTS
    pods_come(stage)
    assert published(stage).total() <= manifest_statuses.MOST_CLAIM_OBJECTS + OTHER_REQUESTS
    most = CLAIMS * 3 // 10
    monkeypatch.setattr(manifest_statuses, "MOST_CLAIM_OBJECTS", most)
    for _ in range(-(-CLAIMS // most)):
        stage.clock.advance(60)
        assert published(stage).total() <= most + OTHER_REQUESTS
    shown = [item for item in stage.server.list("nodeclaims").items if "lastPodEventTime" in item["status"]]
    assert len(shown) == CLAIMS


def test_objects_of_ended_claims_go_although_thousands_of_statuses_change(stage: CrowdedStage) -> None:
    stage.clock.advance(60)
    pods_come(stage)
    gone = stage.claims()[-1]
    stage.state.advance(gone, ClaimState.GONE)
    published(stage)
    assert gone.name not in {item["metadata"]["name"] for item in stage.server.list("nodeclaims").items}

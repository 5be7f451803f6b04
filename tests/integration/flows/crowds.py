"""Crowds of claims that are launched together."""

from __future__ import annotations

from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.pools import family_pool
from tests.integration.flows.stage import Stage

ONLY_LARGE = (family_pool("any", ("m6i",), sizes=("large",)),)


def crowd(pods: int) -> Stage:
    """Pods of which no two fit on one node."""
    stage = Stage(ONLY_LARGE)
    stage.add_pods(pods, cpu="1200m", memory="2Gi")
    return stage


def assert_each_has_its_own(stage: Stage) -> None:
    held = [claim.instance_id for claim in stage.claims() if claim.state is not ClaimState.FAILED]
    assert sorted(held) == sorted(instance.id for instance in stage.compute.alive())

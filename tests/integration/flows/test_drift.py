"""Drift on the stage: what a change of the EC2NodeClass, or of what it selects, does, and what does nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from shiplap.errors import NodeClassNotReady
from shiplap.flows.sweep.instance_network import MOST_WRITES
from shiplap.instances.catalog.resolved_nodeclass import Ami, Subnet
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.ports import Instance
from tests.integration.flows.disrupted import Disrupted


def settled(pods: int = 5) -> Disrupted:
    """Nodes in service for so many pods, worth what they cost."""
    stage = Disrupted()
    stage.compute.cluster_ca = "b25l"
    stage.add_pods(pods, cpu="1200m", memory="2Gi")
    stage.play_on()
    stage.run_pods()
    stage.clock.advance(600)
    stage.minutes(2)
    return stage


def says(stage: Disrupted, **spec: Any) -> None:
    """A deployment changes the EC2NodeClass."""
    (known,) = stage.settings.manifests.node_classes
    changed = msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, **spec))
    manifests = msgspec.structs.replace(stage.settings.manifests, node_classes=(changed,))
    stage.settings = msgspec.structs.replace(stage.settings, manifests=manifests)


def writes_defaults(stage: Disrupted) -> None:
    """The manifests move to a cluster, whose API server fills in what they leave out."""
    manifests = stage.settings.manifests
    (pool,), (node_class,) = map(msgspec.to_builtins, (manifests.node_pools, manifests.node_classes))
    pool["spec"]["template"]["spec"] |= {
        "expireAfter": "720h",
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
    }
    node_class["spec"]["metadataOptions"] = {
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    }
    written = msgspec.json.encode({"node_pools": [pool], "node_classes": [node_class]})
    stage.settings = msgspec.structs.replace(stage.settings, manifests=msgspec.json.decode(written, type=Manifests))


def pool_says(stage: Disrupted, **template: Any) -> None:
    """A deployment changes the template of the NodePool, whose nodes may not drift."""
    (pool,) = map(msgspec.to_builtins, stage.settings.manifests.node_pools)
    pool["spec"]["template"]["spec"] |= template
    pool["spec"]["disruption"]["budgets"] = [{"nodes": "0", "reasons": ["Drifted"]}]
    manifests = msgspec.structs.replace(stage.settings.manifests, node_pools=(msgspec.convert(pool, NodePool),))
    stage.settings = msgspec.structs.replace(stage.settings, manifests=manifests)


def knows(ca: str) -> Callable[[Disrupted], None]:
    """The cluster has this certificate authority from now on; an empty one is not known."""
    return lambda stage: setattr(stage.compute, "cluster_ca", ca)


def ids(stage: Disrupted) -> set[str]:
    return {instance.id for instance in stage.compute.alive()}


def moved_subnets(stage: Disrupted) -> None:
    stage.compute.subnets = tuple(Subnet(f"{net.id}-two", net.zone, free_ips=4000) for net in stage.compute.subnets)


@pytest.mark.parametrize(
    "change",
    [
        lambda stage: says(stage, user_data="echo hello"),
        lambda stage: says(stage, tags={"team": "a"}),
        moved_subnets,
        lambda stage: setattr(stage.compute, "security_groups", ("sg-twin", "sg-two")),
        knows("dHdv"),
    ],
    ids=["user data", "tags", "subnets", "security groups", "certificate authority"],
)
def test_nodes_made_otherwise_are_replaced_once(change: Callable[[Disrupted], None]) -> None:
    stage = settled()
    before = ids(stage)
    change(stage)
    stage.minutes(12)
    after = ids(stage)
    assert after.isdisjoint(before)
    assert len(after) == len(before)
    assert stage.pending() == 0
    stage.minutes(5)
    assert ids(stage) == after


@pytest.mark.parametrize(
    "change",
    [
        lambda stage: says(stage, ami_selector_terms=()),
        writes_defaults,
        knows(""),
        lambda stage: stage.compute.not_ready.update(default=NodeClassNotReady("no subnet", code="SubnetsNotFound")),
        lambda stage: setattr(stage.compute, "subnets", (*stage.compute.subnets, Subnet("subnet-more", "eu-west-1a"))),
    ],
    ids=[
        "another way to name the same AMIs",
        "defaults written out",
        "certificate authority unknown",
        "EC2 does not answer",
        "one more subnet",
    ],
)
def test_what_makes_no_other_nodes_moves_nobody(change: Callable[[Disrupted], None]) -> None:
    stage = settled()
    before = ids(stage)
    change(stage)
    stage.minutes(6)
    assert ids(stage) == before


OLDER = (Ami("ami-older", "older", "2025-01-01T00:00:00Z"),)
NEWER = (Ami("ami-newer", "newer", "2026-06-01T00:00:00Z"),)


def test_replacements_are_made_of_what_the_decision_saw_whatever_the_launching_function_remembers() -> None:
    stage = settled()
    before = ids(stage)
    launches = len(stage.compute.launches)
    stage.compute.amis["default"] = NEWER
    for _ in range(8):
        stage.compute.remembered = {}
        stage.disrupt()
        stage.compute.remembered = {"default": (Ami("ami-twin", "twin", "2026-01-01T00:00:00Z"),)}
        stage.around()
    assert ids(stage).isdisjoint(before)
    assert {item.ami for item in stage.compute.alive()} == {"ami-newer"}
    assert len(stage.compute.launches) == launches + len(before)


def test_nodes_of_a_newer_image_than_the_disrupting_function_remembers_stay() -> None:
    stage = settled()
    before = ids(stage)
    stage.compute.remembered = {"default": OLDER}
    stage.minutes(6)
    assert ids(stage) == before


def changed(stage: Disrupted, **fields: Any) -> Instance:
    """A person changes what EC2 says of the first instance."""
    instance = min(stage.compute.alive(), key=lambda item: item.id)
    after = msgspec.structs.replace(instance, **fields)
    stage.compute.add(after)
    return after


def test_an_instance_that_somebody_took_out_of_its_security_group_drifts() -> None:
    stage = settled()
    instance = changed(stage, security_groups=("sg-quarantine",))
    stage.minutes(12)
    assert instance.id not in ids(stage)


def test_a_sweep_writes_what_instances_are_in_and_leaves_alone_what_it_cannot_see() -> None:
    stage = settled()
    (claim,) = (item for item in stage.claims() if item.instance_id in ids(stage))
    changed(stage, subnet="", security_groups=())
    stage.sweep()
    assert stage.state.claim(stage.name, claim.name) == claim
    changed(stage, subnet=claim.known_instance.subnet, security_groups=("sg-other",))
    stage.sweep()
    known = stage.state.claim(stage.name, claim.name)
    assert known is not None
    assert (known.known_instance.subnet, known.known_instance.security_groups) == (
        claim.known_instance.subnet,
        ("sg-other",),
    )
    stage.sweep()
    assert stage.state.claim(stage.name, claim.name) == known


def test_a_sweep_writes_a_bounded_number_of_claims() -> None:
    stage = settled(8 * MOST_WRITES)
    for instance in stage.compute.alive():
        stage.compute.add(msgspec.structs.replace(instance, security_groups=("sg-other",)))
    number = len(ids(stage))
    assert MOST_WRITES < number <= 2 * MOST_WRITES

    def corrected() -> int:
        return sum(claim.known_instance.security_groups == ("sg-other",) for claim in stage.claims())

    stage.sweep()
    assert corrected() == stage.meter.counts["ClaimsCorrected"] == MOST_WRITES
    stage.sweep()
    assert corrected() == stage.meter.counts["ClaimsCorrected"] == number


@pytest.mark.parametrize(("later", "hours", "replaced"), [("Never", 720, True), ("1h", 24, False)])
def test_nodes_reach_the_age_that_their_pool_said_when_they_were_launched(
    later: str, hours: int, *, replaced: bool
) -> None:
    stage = settled()
    before = ids(stage)
    pool_says(stage, expireAfter=later)
    stage.minutes(2)
    assert ids(stage) == before
    stage.clock.advance(hours * 3600)
    stage.minutes(12)
    assert ids(stage).isdisjoint(before) is replaced
    assert {claim.plan.expire_after for claim in stage.claims()} == {later if replaced else "720h"}

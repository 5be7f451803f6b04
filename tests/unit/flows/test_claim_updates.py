"""Tests the parts that are alike for all flows: an instance's owner, a claim's failure, its NodePool and deadline."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.flows.claim_updates import (
    GRACE_S,
    InstanceOwners,
    explores,
    facts,
    fail_claim,
    grace_ends_at,
    grace_of,
    pilot_holder,
    pool_of,
    release_pilot,
    renew_pilot,
)
from shiplap.instances.catalog.type_catalog import pilot_key
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.ports import Instance
from tests.builders.claims import node_claim
from tests.builders.pools import family_pool
from tests.integration.flows.stage import Stage

NOW = 1_700_000_000.0
OLD = NOW - GRACE_S - 1


def instance(**fields: Any) -> Instance:
    known: dict[str, Any] = {
        "id": "i-1",
        "instance_type": "m5.large",
        "zone": "a",
        "capacity_type": "on-demand",
        "ami": "ami-1",
        "state": "running",
        "launched_at": OLD,
        "install": "shiplap",
    }
    return Instance(**known | fields)


RUNNING = node_claim(name="runs", state=ClaimState.LAUNCHED, token="run-token", instance_id="i-1")
WAITS = node_claim(name="waits", state=ClaimState.LAUNCHING, token="wait-token")
ENDED = node_claim(name="ended", state=ClaimState.GONE, token="old-token", instance_id="i-9")
FAILED = node_claim(name="failed", state=ClaimState.FAILED, token="failed-token")


def owners() -> InstanceOwners:
    return InstanceOwners((RUNNING, WAITS, ENDED, FAILED))


@pytest.mark.parametrize(
    ("seen", "holder"),
    [({"id": "i-1"}, "runs"), ({"id": "i-9"}, None), ({"id": "i-2"}, None), ({"id": ""}, None)],
)
def test_a_living_claim_holds_its_instance_and_no_other(seen: dict[str, str], holder: str | None) -> None:
    found = owners().of(instance(**seen))
    assert (found.name if found is not None else None) == holder


@pytest.mark.parametrize(
    ("seen", "garbage"),
    [
        ({"id": "i-2"}, True),
        ({"id": "i-2", "claim": "nobody", "launch": "nothing"}, True),
        ({"id": "i-9", "claim": "ended"}, True),
        ({"id": "i-2", "claim": "failed", "launch": "failed-token"}, True),
        # A claim that has an instance takes no second one.
        ({"id": "i-2", "claim": "runs", "launch": "run-token"}, True),
        ({"id": "i-1"}, False),
        # A claim that waits may get any instance of its launch, whether or not that is tagged yet.
        ({"id": "i-2", "claim": "waits"}, False),
        ({"id": "i-2", "launch": "wait-token"}, False),
        ({"id": "i-2", "claim": "nobody", "launch": "wait-token"}, False),
        ({"id": "i-2", "state": "shutting-down"}, False),
        ({"id": "i-2", "state": "pending"}, True),
        ({"id": "i-2", "launched_at": NOW - GRACE_S}, False),
        ({"id": "i-2", "launched_at": NOW - GRACE_S - 0.001}, True),
        ({"id": "i-2", "launched_at": NOW}, False),
        # Without the tag of an install only a claim of ours, living or not, says that it is ours.
        ({"id": "i-2", "install": ""}, False),
        ({"id": "i-2", "install": "", "claim": "nobody", "launch": "nothing"}, False),
        ({"id": "i-9", "install": "", "claim": "ended"}, True),
        ({"id": "i-9", "install": "", "launch": "old-token"}, True),
    ],
)
def test_which_instances_are_garbage(seen: dict[str, Any], garbage: bool) -> None:
    assert owners().is_garbage(instance(**seen), NOW) is garbage


@pytest.mark.parametrize(
    ("seen", "stranger"),
    [
        ({"install": "shiplap"}, False),
        ({"install": "shiplap", "claim": "nobody"}, False),
        ({"install": ""}, True),
        ({"install": "", "claim": "nobody"}, True),
        ({"install": "", "claim": "ended"}, False),
        ({"install": "", "claim": "runs", "launch": "other"}, False),
        ({"install": "", "claim": "nobody", "launch": "run-token"}, False),
    ],
)
def test_which_instances_only_their_cluster_calls_ours(seen: dict[str, str], stranger: bool) -> None:
    assert owners().is_unattributed(instance(**seen)) is stranger


def test_claims_without_a_token_wait_for_no_instance_without_one() -> None:
    known = InstanceOwners((node_claim(name="a", state=ClaimState.PLANNED),))
    assert known.is_garbage(instance(claim="", launch=""), NOW)
    assert known.is_unattributed(instance(install="", claim="", launch=""))


def with_grace(name: str, grace: str | None) -> NodePool:
    plain = msgspec.to_builtins(family_pool(name, ("m6i",)))
    if grace is not None:
        plain["spec"]["template"]["spec"]["terminationGracePeriod"] = grace
    return msgspec.convert(plain, NodePool)


@pytest.mark.parametrize(
    ("fields", "name", "grace"),
    [
        ({"node_pool": "first"}, "first", "1m"),
        ({"node_pool": "second"}, "second", None),
        ({"node_pool": "third"}, "third", "3m"),
        ({"node_pool": "removed"}, None, None),
        ({"node_pool": "third", "termination_grace_period": "5m"}, "third", "5m"),
        ({"node_pool": "second", "termination_grace_period": "5m"}, "second", "5m"),
        ({"node_pool": "", "object_uid": "u"}, None, None),
        # What a user wrote counts alone, whatever the NodePool it may name says.
        ({"node_pool": "third", "object_uid": "u"}, "third", None),
        ({"node_pool": "", "object_uid": "u", "termination_grace_period": "7m"}, None, "7m"),
    ],
)
def test_the_pool_and_the_grace_period_of_a_claim(fields: dict[str, str], name: str | None, grace: str | None) -> None:
    stage = Stage((with_grace("first", "1m"), with_grace("second", None), with_grace("third", "3m")))
    claim = node_claim(name="c", **fields)
    found = pool_of(claim, stage.settings)
    assert (found.metadata.name if found is not None else None) == name
    assert grace_of(claim, stage.settings) == grace
    ends_at = None if grace is None else NOW + int(grace[0]) * 60
    assert grace_ends_at(claim, stage.settings, NOW) == ends_at


def test_a_grace_period_of_nothing_ends_at_once() -> None:
    stage = Stage((with_grace("now", "0s"),))
    assert grace_ends_at(node_claim(name="c", node_pool="now"), stage.settings, NOW) == NOW


def test_a_claim_that_fails_is_written_counted_and_told_with_its_reason() -> None:
    stage = Stage()
    stage.state.adopt(node_claim(cluster=stage.name, name="c", state=ClaimState.LAUNCHING))
    before = stage.state.claim(stage.name, "c")
    assert before is not None
    after = fail_claim(before, "no capacity", stage.context)
    assert after == stage.state.claim(stage.name, "c")
    assert (after.state, after.failure, after.changed_at) == (ClaimState.FAILED, "no capacity", stage.clock.now())
    assert stage.meter.counts == {"ClaimsFailed": 1.0}
    (event,) = stage.bus.events
    assert (event.detail_type, event.detail["reason"], event.detail["claim"]) == ("NodeClaimFailed", "no capacity", "c")


EXPLORING = node_claim(
    cluster="demo",
    name="c",
    instance_id="i-1",
    instance_type="m5.large",
    ami="ami-1",
    kubelet_hash="k",
    relies_on_estimate=("m5.large", "m5.xlarge"),
)
LEASE = pilot_key("ami-1", "m5.large", "k")


def test_a_lease_is_kept_in_the_claims_name_and_given_back_by_it_alone() -> None:
    stage = Stage()
    now = stage.clock.now()
    assert pilot_holder(EXPLORING) == "demo/c"
    renew_pilot(EXPLORING, stage.context)
    assert stage.capacity.pilots(["ami-1"], now) == {LEASE}
    assert not stage.capacity.acquire_pilot("ami-1", "m5.large", "k", "demo/other", now)
    other = msgspec.structs.replace(EXPLORING, name="other")
    release_pilot(other, stage.context)
    assert stage.capacity.pilots(["ami-1"], now) == {LEASE}
    release_pilot(EXPLORING, stage.context)
    assert stage.capacity.pilots(["ami-1"], now) == frozenset()


@pytest.mark.parametrize(("verified", "held"), [(("m5.xlarge",), True), ((), True), (("m5.large",), False)])
def test_only_a_claim_that_explores_its_type_gives_a_lease_back(verified: tuple[str, ...], held: bool) -> None:
    stage = Stage()
    claim = msgspec.structs.replace(
        EXPLORING, plan=msgspec.structs.replace(EXPLORING.plan, relies_on_estimate=verified)
    )
    assert explores(claim) is not held
    renew_pilot(claim, stage.context)
    release_pilot(claim, stage.context)
    assert (stage.capacity.pilots(["ami-1"], stage.clock.now()) == {LEASE}) is held


def test_a_log_line_about_a_claim_names_it_its_node_and_its_cause() -> None:
    claim = node_claim(cluster="demo", name="c", instance_id="i-1", node_name="n", event_id="e")
    assert facts(claim) == {"cluster": "demo", "claim": "c", "instance_id": "i-1", "node": "n", "event_id": "e"}

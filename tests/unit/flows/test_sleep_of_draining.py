"""A node that leaves for sleep stays after all only if something on it is awake."""

from __future__ import annotations

from msgspec.structs import replace

from shiplap.disruption.commands import Reason
from shiplap.flows.lifecycle.drain import Drains
from shiplap.flows.policies.active import ActivePolicies
from shiplap.flows.policies.sleep_policy import SleepPolicy
from shiplap.policies.sleep.sleep_state import NAMESPACE, NODE_POOL, SleepingScope, SleepState
from tests.builders.pods import pod_object
from tests.builders.pools import family_pool
from tests.integration.flows.stage import Stage
from tests.unit.flows.leaving_nodes import leaving, on_node


def asleep_by(stage: Stage, state: SleepState) -> ActivePolicies:
    """Sleep as it is known to a drain that goes on."""
    policy = SleepPolicy(stage.settings, stage.context)
    policy.__dict__["_going_on"] = state
    return ActivePolicies([policy])


def test_a_pod_of_a_daemon_set_wakes_no_node_though_another_pool_would_take_it() -> None:
    stage = Stage((family_pool("sleeps", ("c7i-flex",)), family_pool("awake", ("c7i-flex",))))
    owner = [{"kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]
    daemon = pod_object("d", nodeName="n")
    stage.server.create("pods", {**daemon, "metadata": {**daemon["metadata"], "ownerReferences": owner}})
    drains, now = Drains(stage.settings, stage.context), int(stage.clock.now())
    asleep = SleepingScope(NODE_POOL, "sleeps", now - 60, now + 7200, now + 7000)
    drains.__dict__["_policies"] = asleep_by(stage, SleepState(("sleeps",), (asleep,), 5))
    claim = leaving(stage)
    claim = replace(claim, plan=replace(claim.plan, node_pool="sleeps"), failure=Reason.ASLEEP)
    assert drains.stays_after_all(claim, on_node(stage)) == ""


def test_a_node_that_pods_have_left_goes_on_leaving_as_long_as_anything_sleeps() -> None:
    stage = Stage((family_pool("dev", ("c7i-flex",)),))
    drains, now = Drains(stage.settings, stage.context), int(stage.clock.now())
    elsewhere = SleepingScope(NAMESPACE, "night", now - 60, now + 7200, now + 7000)
    claim = replace(leaving(stage), failure=Reason.ASLEEP)
    claim = replace(claim, plan=replace(claim.plan, node_pool="dev"))
    drains.__dict__["_policies"] = asleep_by(stage, SleepState(("dev",), (elsewhere,), 5))
    node = on_node(stage)
    assert drains.stays_after_all(claim, node) == ""
    drains.__dict__["_policies"] = asleep_by(stage, SleepState(("dev",), (), 5))
    assert drains.stays_after_all(claim, node) == "nothing sleeps any more"

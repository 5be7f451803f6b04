"""Shiplap finds out what permissions forbid before pods depend on it, reports EC2's text, and tries again."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.errors import AwsError, AwsThrottled, NodeClassNotReady, StoreError
from shiplap.flows.catalog.inspect import inspect
from shiplap.flows.messages import Sweep
from shiplap.flows.schedule.launch_trials import ALLOWANCE_S
from shiplap.instances.catalog.resolved_nodeclass import NodeClassProblem
from shiplap.instances.readiness import nodeclass_status
from shiplap.instances.readiness.nodeclass_status import ALLOWED_FOR_S, REFUSED_FOR_S
from shiplap.manifests.custom_resources import NodePool
from tests.builders.pools import family_pool
from tests.integration.flows.dry_run_ground import Ground
from tests.integration.flows.pools_of_classes import of_class
from tests.integration.flows.stage import Stage, catalog

DENIED = NodeClassProblem(
    nodeclass_status.VALIDATION, "CreateFleetAuthCheckFailed", "with an explicit deny in a service control policy"
)


def test_each_class_that_is_used_is_tried_once_and_nothing_is_launched() -> None:
    ground = Ground()
    assert ground.sweep() == ["first", "second"]
    (request, _) = ground.stage.compute.rehearsed
    assert {override.instance_type.partition(".")[0] for override in request.overrides} == {"c7i"}  # as its pool says
    assert (request.claim.plan.node_pool, request.wanted) == ("a", 1)
    assert [ground.sweep() for _ in range(5)] == [[]] * 5
    assert ground.sweep(later_s=ALLOWED_FOR_S) == ["first", "second"]
    assert ground.stage.compute.launches == []
    assert ground.stage.claims() == ()
    assert ground.inspected().ready.status == "True"


def test_what_is_forbidden_makes_the_class_not_ready_until_it_is_allowed() -> None:
    ground = Ground()
    ground.stage.compute.forbidden["first"] = DENIED
    ground.sweep()
    status = ground.inspected()
    assert (status.ready.status, status.ready.reason, status.ready.message) == ("False", DENIED.reason, DENIED.message)
    assert ground.stage.meter.counts["LaunchesForbidden"] == 1
    careless = msgspec.structs.replace(ground.stage.settings, dry_run=False)
    assert inspect(careless, catalog(), ground.stage.context).node_classes[0].ready.status == "True"
    ground.stage.add_pods(1)
    ground.stage.schedule()
    assert {item.plan.node_pool for item in ground.stage.claims()} == {"b"}  # other pools go on
    assert ground.sweep() == []
    ground.stage.compute.forbidden.clear()
    assert ground.sweep(later_s=REFUSED_FOR_S) == ["first"]
    assert ground.inspected().ready.status == "True"


def test_another_manifest_is_tried_at_once_and_what_was_said_of_the_old_one_does_not_count() -> None:
    ground = Ground()
    ground.stage.compute.forbidden["first"] = DENIED
    ground.sweep()
    ground.stage.compute.forbidden.clear()
    ground.edit(tags={"team": "a"})
    assert ground.inspected().ready.status == "True"
    assert ground.sweep() == ["first"]


def test_the_foremost_pool_that_would_launch_anything_speaks_for_a_class() -> None:
    none = msgspec.structs.replace(of_class(family_pool("a", ("x99",)), "first"))
    light, heavy = (of_class(family_pool(name, ("m6i",)), "first") for name in ("b", "c"))
    heavy = msgspec.structs.replace(heavy, spec=msgspec.structs.replace(heavy.spec, weight=7))
    ground = Ground(none, light, heavy)
    assert ground.sweep() == ["first"]
    assert ground.stage.compute.rehearsed[0].claim.plan.node_pool == "c"
    ground = Ground(*(of_class(family_pool(name, ("m6i",)), "first") for name in ("b", "a")))
    assert ground.sweep() == ["first"]
    assert ground.stage.compute.rehearsed[0].claim.plan.node_pool == "a", "of equal weight the first by name"
    ground = Ground(none)
    assert ground.sweep() == []
    assert ground.known().problem(ground.classes[0]) is None


@pytest.mark.parametrize("error", [AwsThrottled("slow down", code="Throttling"), AwsError("no answer")])
def test_what_ec2_does_not_answer_is_asked_again_by_the_next_sweep(error: AwsError) -> None:
    ground = Ground()
    ground.stage.compute.forbidden["second"] = error
    assert ground.sweep() == ["first", "second"]
    assert ground.stage.meter.counts["RehearsalsIncomplete"] == 1
    ground.stage.compute.forbidden.clear()
    assert ground.sweep() == ["second"]


def test_a_class_that_is_not_ready_is_left_to_the_inspection() -> None:
    ground = Ground()
    ground.stage.compute.not_ready["first"] = NodeClassNotReady("no AMI", code="AMINotFound")
    ground.stage.compute.forbidden["second"] = NodeClassNotReady("volumes", code="InvalidBlockDeviceMapping")
    assert ground.sweep() == ["second"]
    assert ground.sweep() == []
    ground.stage.compute.not_ready.clear()
    assert ground.sweep(later_s=REFUSED_FOR_S) == ["first", "second"]


@pytest.mark.parametrize("effect", ["dry_runs.load", "dry_runs.save"])
def test_a_store_that_refuses_keeps_no_pod_waiting(effect: str) -> None:
    ground = Ground()
    ground.stage.faults.on("before", effect, StoreError("no"))
    ground.stage.add_pods(1)
    ground.sweep()
    assert len(ground.stage.claims()) == 1
    assert ground.stage.meter.counts["RehearsalsIncomplete"] == 1


def test_rehearsals_that_cannot_be_read_are_held_against_no_class() -> None:
    ground = Ground()
    ground.stage.faults.on("before", "dry_runs.load", StoreError("no"))
    assert inspect(ground.stage.settings, catalog(), ground.stage.context).node_classes[0].ready.status == "True"


def test_nothing_is_tried_in_the_last_seconds_nor_when_paused_nor_without_a_store() -> None:
    ground = Ground()
    ground.stage.schedule(*sweep_now(ground.stage), seconds=14)
    assert ground.stage.compute.rehearsed == []
    settings = ground.stage.settings
    ground.stage.settings = msgspec.structs.replace(settings, paused=True)
    assert ground.sweep() == []
    ground.stage.settings = msgspec.structs.replace(settings, dry_run=False)
    assert ground.sweep() == []
    ground.stage.settings = settings
    ground.stage.context = msgspec.structs.replace(ground.stage.context, dry_runs=None)
    assert ground.sweep() == []


def test_a_launch_is_tried_out_while_there_is_just_time_enough_for_its_answer() -> None:
    ground = Ground()
    ground.stage.schedule(*sweep_now(ground.stage), seconds=ALLOWANCE_S)
    assert len(ground.stage.compute.rehearsed) == 2


def sweep_now(stage: Stage) -> tuple[Sweep]:
    return (Sweep(stage.name, stage.clock.now()),)


def test_a_pool_that_no_pod_could_use_as_it_is_speaks_for_its_class_all_the_same() -> None:
    """Its taints are tolerated, and too few types for its minValues are no reason: only EC2's answer is asked for."""
    plain = msgspec.to_builtins(of_class(family_pool("a", ("m6i",)), "first"))
    plain["spec"]["template"]["spec"]["taints"] = [{"key": "mine", "effect": "NoSchedule"}]
    many = {"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 50}
    plain["spec"]["template"]["spec"]["requirements"] = [*plain["spec"]["template"]["spec"]["requirements"], many]
    ground = Ground(msgspec.convert(plain, NodePool))
    assert ground.sweep() == ["first"]


def test_only_what_its_own_pod_needs_is_asked_for() -> None:
    """Pods that wait, and room that CapacityBuffers keep, are planned for elsewhere."""
    ground = Ground(of_class(family_pool("a", ("m6i",)), "first"))
    ground.stage.add_pods(3, cpu="7")
    ground.stage.faults.on("before", "compute.launch", AwsThrottled("slow down"))
    ground.stage.sweep()
    assert ground.sweep() == ["first"]
    (request,) = ground.stage.compute.rehearsed
    (planned,) = request.claims
    assert planned.plan.requests["cpu"] < 1000
    assert request.overrides[0].instance_type == "m6i.large"
    assert (request.capacity_type, len(request.resolved.subnets)) == ("on-demand", 3)
    assert request.token == planned.launch.token != ""

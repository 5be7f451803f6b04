"""Nodes that are launched although no pod waits: static pools and capacity buffers."""

from __future__ import annotations

import msgspec

from shiplap.errors import AwsThrottled
from shiplap.manifests.custom_resources import CapacityBuffer, PodTemplate
from tests.builders.pools import family_pool
from tests.integration.flows.stage import Stage


def test_a_static_pool_is_kept_at_its_number_by_the_sweep() -> None:
    made = family_pool("static", ("m6i",))
    static = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, replicas=2, limits={}, weight=0))
    stage = Stage(pools=(static,))
    report = stage.sweep()
    assert len(report.launched) == len(stage.compute.alive()) == 2
    assert not any(claim.plan.pods for claim in stage.claims())
    assert stage.sweep().launched == ()


def with_buffer() -> Stage:
    """A stage with a CapacityBuffer of two pods."""
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    template = msgspec.convert({"metadata": {"name": "small"}, "template": {"spec": spec}}, PodTemplate)
    buffer = msgspec.convert(
        {"metadata": {"name": "spare"}, "spec": {"podTemplateRef": {"name": "small"}, "replicas": 2}}, CapacityBuffer
    )
    stage = Stage()
    manifests = msgspec.structs.replace(stage.settings.manifests, capacity_buffers=(buffer,), pod_templates=(template,))
    stage.settings = msgspec.structs.replace(stage.settings, manifests=manifests)
    return stage


def test_a_capacity_buffer_is_launched_by_the_sweep_and_nominates_nobody() -> None:
    stage = with_buffer()
    report = stage.sweep()
    assert len(report.launched) == 1
    (state,) = report.buffers or ()
    assert (state.replicas, state.existing, state.new, state.missing) == (2, 2, 0, 0)
    assert not any(claim.plan.pods for claim in stage.claims())
    assert stage.sweep().launched == ()


def test_a_capacity_buffer_lacks_its_room_while_ec2_launches_nothing() -> None:
    stage = with_buffer()
    stage.faults.on("before", "compute.launch", AwsThrottled("slow down", code="RequestLimitExceeded"))
    report = stage.sweep()
    assert report.launched == ()
    (state,) = report.buffers or ()
    assert (state.existing, state.new) == (0, 2)


def test_a_capacity_buffer_may_be_a_share_of_a_workload() -> None:
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    reference = {"kind": "Deployment", "name": "web"}
    buffer = msgspec.convert(
        {"metadata": {"name": "spare"}, "spec": {"scalableRef": reference, "percentage": 20}}, CapacityBuffer
    )
    stage = Stage()
    manifests = msgspec.structs.replace(stage.settings.manifests, capacity_buffers=(buffer,))
    stage.settings = msgspec.structs.replace(stage.settings, manifests=manifests)
    assert stage.sweep().launched == ()
    stage.server.create(
        "deployments", {"metadata": {"name": "web"}, "spec": {"replicas": 10, "template": {"spec": spec}}}, "default"
    )
    (name,) = stage.sweep().launched
    assert next(claim for claim in stage.claims() if claim.name == name).plan.requests["cpu"] >= 2000

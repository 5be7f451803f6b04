"""Nodes that are launched although no pod waits: static pools."""

from __future__ import annotations

import msgspec

from tests.integration.flows.stage import Stage, pool


def test_a_static_pool_is_kept_at_its_number_by_the_sweep() -> None:
    made = pool("static", ("m6i",))
    static = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, replicas=2, limits={}, weight=0))
    stage = Stage(pools=(static,))
    report = stage.sweep()
    assert len(report.launched) == len(stage.compute.alive()) == 2
    assert not any(claim.pods for claim in stage.claims())
    assert stage.sweep().launched == ()

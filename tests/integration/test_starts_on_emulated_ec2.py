"""A block starts on the emulated EC2: the real adapter, its memory of answers, and sweeps a minute apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from shiplap.flows.messages import Sweep
from shiplap_lab.emulated_ec2.emulated_reservations import EmulatedReservation
from shiplap_lab.fakes.stores import FakeCatalog
from tests.integration.contracts.emulated_ec2 import START, ZONES, Region, emulated_region
from tests.integration.contracts.fleet_requests import NODE_CLASS
from tests.integration.flows.reservation_starts import TERM, reserved_only, waiting_stage
from tests.integration.flows.stage import Stage, catalog

STARTS_AT = START + 630
WITHIN_S = 90.0


@pytest.fixture(scope="module")
def running() -> Iterator[Region]:
    with emulated_region() as region:
        yield region


class Ground:
    """A cluster with a static NodePool of two nodes, and a block of two instances that starts later."""

    def __init__(self, region: Region) -> None:
        region.empty()
        region.seed("demo")
        self.control = region.control
        tags = {"use": "training"}
        block = EmulatedReservation("cr-1", "m6i.large", ZONES[0], 2, "capacity-block", tags=tags)
        self.control.reservation(replace(block, starts_at=STARTS_AT, ends_at=STARTS_AT + 86_400))
        self.stage = waiting_stage((reserved_only(replicas=2),))
        selecting = replace(NODE_CLASS, spec=replace(NODE_CLASS.spec, capacity_reservation_selector_terms=(TERM,)))
        manifests = replace(self.stage.settings.manifests, node_classes=(selecting,))
        self.stage.settings = replace(self.stage.settings, manifests=manifests)
        sold = catalog()
        sold = replace(sold, zones={item.instance_type: ZONES for item in sold.types})
        self.stage.context = replace(
            self.stage.context,
            compute=region.compute("demo", manifests=manifests),
            catalog=FakeCatalog(sold, self.stage.faults),
        )
        assert self.stage.clock.now() == START

    def pass_by(self, seconds: float) -> None:
        self.stage.clock.advance(seconds)
        self.control.advance(seconds)

    def sweep(self) -> None:
        self.stage.schedule(Sweep(self.stage.name, self.stage.clock.now()))


def started_after_s(stage: Stage) -> float:
    """Seconds from the start until the nodes were launched."""
    return stage.clock.now() - STARTS_AT


@pytest.mark.parametrize("phase_s", [0, 9, 29, 31, 59])
def test_nodes_are_launched_within_ninety_seconds_whenever_the_sweeps_come(running: Region, phase_s: int) -> None:
    ground = Ground(running)
    ground.pass_by(phase_s)
    while not ground.control.instances():
        assert started_after_s(ground.stage) < WITHIN_S
        ground.sweep()
        if not ground.control.instances():
            ground.pass_by(60)
    assert len(ground.control.instances()) == 2
    assert ground.control.calls()["CreateFleet"] == 1, "no launch before the start"
    ground.pass_by(60)
    ground.sweep()
    assert len(ground.control.instances()) == 2


def test_an_answer_from_just_before_the_start_does_not_hide_it_for_a_minute(running: Region) -> None:
    ground = Ground(running)
    for before_s in (61.5, 2.0, 1.0):  # the second one remembers what the first was told, the third asks anew
        ground.pass_by(-started_after_s(ground.stage) - before_s)
        ground.sweep()
    ground.pass_by(59.0)
    ground.sweep()
    assert started_after_s(ground.stage) == 58.0
    assert len(ground.control.instances()) == 2

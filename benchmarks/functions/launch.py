"""Measures a launch of a thousand nodes of twenty shapes: requests to EC2 and the store, and the time besides them.

The launch flow runs on the in-memory fakes, each of whose effects is one request of the real adapters (a fleet may need
its launch template made before it). Time inside the fakes is taken off. The second part launches the same through the
EC2 adapter on the emulated EC2 and counts the requests that arrive there.

    python -m benchmarks.functions.launch            # both parts
    python -m benchmarks.functions.launch --no-ec2   # without the emulator
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from collections import Counter
from typing import Any

from shiplap.flows.assign_instances import Attempt
from shiplap.flows.planning.decision_inputs import NodeClassSupply
from shiplap.flows.planning.offering_market import OfferingMarket
from shiplap.flows.planning.planned_launches import launches
from shiplap.flows.schedule.launch import launch
from shiplap.flows.sweep.sweep import sweep
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.nodeclaim import NodeClaim, PodReference
from shiplap.ports import FleetOverride, FleetRequest
from tests.builders.claims import node_claim, with_fields
from tests.integration.contracts import emulated_ec2, fleet_requests
from tests.integration.flows.stage import CLUSTER, NODE_CLASS, ZONES, Stage

CLAIMS = 1000
SHAPES = 20
RUNS = 3
_TIMED = {
    "state": ("commit", "advance_all", "claims", "reserve_addresses", "mark_unavailable"),
    "compute": ("launch", "instances", "name", "sweep_templates"),
    "bus": ("publish",),
    "timers": ("remind",),
}


def claims_of(stage: Stage) -> list[NodeClaim]:
    """A thousand claims with ten pods each, fifty of each shape; every second shape is bound to a zone."""
    made = []
    for number in range(CLAIMS):
        shape = number % SHAPES
        zone = (RequirementSpec(labels.ZONE, "In", (ZONES[shape % len(ZONES)],)),) if shape % 2 else ()
        made.append(
            node_claim(
                cluster=CLUSTER,
                name=f"pool-{number:04d}",
                node_pool="pool",
                node_class="default",
                requirements=zone,
                labels={"team": f"team-{shape:02d}"},
                instance_types=tuple(sorted(stage.types)),
                requests={"cpu": 1000, "memory": 2**30},
                pods=tuple(PodReference("shop", f"web-{number}-{pod}", f"uid-{number}-{pod}") for pod in range(10)),
            )
        )
    return made


class Outside:
    """Processor seconds spent outside the fakes of a stage."""

    def __init__(self, stage: Stage) -> None:
        self._inside_s = 0.0
        for fake, names in _TIMED.items():
            for name in names:
                setattr(getattr(stage, fake), name, self._timed(getattr(getattr(stage, fake), name)))
        self._began = time.process_time()

    def _timed(self, method: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            began = time.process_time()
            try:
                return method(*arguments, **options)
            finally:
                self._inside_s += time.process_time() - began

        return call

    @property
    def seconds(self) -> float:
        return time.process_time() - self._began - self._inside_s


def on_twins() -> tuple[Counter[str], float]:
    """Effects by name and seconds outside the fakes: merging, launching, and one sweep over what was launched."""
    stage = Stage()
    supply = NodeClassSupply(NODE_CLASS, stage.compute.resolve(NODE_CLASS))
    attempt = Attempt(owner="benchmark", deadline=stage.clock.now() + 900, join_timeout_s=900)
    market = OfferingMarket(stage.state.read(CLUSTER, stage.clock.now()))
    planned = claims_of(stage)
    outside = Outside(stage)
    stage.faults.clear()
    groups = [
        [with_fields(claim, token=f"token-{number}") for claim in group]
        for number, group in enumerate(launches(planned))
    ]
    stage.state.commit(CLUSTER, 0, [claim for group in groups for claim in group])
    for group in groups:
        launch(group, supply, stage.types, attempt, market, stage.context)
    sweep(stage.settings, (), stage.context)
    seconds = outside.seconds
    held = {claim.instance_id for claim in stage.claims()}
    if held != {instance.id for instance in stage.compute.alive()} or len(held) != CLAIMS:
        raise SystemExit("not every claim has an instance of its own")
    return Counter(point.partition(" ")[2] for point in stage.faults.points if point.startswith("before ")), seconds


def on_emulated_ec2() -> Counter[str]:
    """Requests that reached the emulated EC2: the fleets, and one look at all instances."""
    with emulated_ec2.emulated_region() as region:
        region.empty()
        region.seed("demo")
        compute = region.compute()
        node_class = fleet_requests.NODE_CLASS
        resolved = compute.resolve(node_class)
        ami = next(item.id for item in resolved.amis if all(rule[1] != "Exists" for rule in item.requirements))
        overrides = tuple(FleetOverride(0.1, "m5.large", zone, ami, 29) for zone in emulated_ec2.ZONES)
        before = Counter(region.control.calls())
        for shape in range(SHAPES):
            claim = node_claim(cluster="demo", name=f"shape-{shape}", node_pool="pool", node_class="default")
            claims = [
                with_fields(claim, name=f"{claim.name}-{number}", labels={"team": f"team-{shape}"})
                for number in range(CLAIMS // SHAPES)
            ]
            request = FleetRequest(
                claims=tuple(claims),
                node_class=node_class,
                resolved=resolved,
                capacity_type=labels.ON_DEMAND,
                overrides=overrides,
                token=f"token-{shape}",
            )
            compute.launch(request)
        if len(compute.instances("demo")) != CLAIMS:
            raise SystemExit("the emulated EC2 does not show every instance")
        return Counter(region.control.calls()) - before


def main() -> int:
    """Print the table; 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--no-ec2", action="store_true", help="leave out the part on the emulated EC2")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    runs = [on_twins() for _ in range(RUNS)]
    effects, seconds = runs[0][0], min(run[1] for run in runs)
    describes = math.ceil(CLAIMS / 500)
    rows: list[tuple[str, float, float | None]] = [
        ("CreateFleet", effects["compute.launch"], SHAPES),
        ("DescribeInstances, one sweep of all", effects["compute.instances"], describes),
        ("transactions of claims", effects["state.commit"] + effects["state.advance_all"], None),
        ("other writes of state", effects["state.reserve_addresses"] + effects["state.mark_unavailable"], None),
        ("batches of events", effects["bus.publish"], None),
        ("timers", effects["timers.remind"], None),
        (f"seconds outside the fakes, best of {RUNS}", seconds, None),
    ]
    if not options.no_ec2:
        calls = on_emulated_ec2()
        rows += [
            ("CreateFleet, arrived at EC2", calls["CreateFleet"], SHAPES),
            ("DescribeInstances, arrived at EC2", calls["DescribeInstances"], describes),
            ("CreateLaunchTemplate, arrived at EC2", calls["CreateLaunchTemplate"], None),
            ("DescribeLaunchTemplates, arrived at EC2", calls["DescribeLaunchTemplates"], None),
        ]
    print(f"{CLAIMS} claims of {SHAPES} shapes")
    for name, value, most in rows:
        verdict = "" if most is None else f"   at most {most:g}: {'held' if value <= most else 'MISSED'}"
        print(f"  {name:<44}{value:>10.3f}{verdict}")
    return int(any(most is not None and value > most for _, value, most in rows))


if __name__ == "__main__":
    sys.exit(main())

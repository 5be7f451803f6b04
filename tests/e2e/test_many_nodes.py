"""Five thousand pods at once in an empty cluster: 500 nodes, through every part of the system."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from shiplap.errors import ShiplapError
from shiplap_lab.emulated_aws import cdk
from tests.e2e import manifests, measures, programs
from tests.e2e.control_plane import wait_until
from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.long]

_WORKLOADS = 10
_REPLICAS = 500
_PER_NODE = 10
_PODS = _WORKLOADS * _REPLICAS
_PATIENCE_S = 600.0
_POLL_S = 2.0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        programs.find()
        cdk.executable()
    except (programs.ProgramsMissing, ShiplapError) as missing:
        pytest.skip(f"no whole system: {missing}")
    with World(tmp_path_factory.mktemp("many"), manifests.MANY_NODES, poll_s=1.0, judged=True) as running:
        yield running


def test_five_thousand_pods_get_five_hundred_nodes(world: World) -> None:
    began = time.time()
    for number in range(_WORKLOADS):
        world.apply(manifests.deployment(f"many-{number}", _REPLICAS, "", cpu="370m", memory="500Mi"))
    waited = 0.0

    def ready() -> bool:
        nonlocal waited
        found = [item.get("status") or {} for item in world.api.list("deployments").items]
        number = sum(status.get("readyReplicas", 0) for status in found)
        if time.time() - began > waited + 20:
            waited = time.time() - began
            states = Counter(str(claim.state) for claim in world.claims())
            print(f"{waited:.0f} s: {number} pods run; claims {dict(states)}")  # noqa: T201
        return number == _PODS

    wait_until(ready, f"{_PODS} pods run", timeout_s=_PATIENCE_S, poll_s=_POLL_S, told=world.told)
    took = time.time() - began
    claims = [claim for claim in world.claims() if claim.instance_id]
    asked = Counter(
        event["verb"]
        for event in measures.audit_events(world.plane.audit_log)
        if event["user"]["username"] == "system:serviceaccount:shiplap:shiplap"
    )
    calls = world.ec2.control.calls()
    invocations = {name: len(source.answered) for name, source in world.sources.items()}
    measures.keep(
        "many nodes",
        {
            "pods": _PODS,
            "nodes": len(claims),
            "seconds": took,
            "requests to Kubernetes": dict(asked),
            "requests to EC2": calls,
            "invocations": invocations,
        },
    )
    homes = measures.at_home(claims, world.pods())
    measures.keep("many nodes: pods where planned", {"n": len(homes), "share": sum(homes) / len(homes)})
    uids = frozenset(pod["metadata"]["uid"] for pod in world.pods())
    cost = measures.bill(claims, uids)
    measures.keep("many nodes: cost against plan", {"planned": cost.planned, "realised": cost.realised})
    assert len(claims) >= _PODS // _PER_NODE
    assert len(claims) <= _PODS // _PER_NODE * 1.02

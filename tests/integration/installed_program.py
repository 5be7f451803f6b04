"""A scheduling function on fakes, for an interpreter that finds Shiplap only where the wheel was installed.

Arguments: the folder of the wheel, that of its dependencies. Prints JSON: the files of the packages, the answer to SQS,
and the instance types that were launched.
"""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager
from typing import Any

sys.path[1:1] = sys.argv[1:3]

import msgspec  # noqa: E402 - found by the path that the arguments give

import shiplap_lab  # noqa: E402
from shiplap.flows.context import FlowContext  # noqa: E402
from shiplap.flows.function_install import WarmMemory, counted_errors  # noqa: E402
from shiplap.flows.schedule import entry  # noqa: E402
from shiplap.manifests.custom_resources import EC2NodeClass, Manifests, NodePool  # noqa: E402
from shiplap.settings import ClusterSettings, Settings  # noqa: E402
from shiplap_lab.catalogue import embedded  # noqa: E402
from shiplap_lab.fakes.cluster import ApiServer, FakeCluster  # noqa: E402
from shiplap_lab.fakes.compute import FakeCompute  # noqa: E402
from shiplap_lab.fakes.signals import FakeBus, FakeClock, FakeDeadLetters, FakeMeter, FakeTimers  # noqa: E402
from shiplap_lab.fakes.state import FakeState  # noqa: E402
from shiplap_lab.fakes.stores import FakeCapacity, FakeCatalog, FakeMemory, FakeRecorder, FakeStatus  # noqa: E402
from shiplap_lab.virtual_time.simulated_install import ProbesInTurn  # noqa: E402

REGION = "eu-west-1"
RULE = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m6i.large"]}
POOL = {
    "metadata": {"name": "default"},
    "spec": {"template": {"spec": {"nodeClassRef": {"name": "default"}, "requirements": [RULE]}}},
}
NODE_CLASS = {"metadata": {"name": "default"}, "spec": {"amiFamily": "AL2023"}}
POD = {
    "metadata": {"name": "web", "uid": "web"},
    "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
    "status": {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    },
}


class Invocation:
    """The context that Lambda passes to an invocation."""

    aws_request_id = "request-1"
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:shiplap-schedule:live"

    def get_remaining_time_in_millis(self) -> int:
        return 300_000


class InstalledFunction:
    """A FunctionInstall of fakes."""

    memory_mib = 1769

    def __init__(self) -> None:
        self.clock, self.meter, self.warm, self.executor = FakeClock(), FakeMeter(), WarmMemory(), ProbesInTurn()
        self.state, self.memory, self.status = FakeState(), FakeMemory(), FakeStatus()
        self.dead_letters = FakeDeadLetters()
        self.catalog = FakeCatalog(embedded.load(REGION))
        self.compute = FakeCompute(self.clock)
        server = ApiServer(self.clock)
        server.create("pods", POD)
        manifests = Manifests(
            node_pools=(msgspec.convert(POOL, NodePool),), node_classes=(msgspec.convert(NODE_CLASS, EC2NodeClass),)
        )
        self.settings = self.served = Settings((ClusterSettings(name="demo", region=REGION, manifests=manifests),))
        self._context = FlowContext(
            clock=self.clock,
            cluster=FakeCluster(server),
            compute=self.compute,
            state=self.state,
            capacity=FakeCapacity(),
            catalog=self.catalog,
            bus=FakeBus(),
            timers=FakeTimers(self.clock),
            recorder=FakeRecorder(),
            meter=self.meter,
        )

    def context(self, cluster: ClusterSettings) -> FlowContext:
        return self._context

    def catalog_store(self, region: str) -> FakeCatalog:
        return self.catalog

    def catalog_source(self, region: str) -> Any:
        raise NotImplementedError("this function refreshes no catalogue")

    def pause(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def reporting(self, request_id: str) -> AbstractContextManager[None]:
        return counted_errors(self.meter)


install = InstalledFunction()
record = {"messageId": "m1", "body": json.dumps({"kind": "sweep", "cluster": "demo"})}
answer = entry.handle({"Records": [record]}, Invocation(), install)
launched = [instance.instance_type for instance in install.compute.launches]
sys.stdout.write(json.dumps({"files": [entry.__file__, shiplap_lab.__file__], "answer": answer, "launched": launched}))

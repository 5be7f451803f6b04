"""A stage on which the disrupt function is played, minute by minute."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from shiplap.disruption.commands import Decision
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.disruption.standstill import LastDecision
from shiplap.flows.disrupt.disruption_round import DisruptionReport, disrupt
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import NodePool
from shiplap_lab.fakes.stores import FakeMemory
from tests.builders.pools import family_pool
from tests.integration.flows.leaving import kubelets_end_pods
from tests.integration.flows.stage import Stage


class Disrupted(Stage):
    """A stage whose pool may be disrupted at once and wholly; `template` is added to its template."""

    def __init__(self, *, budget: str = "100%", template: Mapping[str, str] | None = None, **settings: object) -> None:
        plain = msgspec.to_builtins(family_pool("default", ("m6i",)))
        plain["spec"]["template"]["spec"] |= template or {}
        plain["spec"]["disruption"] = {"budgets": [{"nodes": budget}], "consolidateAfter": "0s"}
        super().__init__((msgspec.convert(plain, NodePool),))
        known = self.settings.disruption
        self.settings = msgspec.structs.replace(
            self.settings, disruption=msgspec.structs.replace(known, **{"settle_s": 0.0, **settings})
        )
        self.memory = FakeMemory(self.faults)
        self._last = LastDecision()

    def disrupt(self) -> DisruptionReport:
        """One invocation of the disrupt function, which as deployed knows its last decision."""
        return disrupt(
            self.settings,
            self.context,
            self.memory,
            decision_of=self._last,
            manifest_state=self.manifest_state,
        )

    def dies(self, act: Callable[[], object]) -> bool:
        """As of any stage; what a function knew is lost with its process."""
        died = super().dies(act)
        if died:
            self._last = LastDecision()
        return died

    def around(self) -> None:
        """Everything in a minute that is not the disrupt function."""
        self.sweep()
        self.join()
        self.attend(*self.due())
        self.attend()
        kubelets_end_pods(self)
        self.cloud_controller()
        self.bind()
        self.run_pods()
        self.clock.advance(60)

    def minutes(self, number: int) -> None:
        for _ in range(number):
            self.disrupt()
            self.around()

    def run_pods(self) -> None:
        """Kubelets start the pods they have."""
        for item in self.server.list("pods").items:
            if item["spec"].get("nodeName") and item["status"].get("phase") != "Running":
                self.server.patch(
                    "pods", item["metadata"]["name"], {"status": {"phase": "Running"}}, subresource="status"
                )

    def cloud_controller(self) -> None:
        """Nodes whose instance is gone are removed."""
        alive = {instance.provider_id for instance in self.compute.alive()}
        for item in self.server.list("nodes").items:
            if item["spec"]["providerID"] not in alive:
                self.server.delete("nodes", item["metadata"]["name"])

    def tainted(self) -> list[str]:
        """Names of nodes that keep new pods off."""
        return [
            item["metadata"]["name"]
            for item in self.server.list("nodes").items
            if any(taint["key"] == labels.DISRUPTED_TAINT for taint in item["spec"].get("taints", ()))
        ]


def oversized(*, template: Mapping[str, str] | None = None, **settings: object) -> Disrupted:
    """One 2xlarge in service that has one small pod left."""
    stage = Disrupted(template=template, **settings)
    stage.add_pods(5, cpu="1200m", memory="2Gi")
    stage.play_on()
    for number in range(1, 5):
        stage.server.delete("pods", f"web-{number:03d}", grace_s=0)
    stage.run_pods()
    stage.clock.advance(600)
    stage.faults.clear()
    return stage


def kinds(stage: Disrupted) -> list[str]:
    return sorted(instance.instance_type for instance in stage.compute.alive())


def decided_on(stage: Disrupted) -> DisruptionSnapshot:
    """Return the snapshot from which the next decision is made."""
    seen = list[DisruptionSnapshot]()

    def nothing(snapshot: DisruptionSnapshot) -> Decision:
        seen.append(snapshot)
        return Decision()

    disrupt(stage.settings, stage.context, stage.memory, decision_of=nothing)
    return seen[-1]

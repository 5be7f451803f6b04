"""While Karpenter holds its Lease, and with manifests from files at any time, no flow writes objects of its groups."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.ports import ClusterApi
from shiplap.settings import ClusterSettings
from shiplap_lab.fakes.stores import FakeManifests
from tests.integration.flows.live_stage import lease, written
from tests.integration.flows.loaded_functions import Context, Load, load, records, sweep
from tests.integration.flows.stage import CLUSTER, FLEX_FIRST, Stage
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS

__all__ = ["load"]

ELSEWHERE = "karpenter/leader"
WRITES = frozenset({"write_status", "create_node_claim", "delete_node_claim", "set_finalizers"})
"""Methods of the port that write objects of Karpenter's groups."""

NO_WRITES = frozenset(
    {
        *("view", "pending_pods", "pending_pod", "nodes", "node", "pods_on", "watch", "bound_pages", "list_for_watch"),
        *("manifest_objects", "ending_definitions", "node_claim_objects", "node_claim_object"),
        *("lease", "volume_attachments", "annotate_pod"),
        *("volume_claims", "disruption_budgets", "scalables", "workload", "annotate_template", "named_objects"),
        *("patch_node", "nominate", "bind", "evict", "delete_pod", "delete_node", "publish"),
    }
)
"""Those that read, or write pods, their templates, Nodes and Events."""

KINDS = ("nodepools", "ec2nodeclasses", "nodeoverlays", "capacitybuffers", "nodeclaims")


class RecordingCluster:
    """A ClusterApi that notes which of its methods are called."""

    def __init__(self, cluster: ClusterApi) -> None:
        self.called: list[str] = []
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        self.called.append(name)
        return getattr(self._cluster, name)


class SharedStage(Stage):
    """A stage whose API server has manifests, a node in service, one that has joined, a claim without an instance, a
    NodeClaim whose claim is gone, and a pod that waits. The Lease has another name than by default.
    """

    def __init__(self, *, live: bool = True) -> None:
        super().__init__()
        self.server.create("ec2nodeclasses", EC2_NODE_CLASS)
        for pool in FLEX_FIRST:
            self.server.create("nodepools", written(pool))
        self.add_pods(1)
        self.play_on()
        self.add_pods(1, cpu="6", prefix="late")
        self.schedule()
        self.join()
        labels = {"shiplap.dev/install": "shiplap"}
        self.server.create("nodeclaims", {"metadata": {"name": "flex-gone", "labels": labels}, "spec": {}})
        self.add_pods(1, cpu="7", prefix="waiting")
        self.clock.advance(60)
        deployed = self.settings
        if live:
            allowed = AllowedResources(node_roles=("node",))
            manifests = type(deployed.manifests)()
            deployed = replace(deployed, manifests=manifests, live_manifests=True, allowed=allowed)
        self.settings: ClusterSettings = replace(deployed, karpenter_lease=ELSEWHERE)
        self.recording = RecordingCluster(self.cluster)
        self.context = replace(self.context, cluster=self.recording, manifests=FakeManifests(self.faults))

    def hold_lease(self) -> None:
        """Karpenter holds its Lease, where this install looks for it."""
        namespace, _, name = ELSEWHERE.partition("/")
        body = lease(self.clock.now() + 7200)
        self.server.create("leases", {**body, "metadata": {"name": name, "namespace": namespace}})

    def objects(self) -> dict[str, list[dict[str, Any]]]:
        """Everything of Karpenter's groups, with resourceVersions."""
        return {kind: self.server.list(kind).items for kind in KINDS}


def run_schedule(load: Load, stage: SharedStage) -> None:
    module, _ = load("schedule", stage)
    assert module.handle(records(sweep()), Context()) == {"batchItemFailures": []}


def run_lifecycle(load: Load, stage: SharedStage) -> None:
    timers = [json.dumps({"cluster": CLUSTER, "claim": claim.name, "step": "join"}) for claim in stage.claims()]
    module, _ = load("lifecycle", stage)
    assert module.handle(records(*timers), Context()) == {"batchItemFailures": []}


def run_disrupt(load: Load, stage: SharedStage) -> None:
    module, _ = load("disrupt", stage)
    stage.server.delete("pods", "web-000", grace_s=0)
    for _ in range(3):
        module.handle({"cluster": CLUSTER}, Context())
        stage.clock.advance(60)


def run_interrupt(load: Load, stage: SharedStage) -> None:
    warning = {"source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning"}
    bodies = [json.dumps(warning | {"detail": {"instance-id": each.instance_id}}) for each in stage.claims()]
    module, _ = load("interrupt", stage)
    assert module.handle(records(*bodies), Context()) == {"batchItemFailures": []}


def run_catalog(load: Load, stage: SharedStage) -> None:
    module, _ = load("catalog", stage)
    module.handle({}, Context())
    module.handle({"kind": "inspect"}, Context())


def run_watch(load: Load, stage: SharedStage) -> None:
    module, install = load("watch", stage)
    install.pause = stage.clock.advance
    module.handle({"clusters": [CLUSTER]}, Context())


def run_all(load: Load, stage: SharedStage) -> None:
    for run in (run_schedule, run_lifecycle, run_watch, run_catalog, run_disrupt, run_interrupt, run_schedule):
        run(load, stage)


FLOWS = (run_schedule, run_lifecycle, run_disrupt, run_interrupt, run_catalog, run_watch, run_all)


def test_every_method_of_the_port_either_writes_such_objects_or_does_not() -> None:
    methods = {name for name, value in vars(ClusterApi).items() if callable(value) and not name.startswith("_")}
    assert methods == WRITES | NO_WRITES


@pytest.mark.parametrize("run", FLOWS, ids=lambda run: run.__name__.removeprefix("run_"))
@pytest.mark.parametrize("live", [True, False], ids=["beside Karpenter", "manifests from files"])
def test_no_flow_writes_an_object_of_karpenters_groups(
    load: Load, capsys: pytest.CaptureFixture[str], run: Callable[[Load, SharedStage], None], *, live: bool
) -> None:
    stage = SharedStage(live=live)
    if live:
        stage.hold_lease()
    before = stage.objects()
    run(load, stage)
    assert set(stage.recording.called) <= NO_WRITES
    assert stage.objects() == before
    capsys.readouterr()


def test_without_the_lease_a_sweep_writes_them(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    """This test shows the writes that the other tests would see if a flow wrote."""
    stage = SharedStage()
    run_schedule(load, stage)
    assert WRITES - set(stage.recording.called) <= {"set_finalizers"}
    capsys.readouterr()

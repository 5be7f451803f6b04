"""An install on AWS in this process with its tables and bucket, a cluster over HTTP, and commands run on both."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from shiplap.aws import session
from shiplap.aws.bucket import BucketCatalog, BucketStatus
from shiplap.aws.dynamodb import tables
from shiplap.aws.dynamodb.capacity_table import DynamoCapacity
from shiplap.aws.dynamodb.state_table import DynamoState
from shiplap.flows.install import Install as Functions
from shiplap.flows.live_settings import KnownManifests, listed_settings
from shiplap.flows.planning.decision_inputs import read_inputs, read_supply
from shiplap.flows.planning.decision_snapshots import priced_snapshot
from shiplap.flows.policies.active import ActivePolicies
from shiplap.instances.readiness.nodeclass_status import ClusterStatus, InstallStatus
from shiplap.kubernetes import labels
from shiplap.manifests.files.loading import load_manifests
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from shiplap.settings import ClusterSettings, ResourceNames, Settings
from shiplap_cli.installs import find_install, installed
from shiplap_cli.main import run
from shiplap_lab.catalogue import embedded
from shiplap_lab.cluster_simulator.access import READ_ONLY, PolicyRule
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.fakes.cluster import ApiServer
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.claims import changes, node_claim
from tests.builders.nodes import node_object
from tests.integration.account_with_class import node_class_of_account
from tests.integration.contracts.in_process_aws import REGION, aws_in_process, create_table
from tests.integration.live_pods import pod
from tests.own_logger import own_logger
from tests.unit.cli.planned_files import POOL

FUNCTIONS = (
    PolicyRule(("get", "list", "watch"), ("*",), ("*",)),
    *READ_ONLY,
)
OUTPUTS = {"Bucket": "install", "StateTable": "state", "CapacityTable": "capacity", "ScheduleFunction": "schedule"}


class LiveInstall:
    """An install, its cluster over HTTP, its functions' own view of both, and commands run on them."""

    def __init__(self, http: KubeHttpServer, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.http, self.folder, self._capsys = http, folder, capsys
        (folder / "pools.json").write_text(json.dumps({"kind": "List", "items": [POOL, node_class_of_account()]}))
        self.settings = ClusterSettings(
            name="blue",
            region=REGION,
            endpoint=http.endpoint,
            token="functions",
            kubernetes_version="1.34",
            manifests=load_manifests([folder / "pools.json"]),
            vm_memory_overhead_percent=0.05,
            improve_s=0.25,
        )
        dynamodb, s3 = session.client("dynamodb"), session.client("s3")
        create_table(dynamodb, "state", tables.STATE)
        create_table(dynamodb, "capacity", tables.CAPACITY)
        s3.create_bucket(Bucket="install", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        catalog = msgspec.structs.replace(embedded.load(REGION), refreshed_at=time.time())
        BucketCatalog(s3, "install", REGION).save(catalog)
        BucketStatus(s3, "install").save(InstallStatus((ClusterStatus("blue", REGION, 0.0),)))
        self.state, self.capacity = DynamoState(dynamodb, "state"), DynamoCapacity(dynamodb, "capacity")
        config = {
            "current-context": "me",
            "contexts": [{"name": "me", "context": {"cluster": "c", "user": "me"}}],
            "clusters": [{"name": "c", "cluster": {"server": http.endpoint}}],
            "users": [{"name": "me", "user": {"token": "me"}}],
        }
        (folder / "config").write_text(yaml.safe_dump(config))

    def decided(self) -> tuple[Snapshot, Plan]:
        """By the code of the schedule function, with its own adapters."""
        names = ResourceNames("state", "capacity", "install", "bus", "queue")
        context = Functions("schedule", Settings((self.settings,)), names).context(self.settings)
        settings, _ = listed_settings(self.settings, context, KnownManifests())
        policies = ActivePolicies.of(settings, context)
        supply = read_supply(settings, context, policies=policies)
        inputs = read_inputs(settings, context, policies=policies)
        snapshot = priced_snapshot(settings, inputs, supply, context, policies).snapshot
        return snapshot, plan(snapshot)

    def says(self, command: str, *arguments: str, code: int = 0) -> dict[str, Any]:
        config = str(self.folder / "config")
        got = run([*command.split(), "--kubeconfig", config, "-o", "json", *arguments])
        printed = self._capsys.readouterr()
        assert (got, printed.err) == (code, ""), printed.err or printed.out[:3000]
        return dict(json.loads(printed.out))

    def in_flight(self, planned: PlannedClaim, snapshot: Snapshot) -> None:
        """A claim as planned, that has been launched and whose node has not come yet."""
        kind = next(item for item in snapshot.catalogs[0].instance_types if item.name == planned.launch.instance_type)
        now = time.time()
        claim = node_claim(
            cluster="blue",
            name=planned.name,
            node_pool="default",
            node_class="default",
            created_at=now,
            deadline_at=now + 900,
            requirements=planned.requirements,
            labels=planned.labels,
            taints=planned.taints,
            instance_types=planned.instance_types,
            requests=planned.requests,
            pods=planned.pods,
            instance_type=kind.name,
            zone=planned.launch.zone,
            capacity_type=planned.launch.capacity_type,
            ami=kind.ami,
            allocatable=kind.allocatable,
        )
        self.state.commit("blue", self.state.read("blue", now).epoch, [claim])
        claim = self.state.advance(claim, ClaimState.LAUNCHING)
        self.state.advance(
            claim, ClaimState.LAUNCHED, **changes(claim, instance_id=f"i-{planned.name}", changed_at=now)
        )

    def join(self, planned: PlannedClaim, **spec: Any) -> NodeClaim:
        """The node of the only claim, complete: it takes no pods by itself."""
        (claim,) = self.state.claims("blue")
        marks = {labels.NODE_POOL: "default", labels.NODE_CLAIM: planned.name, labels.INITIALIZED: "true"}
        machine = f"aws:///{planned.launch.zone}/{claim.known_instance.id}"
        node = node_object(planned.name, labels={**planned.labels, **marks}, providerID=machine, **spec)
        self.http.api.create("nodes", node)
        for state in (ClaimState.REGISTERED, ClaimState.INITIALIZED):
            claim = self.state.advance(claim, state, changed_at=time.time(), **changes(claim, node_name=planned.name))
        return claim


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def without_times(answer: Any) -> dict[str, Any]:
    written = json.loads(_TIME.sub("later", msgspec.json.encode(answer).decode()))
    return {key: written[key] for key in ("nodeClaims", "existingNodes", "unschedulable", "ignored", "cost")}


@contextmanager
def live_install(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[LiveInstall]:
    api = ApiServer(FakeClock())
    for name in ("a", "b", "c"):
        api.create("pods", pod(name))
    with own_logger(), aws_in_process(), KubeHttpServer(api, access={"functions": FUNCTIONS, "me": READ_ONLY}) as http:
        found = LiveInstall(http, folder, capsys)
        monkeypatch.setattr(find_install, "_outputs", lambda stack: OUTPUTS if stack == "Shiplap" else None)
        monkeypatch.setattr(installed, "settings_of", lambda _: Settings((found.settings,)))
        yield found

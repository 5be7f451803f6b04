"""Functions and commands decide on equal snapshots: one assembly makes both, whatever is on, beside another cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.aws import session
from shiplap.aws.bucket import BucketMemory
from shiplap.disruption.commands import Decision
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.flows.disrupt.disruption_round import disrupt
from shiplap.flows.install import Install as Functions
from shiplap.flows.live_settings import KnownManifests, listed_settings
from shiplap.flows.messages import Sweep
from shiplap.flows.planning.decision_snapshots import PricedSnapshot
from shiplap.flows.planning.futile_launches import FREE
from shiplap.flows.schedule import schedule as schedule_flow
from shiplap.kubernetes import labels
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.files.loading import load_manifests
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.manifests.nodeclaim import ClaimState, PodReference
from shiplap.policies.policy_settings import chosen
from shiplap.policies.registry import POLICIES as REGISTERED
from shiplap.policies.registry import planning_inputs
from shiplap.ports import OfferingFailure, Refusals
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.settings import ClusterSettings, ResourceNames, Settings
from shiplap_cli.inputs.disruption_inputs import disruption_snapshot
from shiplap_cli.inputs.loaded_inputs import LoadedInputs, load_inputs
from shiplap_cli.installs import installed_decision
from shiplap_cli.installs.find_install import InstallOptions
from shiplap_cli.options import Sources
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.claims import changes, node_claim
from tests.builders.nodes import node_object
from tests.integration.contracts.in_process_aws import REGION
from tests.integration.live_install import LiveInstall
from tests.integration.live_pods import pod
from tests.policy_parts import policy_parts
from tests.thoroughness import sampled

POLICIES = tuple(entry.name for entry in REGISTERED)
TYPES = ("m5.large", "c5.xlarge", "r5.large")


ENDS = (ClaimState.LAUNCHED, ClaimState.INITIALIZED, ClaimState.DRAINING)


class Stopped(Exception):
    """The flow has made its snapshot."""


class DrawnInstall:
    """An install whose tables and cluster are drawn, with other nodes than its own, and a second cluster."""

    def __init__(self, live: LiveInstall, seed: int, on: tuple[str, ...]) -> None:
        self.live, self.draw, self.at = live, Random(seed), float(int(time.time()))  # noqa: S311 - drawn, not secret
        live.settings = replace(live.settings, **self.settings_of(on), unproven_pod_nodes=0)
        self.names = ResourceNames("state", "capacity", "install", "bus", "queue")
        self.write_manifests(in_cluster=seed % 2 == 0)
        self.node("n0", ClaimState.INITIALIZED)
        for number in range(1, self.draw.randint(2, 4)):
            self.node(f"n{number}", self.draw.choice(ENDS))
        self.refuse()
        self.other_cluster()
        if on:
            self.stores()

    def settings_of(self, on: tuple[str, ...]) -> Mapping[str, Any]:
        parts = [part.settings(self.at) for part in policy_parts("integration", "drawn", on)]
        return {"policies": chosen(*parts)}

    def write_manifests(self, *, in_cluster: bool) -> None:
        """The NodePool and its EC2NodeClass, one that no NodePool uses, and a budget of pods."""
        pool, used = json.loads((self.live.folder / "pools.json").read_text())["items"]
        unused = {**used, "metadata": {"name": "unused"}}
        (self.live.folder / "pools.json").write_text(json.dumps({"kind": "List", "items": [pool, used, unused]}))
        manifests = load_manifests([self.live.folder / "pools.json"])
        if in_cluster:
            roles = AllowedResources(node_roles=(used["spec"]["role"],))
            for item in (pool, used, unused):
                self.live.http.api.apply(item)
            self.live.settings = replace(self.live.settings, live_manifests=True, allowed=roles)
        self.live.settings = replace(self.live.settings, manifests=Manifests() if in_cluster else manifests)
        budget = {"metadata": {"name": "web", "namespace": "web"}, "spec": {"maxUnavailable": 1, "selector": {}}}
        self.live.http.api.create("poddisruptionbudgets", budget)

    def node(self, name: str, last: ClaimState) -> None:
        """A node in service with a pod or without, or one that leaves, or one that has not joined."""
        draw, state, kind = self.draw, self.live.state, self.draw.choice(TYPES)
        claim = node_claim(
            cluster="blue",
            name=name,
            node_pool="default",
            node_class="default",
            created_at=self.at - 9000.0,
            pods=(PodReference("web", f"for-{name}", f"uid-{name}"),),
        )
        epoch = state.read("blue", self.at).epoch
        state.commit("blue", epoch, [claim])
        facts: dict[str, Any] = {
            "instance_id": f"i-{name}",
            "node_name": name,
            "instance_type": kind,
            "zone": f"{REGION}b",
            "capacity_type": draw.choice(["on-demand", "spot"]),
            "hourly": 0.1,
            "missed": draw.random() < 0.5,
        }
        way = [ClaimState.LAUNCHING, ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED]
        way = way[: way.index(last) + 1] if last in way else [*way, last]
        for step in way:
            claim = state.advance(claim, step, changed_at=self.at - 8000.0, **changes(claim, **facts))
        if last is ClaimState.LAUNCHED:
            return
        marks = {labels.NODE_POOL: "default", labels.NODE_CLAIM: name, labels.INITIALIZED: "true"}
        marks |= {labels.INSTANCE_TYPE: kind, labels.ZONE: f"{REGION}b"}
        marks[labels.CAPACITY_TYPE] = claim.known_instance.capacity_type
        machine = f"aws:///{REGION}b/i-{name}"
        self.live.http.api.create("nodes", node_object(name, "4", "15Gi", "29", labels=marks, providerID=machine))
        if draw.random() < 0.7:
            self.live.http.api.create("pods", pod(f"on-{name}"))
            self.live.http.api.bind(f"on-{name}", name, "web")

    def refuse(self) -> None:
        failure = OfferingFailure(self.draw.choice(TYPES), f"{REGION}b", "on-demand", "capacity", "NoCapacity")
        self.live.state.mark_unavailable([failure], self.at - 10)
        waiting = self.live.http.api.list("pods").items[0]["metadata"]["uid"]
        refusals = Refusals(("gone-1", "gone-2", "gone-3"), self.at - 30, FREE, self.at - 60)
        self.live.state.mark_refused("blue", waiting, refusals)

    def other_cluster(self) -> None:
        """Another cluster of the install, with a node of its own."""
        claim = node_claim(cluster="green", name="g", node_pool="default", node_class="default", created_at=1.0)
        self.live.state.commit("green", 0, [claim])

    def stores(self) -> None:
        """What policies remember."""
        for part in policy_parts("integration", "drawn", self.live.settings.policies_on):
            part.remember(self.live.settings, self.at, self.draw)

    # As functions see it

    def functions(self, function: str) -> tuple[ClusterSettings, Any, Any]:
        made = Functions(function, Settings((self.live.settings,)), self.names).context(self.live.settings)
        context = replace(made, clock=FakeClock(self.at))
        settings, state = listed_settings(self.live.settings, context, KnownManifests())
        return settings, state, context

    def scheduled(self, monkeypatch: pytest.MonkeyPatch) -> Snapshot:
        """The snapshot of the schedule function."""
        seen: list[Snapshot] = []

        def stop(priced: PricedSnapshot) -> tuple[PricedSnapshot, Plan]:
            seen.append(priced.snapshot)
            raise Stopped

        settings, state, context = self.functions("schedule")
        with monkeypatch.context() as patched:
            patched.setattr(schedule_flow, "plan_without_moves_under_way", stop)
            patched.setattr(schedule_flow, "orphans", lambda *_: [])
            patched.setattr(schedule_flow._LaunchLimits, "rule_out_a_plan", lambda *_, **__: False)
            with pytest.raises(Stopped):
                schedule_flow.schedule(
                    settings,
                    [Sweep("blue", self.at)],
                    replace(context, bus=FakeBus()),
                    owner="test",
                    deadline=self.at + 300,
                    manifest_state=state,
                )
        return seen[0]

    def disrupted(self) -> DisruptionSnapshot | None:
        """The snapshot of the disrupt function."""
        seen: list[DisruptionSnapshot] = []

        def note(snapshot: DisruptionSnapshot) -> Decision:
            seen.append(snapshot)
            return Decision()

        settings, state, context = self.functions("disrupt")
        memory = BucketMemory(session.client("s3"), "install")
        disrupt(settings, context, memory, decision_of=note, manifest_state=state)
        return seen[0] if seen else None

    # As commands see it

    def loaded(self) -> LoadedInputs:
        sources = Sources(kubeconfig=self.live.folder / "config", now=rfc3339(self.at))
        return load_inputs(sources, InstallOptions(cluster="blue"))

    def planned(self, monkeypatch: pytest.MonkeyPatch) -> Snapshot:
        """The snapshot that `shiplap plan` plans."""
        seen: list[Snapshot] = []

        def note(priced: PricedSnapshot) -> tuple[PricedSnapshot, Plan]:
            seen.append(priced.snapshot)
            return priced, Plan()

        with monkeypatch.context() as patched:
            patched.setattr(installed_decision, "plan_without_moves_under_way", note)
            self.loaded().decided()
        return seen[0]


class FakeBus:
    """An EventBus that nobody listens to."""

    def publish(self, events: object) -> None:
        """Nothing."""


def differences(one: object, other: object, where: str = "") -> list[str]:
    """Return the paths of fields that differ, but for the version of a list, which each look has of its own."""
    if one == other:
        return []
    if isinstance(one, msgspec.Struct) and type(one) is type(other):
        return [
            found
            for field in one.__struct_fields__
            if field != "version"
            for found in differences(getattr(one, field), getattr(other, field), f"{where}.{field}")
        ]
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return [
            found
            for place, (a, b) in enumerate(zip(one, other, strict=True))
            for found in differences(a, b, f"{where}[{place}]")
        ]
    return [f"{where}: {str(one)[:200]} is not {str(other)[:200]}"]


CASES = [(on, seed) for on in ((), *((name,) for name in POLICIES), POLICIES) for seed in (1, 2, 3)]


@pytest.mark.parametrize(("on", "seed"), sampled(CASES, 6))
def test_they_are_equal(live: LiveInstall, monkeypatch: pytest.MonkeyPatch, seed: int, on: tuple[str, ...]) -> None:
    drawn = DrawnInstall(live, seed, on)
    assert differences(drawn.scheduled(monkeypatch), drawn.planned(monkeypatch)) == []
    asked = disruption_snapshot(drawn.loaded())
    decided = drawn.disrupted()
    assert decided is not None
    assert differences(decided, asked) == []
    if on == POLICIES:
        assert len(drawn.planned(monkeypatch).policies) == len(planning_inputs())

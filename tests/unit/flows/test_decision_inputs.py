"""Tests the facts that a decision reads of state, cluster and EC2, and the settings that it gets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.errors import AwsError, AwsThrottled, StoreError
from shiplap.flows.planning.decision_inputs import DecisionInputs, joined_nodes, read_inputs, read_supply
from shiplap.flows.planning.decision_snapshots import PricedSnapshot, exploring, priced_snapshot
from shiplap.flows.policies.active import ActivePolicies
from shiplap.instances.catalog.resolved_nodeclass import Ami
from shiplap.instances.catalog.type_catalog import InstanceType, Offering, pilot_key
from shiplap.instances.readiness.joins import node_class_scope
from shiplap.instances.readiness.nodeclass_status import (
    ClusterStatus,
    Condition,
    InstallStatus,
    NodeClassStatus,
    manifest_digest,
)
from shiplap.kubernetes import labels
from shiplap.kubernetes.related_objects import ScalableName
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.claim_rules import ClaimRule
from shiplap.manifests.custom_resources import CapacityBuffer, EC2NodeClass, Manifests, NodeOverlay
from shiplap.manifests.nodeclaim import LEAVING, ClaimState, NodeClaim, PodReference
from shiplap.manifests.scheduler_config import PodTopologySpread
from shiplap.ports import OfferingFailure
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, Snapshot
from shiplap_lab.fakes.stores import FakeStatus
from tests.builders.claims import node_claim
from tests.builders.nodes import node_object
from tests.builders.pods import pod_object
from tests.integration.flows.stage import FLEX_FIRST, NODE_CLASS, ZONES, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


def put(stage: Stage, name: str, state: ClaimState, **fields: Any) -> NodeClaim:
    stage.state.adopt(node_claim(cluster=stage.name, name=name, state=state, **fields))
    found = stage.state.claim(stage.name, name)
    assert found is not None
    return found


def read(stage: Stage) -> DecisionInputs:
    return read_inputs(stage.settings, stage.context)


def add_node(stage: Stage, name: str = "n", instance_id: str = "i-n", **fields: Any) -> None:
    stage.server.create("nodes", node_object(name, providerID=f"aws:///a/{instance_id}", **fields))


def add_pod(stage: Stage, name: str = "web", on: str = "n", **fields: Any) -> None:
    stage.server.create("pods", pod_object(name, "1", "1Gi", node=on, **fields))


def another_class(name: str) -> EC2NodeClass:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"amiFamily": "AL2023"}}, EC2NodeClass)


class TestHasPendingPods:
    def test_a_pod_without_a_node_waits(self, stage: Stage) -> None:
        assert not read(stage).has_pending_pods
        stage.add_pods(1)
        assert read(stage).has_pending_pods

    @pytest.mark.parametrize("state", sorted(LEAVING))
    def test_a_pod_on_a_node_on_its_way_out_is_planned_for(self, stage: Stage, state: ClaimState) -> None:
        add_node(stage)
        add_pod(stage)
        put(stage, "c", ClaimState.INITIALIZED, node_name="n", instance_id="i-n")
        assert not read(stage).has_pending_pods
        put(stage, "d", state, node_name="n", instance_id="i-n")
        assert read(stage).has_pending_pods

    def test_a_pod_on_a_node_that_has_just_joined_does_not_wait(self, stage: Stage) -> None:
        add_node(stage)
        add_pod(stage)
        put(stage, "c", ClaimState.REGISTERED, node_name="n", instance_id="i-n")
        assert not read(stage).has_pending_pods

    def test_an_empty_node_on_its_way_out_wants_nothing(self, stage: Stage) -> None:
        add_node(stage)
        put(stage, "c", ClaimState.DRAINING, node_name="n", instance_id="i-n")
        assert not read(stage).has_pending_pods

    def test_a_node_that_is_deleted_is_on_its_way_out(self, stage: Stage) -> None:
        add_node(stage, metadata={"finalizers": ["karpenter.sh/termination"]})
        add_pod(stage)
        assert not read(stage).has_pending_pods
        stage.server.delete("nodes", "n")
        assert read(stage).has_pending_pods


class TestReadInputs:
    def test_pods_of_nodes_on_their_way_out_are_listed_by_the_names_of_node_and_claim(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(stage, "joined", ClaimState.REGISTERED, node_name="stays")
        put(stage, "drained", ClaimState.DRAINING, node_name="goes")
        put(stage, "unseen", ClaimState.TERMINATING)
        asked, view = list[tuple[set[str], bool]](), stage.cluster.view

        def noted(names: set[str], *, workloads: bool = False, known: Any = None) -> ClusterView:
            asked.append((set(names), workloads))
            return view(names, workloads=workloads, known=known)

        monkeypatch.setattr(stage.cluster, "view", noted)
        read(stage)
        spread = PodTopologySpread(defaulting_type="System")
        stage.settings = replace(stage.settings, pod_topology_spread=spread)
        read(stage)
        leaving = {"drained", "goes", "unseen"}
        assert asked == [(leaving, False), (leaving, True)]

    @pytest.mark.parametrize("namespace", ["", "team"])
    def test_the_workload_of_a_buffer_is_looked_for_in_its_namespace(
        self, stage: Stage, namespace: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spec = {"scalableRef": {"kind": "Deployment", "name": "web"}, "percentage": 20}
        buffer = msgspec.convert({"metadata": {"name": "spare", "namespace": namespace}, "spec": spec}, CapacityBuffer)
        manifests = replace(stage.settings.manifests, capacity_buffers=(buffer,))
        stage.settings = replace(stage.settings, manifests=manifests)
        asked = list[ScalableName]()
        monkeypatch.setattr(stage.cluster, "scalables", lambda names: asked.extend(names) or ())
        read(stage)
        assert asked == [ScalableName(namespace or "default", "Deployment", "web")]

    def test_time_and_state_are_of_before_the_cluster(self, stage: Stage) -> None:
        at = stage.clock.now()
        stage.faults.on("after", "state.read", lambda: stage.clock.advance(5))
        assert read(stage).at == at
        points = stage.faults.points
        assert points.index("before state.read") < points.index("before cluster.view")

    def test_a_state_that_was_just_read_is_not_read_again(self, stage: Stage) -> None:
        put(stage, "c", ClaimState.PLANNED)
        before = stage.state.read(stage.name, stage.clock.now())
        stage.faults.clear()
        inputs = read_inputs(stage.settings, stage.context, before=(7.0, before))
        assert (inputs.at, [claim.name for claim in inputs.state.claims]) == (7.0, ["c"])
        assert "before state.read" not in stage.faults.points

    def test_pods_that_missed_are_those_of_the_marks_and_of_nodes_that_were_too_small(self, stage: Stage) -> None:
        pods = (PodReference("default", "a", "uid-a"), PodReference("default", "b"))
        put(stage, "small", ClaimState.REGISTERED, missed=True, pods=pods)
        put(stage, "fine", ClaimState.REGISTERED, pods=(PodReference("default", "c", "uid-c"),))
        stage.state.mark_missed(stage.name, ["uid-m"], stage.clock.now())
        assert read(stage).missed_pods == {"uid-a", "uid-m"}

    @pytest.mark.parametrize(("planned_cpu", "missed"), [(2500, {"uid-a"}), (3000, set())])
    def test_pods_of_a_node_that_seems_broken_have_not_missed(
        self, stage: Stage, planned_cpu: int, missed: set[str]
    ) -> None:
        """The Node has two CPUs, of 2.5 or of 3 that were planned."""
        add_node(stage, "n1", "i-1")
        pods = (PodReference("default", "a", "uid-a"),)
        planned = {"cpu": planned_cpu, "pods": 1}
        fields = {"node_name": "n1", "instance_id": "i-1", "allocatable": planned, "pods": pods}
        put(stage, "small", ClaimState.REGISTERED, missed=True, **fields)
        put(stage, "other", ClaimState.REGISTERED, node_name="n2", instance_id="i-2")
        assert read(stage).missed_pods == missed

    @pytest.mark.parametrize(
        ("state", "reported", "learns"),
        [
            (ClaimState.LAUNCHED, True, True),
            (ClaimState.LAUNCHED, False, False),
            (ClaimState.REGISTERED, True, False),
            (ClaimState.LAUNCHING, True, False),
        ],
    )
    def test_a_node_that_joined_and_is_not_registered_teaches(
        self, stage: Stage, state: ClaimState, reported: bool, learns: bool
    ) -> None:
        instance_id = "i-n" if state is not ClaimState.LAUNCHING else ""
        put(stage, "c", state, instance_id=instance_id, requests={"cpu": 9000}, pods=(PodReference("d", "p", "uid"),))
        add_node(stage, **({} if reported else {"cpu": "", "memory": "", "pods": ""}))
        assert read(stage).missed_pods == ({"uid"} if learns else frozenset())
        assert len(stage.capacity.all()) == int(learns)

    def test_joined_are_launched_claims_whose_node_is_there(self, stage: Stage) -> None:
        add_node(stage, "n1", "i-1")
        add_node(stage, "n2", "i-2")
        add_node(stage, "n3", "i-3")
        view = stage.cluster.view()
        claims = (
            node_claim(name="a", state=ClaimState.LAUNCHED, instance_id="i-1"),
            node_claim(name="b", state=ClaimState.LAUNCHED, instance_id="i-9"),
            node_claim(name="c", state=ClaimState.INITIALIZED, instance_id="i-2"),
            node_claim(name="d", state=ClaimState.LAUNCHED),
        )
        assert [(claim.name, node.metadata.name) for claim, node in joined_nodes(claims, view)] == [("a", "n1")]

    @pytest.mark.parametrize(
        ("leaves", "on", "asked"), [(True, "n", True), (True, "other", False), (False, "n", False)]
    )
    def test_budgets_are_read_while_pods_are_on_nodes_on_their_way_out(
        self, stage: Stage, leaves: bool, on: str, asked: bool
    ) -> None:
        add_node(stage)
        add_node(stage, "other", "i-o")
        add_pod(stage, on=on)
        state = ClaimState.DRAINING if leaves else ClaimState.INITIALIZED
        put(stage, "c", state, node_name="n", instance_id="i-n")
        budget = {"metadata": {"name": "pdb"}, "spec": {"maxUnavailable": 0, "selector": {}}}
        stage.server.create("poddisruptionbudgets", budget)
        stage.faults.clear()
        inputs = read(stage)
        assert ("before cluster.disruption_budgets" in stage.faults.points) is asked
        assert len(inputs.view.pod_disruption_budgets) == int(asked)


class TestReadSupply:
    def with_classes(self, stage: Stage, *names: str) -> None:
        classes = (NODE_CLASS, *map(another_class, names))
        stage.settings = replace(stage.settings, manifests=Manifests(FLEX_FIRST, classes))

    def test_classes_that_pools_use_are_resolved_and_others_by_name(self, stage: Stage) -> None:
        self.with_classes(stage, "spare", "unused")
        assert set(read_supply(stage.settings, stage.context).node_classes) == {"default"}
        supply = read_supply(stage.settings, stage.context, others=("spare",))
        assert set(supply.node_classes) == {"default", "spare"}
        assert supply.amis == ("ami-twin",)

    def test_a_class_that_cannot_be_used_says_why_and_offers_no_ami(self, stage: Stage) -> None:
        stage.faults.on("before", "compute.resolve", AwsError("no such role", code="AccessDenied"))
        supply = read_supply(stage.settings, stage.context)
        assert supply.node_classes["default"].not_ready == "no such role"
        assert supply.node_classes["default"].resolved is None
        assert supply.amis == ()
        assert stage.meter.counts["NodeClassNotReady"] == 1

    def test_a_throttled_answer_is_waited_for_by_the_next_invocation(self, stage: Stage) -> None:
        stage.faults.on("before", "compute.resolve", AwsThrottled("slow down"))
        with pytest.raises(AwsThrottled):
            read_supply(stage.settings, stage.context)

    def test_a_class_that_turned_out_unusable_is_left_out_of_the_same_supply(self, stage: Stage) -> None:
        self.with_classes(stage, "spare")
        supply = read_supply(stage.settings, stage.context, others=("spare",)).without("default", "refused")
        assert supply.node_classes["default"].not_ready == "refused"
        assert supply.node_classes["spare"].not_ready == ""

    @pytest.mark.parametrize(
        ("wanted", "asked", "zones"), [(True, True, {"use1-az1"}), (False, True, set()), (True, False, set())]
    )
    def test_shifted_zones_are_kept_out_of_where_that_is_wanted(
        self, stage: Stage, wanted: bool, asked: bool, zones: set[str]
    ) -> None:
        stage.health.shifted.add("use1-az1")
        context = stage.context if asked else replace(stage.context, health=None)
        supply = read_supply(replace(stage.settings, zonal_shift=wanted), context)
        assert supply.shifted == zones
        assert stage.meter.counts.get("ZonesShifted") == (1.0 if zones else None)

    def test_without_shifts_nothing_is_counted(self, stage: Stage) -> None:
        assert read_supply(replace(stage.settings, zonal_shift=True), stage.context).shifted == frozenset()
        assert stage.meter.counts == {}

    @pytest.mark.parametrize(
        ("effect", "error", "metric"),
        [
            ("joins.read", StoreError("down"), "JoinsNotRead"),
            ("health.shifted_zones", AwsError("denied", code="AccessDenied"), "ZonalShiftsNotRead"),
        ],
    )
    def test_what_is_only_advice_keeps_no_pod_waiting(
        self, stage: Stage, effect: str, error: Exception, metric: str
    ) -> None:
        stage.faults.on("before", effect, error)
        supply = read_supply(replace(stage.settings, zonal_shift=True), stage.context)
        assert supply.node_classes["default"].not_ready == ""
        assert stage.meter.counts == {metric: 1.0}

    def test_how_nodes_have_joined_is_known_where_it_is_kept(self, stage: Stage) -> None:
        stage.joins.joined(stage.name, "flex", "ami-1", "m6i.large", [40.0], stage.clock.now())
        assert [item.pool for item in read_supply(stage.settings, stage.context).joins.pools] == ["flex"]
        assert read_supply(stage.settings, replace(stage.context, joins=None)).joins.pools == ()


def snapshot(stage: Stage) -> Snapshot:
    supply = read_supply(stage.settings, stage.context)
    policies = ActivePolicies.of(stage.settings, stage.context)
    return priced_snapshot(stage.settings, read(stage), supply, stage.context, policies).snapshot


class TestSnapshot:
    def test_all_knobs_of_a_decision_are_those_of_the_settings(self, stage: Stage) -> None:
        rules = (ClaimRule(),)
        stage.settings = replace(
            stage.settings,
            preference_policy="Ignore",
            min_values_policy="BestEffort",
            reserved_policy="Fallback",
            improve_s=1.25,
            pod_topology_spread=msgspec.convert({"defaultingType": "System"}, PodTopologySpread),
            claim_rules=rules,
        )
        knobs = snapshot(stage).settings
        assert (knobs.preference_policy, knobs.min_values_policy) == ("Ignore", "BestEffort")
        assert (knobs.reserved_policy, knobs.improve_s, knobs.claim_rules) == ("Fallback", 1.25, rules)
        assert knobs.default_spread == stage.settings.pod_topology_spread.constraints()

    def test_it_is_of_this_cluster_install_moment_and_epoch(self, stage: Stage) -> None:
        epoch = stage.state.commit(stage.name, 0, [node_claim(cluster=stage.name, name="c")])
        seen = snapshot(stage)
        assert (seen.cluster, seen.install, seen.now, seen.epoch) == (stage.name, "shiplap", stage.clock.now(), epoch)
        assert [claim.name for claim in seen.claims] == ["c"]
        assert seen.missed_pods == frozenset()

    def test_secrets_in_user_data_are_not_in_it(self, stage: Stage) -> None:
        secret = replace(NODE_CLASS, spec=replace(NODE_CLASS.spec, user_data="#!/bin/sh\npassword=x"))
        stage.settings = replace(stage.settings, manifests=Manifests(FLEX_FIRST, (secret,)))
        (shown,) = snapshot(stage).manifests.node_classes
        assert shown.spec.user_data is None
        assert shown.metadata.name == "default"

    def test_what_is_tried_out_is_what_is_leased_and_what_claims_in_flight_rely_on(self, stage: Stage) -> None:
        known = stage.types["m6i.large"]
        stage.capacity.acquire_pilot(known.ami or "ami-twin", "leased", "k", "demo/x", stage.clock.now())
        put(stage, "c", ClaimState.PLANNED, relies_on_estimate=("m6i.large",))
        piloted = snapshot(stage).piloted
        assert pilot_key("ami-twin", "leased", "k") in piloted
        assert any("/m6i.large#" in key for key in piloted)

    def offerings(self, stage: Stage, name: str = "m6i.large") -> list[Offering]:
        (catalog,) = snapshot(stage).catalogs
        return [offering for item in catalog.instance_types if item.name == name for offering in item.offerings]

    def test_what_ran_dry_is_not_available(self, stage: Stage) -> None:
        failure = OfferingFailure("m6i.large", ZONES[0], "on-demand", "InsufficientInstanceCapacity")
        stage.state.mark_unavailable([failure], stage.clock.now())
        assert {item.zone for item in self.offerings(stage) if not item.available} == {ZONES[0]}
        assert all(item.available for item in self.offerings(stage, "m6i.xlarge"))

    def test_types_whose_nodes_do_not_join_rest(self, stage: Stage) -> None:
        for _ in range(10):
            launched_at, now = stage.clock.now(), stage.clock.advance(900)
            stage.joins.failed(stage.name, "ami-twin", "m6i.large", launched_at, now)
            stage.clock.advance(1)
        assert not any(item.available for item in self.offerings(stage))
        assert stage.meter.counts["TypesBarred"] >= 1

    def test_nothing_is_counted_while_all_nodes_join(self, stage: Stage) -> None:
        snapshot(stage)
        assert stage.meter.counts == {}

    @pytest.mark.parametrize(("of", "rests"), [("demo", True), ("another", False)])
    def test_a_class_whose_instances_end_at_once_sells_nothing_and_says_why(
        self, stage: Stage, of: str, rests: bool
    ) -> None:
        scope = node_class_scope(of, NODE_CLASS)
        failure = OfferingFailure("m6i.large", "a", "on-demand", "Client.InvalidKMSKey", "configuration")
        stage.state.mark_unavailable([replace(failure, node_class=scope)], stage.clock.now())
        (catalog,) = snapshot(stage).catalogs
        assert bool(catalog.not_ready) is rests
        assert bool(catalog.instance_types) is not rests
        if rests:
            assert catalog.not_ready.startswith("its instances end at once: Client.InvalidKMSKey")
            (known,) = stage.state.read(stage.name, stage.clock.now()).unavailable
            assert catalog.not_ready.endswith(f"; tried again at {rfc3339(known.until)}")

    def test_a_class_that_is_not_ready_is_in_it_with_the_reason(self, stage: Stage) -> None:
        stage.faults.on("before", "compute.resolve", AwsError("no such role", code="AccessDenied"))
        (catalog,) = snapshot(stage).catalogs
        assert (catalog.node_class, catalog.instance_types, catalog.not_ready) == ("default", (), "no such role")

    def test_a_class_says_what_its_nodes_are_made_with(self, stage: Stage) -> None:
        (catalog,) = snapshot(stage).catalogs
        assert catalog.spec_hash
        assert catalog.first_hashes
        assert catalog.selection is not None
        assert catalog.not_ready == ""

    def test_a_class_that_cannot_be_read_is_counted_and_keeps_no_other_back(self, stage: Stage) -> None:
        odd = replace(another_class("a-odd"), spec=replace(NODE_CLASS.spec, kubelet={"maxPods": "many"}))
        stage.settings = replace(stage.settings, manifests=Manifests(FLEX_FIRST, (odd, NODE_CLASS)))
        supply = read_supply(stage.settings, stage.context, others=("a-odd",))
        found = priced_snapshot(stage.settings, read(stage), supply, stage.context).snapshot.catalogs
        assert [(item.node_class, bool(item.instance_types)) for item in found] == [("a-odd", False), ("default", True)]
        assert "maxPods" in found[0].not_ready or "many" in found[0].not_ready
        assert found[1].not_ready == ""
        assert stage.meter.counts["NodeClassNotReady"] == 1

    def test_a_class_that_was_not_resolved_keeps_no_other_back(self, stage: Stage) -> None:
        classes = (another_class("a-lost"), NODE_CLASS)
        stage.settings = replace(stage.settings, manifests=Manifests(FLEX_FIRST, classes))
        supply = read_supply(stage.settings, stage.context, others=("a-lost",)).without("a-lost", "refused")
        found = priced_snapshot(stage.settings, read(stage), supply, stage.context).snapshot.catalogs
        assert [(item.node_class, item.not_ready) for item in found] == [("a-lost", "refused"), ("default", "")]

    def test_a_type_is_tried_with_one_node_after_its_rest(self, stage: Stage) -> None:
        """While that node is on its way, the next try waits for its outcome; nodes that have joined do not count."""
        for _ in range(4):
            launched_at, now = stage.clock.now(), stage.clock.advance(1000)
            stage.joins.failed(stage.name, "ami-twin", "m6i.large", launched_at, now)
        stage.clock.advance(7 * 3600)
        made = {"instance_id": "i-1", "ami": "ami-twin", "instance_type": "m6i.large"}
        put(stage, "c", ClaimState.REGISTERED, **made)
        put(stage, "d", ClaimState.LAUNCHED, **made | {"instance_id": "i-2", "instance_type": "m6i.xlarge"})
        put(stage, "e", ClaimState.LAUNCHED, **made | {"instance_id": "i-3", "ami": "ami-other"})
        assert any(item.available for item in self.offerings(stage))
        put(stage, "f", ClaimState.LAUNCHED, **made | {"instance_id": "i-4"})
        assert not any(item.available for item in self.offerings(stage))

    def test_what_settings_and_inputs_say_is_in_it(self, stage: Stage) -> None:
        add_node(stage)
        stage.state.mark_missed(stage.name, ["uid-m"], stage.clock.now())
        seen = snapshot(stage)
        assert [node.metadata.name for node in seen.view.nodes] == ["n"]
        assert seen.missed_pods == {"uid-m"}
        assert (seen.standalone_claims, seen.policies) == ((), ())


class TestInspected:
    def inspected(self, stage: Stage, condition: str, **fields: Any) -> None:
        status = NodeClassStatus("default", manifest_digest(NODE_CLASS), (Condition(condition, "False", "Bad", "no"),))
        known: dict[str, Any] = {"cluster": stage.name, "region": "r", "checked_at": stage.clock.now()}
        found = InstallStatus((ClusterStatus(**known | fields, node_classes=(status,)),))
        self.store = FakeStatus()
        self.store.save(found)
        stage.context = replace(stage.context, status=self.store)

    def test_a_problem_that_was_found_before_is_not_asked_for_again(self, stage: Stage) -> None:
        self.inspected(stage, "ValidationSucceeded")
        supply = read_supply(stage.settings, stage.context).node_classes["default"]
        assert (supply.not_ready, supply.resolved) == ("Bad: no", None)
        assert stage.meter.counts["NodeClassNotReady"] == 1
        assert "before compute.resolve" not in stage.faults.points

    @pytest.mark.parametrize(
        ("condition", "fields"),
        [
            ("SubnetsReady", {}),
            ("ValidationSucceeded", {"cluster": "another"}),
            ("ValidationSucceeded", {"checked_at": 0.0}),
        ],
    )
    def test_other_problems_are_looked_for_again(self, stage: Stage, condition: str, fields: dict[str, Any]) -> None:
        self.inspected(stage, condition, **fields)
        assert read_supply(stage.settings, stage.context).node_classes["default"].not_ready == ""

    def test_without_what_was_found_before_a_class_is_looked_at(self, stage: Stage) -> None:
        self.inspected(stage, "ValidationSucceeded")
        self.store.faults.on("before", "status.load", StoreError("down"))
        assert read_supply(stage.settings, stage.context).node_classes["default"].not_ready == ""
        absent = replace(stage.context, status=None)
        assert read_supply(stage.settings, absent).node_classes["default"].not_ready == ""


def test_answers_of_before_will_do_unless_fresh_ones_are_asked_for(stage: Stage) -> None:
    stage.compute.remembered["default"] = (Ami("ami-known", "known", "2026-01-01T00:00:00Z"),)
    assert read_supply(stage.settings, stage.context).amis == ("ami-known",)
    assert "ami-known" not in read_supply(stage.settings, stage.context, fresh=True).amis


def named(name: str, price: float) -> InstanceType:
    return InstanceType(name, (), {}, {}, (Offering("a", "on-demand", price),), ami="ami-1")


def test_a_claim_sees_the_types_of_its_class_as_its_pool_does(stage: Stage) -> None:
    """An overlay makes the types of one pool dearer."""
    overlay = msgspec.convert(
        {
            "metadata": {"name": "dearer"},
            "spec": {
                "requirements": [{"key": labels.NODE_POOL, "operator": "In", "values": ["flex"]}],
                "priceAdjustment": "+100%",
            },
        },
        NodeOverlay,
    )
    bought = read_supply(stage.settings, stage.context)
    known = priced_snapshot(stage.settings, read(stage), bought, stage.context).snapshot
    catalogs = (
        NodeClassCatalog("default", (named("m", 1.0), named("n", 1.0))),
        NodeClassCatalog("other", (named("m", 5.0),)),
    )
    manifests = replace(known.manifests, node_overlays=(overlay,))
    priced = PricedSnapshot(replace(known, catalogs=catalogs, manifests=manifests))
    for pool, node_class, prices in (
        ("flex", "default", {"m": 2.0, "n": 2.0}),
        ("fallback", "default", {"m": 1.0, "n": 1.0}),
        ("fallback", "other", {"m": 5.0}),
        ("gone", "default", {"m": 1.0, "n": 1.0}),
        ("flex", "none", {}),
    ):
        types = priced.types_for(node_claim(name="c", node_pool=pool, node_class=node_class))
        assert {name: item.offerings[0].price for name, item in types.items()} == prices


def test_types_of_a_launch_list_have_prices_in_zones_that_are_not_selected_any_more(stage: Stage) -> None:
    """An instance of an earlier attempt may be there. Its pool's overlay counts there, too."""
    bought = read_supply(stage.settings, stage.context)
    known = priced_snapshot(stage.settings, read(stage), bought, stage.context).snapshot
    listed, other = (replace(item, offerings=item.offerings[:1]) for item in known.catalogs[0].instance_types[:2])
    overlay = msgspec.convert(
        {"metadata": {"name": "fixed"}, "spec": {"requirements": [], "price": "7.5"}}, NodeOverlay
    )
    snapshot = replace(
        known,
        catalogs=(NodeClassCatalog("default", (listed, other)),),
        manifests=replace(known.manifests, node_overlays=(overlay,)),
    )
    claim = node_claim(name="c", node_pool="flex", node_class="default", instance_types=(listed.name, "unknown"))
    types = PricedSnapshot(snapshot).types_in_all_zones(claim, bought.catalog)
    zones = {name: {offering.zone for offering in item.offerings} for name, item in types.items()}
    (selected,) = zones[other.name]
    assert zones == {listed.name: set(ZONES), other.name: {selected}}
    assert {offering.price for item in types.values() for offering in item.offerings} == {7.5}


SOLD = {
    "default": (
        InstanceType("m", (), {}, {}, (), ami="ami-1", kubelet_hash="h"),
        InstanceType("n", (), {}, {}, (), ami="ami-1", kubelet_hash="h"),
    ),
    "other": (InstanceType("m", (), {}, {}, (), ami="ami-2", kubelet_hash="h"),),
}
LAUNCHED_AS = {"instance_id": "i", "instance_type": "m", "ami": "ami-9", "kubelet_hash": "k"}


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ({"state": ClaimState.PLANNED, "relies_on_estimate": ("m",)}, {"ami-1/m#h"}),
        ({"state": ClaimState.LAUNCHING, "relies_on_estimate": ("m", "n")}, {"ami-1/m#h", "ami-1/n#h"}),
        ({"state": ClaimState.PLANNED, "relies_on_estimate": ("m",), "node_class": "other"}, {"ami-2/m#h"}),
        ({"state": ClaimState.PLANNED, "relies_on_estimate": ("m",), "node_class": "gone"}, set()),
        ({"state": ClaimState.PLANNED, "instance_types": ("m", "n")}, set()),
        ({"state": ClaimState.LAUNCHED, "relies_on_estimate": ("m", "n"), **LAUNCHED_AS}, {"ami-9/m#k"}),
        ({"state": ClaimState.LAUNCHED, "relies_on_estimate": ("n",), **LAUNCHED_AS}, set()),
        ({"state": ClaimState.REGISTERED, "relies_on_estimate": ("m",), **LAUNCHED_AS}, set()),
        ({"state": ClaimState.FAILED, "relies_on_estimate": ("m",)}, set()),
    ],
)
def test_what_claims_in_flight_try_out(fields: dict[str, Any], keys: set[str]) -> None:
    assert exploring((node_claim(name="c", **fields),), SOLD) == keys

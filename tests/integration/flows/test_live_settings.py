"""Manifests that are read from the cluster: edits decide at once, and what cannot be read stops everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from shiplap.errors import ClusterDenied, ClusterUnreachable, ObjectNotFound, StoreError
from shiplap.flows.live_settings import (
    LEASE_MARGIN_S,
    stored_settings,
)
from shiplap.flows.sweep.manifest_statuses import publish_statuses
from shiplap.manifests.live.live_manifests import SETTLED_S, LiveManifests
from shiplap.manifests.nodeclaim import ClaimState
from tests.integration.flows.live_stage import LiveStage, lease, written
from tests.integration.flows.stage import FLEX_FIRST

AUTO_MODE = {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"}


@pytest.fixture
def stage() -> LiveStage:
    return LiveStage()


class TestReading:
    def test_pods_get_nodes_from_what_the_cluster_says(self, stage: LiveStage) -> None:
        stage.add_pods(3)
        stage.play_on()
        assert {claim.plan.node_pool for claim in stage.claims()} == {"flex"}

    def test_an_edit_counts_in_the_next_invocation(self, stage: LiveStage) -> None:
        stage.edit("fallback", weight=90)
        stage.add_pods(1)
        stage.schedule()
        assert [claim.plan.node_pool for claim in stage.claims()] == ["fallback"]

    def test_a_wrong_pool_stops_itself_only(self, stage: LiveStage) -> None:
        rule = {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["many", "few"], "minValues": 3}
        stage.server.patch("nodepools", "flex", {"spec": {"template": {"spec": {"requirements": [rule]}}}})
        stage.add_pods(1)
        stage.schedule()
        assert [claim.plan.node_pool for claim in stage.claims()] == ["fallback"]
        assert stage.meter.counts["ManifestsRefused"] >= 1

    def test_a_node_class_with_another_clusters_role_launches_nothing(self, stage: LiveStage) -> None:
        stage.server.patch("ec2nodeclasses", "default", {"spec": {"role": "other-cluster-node"}})
        stage.add_pods(1)
        assert stage.schedule().launched == ()
        assert stage.claims() == ()
        assert stage.compute.alive() == ()

    def test_pools_of_other_providers_are_not_ours(self, stage: LiveStage) -> None:
        for name in ("general-purpose", "system"):
            body = written(FLEX_FIRST[0])
            body["metadata"]["name"] = name
            body["spec"]["template"]["spec"]["nodeClassRef"] = AUTO_MODE
            stage.server.create("nodepools", body)
        assert stage.pools() == ["fallback", "flex"]
        assert "ManifestsRefused" not in stage.meter.counts

    def test_a_pool_that_is_being_deleted_launches_nothing(self, stage: LiveStage) -> None:
        stage.server.patch("nodepools", "flex", {"metadata": {"finalizers": ["karpenter.sh/termination"]}})
        stage.server.delete("nodepools", "flex")
        stage.add_pods(1)
        stage.schedule()
        assert [claim.plan.node_pool for claim in stage.claims()] == ["fallback"]

    def test_each_version_of_an_object_is_checked_once(self, stage: LiveStage, monkeypatch: pytest.MonkeyPatch) -> None:
        from shiplap.manifests.validation import live_objects  # noqa: PLC0415 - only here

        checked: list[str] = []
        check = live_objects.check_live_object
        monkeypatch.setattr(
            live_objects,
            "check_live_object",
            lambda item, allowed: checked.append(item["metadata"]["name"]) or check(item, allowed),
        )
        for _ in range(3):
            stage.read()
        stage.edit("flex", weight=3)
        stage.read()
        assert checked == ["fallback", "flex", "default", "flex"]


UNREADABLE: Mapping[str, Exception] = {
    "denied": ClusterDenied("forbidden", status=403),
    "away": ClusterUnreachable("no answer", status=503),
    "without CRDs": ObjectNotFound("the server could not find the requested resource", status=404),
}


class TestSuspension:
    """Nothing is launched, nothing ends."""

    def serve(self, stage: LiveStage) -> None:
        stage.add_pods(2)
        stage.play_on()

    def minutes(self, stage: LiveStage, number: int = 10) -> Sequence[str]:
        reasons = []
        for _ in range(number):
            stage.clock.advance(60)
            stage.sweep()
            reasons.append(stage.manifest_state.suspended)
            stage.attend(*stage.due())
            report = stage.disrupt()
            assert (report.begun, report.proposed) == ((), 0)
        return reasons

    def assert_suspended(self, stage: LiveStage, reason: str) -> None:
        nodes = {instance.id for instance in stage.compute.alive()}
        stage.add_pods(1, cpu="6", prefix="late")
        reasons = self.minutes(stage)
        assert all(reason in each for each in reasons)
        assert {instance.id for instance in stage.compute.alive()} == nodes
        assert {claim.state for claim in stage.claims()} == {ClaimState.INITIALIZED}
        assert stage.meter.counts["ClustersSuspended"] == 20
        (event,) = [each for each in stage.server.list("events").items if each["involvedObject"]["name"] == "late-000"]
        assert "nothing is launched now" in event["message"]

    @pytest.mark.parametrize("error", UNREADABLE.values(), ids=UNREADABLE)
    def test_a_list_that_fails(self, stage: LiveStage, error: Exception) -> None:
        self.serve(stage)
        for number in range(1, 40):
            stage.faults.on("before", "cluster.manifest_objects", error, nth=number)
        self.assert_suspended(stage, "manifests cannot be read: ")

    def test_pools_that_are_suddenly_absent(self, stage: LiveStage) -> None:
        self.serve(stage)
        for pool in ("flex", "fallback"):
            stage.server.delete("nodepools", pool)
        self.assert_suspended(stage, "has no NodePool")

    def test_a_definition_that_ends(self, stage: LiveStage) -> None:
        self.serve(stage)
        name = "nodepools.karpenter.sh"
        finalizers = ["customresourcecleanup.apiextensions.k8s.io"]
        stage.server.create("customresourcedefinitions", {"metadata": {"name": name, "finalizers": finalizers}})
        stage.server.delete("customresourcedefinitions", name)
        stage.server.delete("nodepools", "flex")
        stage.server.patch("nodepools", "fallback", {"metadata": {"finalizers": ["karpenter.sh/termination"]}})
        stage.server.delete("nodepools", "fallback")
        self.assert_suspended(stage, f"CRDs are being deleted: {name}")

    def test_one_pool_that_is_absent_ends_none_of_its_nodes(self, stage: LiveStage) -> None:
        self.serve(stage)
        stage.server.delete("nodepools", "flex")
        nodes = {instance.id for instance in stage.compute.alive()}
        self.minutes(stage, 90)
        assert {instance.id for instance in stage.compute.alive()} == nodes

    def test_everything_goes_on_when_they_can_be_read_again(self, stage: LiveStage) -> None:
        self.serve(stage)
        stage.faults.on("before", "cluster.manifest_objects", ClusterDenied("forbidden", status=403))
        stage.add_pods(1, cpu="6", prefix="late")
        assert stage.sweep().launched == ()
        assert stage.sweep().launched != ()

    def test_other_functions_decide_on_what_was_read_last(self, stage: LiveStage) -> None:
        stage.read()
        stage.faults.on("before", "cluster.manifest_objects", ClusterDenied("forbidden", status=403))
        last = stored_settings(stage.deployed, stage.context)
        assert [pool.metadata.name for pool in last.manifests.node_pools] == ["fallback", "flex"]
        assert stored_settings(replace(stage.deployed, live_manifests=False), stage.context).manifests.node_pools == ()

    def test_a_bucket_that_fails_fails_the_invocation(self, stage: LiveStage) -> None:
        stage.faults.on("before", "manifests.load", StoreError("no bucket"))
        with pytest.raises(StoreError):
            stage.read()


class TestLease:
    def test_nothing_is_launched_while_karpenter_holds_it(self, stage: LiveStage) -> None:
        stage.server.create("leases", lease(stage.clock.now()))
        stage.add_pods(1)
        assert stage.schedule().launched == ()
        assert "Karpenter holds the lease kube-system/karpenter-leader-election: karpenter-abc" in (
            stage.manifest_state.suspended
        )
        assert stage.claims() == ()

    def test_a_claim_that_was_planned_is_not_resumed(self, stage: LiveStage) -> None:
        stage.add_pods(1)
        stage.read()
        assert stage.dies(lambda: self.die_after_commit(stage))
        assert [claim.state for claim in stage.claims()] == [ClaimState.PLANNED]
        stage.server.create("leases", lease(stage.clock.now() + 3600))
        stage.clock.advance(600)
        stage.sweep()
        assert [claim.state for claim in stage.claims()] == [ClaimState.PLANNED]
        assert stage.compute.alive() == ()

    def die_after_commit(self, stage: LiveStage) -> None:
        from shiplap_lab.fakes.faults import Crash  # noqa: PLC0415 - only here

        stage.faults.on("after", "state.commit", Crash("died"))
        stage.schedule()

    @pytest.mark.parametrize(("margin_s", "launched"), [(-1.0, 0), (1.0, 1)])
    def test_it_counts_for_a_minute_after_its_end(self, stage: LiveStage, margin_s: float, launched: int) -> None:
        stage.server.create("leases", lease(stage.clock.now(), holder=""))
        stage.add_pods(1)
        stage.clock.advance(15 + LEASE_MARGIN_S + margin_s)
        assert len(stage.schedule().launched) == launched

    def test_a_lease_of_another_name_is_not_karpenters(self, stage: LiveStage) -> None:
        stage.server.create("leases", lease(stage.clock.now()))
        stage.deployed = replace(stage.deployed, karpenter_lease="karpenter/karpenter-leader-election")
        stage.add_pods(1)
        assert len(stage.schedule().launched) == 1

    def test_a_lease_that_cannot_be_read_counts_as_held(self, stage: LiveStage) -> None:
        body = lease(0.0)
        body["spec"]["renewTime"] = "yesterday"
        stage.server.create("leases", body)
        stage.add_pods(1)
        assert stage.schedule().launched == ()


def conditions(stage: LiveStage, claim: str) -> dict[str, str]:
    listed = stage.server.get("nodeclaims", claim)["status"]["conditions"]
    return {each["type"]: each["status"] for each in listed}


def unsettled_pools(stage: LiveStage) -> tuple[str, ...]:
    stage.read(keep=False)
    return stage.manifest_state.unsettled_pools


class TestDrift:
    def test_nodes_drift_by_a_spec_that_has_stood_for_a_minute(self, stage: LiveStage) -> None:
        stage.add_pods(2)
        stage.play_on()
        stage.clock.advance(3600)
        stage.sweep()
        labels = {"metadata": {"labels": {"team": "a"}}}
        stage.edit("flex", template=labels)
        stage.sweep()
        assert unsettled_pools(stage) == ("flex",)
        assert stage.disrupt().proposed == 0
        stage.clock.advance(SETTLED_S)
        stage.sweep()
        assert unsettled_pools(stage) == ()
        assert stage.disrupt().proposed == 1

    def test_of_two_edits_each_is_looked_at_when_it_has_stood_for_a_minute(self, stage: LiveStage) -> None:
        """The second edit neither hides the moment of the first nor settles with it."""
        stage.read()
        stage.clock.advance(3600)
        for name in ("flex", "fallback"):
            stage.edit(name, template={"metadata": {"labels": {"team": name}}})
            stage.read()
            stage.clock.advance(25)
        now = stage.clock.now()
        reminders = []
        for _ in range(3):
            stage.timers.reminders.clear()
            stage.disrupt()
            state = stage.manifest_state
            reminders.append([item.delay_s for item in stage.timers.reminders if item.step == "disruption"])
            assert (state.settles_at - now, state.unsettled_pools) in (
                (10, ("fallback", "flex")),
                (35, ("fallback",)),
                (-now, ()),
            )
            stage.clock.set(state.settles_at or stage.clock.now())
        assert reminders == [[11], [26], []]

    def test_a_drifted_claim_has_the_condition_until_the_edit_is_taken_back(self, stage: LiveStage) -> None:
        stage.add_pods(2)
        stage.play_on()
        stage.clock.advance(3600)
        stage.minute()
        claim = stage.claims()[0]
        stage.edit(claim.plan.node_pool, template={"metadata": {"labels": {"team": "a"}}})
        stage.minute()
        assert conditions(stage, claim.name)["Drifted"] == "True"  # told at once
        assert stage.disrupt().proposed == 0  # the spec has not stood for a minute
        stage.minute()
        assert stage.disrupt().proposed == 1
        stage.minute()
        assert conditions(stage, claim.name)["Drifted"] == "True"
        stage.edit(claim.plan.node_pool, template={"metadata": {"labels": {"team": None}}})
        for _ in range(3):
            stage.minute()
            stage.disrupt()
        stage.minute()
        assert "Drifted" not in conditions(stage, claim.name)

    def test_a_spec_that_is_taken_back_in_time_drifts_nobody(self, stage: LiveStage) -> None:
        stage.add_pods(2)
        stage.play_on()
        for minute in range(20):
            stage.clock.advance(30)
            stage.edit("flex", template={"metadata": {"labels": {"team": "a"} if minute % 2 else {"team": None}}})
            stage.sweep()
            assert stage.disrupt().proposed == 0

    def test_a_spec_that_comes_and_goes_between_two_sweeps_drifts_nobody(self, stage: LiveStage) -> None:
        stage.add_pods(2)
        stage.play_on()
        stage.clock.advance(3600)
        for _ in range(5):
            stage.edit("flex", template={"metadata": {"labels": {"team": "a"}}})
            stage.sweep()
            assert stage.disrupt().proposed == 0
            stage.clock.advance(SETTLED_S / 2)
            stage.edit("flex", template={"metadata": {"labels": {"team": None}}})
            stage.clock.advance(SETTLED_S / 2)

    def test_what_no_schedule_function_has_seen_drifts_nobody(self, stage: LiveStage) -> None:
        assert unsettled_pools(stage) == ("fallback", "flex")

    def test_another_process_may_have_written_the_bucket(self, stage: LiveStage) -> None:
        """This process must not take its memory for what the bucket holds."""
        stage.read()
        stage.clock.advance(600)
        stage.store.save(stage.name, LiveManifests())
        stage.read()
        assert unsettled_pools(stage) == ("fallback", "flex")
        stage.clock.advance(SETTLED_S)
        assert unsettled_pools(stage) == ()


class TestStatuses:
    def minute(self, stage: LiveStage) -> None:
        stage.clock.advance(60)
        stage.sweep()
        publish_statuses(stage.settings, stage.context, stage.known, stage.manifest_state)

    def ready(self, stage: LiveStage, pool: str) -> tuple[str, str]:
        found = stage.server.get("nodepools", pool).get("status", {}).get("conditions", [])
        return next(((each["status"], each["reason"]) for each in found if each["type"] == "Ready"), ("", ""))

    def test_they_say_whether_pools_can_be_launched_from(self, stage: LiveStage) -> None:
        stage.edit("flex", template={"spec": {"expireAfter": "soon"}})
        self.minute(stage)
        assert self.ready(stage, "flex") == ("False", "NodePoolValidationFailed")
        assert self.ready(stage, "fallback") == ("Unknown", "NodeClassReadinessUnknown")

    def test_a_new_class_is_inspected_at_once_and_not_again_and_again(self, stage: LiveStage) -> None:
        for _ in range(4):
            stage.clock.advance(10)
            stage.sweep()
            publish_statuses(stage.settings, stage.context, stage.known, stage.manifest_state)
        assert len(stage.bus.of_type("InspectionDue")) == 2

    def test_a_new_class_does_not_wait_because_another_one_is_inspected(self, stage: LiveStage) -> None:
        self.minute(stage)
        (first,) = stage.server.list("ec2nodeclasses").items
        stage.server.create("ec2nodeclasses", {"metadata": {"name": "other"}, "spec": first["spec"]})
        for _ in range(2):
            stage.clock.advance(5)
            stage.sweep()
            publish_statuses(stage.settings, stage.context, stage.known, stage.manifest_state)
        assert len(stage.bus.of_type("InspectionDue")) == 2

    def test_writing_them_changes_no_manifest(self, stage: LiveStage) -> None:
        self.minute(stage)
        before = stage.store.load(stage.name)
        self.minute(stage)
        assert stage.store.load(stage.name) == before
        generations = {each["metadata"]["generation"] for each in stage.server.list("nodepools").items}
        assert generations == {1}

    def test_they_count_the_nodes_of_each_pool_and_are_written_when_that_changes(self, stage: LiveStage) -> None:
        def shown() -> dict[str, tuple[str, str]]:
            pools = {item["metadata"]["name"]: item for item in stage.server.list("nodepools").items}
            return {
                name: (each["status"], each["message"])
                for name, item in pools.items()
                for each in item["status"]["conditions"]
                if each["type"] == "NodesUpToDate"
            }

        self.minute(stage)
        none = ("True", "0 of 0 nodes drifted, 0 blocked, 0 joining, 0 leaving")
        assert shown() == {"fallback": none, "flex": none}
        stage.add_pods(1)
        stage.play_on()
        self.minute(stage)
        assert shown() == {"fallback": none, "flex": ("True", "0 of 1 nodes drifted, 0 blocked, 0 joining, 0 leaving")}
        stage.edit("flex", template={"spec": {"expireAfter": "24h"}, "metadata": {"labels": {"team": "a"}}})
        self.minute(stage)
        assert shown()["flex"] == ("False", "1 of 1 nodes drifted, 0 blocked, 0 joining, 0 leaving")
        written = stage.server.get("nodepools", "flex")["metadata"]["resourceVersion"]
        self.minute(stage)
        assert stage.server.get("nodepools", "flex")["metadata"]["resourceVersion"] == written

    def test_a_webhook_that_refuses_them_stops_no_decision(self, stage: LiveStage) -> None:
        for number in range(1, 20):
            refusal = ClusterDenied("a webhook says no", status=403)
            stage.faults.on("before", "cluster.write_status", refusal, nth=number)
        stage.add_pods(1)
        self.minute(stage)
        assert len(stage.claims()) == 1
        assert stage.meter.counts["StatusesNotWritten"] == 3

    def test_a_bucket_or_cluster_that_fails_stops_no_decision(self, stage: LiveStage) -> None:
        stage.read()
        stage.faults.on("before", "cluster.nodes", ClusterUnreachable("no answer", status=503))
        publish_statuses(stage.settings, stage.context, stage.known, stage.manifest_state)
        assert stage.meter.counts["StatusesNotWritten"] == 1

    def test_beside_karpenter_none_is_written(self, stage: LiveStage) -> None:
        stage.server.create("leases", lease(stage.clock.now() + 3600))
        self.minute(stage)
        assert self.ready(stage, "flex") == self.ready(stage, "fallback") == ("", "")
        assert stage.bus.of_type("InspectionDue") == []

    def test_none_is_written_when_karpenter_begins_during_the_invocation(self, stage: LiveStage) -> None:
        stage.read()
        stage.server.create("leases", lease(stage.clock.now()))
        publish_statuses(stage.settings, stage.context, stage.known, stage.manifest_state)
        assert self.ready(stage, "flex") == self.ready(stage, "fallback") == ("", "")

    def test_none_is_written_while_the_lease_cannot_be_read(self, stage: LiveStage) -> None:
        stage.read()
        stage.faults.on("before", "cluster.lease", ClusterUnreachable("no answer", status=503))
        publish_statuses(stage.settings, stage.context, stage.known, stage.manifest_state)
        assert stage.meter.counts["StatusesNotWritten"] == 1
        assert self.ready(stage, "flex") == ("", "")

    def test_a_buffer_tells_what_the_last_plan_found_of_it(self, stage: LiveStage) -> None:
        container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": "3"}}}
        template = {"metadata": {"labels": {"app": "small"}}, "spec": {"containers": [container]}}
        stage.server.create("podtemplates", {"metadata": {"name": "small", "namespace": "shop"}, "template": template})
        spec = {"podTemplateRef": {"name": "small"}, "replicas": 2}
        body = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "spec": spec}
        stage.server.create("capacitybuffers", {**body, "metadata": {"name": "warm", "namespace": "shop"}})
        for _ in range(6):
            stage.clock.advance(60)
            stage.known.note_buffers(stage.name, stage.sweep().buffers)
            publish_statuses(stage.settings, stage.context, stage.known, stage.manifest_state)
            stage.join()
            stage.attend(*stage.due())
        status = stage.server.get("capacitybuffers", "warm", "shop")["status"]
        assert (status["replicas"], status["podTemplateRef"]) == (2, {"name": "small"})
        reasons = {each["type"]: each["reason"] for each in status["conditions"]}
        assert reasons == {"ReadyForProvisioning": "Resolved", "Provisioning": "FitsExistingCapacity"}
        assert not stage.known.note_buffers(stage.name, None)
        assert [stage.known.note_buffers(stage.name, ()) for _ in range(2)] == [True, False], "none is left"


class TestClaimObjects:
    def minute(self, stage: LiveStage) -> None:
        stage.clock.advance(60)
        stage.sweep()
        publish_statuses(stage.settings, stage.context, stage.known, stage.manifest_state)

    def test_each_claim_has_one_until_it_ends(self, stage: LiveStage) -> None:
        stage.add_pods(3)
        stage.play_on()
        self.minute(stage)
        claims = {claim.name for claim in stage.claims()}
        assert set(stage.objects()) == claims
        owners = {item["metadata"]["ownerReferences"][0]["name"] for item in stage.objects().values()}
        assert owners == {"flex"}
        for item in stage.server.list("pods").items:
            stage.server.delete("pods", item["metadata"]["name"], grace_s=0)
        for claim in stage.claims():
            stage.compute.terminate(stage.name, claim.instance_id)
            stage.server.delete("nodes", claim.node_name)
        for _ in range(40):
            self.minute(stage)
            stage.attend(*stage.due())
        assert stage.objects() == {}

    def test_beside_karpenter_there_is_none(self, stage: LiveStage) -> None:
        stage.add_pods(1)
        stage.play_on()
        stage.server.create("leases", lease(stage.clock.now() + 7200))
        self.minute(stage)
        assert stage.objects() == {}

    def test_thousands_are_written_over_several_sweeps(self, stage: LiveStage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("shiplap.flows.sweep.manifest_statuses.MOST_CLAIM_OBJECTS", 1)
        stage.add_pods(30, cpu="3")
        stage.play_on()
        self.minute(stage)
        assert len(stage.objects()) == 1
        for _ in stage.claims():
            self.minute(stage)
        assert len(stage.objects()) == len(stage.claims()) > 3

    def test_a_refusal_stops_no_other_status(self, stage: LiveStage) -> None:
        stage.add_pods(1)
        stage.play_on()
        for number in (1, 2):  # listed for those of users, too
            stage.faults.on("before", "cluster.node_claim_objects", ObjectNotFound("no CRD", status=404), nth=number)
        stage.edit("flex", weight=9)
        self.minute(stage)
        assert stage.meter.counts["StatusesNotWritten"] == 1
        assert stage.server.get("nodepools", "flex")["status"]["nodes"] == 1

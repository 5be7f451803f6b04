"""The rules of the in-memory API server: versions, preconditions, patches, deletion, eviction, binding, selectors."""

from __future__ import annotations

import pytest

from shiplap.errors import (
    ClusterError,
    ClusterUnreachable,
    ObjectConflict,
    ObjectNotFound,
    ResourceVersionGone,
    TooManyRequests,
)
from shiplap_lab.api_server.bodies.merge_patches import json_merge, strategic_merge
from shiplap_lab.fakes.cluster import ApiServer, FakeCluster, ListOptions
from shiplap_lab.fakes.faults import Crash, Faults
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.pods import pod_object as pod


@pytest.fixture
def server() -> ApiServer:
    return ApiServer(FakeClock(1_700_000_000.0))


def running(server: ApiServer, name: str, *, ready: bool = True, labels: dict | None = None) -> None:
    server.create("pods", pod(name, metadata={"labels": labels or {"app": "web"}}))
    server.bind(name, "n1")
    conditions = [{"type": "Ready", "status": str(ready)}]
    server.patch("pods", name, {"status": {"phase": "Running", "conditions": conditions}}, subresource="status")


def budget(name: str = "web", **spec: object) -> dict:
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec}}


def names(server: ApiServer, plural: str, **selection: str) -> list[str]:
    return [item["metadata"]["name"] for item in server.list(plural, ListOptions(**selection)).items]


class TestWriting:
    def test_every_write_has_the_next_version(self, server: ApiServer) -> None:
        first = server.create("nodes", {"metadata": {"name": "n1"}})
        second = server.patch("nodes", "n1", {"metadata": {"labels": {"a": "b"}}})
        versions = [int(item["metadata"]["resourceVersion"]) for item in (first, second)]
        assert versions[1] == versions[0] + 1 == int(server.resource_version)
        assert first["metadata"]["creationTimestamp"] == "2023-11-14T22:13:20Z"
        assert (first["kind"], first["apiVersion"]) == ("Node", "v1")

    def test_a_patch_that_changes_nothing_writes_nothing(self, server: ApiServer) -> None:
        server.create("nodes", {"metadata": {"name": "n1", "labels": {"a": "b"}}})
        before = server.resource_version
        server.patch("nodes", "n1", {"metadata": {"labels": {"a": "b"}}})
        assert server.resource_version == before

    def test_a_stored_object_is_its_own(self, server: ApiServer) -> None:
        mine = {"metadata": {"name": "n1", "labels": {"a": "b"}}}
        patch = {"spec": {"taints": [{"key": "t"}]}}
        server.create("nodes", mine)
        server.patch("nodes", "n1", patch)
        mine["metadata"]["labels"]["a"] = "changed"
        patch["spec"]["taints"][0]["key"] = "changed"
        found = server.get("nodes", "n1")
        assert (found["metadata"]["labels"], found["spec"]) == ({"a": "b"}, {"taints": [{"key": "t"}]})

    def test_names_are_unique_or_generated(self, server: ApiServer) -> None:
        server.create("pods", pod("p"))
        with pytest.raises(ObjectConflict, match="already exists"):
            server.create("pods", pod("p"))
        server.create("pods", pod("p", namespace="other"))
        generated = server.create("pods", {"metadata": {"generateName": "web-"}, "spec": {}})
        assert generated["metadata"]["name"].startswith("web-")
        with pytest.raises(ClusterError) as caught:
            server.create("pods", {"metadata": {}, "spec": {}})
        assert caught.value.status == 422

    def test_unknown_kinds_and_names_are_not_found(self, server: ApiServer) -> None:
        for ask in (
            lambda: server.list("widgets"),
            lambda: server.get("nodes", "n"),
            lambda: server.delete("nodes", "n"),
        ):
            with pytest.raises(ObjectNotFound):
                ask()

    def test_replace_wants_the_current_version(self, server: ApiServer) -> None:
        first = server.create("nodes", {"metadata": {"name": "n1"}})
        server.patch("nodes", "n1", {"metadata": {"labels": {"a": "b"}}})
        with pytest.raises(ObjectConflict):
            server.replace("nodes", first)
        free = {"metadata": {"name": "n1", "labels": {"c": "d"}}}
        assert server.replace("nodes", free)["metadata"]["labels"] == {"c": "d"}

    def test_status_and_spec_are_written_apart(self, server: ApiServer) -> None:
        server.create("nodes", {"metadata": {"name": "n1"}, "status": {"phase": "old"}})
        both = {"spec": {"unschedulable": True}, "status": {"phase": "new"}}
        assert server.patch("nodes", "n1", both)["status"] == {"phase": "old"}
        after = server.patch("nodes", "n1", {"spec": {}, "status": {"phase": "new"}}, subresource="status")
        assert (after["spec"], after["status"]) == ({"unschedulable": True}, {"phase": "new"})

    def test_identity_cannot_be_changed(self, server: ApiServer) -> None:
        created = server.create("nodes", {"metadata": {"name": "n1"}})
        patched = server.patch("nodes", "n1", {"metadata": {"creationTimestamp": "2000-01-01T00:00:00Z", "name": "n2"}})
        assert patched["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]
        assert names(server, "nodes") == ["n1"]

    def test_only_binding_moves_a_pod(self, server: ApiServer) -> None:
        server.create("pods", pod("p"))
        with pytest.raises(ClusterError) as caught:
            server.patch("pods", "p", {"spec": {"nodeName": "n1"}})
        assert caught.value.status == 422

    def test_apply_creates_or_replaces_with_status(self, server: ApiServer) -> None:
        def ready(status: str) -> dict:
            return {"kind": "Node", "metadata": {"name": "n1"}, "status": {"conditions": [{"type": status}]}}

        server.apply(ready("a"))
        server.apply(ready("b"))
        server.apply({"kind": "Node", "metadata": {"name": "n1", "labels": {"x": "y"}}})
        found = server.get("nodes", "n1")
        assert found["status"] == {"conditions": [{"type": "b"}]}
        assert found["metadata"]["labels"] == {"x": "y"}
        with pytest.raises(ObjectNotFound):
            server.apply({"kind": "Widget", "metadata": {"name": "w"}})


class TestPatches:
    def test_merge_patches_remove_with_null_and_leave_their_input(self) -> None:
        target = {"a": {"b": 1, "c": 2}, "l": [1, 2]}
        assert json_merge(target, {"a": {"b": None, "d": {"e": None}}, "l": [3]}) == {"a": {"c": 2, "d": {}}, "l": [3]}
        assert target == {"a": {"b": 1, "c": 2}, "l": [1, 2]}
        assert json_merge("text", {"a": 1}) == {"a": 1}

    def test_strategic_patches_merge_lists_by_key(self) -> None:
        target = {
            "status": {"conditions": [{"type": "A", "status": "x", "kept": 1}]},
            "spec": {"taints": [{"key": "a"}]},
            "metadata": {"finalizers": ["f"]},
        }
        patch = {
            "status": {"conditions": [{"type": "B", "status": "y"}, {"type": "A", "status": "z"}]},
            "spec": {"taints": [{"key": "b"}]},
            "metadata": {"finalizers": ["f", "g"]},
            "gone": None,
        }
        merged = {
            "status": {"conditions": [{"type": "A", "status": "z", "kept": 1}, {"type": "B", "status": "y"}]},
            "spec": {"taints": [{"key": "b"}]},
            "metadata": {"finalizers": ["f", "g"]},
        }
        assert strategic_merge(target, patch, "Node") == merged
        fewer = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["f"]}}
        assert strategic_merge(merged, fewer, "Node")["metadata"] == {"finalizers": ["g"]}
        assert strategic_merge(target, patch, "Widget")["status"] == patch["status"]

    def test_strategic_patches_follow_the_type_of_what_they_merge(self) -> None:
        """Of one container's lists some are merged, each by a key of its own, and some are replaced."""
        container = {
            "name": "main",
            "env": [{"name": "A", "value": "1"}],
            "ports": [{"containerPort": 80}],
            "command": ["a", "b"],
        }
        changed = {
            "name": "main",
            "env": [{"name": "B", "value": "2"}],
            "ports": [{"containerPort": 80, "name": "http"}],
            "command": ["c"],
        }
        target, patch = ({"spec": {"template": {"spec": {"containers": [each]}}}} for each in (container, changed))
        (merged,) = strategic_merge(target, patch, "Deployment")["spec"]["template"]["spec"]["containers"]
        assert merged == {**changed, "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
        whole = {"spec": {"template": {"$patch": "replace", "metadata": {}}}}
        assert strategic_merge(target, whole, "Deployment") == {"spec": {"template": {"metadata": {}}}}

    @pytest.mark.parametrize("patch", [{"$patch": "delete"}, {"status": {"conditions": [{"status": "x"}]}}])
    def test_what_a_strategic_patch_cannot_do_here_is_refused(self, patch: dict) -> None:
        with pytest.raises(ClusterError) as caught:
            strategic_merge({}, patch, "Node")
        assert caught.value.status == 422


class TestDeleting:
    def test_a_pod_on_a_node_is_given_its_grace_period(self, server: ApiServer) -> None:
        running(server, "p")
        server.delete("pods", "p")
        metadata = server.get("pods", "p")["metadata"]
        assert metadata["deletionTimestamp"] == "2023-11-14T22:13:50Z"
        version = server.resource_version
        server.delete("pods", "p", grace_s=60)
        assert server.resource_version == version
        server.delete("pods", "p", grace_s=5)
        assert server.get("pods", "p")["metadata"]["deletionTimestamp"] == "2023-11-14T22:13:25Z"
        server.delete("pods", "p", grace_s=0)
        with pytest.raises(ObjectNotFound):
            server.get("pods", "p")

    def test_a_pod_without_a_node_goes_at_once(self, server: ApiServer) -> None:
        server.create("pods", pod("p"))
        server.delete("pods", "p")
        assert names(server, "pods") == []

    def test_finalizers_hold_an_object_until_they_are_removed(self, server: ApiServer) -> None:
        server.create("nodes", {"metadata": {"name": "n1", "finalizers": ["karpenter.sh/termination"]}})
        server.delete("nodes", "n1")
        assert server.get("nodes", "n1")["metadata"]["deletionTimestamp"]
        server.patch("nodes", "n1", {"metadata": {"finalizers": None}})
        assert names(server, "nodes") == []

    def test_a_uid_is_a_precondition(self, server: ApiServer) -> None:
        server.create("pods", pod("p", metadata={"uid": "new"}))
        with pytest.raises(ObjectConflict):
            server.delete("pods", "p", uid="old")
        server.delete("pods", "p", uid="new")


class TestBinding:
    def test_a_pod_is_bound_once(self, server: ApiServer) -> None:
        server.create("pods", pod("p"))
        server.patch("pods", "p", {"status": {"nominatedNodeName": "n1"}}, subresource="status")
        bound = server.bind("p", "n1")
        assert bound["spec"]["nodeName"] == "n1"
        assert bound["status"]["conditions"][0]["status"] == "True"
        assert "nominatedNodeName" not in bound["status"]
        with pytest.raises(ObjectConflict, match="already assigned"):
            server.bind("p", "n2")

    def test_gated_and_ending_pods_and_empty_targets_are_refused(self, server: ApiServer) -> None:
        gated = pod("gated")
        gated["spec"]["schedulingGates"] = [{"name": "wait"}]
        server.create("pods", gated)
        server.create("pods", pod("ending", metadata={"finalizers": ["hold"]}))
        server.delete("pods", "ending")
        for name in ("gated", "ending"):
            with pytest.raises(ObjectConflict):
                server.bind(name, "n1")
        server.create("pods", pod("p"))
        with pytest.raises(ClusterError):
            server.bind("p", "")
        with pytest.raises(ObjectNotFound):
            server.bind("nobody", "n1")


class TestEviction:
    @pytest.mark.parametrize(
        ("spec", "allowed"),
        [
            ({"minAvailable": 2}, 1),
            ({"minAvailable": "60%"}, 1),
            ({"minAvailable": "100%"}, 0),
            ({"maxUnavailable": 0}, 0),
            ({"maxUnavailable": 2}, 2),
            ({"maxUnavailable": "34%"}, 2),
            ({}, 0),  # getExpectedPodCount of the disruption controller expects no pod
        ],
    )
    def test_a_budget_allows_so_many_of_three(self, server: ApiServer, spec: dict, allowed: int) -> None:
        for number in range(3):
            running(server, f"p{number}")
        running(server, "other", labels={"app": "db"})
        server.create("poddisruptionbudgets", budget(**spec))
        for number in range(allowed):
            server.evict(f"p{number}")
        if allowed < 3:
            with pytest.raises(TooManyRequests) as caught:
                server.evict("p2")
            assert caught.value.status == 429
        server.evict("other")

    def test_pending_pods_need_no_budget(self, server: ApiServer) -> None:
        server.create("pods", pod("p", metadata={"labels": {"app": "web"}}))
        server.create("poddisruptionbudgets", budget(maxUnavailable=0))
        server.evict("p")
        assert names(server, "pods") == []

    def test_unready_pods_may_go_when_the_budget_is_met_or_says_so(self, server: ApiServer) -> None:
        running(server, "ready")
        running(server, "unready", ready=False)
        server.create("poddisruptionbudgets", budget(minAvailable=1))
        with pytest.raises(TooManyRequests):
            server.evict("ready")
        server.evict("unready")
        running(server, "unready2", ready=False)
        server.delete("poddisruptionbudgets", "web")
        server.create("poddisruptionbudgets", budget(minAvailable=5))
        with pytest.raises(TooManyRequests):
            server.evict("unready2")
        server.patch("poddisruptionbudgets", "web", {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}})
        server.evict("unready2")

    @pytest.mark.parametrize(
        ("status", "code"),
        [
            ({"observedGeneration": 1, "disruptionsAllowed": 0}, 0),
            ({"observedGeneration": 0, "disruptionsAllowed": 3}, 429),
            ({"observedGeneration": 1, "disruptionsAllowed": -1}, 403),
            ({"observedGeneration": 1, "disruptedPods": {f"x{place}": None for place in range(2001)}}, 403),
        ],
    )
    def test_a_status_that_is_old_or_odd_refuses(self, server: ApiServer, status: dict, code: int) -> None:
        """The counts are those of this moment; the rest of the status is what was stored."""
        running(server, "p")
        of_spec = {"metadata": {"name": "web", "generation": 1}, "status": status}
        server.create("poddisruptionbudgets", budget(maxUnavailable=1) | of_spec)
        if not code:
            server.evict("p")
            return
        with pytest.raises(TooManyRequests) as caught:
            server.evict("p")
        assert caught.value.status == code

    def test_two_budgets_are_an_error(self, server: ApiServer) -> None:
        running(server, "p")
        for name in ("a", "b"):
            server.create("poddisruptionbudgets", budget(name, maxUnavailable=1))
        server.create("poddisruptionbudgets", {"metadata": {"name": "of-nothing"}, "spec": {}})
        with pytest.raises(ClusterError) as caught:
            server.evict("p")
        assert caught.value.status == 500


class TestReading:
    def test_pages_show_one_moment(self, server: ApiServer) -> None:
        for number in range(5):
            server.create("nodes", {"metadata": {"name": f"n{number}"}})
        first = server.list("nodes", limit=2)
        assert first.remaining == 3
        server.delete("nodes", "n3")
        server.create("nodes", {"metadata": {"name": "n9"}})
        second = server.list("nodes", limit=2, continue_token=first.continue_token)
        third = server.list("nodes", limit=2, continue_token=second.continue_token)
        pages = [[item["metadata"]["name"] for item in page.items] for page in (first, second, third)]
        assert pages == [["n0", "n1"], ["n2", "n3"], ["n4"]]
        assert third.continue_token == ""
        assert first.resource_version == third.resource_version != server.resource_version

    def test_a_page_of_a_forgotten_list_is_gone(self, server: ApiServer) -> None:
        for number in range(3):
            server.create("nodes", {"metadata": {"name": f"n{number}"}})
        token = server.list("nodes", limit=1).continue_token
        server.compact()
        with pytest.raises(ResourceVersionGone):
            server.list("nodes", limit=1, continue_token=token)
        with pytest.raises(ClusterError) as caught:
            server.list("nodes", limit=1, continue_token="nonsense")
        assert caught.value.status == 400

    def test_the_oldest_of_many_lists_expires(self, server: ApiServer) -> None:
        for number in range(2):
            server.create("nodes", {"metadata": {"name": f"n{number}"}})
        tokens = [server.list("nodes", limit=1).continue_token for _ in range(257)]
        assert len(set(tokens)) == 257
        with pytest.raises(ResourceVersionGone):
            server.list("nodes", limit=1, continue_token=tokens[0])
        assert len(server.list("nodes", limit=1, continue_token=tokens[-1]).items) == 1

    @pytest.mark.parametrize(
        ("selector", "found"),
        [
            ("app=web", ["a", "b"]),
            ("app==web,tier!=gold", ["b"]),
            ("app!=web", ["c", "d"]),
            ("app in (web, db)", ["a", "b", "c"]),
            ("app notin (web)", ["c", "d"]),
            ("tier", ["a"]),
            ("!app", ["d"]),
            ("app in (web),tier", ["a"]),
        ],
    )
    def test_label_selectors(self, server: ApiServer, selector: str, found: list[str]) -> None:
        labels = {"a": {"app": "web", "tier": "gold"}, "b": {"app": "web"}, "c": {"app": "db"}, "d": {}}
        for name, given in labels.items():
            server.create("configmaps", {"metadata": {"name": name, "labels": given}})
        assert names(server, "configmaps", label_selector=selector) == found

    def test_field_selectors(self, server: ApiServer) -> None:
        server.create("pods", pod("free"))
        server.create("pods", pod("bound", namespace="other"))
        server.bind("bound", "n1", "other")
        server.create("nodes", {"metadata": {"name": "cordoned"}, "spec": {"unschedulable": True}})
        server.create("events", {"metadata": {"name": "e"}, "source": {"component": "cluster-autoscaler"}})
        assert names(server, "pods", field_selector="spec.nodeName=") == ["free"]
        assert names(server, "pods", field_selector="spec.nodeName!=,status.phase=Pending") == ["bound"]
        assert names(server, "pods", namespace="other") == ["bound"]
        assert names(server, "nodes", field_selector="spec.unschedulable=true") == ["cordoned"]
        assert names(server, "events", field_selector="source=cluster-autoscaler") == ["e"]

    @pytest.mark.parametrize(
        "selection",
        [
            ListOptions(field_selector="spec.containers=x"),
            ListOptions(field_selector="nonsense"),
            ListOptions(label_selector="a b"),
            ListOptions(label_selector="a in b"),
        ],
    )
    def test_selectors_that_are_none_are_refused(self, server: ApiServer, selection: ListOptions) -> None:
        with pytest.raises(ClusterError) as caught:
            server.list("pods", selection)
        assert caught.value.status == 400


class TestWatching:
    def test_without_a_version_what_exists_comes_first(self, server: ApiServer) -> None:
        server.create("nodes", {"metadata": {"name": "n1"}})
        changes, version = server.changes("nodes", "")
        assert [(change.type, change.object["metadata"]["name"]) for change in changes] == [("ADDED", "n1")]
        assert server.changes("nodes", version) == ((), version)

    def test_objects_enter_and_leave_a_selection(self, server: ApiServer) -> None:
        selection = ListOptions(label_selector="app=web")
        start = server.resource_version
        server.create("configmaps", {"metadata": {"name": "a"}})
        server.patch("configmaps", "a", {"metadata": {"labels": {"app": "web"}}})
        server.patch("configmaps", "a", {"metadata": {"annotations": {"x": "y"}}})
        server.patch("configmaps", "a", {"metadata": {"labels": {"app": "db"}}})
        server.delete("configmaps", "a")
        changes, _ = server.changes("configmaps", start, selection)
        assert [change.type for change in changes] == ["ADDED", "MODIFIED", "DELETED"]
        assert changes[2].object["metadata"]["labels"] == {"app": "web"}
        assert changes[2].object["metadata"]["resourceVersion"] == str(changes[2].resource_version)

    def test_too_old_future_and_malformed_versions(self, server: ApiServer) -> None:
        server.create("nodes", {"metadata": {"name": "n1"}})
        server.compact()
        with pytest.raises(ResourceVersionGone):
            server.changes("nodes", "1")
        with pytest.raises(ClusterUnreachable):
            server.changes("nodes", "999")
        with pytest.raises(ClusterError) as caught:
            server.changes("nodes", "abc")
        assert caught.value.status == 400
        assert server.changes("nodes", server.resource_version)[0] == ()

    def test_the_log_keeps_at_least_its_limit(self) -> None:
        server = ApiServer(FakeClock(), log_limit=5)
        for number in range(30):
            server.create("nodes", {"metadata": {"name": f"n{number}"}})
        newest = int(server.resource_version)
        assert len(server.changes("nodes", str(newest - 5))[0]) == 5
        with pytest.raises(ResourceVersionGone):
            server.changes("nodes", str(newest - 11))

    def test_waiting_ends_with_the_next_write(self, server: ApiServer) -> None:
        assert not server.wait(server.resource_version, 0.0)
        server.create("nodes", {"metadata": {"name": "n1"}})
        assert server.wait("1", 0.0)


class TestFakeClusterFaults:
    def test_effects_pass_through_the_faults(self, server: ApiServer) -> None:
        faults = Faults()
        fake = FakeCluster(server, faults=faults)
        server.create("nodes", {"metadata": {"name": "n1"}})
        faults.on("before", "cluster.nodes", ClusterUnreachable("down"))
        with pytest.raises(ClusterUnreachable):
            fake.nodes()
        faults.on("after", "cluster.patch_node", Crash())
        with pytest.raises(Crash):
            fake.patch_node("n1", labels={"a": "b"}, annotations={}, taints=(), resource_version="")
        assert fake.node("n1").metadata.labels == {"a": "b"}
        list(fake.watch("nodes", server.resource_version, 1.0))
        assert faults.points[-2:] == ["before cluster.watch", "after cluster.watch"]

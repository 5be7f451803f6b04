"""Watching: what is reported once, what survives lost connections and forgotten versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from threading import Event
from threading import enumerate as enumerate_threads

import msgspec
import pytest

from shiplap.cluster.watcher import (
    GATHER_S,
    KINDS,
    LOOK_S,
    ROOM_S,
    ChangeBatch,
    EditPace,
    KindWatch,
    ListedObjects,
    ManifestTracker,
    Tracker,
    change_batches,
    is_unschedulable,
    poll_once,
)
from shiplap.errors import ClusterDenied, ClusterError, ClusterUnreachable, ResourceVersionGone, TooManyRequests
from shiplap.kubernetes.objects import CustomObject, Node, Pod
from shiplap.ports import ClusterApi, WatchEvent
from shiplap_lab.fakes.cluster import ApiServer, FakeCluster
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.nodes import node_object
from tests.builders.pods import UNSCHEDULABLE, pod_object
from tests.stepped_time import SteppedTime

pod = partial(pod_object, waits=True)
node = partial(node_object, ready=False)


def set_ready(server: ApiServer, name: str, *, ready: bool) -> None:
    server.patch("nodes", name, {"status": node(name, ready=ready)["status"]}, subresource="status")


def shown(batch: ChangeBatch) -> tuple[list[str], list[str], list[str]]:
    found = [[item.metadata.name for item in items] for items in (batch.pods, batch.joined, batch.ready)]
    return found[0], found[1], found[2]


class TestIsUnschedulable:
    def of(self, **changes: object) -> bool:
        return is_unschedulable(msgspec.convert(pod("p") | changes, Pod))

    def test_a_pod_the_scheduler_found_no_node_for(self) -> None:
        assert self.of()

    @pytest.mark.parametrize(
        "changes",
        [
            {"status": {"phase": "Pending"}},
            {"status": {"conditions": [{**UNSCHEDULABLE, "reason": "SchedulingGated"}]}},
            {"status": {"conditions": [{**UNSCHEDULABLE, "status": "True"}]}},
            {"status": {"conditions": [{**UNSCHEDULABLE, "type": "Ready"}]}},
            {"status": {"conditions": [UNSCHEDULABLE], "nominatedNodeName": "n1"}},
            {"status": {"conditions": [UNSCHEDULABLE], "phase": "Failed"}},
            {"spec": {"nodeName": "n1"}},
            {"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
            {"metadata": {"name": "p", "ownerReferences": [{"kind": "DaemonSet"}]}},
            {"metadata": {"name": "p", "ownerReferences": [{"kind": "Node"}]}},
        ],
    )
    def test_pods_that_need_no_new_node(self, changes: dict) -> None:
        assert not self.of(**changes)

    def test_pods_of_other_owners_do(self) -> None:
        assert self.of(metadata={"name": "p", "ownerReferences": [{"kind": "ReplicaSet"}]})


def listed(kind: str, *objects: dict, typed: type = Pod) -> ListedObjects:
    return ListedObjects(kind, tuple(msgspec.convert(item, typed) for item in objects))


def with_uid(item: dict, uid: str = "u") -> dict:
    return item | {"metadata": item["metadata"] | {"uid": uid}}


class TestForgetting:
    """An API server that is restored from a backup shows objects again, with the uids they had."""

    def test_a_pod_that_a_list_lacks_is_forgotten(self) -> None:
        tracker = Tracker()
        for seen, names in (((with_uid(pod("p")),), ["p"]), ((), []), ((with_uid(pod("p")),), ["p"])):
            tracker.see(listed("pods", *seen))
            assert shown(tracker.take()) == (names, [], [])

    def test_a_node_that_a_list_lacks_is_forgotten(self) -> None:
        tracker = Tracker()
        there = (with_uid(node("n", ready=True)),)
        for seen, names in (((), []), (there, ["n"]), (there, []), ((), []), (there, ["n"])):
            tracker.see(listed("nodes", *seen, typed=Node))
            assert shown(tracker.take()) == ([], names, names)

    def test_a_node_that_is_deleted_is_forgotten(self) -> None:
        tracker = Tracker()
        tracker.see(listed("nodes", typed=Node))
        there = msgspec.convert(with_uid(node("n", ready=True)), Node)
        for kind, names in (("ADDED", ["n"]), ("DELETED", []), ("ADDED", ["n"])):
            tracker.see(WatchEvent(kind, there, "1"))
            assert shown(tracker.take()) == ([], names, names)


def test_a_manifest_that_is_deleted_is_forgotten() -> None:
    tracker = ManifestTracker()
    item = msgspec.convert({"kind": "NodePool", "metadata": {"name": "p", "uid": "1"}}, CustomObject)
    for gone, told in ((False, 1), (False, 0), (True, 1), (False, 1)):
        tracker.see(item, gone=gone)
        assert len(tracker.take()) == told


def test_edits_come_sorted_and_those_of_one_name_by_uid() -> None:
    """Buffers of two namespaces may have one name."""
    tracker = ManifestTracker()
    edited = [("b", "1"), ("a", "3"), ("a", "2")]
    for name, uid in edited:
        item = {"kind": "CapacityBuffer", "metadata": {"name": name, "uid": uid, "generation": 2}}
        tracker.see(msgspec.convert(item, CustomObject), gone=False)
    assert tracker.has_news
    assert [item.metadata.uid for item in tracker.take()] == ["2", "3", "1"]
    assert tracker.take() == ()


class TestTracking:
    @pytest.fixture
    def server(self) -> ApiServer:
        return ApiServer(FakeClock())

    @pytest.fixture
    def see(self, server: ApiServer) -> Callable[[], tuple[list[str], list[str], list[str]]]:
        api, tracker = FakeCluster(server), Tracker()
        watches = [KindWatch(api, kind) for kind in KINDS]
        return lambda: shown(poll_once(watches, tracker))

    def test_each_pod_is_reported_once_while_it_waits(self, server: ApiServer, see: Callable) -> None:
        server.create("pods", pod("b"))
        server.create("pods", pod("a"))
        server.create("pods", pod_object("fresh", phase="Pending"))
        assert see() == (["a", "b"], [], [])
        server.patch("pods", "a", {"metadata": {"annotations": {"note": "1"}}})
        assert see() == ([], [], [])
        server.patch("pods", "fresh", {"status": {"conditions": [UNSCHEDULABLE]}}, subresource="status")
        assert see() == (["fresh"], [], [])

    def test_a_pod_that_waits_again_is_reported_again(self, server: ApiServer, see: Callable) -> None:
        server.create("pods", pod("p"))
        see()
        server.patch("pods", "p", {"status": {"nominatedNodeName": "n1"}}, subresource="status")
        assert see() == ([], [], [])
        server.patch("pods", "p", {"status": {"nominatedNodeName": None}}, subresource="status")
        assert see() == (["p"], [], [])

    def test_a_pod_that_was_bound_before_anyone_looked_is_not_reported(self, server: ApiServer, see: Callable) -> None:
        see()
        server.create("pods", pod("p"))
        server.bind("p", "n1")
        assert see() == ([], [], [])

    def test_nodes_join_and_become_ready(self, server: ApiServer, see: Callable) -> None:
        see()
        server.create("nodes", node("n1"))
        assert see() == ([], ["n1"], [])
        set_ready(server, "n1", ready=True)
        assert see() == ([], [], ["n1"])
        server.patch("nodes", "n1", {"metadata": {"labels": {"a": "b"}}})
        assert see() == ([], [], [])
        set_ready(server, "n1", ready=False)
        assert see() == ([], [], [])
        set_ready(server, "n1", ready=True)
        assert see() == ([], [], ["n1"])
        server.delete("nodes", "n1")
        server.create("nodes", node("n2", ready=True))
        assert see() == ([], ["n2"], ["n2"])

    def test_a_node_that_left_again_is_not_reported(self, server: ApiServer, see: Callable) -> None:
        see()
        server.create("nodes", node("n1", ready=True))
        server.delete("nodes", "n1")
        assert see() == ([], [], [])

    def test_of_the_nodes_there_from_the_start_only_unfinished_ones_of_ours(
        self, server: ApiServer, see: Callable
    ) -> None:
        ours = {"karpenter.sh/nodepool": "default"}
        server.create("nodes", node("foreign", ready=True))
        server.create("nodes", node("done", ready=True, labels={**ours, "karpenter.sh/initialized": "true"}))
        server.create("nodes", node("started", ready=True, labels=ours))
        unregistered = [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]
        server.create("nodes", node("unregistered", taints=unregistered))
        assert see() == ([], ["started", "unregistered"], ["started"])

    def test_after_a_forgotten_version_only_what_was_missed_is_reported(self, server: ApiServer, see: Callable) -> None:
        server.create("pods", pod("old"))
        server.create("pods", pod("bound"))
        server.create("nodes", node("n1"))
        see()
        server.create("pods", pod("new"))
        server.bind("bound", "n1")
        server.create("nodes", node("n2"))
        server.delete("nodes", "n1")
        server.create("nodes", node("n1", ready=True))
        server.compact()
        assert see() == ([], [], [])
        assert see() == (["new"], ["n1", "n2"], ["n1"])


@pytest.fixture(name="time")
def _time(monkeypatch: pytest.MonkeyPatch) -> Iterator[SteppedTime]:
    with SteppedTime(1000.0) as time:
        monkeypatch.setattr("shiplap.cluster.watcher.Queue", time.queue)
        yield time


class TestBatches:
    @pytest.fixture
    def server(self) -> ApiServer:
        return ApiServer(FakeClock())

    def iterate(self, api: ClusterApi, time: SteppedTime, gather_s: float = 0.0) -> Iterator[ChangeBatch]:
        return change_batches(api, clock=time, deadline_at=1100.0, pause=time.pause, gather_s=gather_s)

    def test_changes_arrive_while_it_is_iterated(self, server: ApiServer, time: SteppedTime) -> None:
        server.create("pods", pod("first"))
        running = self.iterate(FakeCluster(server), time)
        assert shown(next(running)) == (["first"], [], [])
        server.create("pods", pod("second"))
        assert shown(next(running)) == (["second"], [], [])
        server.create("nodes", node("third"))
        assert shown(next(running)) == ([], ["third"], [])
        reading = [thread for thread in enumerate_threads() if thread.name in ("watch-pods", "watch-nodes")]
        assert len(reading) >= 2
        assert all(thread.daemon for thread in reading), "a process ends although a watch hangs"
        running.close()

    def test_changes_wait_for_others_for_the_blink_of_an_eye(self, server: ApiServer, time: SteppedTime) -> None:
        """And for long while nothing happens at all."""
        running = self.iterate(FakeCluster(server), time, gather_s=GATHER_S)
        server.create("pods", pod("p"))
        assert shown(next(running)) == (["p"], [], [])
        running.close()
        assert time.waits[0] == LOOK_S
        assert 0.0 < time.waits[-1] <= GATHER_S < 0.1

    def test_it_ends_at_the_deadline_with_what_was_gathered(self, server: ApiServer, time: SteppedTime) -> None:
        server.create("pods", pod("p"))
        found = list(self.iterate(FakeCluster(server), time, gather_s=1e6))
        assert [shown(batch) for batch in found] == [(["p"], [], [])]
        assert time.now() == 1100.0

    def test_lost_connections_throttling_and_denials_are_borne(self, server: ApiServer, time: SteppedTime) -> None:
        faults = Faults()
        faults.on("before", "cluster.watch", ClusterDenied("an API server that has just started"), nth=3)
        faults.on("before", "cluster.list_for_watch", ClusterUnreachable("down"))
        faults.on("before", "cluster.watch", TooManyRequests("slow down"))
        faults.on("before", "cluster.watch", ResourceVersionGone("compacted"), nth=2)
        server.create("pods", pod("p"))
        running = self.iterate(FakeCluster(server, faults=faults), time)
        assert shown(next(running)) == (["p"], [], [])
        running.close()

    @pytest.mark.parametrize(
        ("error", "longest_s"),
        [(ClusterUnreachable("away"), 30.0), (TooManyRequests("slow"), 30.0), (ClusterDenied("no role"), 8.0)],
    )
    def test_a_server_that_stays_away_or_denies_for_long_is_an_error(self, error: Exception, longest_s: float) -> None:
        class Away(FakeCluster):
            def list_for_watch(self, kind: str) -> tuple:
                raise error

        pauses: list[float] = []
        api, clock = Away(ApiServer(FakeClock())), FakeClock(1000.0)
        with pytest.raises(type(error)):
            list(change_batches(api, clock=clock, deadline_at=1100.0, pause=pauses.append))
        assert sum(pauses) < 2 * 600.0, "nodes and pods: a control plane is replaced in minutes"
        assert sorted(set(pauses)) == [pause for pause in (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0) if pause <= longest_s]

    @pytest.mark.parametrize("error", [ClusterError("gone", status=405), RuntimeError("a defect")])
    def test_a_refusal_and_a_defect_end_it_at_once(
        self, server: ApiServer, time: SteppedTime, error: Exception
    ) -> None:
        class Refusing(FakeCluster):
            def list_for_watch(self, kind: str) -> tuple:
                raise error

        with pytest.raises(type(error)):
            list(self.iterate(Refusing(server), time))


def edited(name: str, *, generation: int = 1, version: str = "1", **metadata: object) -> WatchEvent:
    about = {"name": name, "uid": f"uid-{name}", "generation": generation, "resourceVersion": version, **metadata}
    return WatchEvent("MODIFIED", msgspec.convert({"kind": "NodePool", "metadata": about}, CustomObject), version)


class TestManifests:
    def tracker(self, *names: str) -> Tracker:
        tracker = Tracker()
        objects = tuple(edited(name).object for name in names)
        tracker.see(ListedObjects("nodepools", objects))
        return tracker

    def names(self, tracker: Tracker) -> list[str]:
        return [item.metadata.name for item in tracker.take().manifests]

    def test_the_first_list_tells_nothing(self) -> None:
        assert self.names(self.tracker("a", "b")) == []

    def test_an_edit_is_told_once_and_a_status_never(self) -> None:
        tracker = self.tracker("a", "b")
        tracker.see(edited("a", version="2"))
        tracker.see(edited("b", version="3", annotations={"karpenter.sh/nodepool-hash": "1"}))
        assert self.names(tracker) == []
        tracker.see(edited("a", generation=2, version="4"))
        tracker.see(edited("a", generation=2, version="5"))
        assert self.names(tracker) == ["a"]
        assert self.names(tracker) == []

    @pytest.mark.parametrize(
        "metadata",
        [
            {"annotations": {"shiplap.dev/spot-premium": "1"}},
            {"labels": {"team": "a"}},
            {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        ],
        ids=["annotation", "label", "deletion"],
    )
    def test_what_users_write_beside_the_spec_is_an_edit(self, metadata: dict) -> None:
        tracker = self.tracker("a")
        tracker.see(edited("a", **metadata))
        assert self.names(tracker) == ["a"]

    def test_new_and_deleted_objects_are_told(self) -> None:
        tracker = self.tracker("a")
        tracker.see(edited("new"))
        tracker.see(msgspec.structs.replace(edited("a"), type="DELETED"))
        assert self.names(tracker) == ["a", "new"]

    def test_of_node_claims_of_pools_and_nodes_only_a_deletion_is_told(self) -> None:
        tracker = Tracker(manifests=True)
        tracker.see(ListedObjects("nodeclaims", (msgspec.structs.replace(edited("listed").object, kind=""),)))
        for type_ in ("ADDED", "MODIFIED", "DELETED"):
            tracker.see(self.claim("new", type_, labels={"seen": type_, "karpenter.sh/nodepool": "a"}))
        assert self.names(tracker) == []
        deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        tracker.see(self.claim("leaving", "MODIFIED", **deleted))
        tracker.see(self.claim("leaving", "MODIFIED", **deleted, generation=1, labels={"a": "b"}))
        tracker.see(ListedObjects("nodeclaims", (edited("listed", **deleted).object,)))
        node = msgspec.convert({"metadata": {"name": "n1", "uid": "uid-n1", **deleted}}, Node)
        tracker.see(WatchEvent("MODIFIED", node, "9"))
        assert self.names(tracker) == ["n1", "leaving", "listed"]
        tracker.see(self.claim("leaving", "DELETED", **deleted))
        tracker.see(WatchEvent("DELETED", node, "10"))
        assert self.names(tracker) == []

    def test_a_node_claim_that_a_user_writes_is_told_once(self) -> None:
        tracker = Tracker(manifests=True)
        tracker.see(ListedObjects("nodeclaims", (msgspec.structs.replace(edited("listed").object, kind=""),)))
        for type_ in ("ADDED", "MODIFIED"):
            tracker.see(self.claim("new", type_))
            tracker.see(self.claim("listed", type_))
            tracker.see(self.claim("ours", type_, labels={"shiplap.dev/install": "a"}))
        assert self.names(tracker) == ["new"]
        for type_ in ("MODIFIED", "DELETED"):
            tracker.see(self.claim("new", type_, labels={"shiplap.dev/install": "a"}))
        assert self.names(tracker) == []

    def test_a_later_list_tells_of_node_claims_that_users_have_written_meanwhile(self) -> None:
        tracker = Tracker(manifests=True)
        tracker.see(ListedObjects("nodeclaims", ()))
        tracker.see(ListedObjects("nodeclaims", (msgspec.structs.replace(edited("new").object, kind=""),)))
        assert self.names(tracker) == ["new"]

    def claim(self, name: str, type_: str, **metadata: object) -> WatchEvent:
        event = edited(name, **metadata)
        return msgspec.structs.replace(
            event, type=type_, object=msgspec.structs.replace(event.object, kind="NodeClaim")
        )

    def test_a_deleted_node_is_no_edit_where_manifests_are_files(self) -> None:
        tracker = Tracker()
        metadata = {"name": "n1", "uid": "uid-n1", "deletionTimestamp": "2026-01-01T00:00:00Z"}
        tracker.see(WatchEvent("MODIFIED", msgspec.convert({"metadata": metadata}, Node), "9"))
        assert self.names(tracker) == []

    def test_a_later_list_tells_what_changed_meanwhile(self) -> None:
        tracker = self.tracker("a", "b")
        tracker.see(ListedObjects("nodepools", (edited("a", generation=5).object, edited("b").object)))
        assert self.names(tracker) == ["a"]

    def test_edits_are_told_at_most_once_a_second(self, time: SteppedTime) -> None:
        server = ApiServer(FakeClock())
        server.create("nodepools", {"metadata": {"name": "a"}, "spec": {"weight": 0}})
        writes = iter(range(1, 200))

        def pause(seconds: float) -> None:
            server.patch("nodepools", "a", {"spec": {"weight": next(writes, 999)}})
            time.pause(seconds)

        batches = change_batches(FakeCluster(server), clock=time, deadline_at=1010.0, pause=pause, manifests=True)
        told = [time.now() for batch in batches if batch.manifests]
        assert len(told) >= 9
        assert all(later - earlier >= 0.9 for earlier, later in pairwise(told[:-1]))  # the last ends the iteration

    def test_manifests_that_cannot_be_watched_stop_no_other_watch(self, time: SteppedTime) -> None:
        class Without(FakeCluster):
            def list_for_watch(self, kind: str) -> tuple:
                if kind not in KINDS:
                    raise ClusterDenied("no role for manifests", status=403)
                return super().list_for_watch(kind)

        server = ApiServer(FakeClock())
        server.create("pods", pod("p"))
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            time.pause(seconds)

        running = change_batches(
            Without(server), clock=time, deadline_at=1100.0, pause=pause, gather_s=0.0, manifests=True
        )
        assert shown(next(running)) == (["p"], [], [])
        server.create("pods", pod("second"))
        assert shown(next(running)) == (["second"], [], [])
        running.close()
        assert 10.0 < max(pauses) <= 60.0, "a CRD that is missing may come within the minute, and is asked for seldom"

    def test_manifests_are_watched_as_soon_as_they_can_be(self, time: SteppedTime) -> None:
        """A CRD may be installed later than the watch begins."""

        class Late(FakeCluster):
            def list_for_watch(self, kind: str) -> tuple:
                if kind not in denied:
                    denied.add(kind)
                    raise ClusterDenied("no such kind", status=403)
                return super().list_for_watch(kind)

        server, denied = ApiServer(FakeClock()), set[str]()
        server.create("nodepools", {"metadata": {"name": "a"}, "spec": {"weight": 0}})
        weights = iter(range(1, 10_000))

        def pause(seconds: float) -> None:
            server.patch("nodepools", "a", {"spec": {"weight": next(weights)}})
            time.pause(seconds)

        batches = change_batches(Late(server), clock=time, deadline_at=1100.0, pause=pause, manifests=True)
        assert any(batch.manifests for batch in batches)


class TestRoomOfBuffers:
    def left(self, name: str) -> WatchEvent:
        """A pod that is no longer without a node."""
        about = {"name": name, "uid": name, "namespace": "default"}
        return WatchEvent("DELETED", msgspec.convert({"metadata": about}, Pod), "7")

    def buffer(self, type_: str) -> WatchEvent:
        item = {"kind": "CapacityBuffer", "metadata": {"name": "spare", "uid": "spare"}}
        return WatchEvent(type_, msgspec.convert(item, CustomObject), "8")

    def test_without_buffers_nobody_is_told(self) -> None:
        tracker = Tracker(manifests=True)
        tracker.see(self.left("a"))
        assert not tracker.take().room_taken

    def test_with_buffers_it_is_told_once(self) -> None:
        tracker = Tracker(buffers=True)
        tracker.see(self.left("a"))
        assert tracker.take().room_taken
        assert not tracker.take()

    @pytest.mark.parametrize("listed", [True, False])
    def test_buffers_among_the_manifests_count_until_they_are_deleted(self, listed: bool) -> None:
        tracker = Tracker(manifests=True)
        if listed:
            tracker.see(ListedObjects("capacitybuffers", (self.buffer("ADDED").object,)))
        else:
            tracker.see(self.buffer("ADDED"))
        tracker.see(self.left("a"))
        assert tracker.take().room_taken
        tracker.see(self.buffer("DELETED"))
        tracker.see(self.left("b"))
        assert not tracker.take().room_taken

    def test_it_is_told_after_some_seconds_and_pods_at_once(self) -> None:
        """Until then other pods may take more, and one decision answers for all."""
        tracker = Tracker(buffers=True)
        pace = EditPace(tracker, 1000.0, 0.02)
        for now in (100.0, 102.0):
            tracker.see(self.left(f"at-{now}"))
            pace.note(now)
        assert pace.due_at == 100.0 + ROOM_S
        waiting = msgspec.convert(pod("waiting") | {"metadata": {"name": "waiting", "uid": "waiting"}}, Pod)
        tracker.see(WatchEvent("ADDED", waiting, "9"))
        pace.note(103.0)
        assert pace.due_at == pytest.approx(103.02)
        assert 1.0 < ROOM_S < 20.0, "one decision answers for a burst, long before the sweep's minute"
        first = pace.take(103.02)
        assert (len(first.pods), first.room_taken) == (1, False)
        assert pace.due_at == 100.0 + ROOM_S
        assert pace.take(100.0 + ROOM_S).room_taken
        assert pace.due_at == 1000.0


@pytest.mark.parametrize("kind", ["a pod", "a node", "a node that is ready"])
def test_each_change_alone_is_news_at_once(kind: str) -> None:
    tracker = Tracker()
    tracker.see(listed("nodes", with_uid(node("n", labels={"karpenter.sh/initialized": "true"})), typed=Node))
    pace = EditPace(tracker, 1000.0, 0.02)
    pace.note(100.0)
    assert pace.due_at == 1000.0
    if kind == "a pod":
        tracker.see(listed("pods", with_uid(pod("p"))))
    else:
        uid = "u" if "ready" in kind else "another"
        tracker.see(WatchEvent("MODIFIED", msgspec.convert(with_uid(node("n", ready=uid == "u"), uid), Node), "9"))
    pace.note(100.0)
    assert pace.due_at == pytest.approx(100.02)


def test_where_manifests_are_watched_a_node_that_is_being_deleted_is_told_of(time: SteppedTime) -> None:
    server = ApiServer(FakeClock())
    server.create("nodes", node("n1"))
    server.patch("nodes", "n1", {"metadata": {"finalizers": ["x"]}})
    api = FakeCluster(server)

    def pause(seconds: float) -> None:
        if any(not item.metadata.deletion_timestamp for item in api.nodes()):
            server.delete("nodes", "n1")
        time.pause(seconds)

    batches = change_batches(api, clock=time, deadline_at=1010.0, pause=pause, manifests=True)
    assert ["n1"] in [[item.metadata.name for item in batch.manifests] for batch in batches]


def test_what_a_batch_holds_is_sorted_by_namespace_and_name() -> None:
    server = ApiServer(FakeClock())
    api = FakeCluster(server)
    watches, tracker = [KindWatch(api, kind) for kind in KINDS], Tracker()
    poll_once(watches, tracker)
    for namespace, name in (("b", "a"), ("a", "z"), ("b", "0"), ("a", "b")):
        item = pod(name)
        item["metadata"]["namespace"] = namespace
        server.create("pods", item)
    batch = poll_once(watches, tracker)
    assert [item.key for item in batch.pods] == ["a/b", "a/z", "b/0", "b/a"]


class Forgetful:
    """A cluster whose first watch of each kind has to begin again; `lists` counts what was listed."""

    def __init__(self, api: FakeCluster) -> None:
        self._api = api
        self.lists: dict[str, int] = dict.fromkeys(KINDS, 0)

    def list_for_watch(self, kind: str) -> object:
        self.lists[kind] += 1
        return self._api.list_for_watch(kind)

    def watch(self, kind: str, version: str, timeout_s: float) -> object:
        if self.lists[kind] == 1:
            raise ResourceVersionGone("too old")
        return self._api.watch(kind, version, timeout_s)


def test_a_watch_is_established_once_however_often_it_lists() -> None:
    clock, known, listed_again = FakeClock(), list[int](), Event()
    api = Forgetful(FakeCluster(ApiServer(clock)))

    def pause(_: float) -> None:
        if min(api.lists.values()) > 1 and known:
            listed_again.set()
        if listed_again.wait(0.01):
            clock.advance(1.0)

    changes = change_batches(
        api,  # type: ignore[arg-type]
        clock=clock,
        deadline_at=clock.now() + 10.0,
        pause=pause,
        established=lambda: known.append(1),
    )
    assert list(changes) == []
    assert known == [1]


def test_a_watch_is_not_established_before_every_kind_has_been_listed() -> None:
    clock, known, begun, listed = FakeClock(), list[bool](), Event(), Event()

    class LastIsSlow(Forgetful):
        def list_for_watch(self, kind: str) -> object:
            if kind == KINDS[-1]:
                begun.wait(0.1)  # too early, if it comes
                listed.set()
            return super().list_for_watch(kind)

    def established() -> None:
        known.append(listed.is_set())
        begun.set()

    def pause(_: float) -> None:
        if begun.wait(0.01):
            clock.advance(1.0)

    changes = change_batches(
        LastIsSlow(FakeCluster(ApiServer(clock))),  # type: ignore[arg-type]
        clock=clock,
        deadline_at=clock.now() + 10.0,
        pause=pause,
        established=established,
    )
    assert list(changes) == []
    assert known == [True]

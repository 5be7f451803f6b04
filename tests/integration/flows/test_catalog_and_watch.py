"""Refreshing the catalogue, doing without one, and telling the bus what watches show."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest
from msgspec import structs

from shiplap.cluster.watcher import KINDS, ChangeBatch
from shiplap.errors import AwsError, ClusterDenied, ClusterGone, ClustersNotServed, StoreError, StoreThrottled
from shiplap.flows.catalog.refresh import refresh
from shiplap.flows.messages import NodeSeen, PodsPending
from shiplap.flows.watch.watch import hints_of, most_pods, watch, watch_all
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.kubernetes.objects import CustomObject, Node, NodeSpec, ObjectMeta, Pod
from shiplap.ports import MANIFEST_KINDS, CatalogSource
from shiplap_lab.fakes.cluster import FakeCluster
from shiplap_lab.fakes.signals import FakeMeter
from shiplap_lab.fakes.stores import FakeCatalog, FakeSnapshots
from tests.integration.flows.stage import CLUSTER, Stage, catalog


class Source:
    """A CatalogSource that notes what it was given."""

    def __init__(self, error: Exception | None = None) -> None:
        self.given: list[Catalog | None] = []
        self._error = error

    def fetch(self, previous: Catalog | None) -> Catalog:
        self.given.append(previous)
        if self._error is not None:
            raise self._error
        return catalog()


def test_a_refresh_starts_from_the_catalogue_before_it() -> None:
    source, store, meter = Source(), FakeCatalog(), FakeMeter()
    first = refresh(source, store, meter)
    refresh(source, store, meter)
    assert source.given == [None, first]
    assert store.load() == first
    assert meter.counts["CatalogTypes"] == 2 * len(first.types)


def test_a_refresh_that_fails_leaves_the_catalogue_as_it_was() -> None:
    store = FakeCatalog(catalog())
    with pytest.raises(AwsError):
        refresh(Source(AwsError("denied", code="UnauthorizedOperation")), store, FakeMeter())
    assert store.load() == catalog()


def test_a_throttled_bucket_is_not_taken_for_an_empty_one() -> None:
    stage = Stage()
    store = FakeCatalog(catalog(), stage.faults)
    stage.faults.on("before", "catalog.load", StoreThrottled("slow down"))
    source = Source()
    with pytest.raises(StoreThrottled):
        refresh(source, store, FakeMeter())
    assert source.given == []


def without_catalogue(stage: Stage, source: CatalogSource | None) -> FakeCatalog:
    store = FakeCatalog(None, stage.faults)
    stage.context = structs.replace(stage.context, catalog=store, source=source)
    return store


def test_without_a_catalogue_schedule_fetches_one_stores_it_and_goes_on() -> None:
    stage, source = Stage(), Source()
    store = without_catalogue(stage, source)
    stage.add_pods(1)
    assert len(stage.schedule().launched) == 1
    stage.schedule()
    assert source.given == [None]
    assert store.load() == catalog()


def test_without_a_catalogue_and_a_source_nothing_is_launched() -> None:
    stage = Stage()
    without_catalogue(stage, None)
    stage.add_pods(1)
    with pytest.raises(StoreError, match="no catalogue"):
        stage.schedule()
    assert stage.claims() == ()


def test_a_throttled_catalogue_is_not_fetched_anew() -> None:
    stage, source = Stage(), Source()
    without_catalogue(stage, source)
    stage.add_pods(1)
    stage.faults.on("before", "catalog.load", StoreThrottled("slow down"))
    with pytest.raises(StoreThrottled):
        stage.schedule()
    assert source.given == []


def test_a_batch_becomes_one_hint_for_all_pods_and_one_per_node() -> None:
    stage = Stage()
    pods = tuple(Pod(ObjectMeta(name, "shop", f"u-{name}", version)) for name, version in (("a", "9"), ("b", "10")))
    node = Node(ObjectMeta("ip-1", resource_version="7"), NodeSpec("aws:///z/i-1"))
    stage.bus.publish(hints_of(CLUSTER, ChangeBatch(pods, joined=(node,), ready=(node,)), stage.clock.now()))
    told = stage.told()
    assert isinstance(told[0], PodsPending)
    assert [pod.name for pod in told[0].pods] == ["a", "b"]
    assert told[0].id == f"{CLUSTER}/pods/10"
    assert told[1:] == [NodeSeen(CLUSTER, "ip-1", "aws:///z/i-1", stage.clock.now())] * 2
    assert [event.detail_type for event in stage.bus.events] == ["PodPending", "NodeJoined", "NodeReady"]
    assert {event.source for event in stage.bus.events} == {"shiplap.watch"}


@pytest.mark.parametrize("versions", [("9", "10"), ("12", "11"), ("11", "12"), ("100", "99")])
def test_the_newest_version_names_the_hint_whichever_pod_has_it(versions: tuple[str, str]) -> None:
    pods = tuple(Pod(ObjectMeta(f"p{place}", "shop", f"u{place}", each)) for place, each in enumerate(versions))
    edited = tuple(CustomObject(ObjectMeta(f"m{place}", resource_version=each)) for place, each in enumerate(versions))
    newest = max(versions, key=int)
    of_pods, of_manifests = hints_of(CLUSTER, ChangeBatch(pods, manifests=edited), 1.0)
    assert (of_pods.detail["id"], of_manifests.detail["id"]) == (
        f"{CLUSTER}/pods/{newest}",
        f"{CLUSTER}/manifests/{newest}",
    )


def test_edits_of_manifests_become_one_hint() -> None:
    stage = Stage()
    edited = tuple(
        CustomObject(ObjectMeta(name, resource_version=version)) for name, version in (("a", "9"), ("b", "10"))
    )
    stage.bus.publish(hints_of(CLUSTER, ChangeBatch(manifests=edited), stage.clock.now()))
    (hint,) = stage.told()
    assert isinstance(hint, PodsPending)
    assert (hint.id, hint.pods, hint.reason) == (f"{CLUSTER}/manifests/10", (), "ManifestsChanged")


def test_watching_ends_at_its_deadline() -> None:
    stage = Stage()
    assert watch(CLUSTER, stage.context, deadline=stage.clock.now(), pause=lambda _: None) == 0


@pytest.mark.parametrize("snapshots", [True, False])
def test_a_watch_is_established_once_it_is_known_what_was_there(*, snapshots: bool) -> None:
    """Its predecessor may then retire, and the next cluster of the invocation be watched."""
    stage, begun = Stage(), Event()
    context = structs.replace(stage.context, snapshots=FakeSnapshots() if snapshots else None)

    def pause(_: float) -> None:
        begun.wait(5.0)
        stage.clock.advance(1.0)

    watch(CLUSTER, context, deadline=stage.clock.now() + 30, pause=pause, established=begun)
    assert begun.is_set()


@pytest.mark.parametrize("live", [(), (CLUSTER,)])
def test_manifests_are_watched_where_they_are_live(live: tuple[str, ...]) -> None:
    stage, listed = Stage(), set[str]()

    class Noting(FakeCluster):
        def list_for_watch(self, kind: str) -> Any:
            listed.add(kind)
            return super().list_for_watch(kind)

    def pause(_: float) -> None:
        if set(KINDS) < listed or not live:
            stage.clock.advance(1.0)

    contexts = {CLUSTER: structs.replace(stage.context, cluster=Noting(stage.server), snapshots=None)}
    watch_all(contexts, deadline=stage.clock.now() + 30, pause=pause, live=live)
    assert listed.isdisjoint(MANIFEST_KINDS) is not bool(live)


@pytest.mark.parametrize(
    ("memory_mib", "clusters", "pods"), [(128, 1, 38 * 1400), (128, 11, 33 * 1400), (1024, 1, 934 * 1400), (90, 9, 0)]
)
def test_memory_holds_as_many_pods_as_the_docs_say(memory_mib: int, clusters: int, pods: int) -> None:
    """See the setting `watchMemoryMib`."""
    assert most_pods(memory_mib, clusters) == pods


@pytest.mark.parametrize(("left_s", "pauses"), [(150.0, [60.0, 60.0, 30.0]), (60.0, [60.0])])
def test_a_watch_that_broke_down_begins_anew_after_a_minute_and_not_after_its_deadline(
    left_s: float, pauses: list[float]
) -> None:
    class Broken:
        def list_for_watch(self, kind: str) -> object:
            raise ClusterGone(f"no {kind}")

    stage, taken = Stage(), list[float]()
    context = structs.replace(stage.context, cluster=Broken())

    def pause(seconds: float) -> None:
        taken.append(seconds)
        stage.clock.advance(seconds)

    with pytest.raises(ClustersNotServed):
        watch_all({CLUSTER: context}, deadline=stage.clock.now() + left_s, pause=pause)
    assert taken == pauses
    assert stage.meter.counts["WatchesGivenUp"] == len(pauses)


def test_a_cluster_that_refuses_ends_the_watch() -> None:
    stage = Stage()
    for number in range(1, 13):  # of both watches: denials are borne for a while
        refusal = ClusterDenied("forbidden", status=403)
        stage.faults.on("before", "cluster.list_for_watch", refusal, nth=number)
    with pytest.raises(ClusterDenied):
        watch(CLUSTER, stage.context, deadline=stage.clock.now() + 60, pause=lambda _: None)

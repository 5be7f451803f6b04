"""The catalog function within its time: clusters and Regions cost only themselves, and what is done is stored."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.errors import AwsError, AwsUnavailable, StoreError
from shiplap.flows.catalog import entry
from shiplap.flows.catalog.entry import INSPECTING_S, LEAST_REFRESH_S, RESERVE_S
from shiplap.flows.catalog.inspect import INSPECTION_S
from shiplap.flows.catalog.inspections import SILENT_CLUSTERS, STORE_S
from shiplap.flows.context import FlowContext
from shiplap.flows.function_install import counted_errors
from shiplap.flows.messages import MANIFESTS_CHANGED, POD_PENDING
from shiplap.flows.optional.optional_calls import NO_ANSWER, OptionalCalls
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.resolved_nodeclass import ResolvedNodeClass
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec, Manifests
from shiplap.ports import CatalogSource, CatalogStore, StatusStore
from shiplap.settings import ClusterSettings, ResourceNames, Settings
from shiplap_lab.fakes.compute import FakeCompute
from shiplap_lab.fakes.faults import Crash, Faults, Hang
from shiplap_lab.fakes.identities import FakeKeptIdentities, FakeNodeIdentities
from shiplap_lab.fakes.signals import FakeBus, FakeMeter
from shiplap_lab.fakes.stores import FakeCatalog, FakeStatus
from tests.bounded_calls import run_by
from tests.builders.pools import family_pool
from tests.integration.flows.pools_of_classes import of_class
from tests.integration.flows.shared_install import Context, SharedInstall
from tests.integration.flows.stage import Stage, catalog

pytestmark = pytest.mark.usefixtures("own_logger")

NAMES = ResourceNames("state", "capacity", "bucket", "bus", "https://sqs/lifecycle", "https://sqs/dead", "platform")
INSPECT = {"kind": "inspect"}


class SlowCompute(FakeCompute):
    """Tells of an EC2NodeClass after some seconds, or never, or raises, as its world says."""

    def __init__(self, world: World, cluster: str) -> None:
        super().__init__(world.clock)
        self._world, self._cluster = world, cluster

    def inspect(self, node_class: EC2NodeClass) -> ResolvedNodeClass:
        name = (self._cluster, node_class.metadata.name)
        self._world.asked.append(name)
        with self._world.faults.effect("compute.inspect"):
            self._world.does.get(name, self._world.does.get((self._cluster, "*"), lambda: None))()
            self._world.clock.advance(self._world.takes_s)
            return super().inspect(node_class)


class Source:
    """A CatalogSource that takes some seconds, or does what it is told."""

    def __init__(self, world: World, region: str) -> None:
        self._world, self._region = world, region

    def fetch(self, previous: Catalog | None) -> Catalog:
        self._world.fetched.append(self._region)
        self._world.does.get((self._region, "fetch"), lambda: None)()
        self._world.clock.advance(self._world.fetch_s)
        return replace(catalog(), region=self._region, refreshed_at=self._world.clock.now())


class World(SharedInstall):
    """An install for some clusters, each of whose inspections takes `takes_s` seconds of virtual time.

    `does` says what else happens, by (cluster, EC2NodeClass), (cluster, "*") or (Region, "fetch").
    """

    def __init__(self, *clusters: tuple[str, str], classes: int = 2, takes_s: float = 1.0) -> None:
        self.first = Stage()
        self.faults, self.takes_s, self.fetch_s = Faults(), takes_s, 1.0
        self.asked: list[tuple[str, str]] = []
        self.fetched: list[str] = []
        self.does: dict[tuple[str, str], Callable[[], Any]] = {}
        self.contexts: dict[str, FlowContext] = {}
        self.stages: dict[str, Stage] = {}
        self.bus = FakeBus(self.faults)
        super().__init__("catalog", self)  # type: ignore[arg-type]
        self.meter: FakeMeter = FakeMeter()  # type: ignore[assignment]
        self.optional = OptionalCalls(run_by(self.clock))  # type: ignore[arg-type]
        self.statuses = FakeStatus(self.faults)
        self.stores: dict[str, FakeCatalog] = {}
        settings = []
        for name, region in clusters:
            stage = Stage(beside=self.first)
            items = tuple(
                EC2NodeClass(ObjectMeta(name=f"class-{n:03d}"), EC2NodeClassSpec(ami_family="Bottlerocket"))
                for n in range(classes)
            )
            pools = tuple(of_class(family_pool(item.metadata.name, ("c7i",)), item.metadata.name) for item in items)
            manifests = Manifests(node_pools=pools, node_classes=items)
            settings.append(replace(stage.settings, name=name, region=region, manifests=manifests))
            compute = SlowCompute(self, name)
            ports = {"compute": compute, "optional": self.optional, "meter": self.meter, "bus": self.bus}
            self.contexts[name] = replace(stage.context, **ports)
            self.stores.setdefault(region, FakeCatalog(replace(catalog(), region=region)))
        self.settings = Settings(tuple(settings))

    @property
    def status(self) -> StatusStore:  # type: ignore[override]
        return self.statuses

    def catalog_store(self, region: str) -> CatalogStore:
        return self.stores[region]

    def catalog_source(self, region: str) -> CatalogSource:
        return Source(self, region)

    def node_identities(self, region: str) -> FakeNodeIdentities:
        return FakeNodeIdentities()

    def kept_identities(self, region: str) -> FakeKeptIdentities:
        return FakeKeptIdentities()

    def reporting(self, request_id: str) -> AbstractContextManager[None]:
        return counted_errors(self.meter)

    def run(self, event: dict[str, str] = INSPECT, *, seconds: float = 300.0) -> list[tuple[str, str]]:
        """One invocation; what it asked of, in order."""
        self.asked.clear()
        entry.handle(event, Context(seconds), self)
        return list(self.asked)

    def edit(self, cluster: str, name: str) -> None:
        """Write another tag into an EC2NodeClass."""

        def edited(settings: ClusterSettings) -> ClusterSettings:
            classes = tuple(
                replace(item, spec=replace(item.spec, tags={"edited": "true"})) if item.metadata.name == name else item
                for item in settings.manifests.node_classes
            )
            return replace(settings, manifests=replace(settings.manifests, node_classes=classes))

        self.settings = Settings(
            tuple(edited(item) if item.name == cluster else item for item in self.settings.clusters)
        )

    def known(self) -> dict[tuple[str, str], str]:
        """Return the readiness of each EC2NodeClass, by the stored status."""
        return {
            (status.cluster, item.name): item.ready.status
            for status in self.statuses.load().clusters
            for item in status.node_classes
        }

    def all_classes(self) -> set[tuple[str, str]]:
        return {
            (settings.name, item.metadata.name)
            for settings in self.settings.clusters
            for item in settings.manifests.node_classes
        }


def hang() -> None:
    raise Hang("AWS")


def refuse() -> None:
    raise AwsError("denied", code="UnauthorizedOperation")


EUROPE, AMERICA = "eu-west-1", "us-east-1"


def test_all_clusters_are_inspected_where_there_is_time() -> None:
    world = World(("a", EUROPE), ("b", AMERICA), ("c", EUROPE))
    assert set(world.run()) == world.all_classes()
    assert world.known() == dict.fromkeys(world.all_classes(), "True")
    assert "NodeClassesNotInspected" not in world.meter.counts


def test_the_next_invocation_goes_on_where_one_has_no_more_time_and_none_starves() -> None:
    world = World(("a", EUROPE), ("b", AMERICA), ("c", EUROPE), classes=3, takes_s=15.0)
    seconds, turns = RESERVE_S + 60.0, list[list[tuple[str, str]]]()
    for _ in range(4):
        turns.append(world.run(seconds=seconds))
        world.clock.advance(300.0)
    assert all(2 <= len(turn) <= 6 for turn in turns)
    assert turns[0] != turns[1]
    assert {item for turn in turns[:3] for item in turn} == world.all_classes()
    assert world.known() == dict.fromkeys(world.all_classes(), "True")
    assert world.meter.counts["NodeClassesNotInspected"] > 0


def test_no_invocation_outlives_its_time() -> None:
    world = World(("a", EUROPE), ("b", AMERICA), classes=30, takes_s=INSPECTION_S - 0.5)
    began_at = world.clock.now()
    world.run(seconds=300.0)
    assert world.clock.now() - began_at < 300.0
    assert world.known(), "what was done is stored"


def test_what_is_done_is_stored_before_the_time_is_over() -> None:
    world = World(("a", EUROPE), classes=50, takes_s=1.0)
    stored_after: list[int] = []

    def note() -> None:
        stored_after.append(len(world.known()))

    world.does[("a", "*")] = note
    world.run()
    assert [after - before for before, after in pairwise(stored_after)].count(0) > 30
    assert len(set(stored_after)) == 5, "every ten seconds"
    assert STORE_S == 10.0


def test_of_each_cluster_with_news_the_functions_are_told_once_it_is_stored() -> None:
    """A status that waited for the sweep would come a minute later. Nobody is told that all is as it was."""
    world = World(("a", EUROPE), ("b", AMERICA))

    def told() -> list[str]:
        world.bus.events.clear()
        world.run()
        hints = [event.detail for event in world.bus.of_type(POD_PENDING)]
        assert all(hint["reason"] == MANIFESTS_CHANGED and not hint["pods"] for hint in hints)
        return [hint["cluster"] for hint in hints]

    assert told() == ["a", "b"]
    world.clock.advance(300)
    assert told() == []
    world.edit("b", "class-001")
    assert told() == ["b"]
    world.does["a", "class-000"] = refuse  # what could be launched from can be no longer
    assert told() == ["a"]
    assert told() == []
    world.does.clear()
    assert told() == ["a"]


def test_a_hint_that_the_bus_refuses_keeps_no_status_from_being_stored() -> None:
    world = World(("a", EUROPE))
    world.faults.on("before", "bus.publish", StoreError("refused"))
    world.run()
    assert world.meter.counts["EventsNotPublished"] == 1
    assert world.known().keys() == world.all_classes()


def test_an_edited_class_comes_first() -> None:
    world = World(("a", EUROPE), ("b", EUROPE))
    world.run()
    world.clock.advance(300)
    world.edit("b", "class-001")
    assert world.run()[0] == ("b", "class-001")


def test_a_cluster_without_an_answer_costs_only_itself_and_waits_for_its_turn() -> None:
    world = World(("a", EUROPE), ("b", EUROPE), ("c", EUROPE))
    world.does[("a", "*")] = hang
    began_at = world.clock.now()
    assert world.run() == [("a", "class-000"), *(item for item in sorted(world.all_classes()) if item[0] != "a")]
    assert world.clock.now() - began_at == INSPECTION_S + 4 * world.takes_s
    (a, *_) = world.statuses.load().clusters
    assert [(item.ready.status, item.ready.reason) for item in a.node_classes] == [("Unknown", NO_ANSWER)]
    assert [(item.name, item.ready) for item in a.pools] == [("class-000", "Unknown"), ("class-001", "Unknown")]
    world.does.clear()
    world.clock.advance(300)
    assert world.run()[0] == ("a", "class-001"), "never inspected"
    assert set(world.known().values()) == {"True"}


def test_a_region_without_an_answer_costs_two_clusters_and_no_other_region() -> None:
    names = [(f"a{number}", EUROPE) for number in range(20)]
    world = World(*names, ("z", AMERICA))
    for name, _ in names:
        world.does[(name, "*")] = hang
    began_at = world.clock.now()
    asked = world.run()
    assert [item for item in asked if item[0] == "z"] == [("z", "class-000"), ("z", "class-001")]
    assert len(asked) == SILENT_CLUSTERS + 2
    assert world.clock.now() - began_at == SILENT_CLUSTERS * INSPECTION_S + 2 * world.takes_s
    world.clock.advance(300)
    assert {item[0] for item in world.run()}.isdisjoint({asked[0][0], asked[1][0]}), "others of the Region are next"


def test_a_cluster_that_is_refused_or_breaks_an_inspection_costs_only_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def break_down() -> None:
        raise KeyError("odd")

    world = World(("a", EUROPE), ("b", EUROPE), ("c", EUROPE))
    world.does = {("a", "*"): break_down, ("b", "*"): refuse}
    world.run()
    assert world.known() == {
        **{("b", f"class-00{n}"): "Unknown" for n in range(2)},
        **{("c", f"class-00{n}"): "True" for n in range(2)},
    }
    assert world.meter.counts["UnexpectedErrors"] == 1
    assert "an inspection broke down" in caplog.text


def test_a_function_that_dies_at_any_moment_keeps_what_was_stored_and_is_gone_on_from() -> None:
    def world() -> World:
        return World(("a", EUROPE), ("b", AMERICA), ("c", EUROPE), takes_s=6.0)

    whole = world()
    whole.run()
    moments = len(whole.faults.points)
    assert whole.faults.points.count("after status.save") >= 3
    for moment in range(moments):
        dying = world()
        dying.faults.crash_at(moment)
        with pytest.raises(Crash):
            dying.run()
        saved = dying.faults.points.count("after status.save")
        dying.faults.clear()
        stored = dying.known()
        assert bool(stored) or not saved, moment
        dying.clock.advance(300)
        asked = dying.run()
        left = len(dying.all_classes()) - len(stored)
        assert set(asked[:left]) == dying.all_classes() - stored.keys(), f"{moment}: first what is missing"
        assert dying.known() == dict.fromkeys(dying.all_classes(), "True"), moment


def test_a_region_that_is_not_told_of_keeps_its_catalogue_and_no_other_from_being_refreshed() -> None:
    world = World(("a", AMERICA), ("b", EUROPE))
    world.does[(EUROPE, "fetch")] = hang
    with pytest.raises(AwsUnavailable, match="not answered"):
        world.run({})
    assert world.fetched == [EUROPE, AMERICA]
    assert world.stores[AMERICA].load().refreshed_at > world.stores[EUROPE].load().refreshed_at == 0.0
    assert set(world.known().values()) == {"True"}, "with the catalogue there is"
    world.does.clear()
    world.run({})
    assert world.fetched[2:] == [EUROPE, AMERICA], "first what was refreshed longest ago"


def test_refreshes_leave_time_to_inspect_and_say_what_is_left() -> None:
    regions = [f"eu-west-{number}" for number in range(1, 9)]
    world = World(*((f"c{number}", region) for number, region in enumerate(regions)))
    world.fetch_s = LEAST_REFRESH_S * 1.5
    began_at = world.clock.now()
    with pytest.raises(AwsUnavailable, match="no time is left to refresh region"):
        world.run({})
    assert world.clock.now() - began_at < 300.0
    assert set(world.known().values()) == {"True"}
    assert len(world.known()) == len(world.all_classes())
    done, world.fetched = world.fetched, []
    with pytest.raises(AwsUnavailable):
        world.run({})
    assert set(world.fetched[: len(regions) - len(done)]) == set(regions) - set(done)
    assert INSPECTING_S + RESERVE_S < 100.0


def test_a_short_invocation_still_refreshes_one_region() -> None:
    world = World(("a", EUROPE))
    world.run({}, seconds=60.0)
    assert world.fetched == [EUROPE]

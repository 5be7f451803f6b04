"""The contract of CapacityStore, held by the fake and by the DynamoDB adapter, on moto and on DynamoDB Local."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from shiplap.aws.dynamodb import tables
from shiplap.aws.dynamodb.capacity_table import DynamoCapacity
from shiplap.errors import StoreThrottled
from shiplap.instances.capacity.learned_capacity import with_observation
from shiplap.instances.catalog.type_catalog import Observation
from shiplap.ports import PILOT_LEASE_S, CapacityStore
from shiplap_lab.fakes.faults import Faults
from shiplap_lab.fakes.stores import FakeCapacity
from tests.integration.contracts.in_process_aws import HookedClient, create_table, dynamodb_client
from tests.learned_amounts import smallest_allocatable, smallest_capacity

NOW = 1_700_000_000.0
KEY = ("ami-1", "m5.large", "k1")


@dataclass(frozen=True)
class World:
    """Two functions on one table; `write` names the effect of a conditional write in `faults`."""

    store: CapacityStore
    rival: CapacityStore
    faults: Faults
    write: str


@pytest.fixture(params=["fake", "dynamodb", "dynamodb-local"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    faults = Faults()
    if request.param == "fake":
        fake = FakeCapacity(faults)
        yield World(fake, fake, faults, "capacity.observe")
        return
    with dynamodb_client(request) as client:
        create_table(client, "capacity", tables.CAPACITY)
        hooked = HookedClient(client, faults)
        first, second = (DynamoCapacity(hooked, "capacity", sleep=lambda _: None) for _ in range(2))
        yield World(first, second, faults, "put_item")


def seen(
    node: str,
    ami: str = "ami-1",
    instance_type: str = "m5.large",
    kubelet_hash: str = "k1",
    memory: int = 7_900_000_000,
) -> Observation:
    resources = {"memory": memory, "cpu": 2000, "pods": 29}
    return Observation(ami, instance_type, kubelet_hash, resources, resources, NOW, "blue", node, {"memory": 7 * 10**9})


def test_nothing_is_known_at_first(world: World) -> None:
    assert world.store.all() == ()
    assert world.store.learned(["ami-1"]) == ()
    assert world.store.pilots(["ami-1"], NOW) == frozenset()


def test_an_observation_is_read_back_exactly(world: World) -> None:
    observation = seen("a")
    learned = world.store.observe(observation)
    assert (learned.recent, learned.count, learned.version) == ((observation,), 1, 1)
    assert world.rival.learned(["ami-1"]) == (learned,)
    assert world.rival.all() == (learned,)


def test_observations_add_up(world: World) -> None:
    world.store.observe(seen("a"))
    learned = world.rival.observe(seen("b"))
    assert ([each.node for each in learned.recent], learned.count, learned.version) == (["a", "b"], 2, 2)


def test_entries_are_per_ami_type_and_kubelet_settings_and_sorted(world: World) -> None:
    keys = [
        ("ami-2", "m5.large", "k1"),
        ("ami-1", "m5.large", "k2"),
        ("ami-1", "m5.large", "k1"),
        ("ami-1", "c5.4xlarge", ""),
    ]
    for number, key in enumerate(keys):
        world.store.observe(seen(f"node-{number}", *key))
    assert [(each.ami, each.instance_type, each.kubelet_hash) for each in world.store.all()] == sorted(keys)
    assert [each.ami for each in world.store.learned(["ami-2", "ami-3"])] == ["ami-2"]
    assert len(world.store.learned(["ami-1", "ami-1"])) == 3
    assert world.store.learned([]) == ()


def test_an_observer_that_slips_in_just_before_the_write_is_not_lost(world: World) -> None:
    world.faults.on("before", world.write, lambda: world.rival.observe(seen("theirs")))
    learned = world.store.observe(seen("ours"))
    assert {each.node for each in learned.recent} == {"ours", "theirs"}
    assert world.store.learned(["ami-1"]) == (learned,)


def test_second_observers_slipping_into_a_known_entry_are_not_lost(world: World) -> None:
    world.store.observe(seen("first"))
    for number in range(3):
        world.faults.on(
            "before", world.write, lambda n=number: world.rival.observe(seen(f"theirs-{n}")), nth=number + 1
        )
    learned = world.store.observe(seen("ours"))
    assert learned.count == len(learned.recent) == 5
    assert world.store.learned(["ami-1"])[0].version == learned.version


def test_concurrent_observers_lose_nothing(world: World) -> None:
    def observe(number: int) -> None:
        (world.rival if number % 2 else world.store).observe(seen(f"node-{number}"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(observe, range(8)))
    (learned,) = world.store.all()
    assert {each.node for each in learned.recent} == {f"node-{number}" for number in range(8)}
    assert (learned.count, learned.version) == (8, 8)


def test_the_smallest_amount_outlives_ten_observations_and_concurrent_observers(world: World) -> None:
    world.store.observe(seen("a-small", memory=7_000_000_000))
    for number in range(12):
        world.faults.on("before", world.write, lambda n=number: world.rival.observe(seen(f"theirs-{n}")))
        world.store.observe(seen(f"ours-{number}"))
    (learned,) = world.rival.all()
    assert "a-small" not in {each.node for each in learned.recent}
    assert (smallest_capacity(learned)["memory"], smallest_allocatable(learned)["memory"]) == (
        7_000_000_000,
        7_000_000_000,
    )
    assert world.store.forget("ami-1", "m5.large") == 1
    assert smallest_capacity(world.store.observe(seen("next")))["memory"] == 7_900_000_000


def test_a_merged_entry_is_kept_beside_what_is_known_and_not_written_twice(world: World) -> None:
    world.store.observe(seen("ours"))
    theirs = with_observation(None, seen("theirs", memory=7_000_000_000))
    world.faults.on("before", world.write, lambda: world.rival.observe(seen("slipped in")))
    merged = world.store.merge(theirs)
    assert {each.node for each in merged.recent} == {"ours", "slipped in", "theirs"}
    assert smallest_capacity(merged)["memory"] == 7_000_000_000
    assert world.rival.merge(theirs) == merged


def test_forgetting_by_ami_type_and_kubelet_settings(world: World) -> None:
    for number, key in enumerate(
        [
            ("ami-1", "m5.large", "k1"),
            ("ami-1", "m5.large", "k2"),
            ("ami-1", "m5.xlarge", "k1"),
            ("ami-2", "m5.large", "k1"),
        ]
    ):
        world.store.observe(seen(f"node-{number}", *key))
    world.store.acquire_pilot(*KEY, "us", NOW)
    assert world.store.forget("ami-1", "m5.large", "k2") == 1
    assert world.store.forget("ami-1", "m5.large") == 1
    assert world.store.forget("ami-1") == 1
    assert world.store.forget("ami-1") == 0
    assert [each.ami for each in world.store.all()] == ["ami-2"]
    assert world.store.pilots(["ami-1"], NOW) == {"ami-1/m5.large#k1"}


def test_one_at_a_time_explores(world: World) -> None:
    assert world.store.acquire_pilot(*KEY, "us", NOW)
    assert not world.rival.acquire_pilot(*KEY, "them", NOW + 1)
    assert world.rival.acquire_pilot("ami-1", "m5.large", "k2", "them", NOW)
    assert world.store.pilots(["ami-1", "ami-1", "ami-2"], NOW) == {"ami-1/m5.large#k1", "ami-1/m5.large#k2"}
    assert world.store.pilots(["ami-2"], NOW) == frozenset()


def test_a_lease_is_no_learned_capacity(world: World) -> None:
    world.store.acquire_pilot(*KEY, "us", NOW)
    assert world.store.all() == ()
    assert world.store.learned(["ami-1"]) == ()


def test_the_holder_may_acquire_again_and_prolongs(world: World) -> None:
    assert world.store.acquire_pilot(*KEY, "us", NOW)
    assert world.store.acquire_pilot(*KEY, "us", NOW + 600)
    assert not world.rival.acquire_pilot(*KEY, "them", NOW + PILOT_LEASE_S + 1)


def test_a_lease_lapses(world: World) -> None:
    world.store.acquire_pilot(*KEY, "us", NOW)
    assert world.store.pilots(["ami-1"], NOW + PILOT_LEASE_S - 1) == {"ami-1/m5.large#k1"}
    assert world.store.pilots(["ami-1"], NOW + PILOT_LEASE_S) == frozenset()
    assert not world.rival.acquire_pilot(*KEY, "them", NOW + PILOT_LEASE_S - 1)
    assert world.rival.acquire_pilot(*KEY, "them", NOW + PILOT_LEASE_S)


def test_only_the_holder_releases(world: World) -> None:
    world.store.acquire_pilot(*KEY, "us", NOW)
    world.rival.release_pilot(*KEY, "them")
    assert world.store.pilots(["ami-1"], NOW) == {"ami-1/m5.large#k1"}
    world.store.release_pilot(*KEY, "us")
    world.store.release_pilot(*KEY, "us")
    assert world.store.pilots(["ami-1"], NOW) == frozenset()
    assert world.rival.acquire_pilot(*KEY, "them", NOW)


def test_of_many_concurrent_explorers_one_wins(world: World) -> None:
    def acquire(number: int) -> bool:
        return (world.rival if number % 2 else world.store).acquire_pilot(*KEY, f"claim-{number}", NOW)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(acquire, range(8))).count(True) == 1


def test_a_refused_write_leaves_nothing_behind(world: World) -> None:
    world.faults.on("before", world.write, StoreThrottled("slow down"))
    with pytest.raises(StoreThrottled):
        world.store.observe(seen("a"))
    assert world.store.all() == ()

"""The sweep of identities on fakes: it survives its death at each point, and a refusal keeps no other from ending."""

from __future__ import annotations

import pytest

from shiplap.errors import AwsError, StoreError
from shiplap.flows.catalog.identity_sweep import sweep_identities
from shiplap.node_identities import GRACE_S, InstanceProfile, OwnNodeRole
from shiplap_lab.fakes.faults import Crash, Faults
from shiplap_lab.fakes.identities import FakeKeptIdentities, FakeNodeIdentities
from shiplap_lab.fakes.signals import FakeClock, FakeMeter

NOW = 1_790_000_000.0
HOUR_S = 3600.0


class World:
    """An install: role `own-1` was the stack's own before `own-2`, with 50 nodes; cluster `gone` was removed."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.iam = FakeNodeIdentities(self.faults)
        self.store = FakeKeptIdentities(self.faults)
        self.meter = FakeMeter()
        for cluster, name in (("demo", "own-1"), ("demo", "own-2"), ("gone", "own-3")):
            self.iam.roles[name] = OwnNodeRole(name, f"arn:{name}", cluster, NOW - 90 * HOUR_S)
            self.iam.entries.add(f"arn:{name}")
            self.iam.profiles[f"of-{name}"] = InstanceProfile(f"of-{name}", f"arn:of-{name}", cluster, "n", (name,))
        self.iam.current = {"of-own-2"}
        self.iam.instances = {
            "of-own-1": {f"i-{number:02}" for number in range(50)},
            "of-own-2": {"i-new"},
            "of-own-3": {"i-left"},
        }

    def sweep(self, now: float, lasts_s: float = 10.0) -> None:
        self.clock = FakeClock(now)
        sweep_identities(self.iam, self.store, self.clock, self.meter, until=now + lasts_s)

    def existing(self) -> tuple[set[str], set[str], set[str]]:
        return set(self.iam.profiles), set(self.iam.roles), set(self.iam.entries)


WHOLE = ({"of-own-1", "of-own-2", "of-own-3"}, {"own-1", "own-2", "own-3"}, {"arn:own-1", "arn:own-2", "arn:own-3"})
LEFT = ({"of-own-2"}, {"own-2"}, {"arn:own-2"})


def test_profile_role_and_entry_exist_until_the_last_instance_is_gone_and_then_go() -> None:
    world = World()
    for hour in range(48):
        world.sweep(NOW + hour * HOUR_S)
        assert world.existing() == WHOLE
        if world.iam.instances["of-own-1"]:
            world.iam.instances["of-own-1"].discard(f"i-{hour + 2:02}")
    assert {item.name: item.instances for item in world.store.kept.profiles} == {"of-own-1": 3, "of-own-3": 1}

    world.iam.instances["of-own-1"].clear()
    world.sweep(NOW + 48 * HOUR_S)
    assert world.existing()[0] == {"of-own-2", "of-own-3"}, "the profile first"
    assert world.existing()[1:] == WHOLE[1:]
    world.sweep(NOW + 49 * HOUR_S)
    assert world.existing() == ({"of-own-2", "of-own-3"}, {"own-2", "own-3"}, {"arn:own-2", "arn:own-3"})

    world.iam.instances["of-own-3"].clear()
    for hour in (50, 51, 52):
        world.sweep(NOW + hour * HOUR_S)
    assert world.existing() == LEFT
    assert world.store.kept.profiles == ()
    assert world.store.kept.roles == ()


def _points() -> list[str]:
    world = World()
    _to_the_end(world)
    return list(world.faults.points)


def _to_the_end(world: World, looks: int = 4) -> None:
    world.iam.instances = {"of-own-2": {"i-new"}}
    for look in range(looks):
        world.sweep(NOW + look * (GRACE_S + 1))


POINTS = _points()


@pytest.mark.parametrize("point", range(len(POINTS)), ids=[f"{number}-{name}" for number, name in enumerate(POINTS)])
def test_a_sweep_that_dies_at_any_point_is_made_up_for_by_the_next(point: int) -> None:
    world = World()
    world.faults.crash_at(point)
    with pytest.raises(Crash):
        _to_the_end(world)
    world.faults.clear()
    assert world.existing()[0] >= LEFT[0]
    entries = {name.removeprefix("arn:") for name in world.iam.entries}
    held = {role for item in world.iam.profiles.values() for role in item.holds}
    assert held <= entries, "an entry goes after every profile that holds its role"
    assert held <= world.iam.roles.keys()
    _to_the_end(world)
    assert world.existing() == LEFT


def test_what_iam_refuses_to_end_keeps_nothing_else_from_ending() -> None:
    world = World()
    world.iam.instances = {}
    world.sweep(NOW)
    world.faults.on("before", "identities.delete_profile", AwsError("no", code="AccessDenied"))
    world.sweep(NOW + GRACE_S)
    assert world.existing()[0] == {"of-own-1", "of-own-2"}
    assert [item.name for item in world.store.kept.profiles] == ["of-own-1", "of-own-3"], "as they were before it"
    world.sweep(NOW + GRACE_S + HOUR_S)
    world.sweep(NOW + GRACE_S + 2 * HOUR_S)
    assert world.existing() == LEFT


@pytest.mark.parametrize("effect", ["identities.find", "identities.carriers", "identities.holders"])
def test_without_an_answer_nothing_ends_and_the_catalog_function_goes_on(effect: str) -> None:
    world = World()
    world.iam.instances = {}
    world.iam.roles["own-4"] = OwnNodeRole("own-4", "arn:own-4", "gone", NOW - 90 * HOUR_S)
    world.sweep(NOW)
    before = world.existing()
    world.faults.on("before", effect, AwsError("throttled", code="Throttling"))
    world.iam.roles["own-5"] = OwnNodeRole("own-5", "arn:own-5", "gone", NOW)
    world.sweep(NOW + GRACE_S)
    assert world.existing()[0] == before[0]
    assert world.meter.counts["IdentitiesNotSwept"] == 1
    world.sweep(NOW + GRACE_S)
    assert world.existing()[0] == LEFT[0]


def test_without_the_note_nothing_ends() -> None:
    world = World()
    world.iam.instances = {}
    world.sweep(NOW)
    for effect in ("kept.load", "kept.save"):
        world.faults.on("before", effect, StoreError("not now"))
        with pytest.raises(StoreError):
            world.sweep(NOW + GRACE_S)
        assert world.existing() == WHOLE


def test_a_profile_that_comes_back_into_use_begins_a_new_grace_when_it_is_superseded_again() -> None:
    world = World()
    world.iam.instances = {}
    world.sweep(NOW)
    world.iam.current = {"of-own-1", "of-own-2"}
    world.sweep(NOW + HOUR_S)
    world.iam.current = {"of-own-2"}
    world.sweep(NOW + 100 * HOUR_S)
    assert "of-own-1" in world.iam.profiles
    world.sweep(NOW + 100 * HOUR_S + GRACE_S)
    assert "of-own-1" not in world.iam.profiles


def test_a_look_that_has_no_time_left_ends_nothing_more_and_the_next_one_goes_on() -> None:
    world = World()
    world.iam.instances = {}
    world.sweep(NOW, lasts_s=0.0)
    assert world.faults.points == []
    world.sweep(NOW)
    world.faults.on("after", "identities.delete_profile", lambda: world.clock.advance(11.0))
    world.sweep(NOW + GRACE_S)
    assert world.existing() == ({"of-own-2", "of-own-3"}, *WHOLE[1:])
    for hour in (1, 2):
        world.sweep(NOW + GRACE_S + hour * HOUR_S)
    assert world.existing() == LEFT

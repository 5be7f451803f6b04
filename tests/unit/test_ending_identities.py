"""Tests the end of instance profiles and node roles: none that a launch names or an instance carries, then all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shiplap.node_identities import (
    GRACE_S,
    MOST_AT_ONCE,
    EndingIdentities,
    FoundIdentities,
    InstanceProfile,
    KeptIdentities,
    KeptProfile,
    KeptRole,
    OwnNodeRole,
    ending_identities,
)

NOW = 1_790_000_000.0
DAY_S = 24 * 3600.0


def profile(name: str, *holds: str, cluster: str = "demo") -> InstanceProfile:
    return InstanceProfile(name, f"arn:{name}", cluster, "nodes", holds)


def role(name: str, age_s: float = 10 * DAY_S, cluster: str = "demo") -> OwnNodeRole:
    return OwnNodeRole(name, f"arn:{name}", cluster, NOW - age_s)


def kept_since(age_s: float, *names: str) -> KeptIdentities:
    return KeptIdentities(tuple(KeptProfile(name, "demo", "nodes", NOW - age_s) for name in names))


def look(
    *profiles: InstanceProfile,
    roles: tuple[OwnNodeRole, ...] = (),
    current: tuple[str, ...] = (),
    carriers: dict[str, tuple[str, ...]] | None = None,
    holders: dict[str, tuple[str, ...]] | None = None,
    before: KeptIdentities | None = None,
) -> EndingIdentities:
    found = FoundIdentities(profiles, roles, frozenset(current))
    asked = dict.fromkeys((item.name for item in found.unheld), ()) if holders is None else holders
    return ending_identities(found, carriers or {}, asked, before or KeptIdentities(), NOW)


def names(ending: EndingIdentities) -> tuple[list[str], list[str]]:
    return [item.name for item in ending.profiles], [item.name for item in ending.roles]


def test_a_profile_in_use_is_not_even_noted() -> None:
    ending = look(profile("now"), current=("now",), before=kept_since(9 * DAY_S, "now"))
    assert names(ending) == ([], [])
    assert ending.kept == KeptIdentities(), "if it is superseded later, its grace begins then"


def test_a_superseded_profile_is_noted_first_and_ends_when_its_grace_is_over() -> None:
    first = look(profile("old"), profile("now"), current=("now",))
    assert names(first) == ([], [])
    assert first.kept.profiles == (KeptProfile("old", "demo", "nodes", NOW),)

    for age_s, ended in ((GRACE_S - 1, []), (GRACE_S, ["old"])):
        later = look(profile("old"), profile("now"), current=("now",), before=kept_since(age_s, "old"))
        assert names(later)[0] == ended
        assert later.kept.profiles[0].superseded_at == NOW - age_s


def test_a_profile_stays_however_long_an_instance_carries_it_and_others_go() -> None:
    ending = look(
        profile("carried"),
        profile("empty"),
        carriers={"carried": ("i-9", "i-2", "i-4", "i-1")},
        before=kept_since(400 * DAY_S, "carried", "empty"),
    )
    assert names(ending)[0] == ["empty"]
    noted = {item.name: (item.instances, item.examples) for item in ending.kept.profiles}
    assert noted == {"carried": (4, ("i-1", "i-2", "i-4")), "empty": (0, ())}


def test_a_role_ends_when_no_profile_of_anybody_holds_it() -> None:
    roles = (role("own"), role("theirs"), role("held"), role("unasked"))
    ending = look(profile("p", "held"), roles=roles, holders={"own": (), "theirs": ("foreign",)})
    assert names(ending)[1] == ["own"]
    assert ending.kept.roles == (KeptRole("own", "demo"), KeptRole("theirs", "demo", ("foreign",)))


def test_a_role_that_a_deployment_has_just_made_stays() -> None:
    """Its profile comes after it."""
    assert names(look(roles=(role("young", GRACE_S - 1), role("old", GRACE_S))))[1] == ["old"]


def test_a_role_outlives_the_profile_that_holds_it_even_when_that_one_ends_now() -> None:
    ending = look(profile("old", "own"), roles=(role("own"),), before=kept_since(2 * DAY_S, "old"))
    assert names(ending) == (["old"], [])


def test_one_look_ends_a_few_in_the_order_of_names_and_the_next_look_goes_on() -> None:
    many = [f"p{number:02}" for number in range(MOST_AT_ONCE + 3)]
    ending = look(*map(profile, reversed(many)), before=kept_since(2 * DAY_S, *many))
    assert names(ending)[0] == many[:MOST_AT_ONCE]
    assert len(ending.kept.profiles) == len(many)
    ending = look(*map(profile, many[MOST_AT_ONCE:]), before=ending.kept)
    assert names(ending)[0] == many[MOST_AT_ONCE:]


_NAMES = st.sampled_from([f"p{number}" for number in range(6)])


@given(
    existing=st.sets(_NAMES),
    current=st.sets(_NAMES),
    carried=st.sets(_NAMES),
    noted=st.dictionaries(_NAMES, st.floats(0, 3 * DAY_S)),
    held=st.dictionaries(_NAMES, _NAMES),
)
def test_nothing_in_use_or_carried_or_young_ever_ends(
    existing: set[str], current: set[str], carried: set[str], noted: dict[str, float], held: dict[str, str]
) -> None:
    profiles = [profile(name, *([f"r-{held[name]}"] if name in held else [])) for name in sorted(existing)]
    roles = tuple(role(f"r-{name}") for name in sorted(existing))
    before = KeptIdentities(tuple(KeptProfile(name, "demo", "nodes", NOW - age) for name, age in sorted(noted.items())))
    ending = look(
        *profiles, roles=roles, current=tuple(current), carriers=dict.fromkeys(carried, ("i-1",)), before=before
    )
    ended, ended_roles = (set(found) for found in names(ending))
    assert not ended & (current | carried)
    assert all(noted.get(name, 0.0) >= GRACE_S for name in ended)
    assert not ended_roles & {held_role for item in profiles for held_role in item.holds}
    assert {item.name for item in ending.kept.profiles} == existing - current
    assert ended == {name for name in existing - current - carried if noted.get(name, 0.0) >= GRACE_S}

"""Since when each object of a cluster says what it says: an edit unsettles its own NodePools, for its own time."""

from __future__ import annotations

from msgspec.structs import replace

from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.live.live_manifests import SETTLED_S, LiveManifests, ObservedManifest
from tests.builders.pools import pool

NOW = 1_000_000.0


POOLS = (pool("batch", node_class="gpu"), pool("shop"), pool("web"))


def live(**ages_s: float) -> LiveManifests:
    """Three NodePools of two EC2NodeClasses; ages in seconds, an hour where none is given."""
    kinds = {
        "batch": "NodePool",
        "shop": "NodePool",
        "web": "NodePool",
        "gpu": "EC2NodeClass",
        "default": "EC2NodeClass",
    }
    observed = [
        ObservedManifest(kind, name, uid=f"uid-{name}", digest="one", since=NOW - ages_s.get(name, 3600.0))
        for name, kind in kinds.items()
    ]
    return LiveManifests(Manifests(node_pools=POOLS), observed=tuple(sorted(observed)))


def test_an_edit_unsettles_its_node_pool_and_that_of_its_node_class_and_no_other() -> None:
    assert live().unsettled_pools(NOW) == ()
    assert live(web=5.0).unsettled_pools(NOW) == ("web",)
    assert live(gpu=5.0).unsettled_pools(NOW) == ("batch",)
    assert live(default=5.0).unsettled_pools(NOW) == ("shop", "web")


def test_the_first_of_several_edits_that_has_stood_long_enough_is_the_next_moment() -> None:
    """Each NodePool is looked at as soon as it has settled, however often others are edited."""
    edits = live(web=50.0, gpu=20.0, shop=5.0)
    assert edits.settles_at(NOW) == NOW + 10.0
    assert edits.unsettled_pools(NOW) == ("batch", "shop", "web")
    assert edits.unsettled_pools(NOW + 10.0) == ("batch", "shop")
    assert edits.settles_at(NOW + 10.0) == NOW + 40.0
    assert edits.settles_at(NOW + 40.0) == NOW + 55.0
    assert edits.settles_at(NOW + 55.0) == 0.0
    assert edits.unsettled_pools(NOW + SETTLED_S) == ()


def test_each_object_keeps_the_age_that_it_had_and_what_was_edited_is_new() -> None:
    before = live(web=50.0)
    edited = tuple(replace(item, digest="two") if item.name == "shop" else item for item in before.observed)
    aged = replace(before, observed=edited).with_ages(before, NOW)
    since = {item.name: item.since for item in aged.observed}
    assert since == {"batch": NOW - 3600, "gpu": NOW - 3600, "default": NOW - 3600, "web": NOW - 50, "shop": NOW}
    again = tuple(replace(item, generation=item.generation + 2) if item.name == "web" else item for item in edited)
    since = {item.name: item.since for item in replace(before, observed=again).with_ages(aged, NOW + 9).observed}
    assert (since["web"], since["shop"], since["batch"]) == (NOW + 9, NOW, NOW - 3600)


def test_an_object_made_anew_under_its_name_is_new_and_one_of_another_kind_is_another() -> None:
    before = live()
    anew = tuple(replace(item, uid="other") if item.name == "web" else item for item in before.observed)
    since = {item.name: item.since for item in replace(before, observed=anew).with_ages(before, NOW).observed}
    assert [name for name, at in since.items() if at == NOW] == ["web"]
    namesake = ObservedManifest("EC2NodeClass", "web", uid="uid-class", digest="one", since=NOW)
    assert replace(before, observed=(*before.observed, namesake)).unsettled_pools(NOW) == ()

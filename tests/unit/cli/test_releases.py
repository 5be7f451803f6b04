"""Releases: which versions belong together, and what forbids a return to one."""

from __future__ import annotations

import pytest

from shiplap_cli.installs.releases import (
    AliasMove,
    LibraryLayer,
    LiveAlias,
    PublishedVersion,
    StoredSchemas,
    library_layer,
    moves_to,
    objections,
    releases_of,
)

OLD, NEW = LibraryLayer("layer:library:1", "0.1.0", 1), LibraryLayer("layer:library:2", "0.2.0", 2)
FIRST, SECOND = (OLD.arn, "layer:settings:1"), (NEW.arn, "layer:settings:1")


def version(function: str, number: int, layers: tuple[str, ...]) -> PublishedVersion:
    return PublishedVersion(function, number, f"2026-11-{number:02}", layers)


PUBLISHED = (
    version("schedule", 3, FIRST),
    version("schedule", 4, SECOND),
    version("lifecycle", 9, FIRST),
    version("lifecycle", 10, FIRST),
    version("lifecycle", 11, SECOND),
)
LIVE = (LiveAlias("schedule", 4, "a"), LiveAlias("lifecycle", 11, "b"))


def test_versions_with_the_same_layers_belong_together_and_the_newest_counts() -> None:
    new, old = releases_of(PUBLISHED, LIVE, (OLD, NEW), "schedule")
    assert (new.version, new.functions, new.shiplap, new.schema) == (4, {"schedule": 4, "lifecycle": 11}, "0.2.0", 2)
    assert (old.version, old.functions, old.shiplap, old.schema) == (3, {"schedule": 3, "lifecycle": 10}, "0.1.0", 1)
    assert (old.published_at, old.library) == ("2026-11-10", OLD.arn)


def test_the_order_of_layers_does_not_matter() -> None:
    turned = tuple(version("lifecycle", 9, FIRST[::-1]) if item.number == 10 else item for item in PUBLISHED)
    assert len(releases_of(turned, LIVE, (), "schedule")) == 2


def test_versions_without_one_of_schedule_cannot_be_named() -> None:
    later = (*PUBLISHED, version("lifecycle", 12, ("layer:library:3",)))
    assert [release.version for release in releases_of(later, LIVE, (), "schedule")] == [4, 3]


@pytest.mark.parametrize(
    ("aliases", "live"),
    [
        (LIVE, ["all", "none"]),
        ((LIVE[0], LiveAlias("lifecycle", 10, "b")), ["some", "some"]),
        ((LiveAlias("schedule", 4, "a", {"3": 0.5}), LIVE[1]), ["some", "none"]),
        ((LiveAlias("schedule", 1, "a"),), ["none", "none"]),
    ],
)
def test_a_release_is_live_as_far_as_aliases_name_it(aliases: tuple[LiveAlias, ...], live: list[str]) -> None:
    assert [release.live for release in releases_of(PUBLISHED, aliases, (), "schedule")] == live


def test_aliases_that_are_elsewhere_or_divert_calls_move() -> None:
    new, old = releases_of(PUBLISHED, LIVE, (OLD, NEW), "schedule")
    assert moves_to(old, LIVE) == (AliasMove("schedule", 4, 3), AliasMove("lifecycle", 11, 10))
    assert moves_to(new, LIVE) == ()
    assert moves_to(new, (LiveAlias("schedule", 4, "a", {"3": 0.1}), LIVE[1])) == (AliasMove("schedule", 4, 4),)


class TestObjections:
    def test_items_of_the_same_or_an_older_schema_are_none(self) -> None:
        new, old = releases_of(PUBLISHED, LIVE, (OLD, NEW), "schedule")
        stored = StoredSchemas({"NodeClaim": {1: 7}, "disruption command": {1: 1}})
        assert objections(old, LIVE, stored) == ()
        assert objections(new, LIVE, StoredSchemas({"NodeClaim": {1: 7, 2: 1}})) == ()

    def test_newer_items_are_named_by_kind(self) -> None:
        _, old = releases_of(PUBLISHED, LIVE, (OLD, NEW), "schedule")
        stored = StoredSchemas({"NodeClaim": {1: 7, 2: 1, 3: 1}, "disruption command": {2: 1}})
        claims, commands = objections(old, LIVE, stored)
        assert "2 NodeClaims of schema 3, and this release reads up to 1" in claims
        assert "1 disruption command of schema 2" in commands

    def test_a_function_without_a_version_of_the_release(self) -> None:
        _, old = releases_of(PUBLISHED, LIVE, (OLD, NEW), "schedule")
        (refused,) = objections(old, (*LIVE, LiveAlias("audit", 2, "c")), StoredSchemas())
        assert "function audit has no version of this release" in refused

    def test_a_library_that_is_not_known_any_more(self) -> None:
        _, old = releases_of(PUBLISHED, LIVE, (NEW,), "schedule")
        (refused,) = objections(old, LIVE, StoredSchemas())
        assert (old.schema, old.library) == (0, "")
        assert "is gone or does not say which items it reads" in refused


@pytest.mark.parametrize(
    ("description", "library"),
    [
        ("The package shiplap", LibraryLayer("a", "", 1)),
        ("The package shiplap 1.2.0, reads items up to schema 12", LibraryLayer("a", "1.2.0", 12)),
        ("The package shiplap 1.2.0", None),
        ("Third-party packages", None),
        ("", None),
    ],
)
def test_the_description_of_a_layer_says_its_schema(description: str, library: LibraryLayer | None) -> None:
    assert library_layer("a", description) == library

"""Finds objects by name: one list where they are, next to nothing where their kind is not defined."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shiplap.cluster import named_objects
from shiplap.cluster.named_objects import NamedObjectFinder
from shiplap.errors import ObjectNotFound, ResourceVersionGone
from shiplap.kubernetes.objects import CustomObject
from shiplap.kubernetes.reading import Reader
from shiplap.ports import CustomKind, NamedObjects

KIND = CustomKind("example.com", ("v2", "v1"), "things", Reader(CustomObject, "Thing"))
V2, V1 = "/apis/example.com/v2/things", "/apis/example.com/v1/things"
A, B = ("a", "x"), ("b", "x")


class Lists:
    """A transport that serves lists in pages; without a list the kind is not defined."""

    most_bytes = 2**20

    def __init__(self, **lists: Any) -> None:
        self.lists: dict[str, list[tuple[str, str]]] = {}
        self.asked: list[str] = []
        self.forgets = 0

    def get(self, path: str, query: Mapping[str, Any]) -> bytes:
        self.asked.append(path)
        if path not in self.lists:
            raise ObjectNotFound(path, status=404)
        start = int(query.get("continue", 0))
        if start and self.forgets:
            self.forgets -= 1
            raise ResourceVersionGone("too old", status=410)
        end = start + query["limit"]
        items = [{"metadata": {"namespace": space, "name": name}} for space, name in self.lists[path][start:end]]
        token = str(end) if end < len(self.lists[path]) else ""
        return json.dumps({"metadata": {"continue": token}, "items": items}).encode()


def finder(lists: Lists) -> NamedObjectFinder:
    return NamedObjectFinder(lists)  # type: ignore[arg-type]


def names(found: NamedObjects) -> list[tuple[str, str]]:
    return [(item.metadata.namespace, item.metadata.name) for item in found.items]


def test_a_list_ends_where_all_names_are_found() -> None:
    lists = Lists()
    lists.lists[V2] = [A, B, *(("c", f"{number:04d}") for number in range(2_000))]
    found = finder(lists).find(KIND, {A, B})
    assert (names(found), lists.asked) == ([A, B], [V2])
    lists.asked.clear()
    assert names(finder(lists).find(KIND, {B, ("none", "x")})) == [B]
    assert lists.asked == [V2] * 5


def test_the_version_that_was_served_is_asked_for_first() -> None:
    lists = Lists()
    lists.lists[V1] = [A]
    asking = finder(lists)
    assert [names(asking.find(KIND, {A})) for _ in range(2)] == [[A], [A]]
    assert lists.asked == [V2, V1, V1]
    lists.lists = {V2: [A]}
    lists.asked.clear()
    assert [names(asking.find(KIND, {A})) for _ in range(2)] == [[A], [A]]
    assert lists.asked == [V1, V2, V2]


def test_a_kind_without_definition_costs_one_request_and_is_found_once_it_is_defined() -> None:
    lists = Lists()
    asking = finder(lists)
    assert [asking.find(KIND, {A}) for _ in range(4)] == [NamedObjects()] * 4
    assert lists.asked == [V2, V1, V2, V1, V2]
    lists.lists[V1] = [A]
    assert names(asking.find(KIND, {A})) == [A]
    other = CustomKind("example.com", ("v1",), "others", KIND.reader)
    assert asking.find(other, {A}) == NamedObjects()
    lists.lists = {V2: [A]}
    assert names(asking.find(KIND, {A})) == [A]


def test_one_namespace_hides_no_other_ones_objects() -> None:
    lists = Lists()
    many = [("a", f"{number:06d}") for number in range(named_objects._MOST_LISTED + 1)]
    lists.lists = {V2: [*many, B], V2.replace("things", "namespaces/b/things"): [B]}
    lists.lists[V2.replace("things", "namespaces/a/things")] = many
    found = finder(lists).find(KIND, {B, ("a", "999999"), ("b", "none")})
    assert (names(found), found.unlisted) == ([B], (("a", "999999"),))


def test_a_list_that_is_forgotten_half_way_begins_anew() -> None:
    lists = Lists()
    lists.lists[V2] = [*(("a", f"{number:04d}") for number in range(600)), B]
    lists.forgets = 1
    assert names(finder(lists).find(KIND, {("a", "0000"), B})) == [("a", "0000"), B]

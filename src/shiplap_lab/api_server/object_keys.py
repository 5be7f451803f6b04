"""The keys of one kind's objects in the order of lists, and those on one node without looking at the others.

Nearly every list asks for all objects, for one by its name, for pods without a node or for those of one node, and most
come again and again while little has changed: neither sorting nor looking through everything each time is affordable
for thousands of nodes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

_NODE_NAME = "spec.nodeName="
_NAME = "metadata.name="


class Keys:
    """Sorted keys of what is stored."""

    def __init__(self) -> None:
        self._all: list[str] = []
        self._by_node: dict[str, list[str]] = {}

    def put(self, key: str, item: dict[str, Any], previous: dict[str, Any] | None) -> None:
        """An object is stored in the place of the previous one, if there was any."""
        node = _node_of(item)
        if previous is None:
            insort(self._all, key)
        elif _node_of(previous) == node:
            return
        else:
            self._leave(key, previous)
        insort(self._by_node.setdefault(node, []), key)

    def drop(self, key: str, previous: dict[str, Any]) -> None:
        """An object is gone."""
        del self._all[bisect_left(self._all, key)]
        self._leave(key, previous)

    def chosen(self, field_selector: str, namespace: str = "") -> list[str]:
        """Keys of all objects that can match a field selector, sorted; not to be changed."""
        for term in field_selector.split(","):
            if namespace and term.startswith(_NAME) and not term.startswith(f"{_NAME}="):
                key = f"{namespace}/{term.removeprefix(_NAME)}"
                place = bisect_left(self._all, key)
                return self._all[place : place + 1] if self._all[place : place + 1] == [key] else []
            if term.startswith(_NODE_NAME) and not term.startswith(f"{_NODE_NAME}="):
                return self._by_node.get(term.removeprefix(_NODE_NAME), [])
        return self._all

    def _leave(self, key: str, previous: dict[str, Any]) -> None:
        node = _node_of(previous)
        there = self._by_node[node]
        del there[bisect_left(there, key)]
        if not there:
            del self._by_node[node]


def _node_of(item: dict[str, Any]) -> str:
    spec = item.get("spec")
    return str(spec.get("nodeName") or "") if isinstance(spec, dict) else ""

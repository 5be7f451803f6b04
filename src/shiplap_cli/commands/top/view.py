"""The choices of the person at the terminal, and how keys change them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from shiplap.drawing.picture import Amounts, ClusterPicture, NodePicture

SORTS = ("name", "cpu", "memory", "pods", "price", "age", "pool", "state")


class View(msgspec.Struct, frozen=True):
    """Choices. `selected` is a node's name, so that it stays chosen while others come and go.

    `typing` is whether keys go into the filter; `inside` whether the selected node is opened, `decisions` whether what
    was decided takes the whole screen, `scroll` how far either is moved.
    """

    sort: str = "name"
    reverse: bool = False
    filter: str = ""
    typing: bool = False
    selected: str = ""
    inside: bool = False
    decisions: bool = False
    scroll: int = 0
    paused: bool = False
    help: bool = False


def share(used: int, whole: int) -> float:
    """Used part of a whole, above 1 where more is asked for than there is; 0 of nothing."""
    return used / whole if whole > 0 else 0.0


def _key(sort: str) -> Callable[[NodePicture], tuple[float | str, ...]]:
    def load(amount: Callable[[Amounts], int]) -> Callable[[NodePicture], tuple[float | str, ...]]:
        return lambda node: (-share(amount(node.used), amount(node.allocatable)), node.name)

    keys: dict[str, Callable[[NodePicture], tuple[float | str, ...]]] = {
        "name": lambda node: (node.name,),
        "cpu": load(lambda amounts: amounts.millicores),
        "memory": load(lambda amounts: amounts.memory_bytes),
        "pods": lambda node: (-node.used.pods, node.name),
        "price": lambda node: (-node.hourly, node.name),
        "age": lambda node: (node.created_at or float("inf"), node.name),
        "pool": lambda node: (node.pool or "~", str(node.tier), node.name),
        "state": lambda node: (str(node.state), node.name),
    }
    return keys[sort]


def shown_nodes(picture: ClusterPicture, view: View) -> list[NodePicture]:
    """The nodes that pass the filter, in the order chosen. Every word of the filter must be in what a row says."""
    words = view.filter.lower().split()
    nodes = [node for node in picture.nodes if all(word in _text(node) for word in words)]
    return sorted(nodes, key=_key(view.sort), reverse=view.reverse)


def _text(node: NodePicture) -> str:
    parts = (node.name, node.pool, node.instance_type, node.zone, node.capacity_type, node.state, node.note)
    return " ".join(parts).lower()


def pressed(view: View, key: str, nodes: Sequence[NodePicture], page: int) -> View:
    """The view after a key.

    Args:
        view: before it.
        key: a character, or one of up, down, pageup, pagedown, home, end, enter, escape, backspace.
        nodes: those shown, in their order.
        page: how many rows there are for them.
    """
    if view.typing:
        return _after_typing(view, key)
    if view.help:
        return msgspec.structs.replace(view, help=False)
    if key in _MOVES:
        return _after_move(view, key, nodes, page)
    if key == "enter":
        name = view.selected or (nodes[0].name if nodes else "")
        return msgspec.structs.replace(view, selected=name, inside=bool(name), decisions=False, scroll=0)
    choose = _CHOICES.get(key)
    return view if choose is None else msgspec.structs.replace(view, **choose(view))


def _next_sort(view: View) -> dict[str, Any]:
    return {"sort": SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)], "reverse": False}


_CHOICES: dict[str, Callable[[View], dict[str, Any]]] = {
    "escape": lambda view: {"inside": False, "decisions": False} if view.inside or view.decisions else {"filter": ""},
    "d": lambda view: {"decisions": not view.decisions, "inside": False, "scroll": 0},
    "s": _next_sort,
    "r": lambda view: {"reverse": not view.reverse},
    "/": lambda _: {"typing": True, "inside": False, "decisions": False},
    "p": lambda view: {"paused": not view.paused},
    "?": lambda _: {"help": True},
    "h": lambda _: {"help": True},
}


def _after_typing(view: View, key: str) -> View:
    change = msgspec.structs.replace
    if key in ("enter", "escape"):
        return change(view, typing=False, filter=view.filter if key == "enter" else "")
    if key == "backspace":
        return change(view, filter=view.filter[:-1])
    return change(view, filter=view.filter + key) if len(key) == 1 else view


_MOVES = {"up": -1, "k": -1, "down": 1, "j": 1}
_MOVES |= dict.fromkeys(("pageup", "pagedown", "home", "end", "g", "G"), 0)


def _after_move(view: View, key: str, nodes: Sequence[NodePicture], page: int) -> View:
    steps = {"pageup": -page, "pagedown": page}.get(key, _MOVES.get(key, 0))
    if view.inside or view.decisions:
        return msgspec.structs.replace(view, scroll=0 if key in ("home", "g") else max(0, view.scroll + steps))
    if not nodes:
        return view
    names = [node.name for node in nodes]
    at = names.index(view.selected) if view.selected in names else (-1 if steps > 0 else 0)
    if key in ("home", "g", "end", "G"):
        at = 0 if key in ("home", "g") else len(names) - 1
    else:
        at = min(max(at + steps, 0), len(names) - 1)
    return msgspec.structs.replace(view, selected=names[at])

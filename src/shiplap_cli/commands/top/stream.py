"""The differences between two pictures in words: nodes that join, become ready, leave or are gone; pods that wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from shiplap.drawing.picture import ClusterPicture, NodePicture, NodePictureState
from shiplap.manifests.nodeclaim import ClaimState

_MOST = 200
_WITHOUT_NODE = frozenset({ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.LAUNCHED})
"""The notes of claims that have no Node yet."""


class StreamLine(msgspec.Struct, frozen=True):
    """One line of the stream; `at` in epoch seconds."""

    at: float
    text: str
    kind: str = ""


def changes_between(before: ClusterPicture, after: ClusterPicture) -> list[StreamLine]:
    """The difference of two pictures of a cluster, by node, then pods."""
    old = {node.name: node for node in before.nodes}
    new = {node.name: node for node in after.nodes}
    for claim, node in _joined(old, new):
        old[node.name] = old.pop(claim.name)
    at = after.taken_at
    lines = [
        StreamLine(at, text, kind)
        for name in sorted(old.keys() | new.keys())
        for text, kind in _node_changes(old.get(name), new.get(name))
    ]
    waited = {pod.key for pod in before.pending}
    waits = {pod.key for pod in after.pending}
    if fresh := sorted(waits - waited):
        lines.append(StreamLine(at, f"{_pods(fresh)} waiting for a node", "waiting"))
    placed = {pod.key for node in after.nodes for pod in node.pods if not pod.fresh} if waited - waits else set()
    if settled := sorted((waited - waits) & placed):
        lines.append(StreamLine(at, f"{_pods(settled)} placed", "placed"))
    return lines


def extended(stream: tuple[StreamLine, ...], lines: list[StreamLine]) -> tuple[StreamLine, ...]:
    """The stream with further lines; the oldest are forgotten."""
    return (*stream, *lines)[-_MOST:]


def _joined(
    old: Mapping[str, NodePicture], new: Mapping[str, NodePicture]
) -> Iterator[tuple[NodePicture, NodePicture]]:
    """Claims that were shown by their own names and have become Nodes: as each vanishes, one of its kind appears."""
    appeared = [
        new[name] for name in sorted(new.keys() - old.keys()) if new[name].state is not NodePictureState.PLANNED
    ]
    for name in sorted(old.keys() - new.keys()):
        claim = old[name]
        if claim.note not in _WITHOUT_NODE:
            continue
        node = next((node for node in appeared if _kind(node) == _kind(claim)), None)
        if node is not None:
            appeared.remove(node)
            yield claim, node


def _kind(node: NodePicture) -> tuple[str, str, str, str]:
    return node.pool, node.instance_type, node.zone, node.capacity_type


def _node_changes(old: NodePicture | None, new: NodePicture | None) -> Iterator[tuple[str, str]]:
    if new is None:
        if old is not None:
            yield f"node {old.name} ({_node_text(old)}) is gone", "gone"
    elif old is None:
        yield f"node {new.name} ({_node_text(new)}) {_appears(new)}", "new"
    elif old.state is not new.state:
        note = f": {new.note}" if new.note else ""
        yield f"node {new.name} is {new.state}{note}", "ready" if new.state is NodePictureState.READY else "changed"


def _appears(node: NodePicture) -> str:
    return "was launched" if node.state in (NodePictureState.PLANNED, NodePictureState.STARTING) else f"is {node.state}"


def _node_text(node: NodePicture) -> str:
    price = f"{'~' * node.estimated}{node.hourly:.4f} USD/h" if node.hourly else ""
    return ", ".join(filter(None, (node.pool, node.instance_type, node.capacity_type, price)))


def _pods(names: list[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"pod {names[0]}{more}" if not more else f"pods {names[0]}{more}"

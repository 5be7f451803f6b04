"""Pictures of a cluster that is followed: only nodes that changed since the last one are drawn again.

A cluster of 20,000 pods changes little within a second, so a picture each second costs what has changed, not what is
there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from shiplap.drawing.capture import picture_of_cluster
from shiplap.drawing.picture import ClusterPicture, NodePicture, PendingPicture
from shiplap.instances.offerings.node_prices import NodePrices
from shiplap.kubernetes.objects import TERMINAL_PHASES, Node, Pod
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.records.disruption_record import Headline
from shiplap.scheduling.model.planned_pods import pair
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap_cli.commands.top.followed_install import ClaimsRead, DecisionsRead, LinesRead, SourceRead, claim_steps
from shiplap_cli.inputs.cluster_events import ClusterEvent, ObjectChanged, ObjectsListed, SourceProblem
from shiplap_cli.inputs.cluster_inputs import region_of, regions_of
from shiplap_cli.policy_views import waiting_together

_KEPT = 200
"""Decisions that are kept; older ones are forgotten."""


class FollowedCluster:
    """The nodes, pods, claims and decisions of a cluster, kept up to date by events.

    Args:
        cluster: how it is called.
        prices: those of a Region, and what is assumed for them, if anything is; asked once for each Region of nodes.
    """

    def __init__(self, cluster: str, prices: Callable[[str], tuple[NodePrices, str]]) -> None:
        self._cluster, self._prices_of = cluster, prices
        self._prices: dict[str, tuple[NodePrices, str]] = {}
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._on_node: dict[str, dict[str, Pod]] = {}
        self._pending: dict[str, Pod] = {}
        self._drawn: dict[str, NodePicture] = {}
        self._stale: set[str] = set()
        self._troubles: dict[str, str] = {}
        self._listed: set[str] = set()
        self._lines: dict[str, tuple[str, ...]] = {}
        self._claims: tuple[NodeClaim, ...] | None = None
        self._decisions: tuple[Headline, ...] = ()
        self._paired: dict[str, NodeClaim] = {}
        self._coming: list[NodeClaim] = []
        self._to_pair = False

    @property
    def ready(self) -> bool:
        """True if nodes and pods have each been listed, or cannot be."""
        return {"nodes", "pods"} <= self._listed | self._troubles.keys()

    @property
    def unreachable_reason(self) -> str:
        """Return why nothing at all is seen, neither the cluster nor claims; empty when something is."""
        return "" if self._listed or self._claims or not self.ready else self._troubles["nodes"]

    def decisions(self, since: float) -> tuple[Headline, ...]:
        """The decisions since then (epoch seconds), in order of time."""
        return tuple(line for line in self._decisions if line.at >= since)

    def apply(self, seen: ClusterEvent | SourceRead) -> None:
        """Update the state by an event."""
        match seen:
            case ClaimsRead(claims):
                self._to_pair = self._to_pair or claims != self._claims
                self._add_decisions(claim_steps(self._claims, claims))
                self._claims = claims
            case DecisionsRead(lines):
                self._add_decisions(lines)
            case LinesRead(kind, lines):
                self._lines[kind] = lines
            case SourceProblem(kind, reason):
                if reason:
                    self._troubles[kind] = reason
                else:
                    self._troubles.pop(kind, None)
            case ObjectsListed(kind, objects):
                self._listed.add(kind)
                self._forget(kind)
                for changed in objects:
                    self._keep(changed)
            case ObjectChanged(_, changed, gone):
                if gone:
                    self._drop(changed)
                else:
                    self._keep(changed)

    def picture(self, now: float) -> ClusterPicture:
        """The known state of the cluster at `now` (epoch seconds)."""
        self._pair()
        for name in self._stale:
            node = self._nodes.get(name)
            if node is None:
                self._drawn.pop(name, None)
                continue
            pods = self._on_node.get(name, {}).values()
            claims = [self._paired[name]] if name in self._paired else []
            self._drawn[name] = picture_of_cluster(
                "", now, [node], pods, claims, self._of_region(region_of(node))
            ).nodes[0]
        self._stale.clear()
        prices = self._of_region(next(iter(regions_of(self._nodes.values())), "")) if self._coming else NodePrices()
        coming = picture_of_cluster("", now, [], self._pending.values(), self._coming, prices)
        drawn = self._drawn if not self._coming else self._drawn | {node.name: node for node in coming.nodes}
        return ClusterPicture(
            cluster=self._cluster,
            taken_at=now,
            install_lines=tuple(line for kind in sorted(self._lines) for line in self._lines[kind]),
            nodes=tuple(drawn[name] for name in sorted(drawn)),
            pending=self._in_groups(coming.pending, now),
            missing=(*(self._troubles[kind] for kind in sorted(self._troubles)), *self._assumed()),
        )

    def _in_groups(self, pending: tuple[PendingPicture, ...], now: float) -> tuple[PendingPicture, ...]:
        """The pods that wait, with the groups that optional features find among them."""
        view = ClusterView(pods=tuple(self._pods.values()), nodes=tuple(self._nodes.values()))
        groups = waiting_together(view, now) if pending else {}
        return tuple(replace(pod, group=groups.get(pod.key, "")) for pod in pending) if groups else pending

    def _of_region(self, region: str) -> NodePrices:
        if region not in self._prices:
            self._prices[region] = self._prices_of(region)
        return self._prices[region][0]

    def _assumed(self) -> Iterable[str]:
        """The assumptions behind the prices of the present nodes."""
        there = {region_of(node) for node in self._nodes.values()}
        return (self._prices[region][1] for region in sorted(there & self._prices.keys()) if self._prices[region][1])

    def _add_decisions(self, lines: Iterable[Headline]) -> None:
        """Sorted by time, because a record may appear after that of a later decision."""
        decided = sorted((*self._decisions, *lines), key=lambda line: (line.at, line.record))
        self._decisions = tuple(decided[-_KEPT:])

    def _pair(self) -> None:
        """Pair claims and nodes again after either has come or gone."""
        if not self._to_pair:
            return
        paired, self._coming = pair(list(self._nodes.values()), self._claims or ())
        names = paired.keys() | self._paired.keys()
        self._stale |= {name for name in names if paired.get(name) != self._paired.get(name)}
        self._paired, self._to_pair = paired, False

    def _keep(self, seen: Node | Pod) -> None:
        if isinstance(seen, Node):
            self._to_pair = self._to_pair or seen.metadata.name not in self._nodes
            self._nodes[seen.metadata.name] = seen
            self._stale.add(seen.metadata.name)
            return
        self._drop(seen)
        if seen.status.phase in TERMINAL_PHASES:
            return
        self._pods[seen.metadata.uid] = seen
        if seen.spec.node_name:
            self._on_node.setdefault(seen.spec.node_name, {})[seen.metadata.uid] = seen
            self._stale.add(seen.spec.node_name)
        else:
            self._pending[seen.metadata.uid] = seen

    def _drop(self, seen: Node | Pod) -> None:
        if isinstance(seen, Node):
            self._nodes.pop(seen.metadata.name, None)
            self._to_pair = True
            self._stale.add(seen.metadata.name)
            return
        known = self._pods.pop(seen.metadata.uid, None)
        self._pending.pop(seen.metadata.uid, None)
        if known is not None and known.spec.node_name:
            self._on_node.get(known.spec.node_name, {}).pop(seen.metadata.uid, None)
            self._stale.add(known.spec.node_name)

    def _forget(self, kind: str) -> None:
        if kind == "nodes":
            self._stale |= self._nodes.keys()
            self._nodes.clear()
        else:
            self._stale |= self._on_node.keys()
            for known in (self._pods, self._on_node, self._pending):
                known.clear()

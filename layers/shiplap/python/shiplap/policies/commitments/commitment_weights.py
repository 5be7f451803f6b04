"""Values a unit of each commitment, all commitments together: the dual values of a small linear program.

The program buys the nodes of plans that were made, in fractions, so that they hold all pods, and lets commitments pay
for them as far as there is room. What one more unit of a commitment would save is its weight: at that price exactly the
nodes that are worth it want it. A plan at these weights shows other nodes, with which the program is solved again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.manifests.nodeclaim import PodReference
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.commitment_ledger import CommitmentRoom, quarters_of, scope_of
from shiplap.scheduling.model.resources import Floats
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.search.column_generation import CoveringProgram
from shiplap.scheduling.search.effort import Effort

LEAST_WEIGHT = 0.01
"""What a committed dollar counts where there is more room than use for it: enough to prefer what takes less of it."""

_LEAST_COST = 1e-6
"""What a covered node costs in the program, as a part of its list price: columns must cost something."""

_ARTIFICIAL = 1e3
"""How many times as much as all nodes together a row costs that nothing covers."""


class BoughtNode(msgspec.Struct, frozen=True):
    """Nodes of a plan that are alike: type, USD per hour, and what the pods of one ask for on average [rows].

    `may_be_covered`: commitments may pay for it.
    """

    instance_type: str
    hourly: float
    asks: Floats
    may_be_covered: bool


class PodDemand:
    """The requests of pods, by the NodePool they got in a first plan and by resource: the rows of the program."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        home = {pod.key: claim.node_pool for claim in plan.node_claims for pod in claim.pods}
        asked = {pod.key: pod_requests(pod) for pod in snapshot.view.pods if pod.key in home}
        names = sorted({(home[key], name) for key, requests in asked.items() for name in requests})
        row = {name: place for place, name in enumerate(names)}
        self._asks = {
            key: [(row[home[key], name], float(amount)) for name, amount in requests.items() if amount]
            for key, requests in asked.items()
        }
        self._rows = len(names)
        self.total = self.of(pod for claim in plan.node_claims for pod in claim.pods)
        self.scale: Floats = np.maximum(self.total, 1.0)

    def without(self, claims: Iterable[PlannedClaim]) -> PodDemand:
        """The same rows without the pods of these claims, which have their nodes."""
        rest = PodDemand.__new__(PodDemand)
        rest.__dict__.update(self.__dict__)
        rest.total = np.maximum(self.total - self.of(pod for claim in claims for pod in claim.pods), 0.0)
        return rest

    def worth(self, claim: PlannedClaim, values: Floats) -> float:
        """Return the cost of a claim's pods where a unit of each row costs `values` [rows]."""
        return float((self.of(claim.pods) * values).sum())

    def of(self, pods: Iterable[PodReference]) -> Floats:
        """Return the sum of these pods' requests [rows]."""
        asks = np.zeros(self._rows)
        for pod in pods:
            for row, amount in self._asks.get(pod.key, ()):
                asks[row] += amount
        return asks


def bought_nodes(demand: PodDemand, claims: Sequence[PlannedClaim], covered: Mapping[str, bool]) -> list[BoughtNode]:
    """The nodes of a plan's claims. `covered`: whether commitments may pay for a claim, by its name."""
    alike: dict[tuple[str, float, str, bool], list[PlannedClaim]] = {}
    for claim in claims:
        launch = claim.launch
        if claim.pods and not claim.virtual_pods and launch.price > 0:
            key = (launch.instance_type, launch.price, claim.node_pool, covered[claim.name])
            alike.setdefault(key, []).append(claim)
    return [
        BoughtNode(name, price, demand.of(pod for claim in some for pod in claim.pods) / len(some), may)
        for (name, price, _, may), some in sorted(alike.items(), key=lambda pair: pair[0])
    ]


def list_values(demand: PodDemand, nodes: Sequence[BoughtNode]) -> Floats:
    """Return the cost of a unit of each row [rows] at list prices, USD per hour, where these nodes may be bought."""
    if not len(demand.total):
        return demand.total
    columns = np.array([node.asks / demand.scale for node in nodes]).T
    rows = len(demand.total)
    program = CoveringProgram(demand.total / demand.scale, np.eye(rows), np.full(rows, _uncovered(nodes)))
    program.add(columns, np.array([node.hourly for node in nodes]))
    program.solve(Effort(np.inf))
    return np.maximum(program.duals, 0.0) / demand.scale


class WeighedCommitments(msgspec.Struct, frozen=True):
    """The program's solution: the weight of a dollar taken of each commitment, and the bill in USD per hour.

    `weights`, LEAST_WEIGHT at least, by the id of a Savings Plan or the scope of regional Reserved Instances; zonal
    ones have none of their own.
    """

    weights: dict[str, float]
    hourly: float


def weighed_commitments(demand: PodDemand, nodes: Sequence[BoughtNode], room: CommitmentRoom) -> WeighedCommitments:
    """Return the worth of a room's commitments where these nodes may be bought."""
    limits = {item.scope: float(item.quarters) for item in room.regional}
    limits |= {plan.id: float(plan.commitment) for plan in room.savings_plans}
    rows, size = len(demand.total), len(demand.total) + len(limits)
    row_of = {name: rows + place for place, name in enumerate(limits)}
    columns = list(_columns(demand, nodes, room, row_of, limits))
    needed = np.concatenate([demand.total / demand.scale, np.full(len(limits), -1.0)])
    basis = np.concatenate([np.arange(rows), -1 - np.arange(rows, size)])
    inverse = np.diag(np.concatenate([np.ones(rows), np.full(len(limits), -1.0)]))
    program = CoveringProgram(
        needed,
        np.concatenate([np.eye(size)[:, :rows], np.array([entries for entries, _ in columns]).T], axis=1),
        np.concatenate([np.full(rows, _uncovered(nodes)), [cost for _, cost in columns]]),
        (basis, inverse),
    )
    program.solve(Effort(np.inf))
    worth = {name: max(float(program.duals[row]), 0.0) / limits[name] for name, row in row_of.items()}
    weights = {name: max(_per_dollar(name, each, nodes, room), LEAST_WEIGHT) for name, each in worth.items()}
    return WeighedCommitments(weights, program.objective)


def _uncovered(nodes: Sequence[BoughtNode]) -> float:
    """Return the cost of a row that nothing covers: much more than all nodes together."""
    return _ARTIFICIAL * max(sum(node.hourly for node in nodes), 1.0)


def _columns(
    demand: PodDemand,
    nodes: Sequence[BoughtNode],
    room: CommitmentRoom,
    row_of: Mapping[str, int],
    limits: Mapping[str, float],
) -> Iterator[tuple[Floats, float]]:
    """Nodes at their list prices, and the same paid for by each commitment that covers them: entries [rows], cost."""
    for node in nodes:
        plain = np.zeros(len(demand.total) + len(row_of))
        plain[: len(demand.total)] = node.asks / demand.scale
        yield plain, node.hourly
        for name, taken in _takes(node, room) if node.may_be_covered else ():
            paid = plain.copy()
            paid[row_of[name]] = -taken / limits[name]
            yield paid, node.hourly * _LEAST_COST


def _takes(node: BoughtNode, room: CommitmentRoom) -> list[tuple[str, int]]:
    """Return the amount that a node takes of each commitment that covers it whole."""
    scope, listed = scope_of(node.instance_type), round(node.hourly * MICROS)
    found = [(item.scope, quarters_of(node.instance_type) or 1) for item in room.regional if item.scope == scope]
    for plan in room.savings_plans:
        rate = plan.rate(node.instance_type, listed)
        found += [(plan.id, rate)] if 0 < rate <= listed else []
    return found


def _per_dollar(name: str, worth: float, nodes: Sequence[BoughtNode], room: CommitmentRoom) -> float:
    """The weight of a dollar taken, where a unit is worth so many USD per hour; of Reserved Instances at list price."""
    if name not in {item.scope for item in room.regional}:
        return round(worth * MICROS, 6)
    covered = [node for node in nodes if node.may_be_covered and scope_of(node.instance_type) == name]
    each = [(quarters_of(node.instance_type) or 1) / node.hourly for node in covered]
    return round(worth * max(each, default=0.0), 6)

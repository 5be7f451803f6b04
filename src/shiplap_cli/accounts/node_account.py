"""The account of one node: its price, its pods, and whether it is disrupted now or what prevents that."""

from __future__ import annotations

from difflib import get_close_matches

from shiplap.disruption.candidates import disruption_cost, is_reschedulable
from shiplap.disruption.commands import DisruptionProposal
from shiplap.disruption.current_prices import node_prices
from shiplap.disruption.decide import decide
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.errors import InvalidInput
from shiplap.instances.offerings.node_prices import capacity_type_of
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import name_of_label
from shiplap.scheduling.model.planned_pods import pair
from shiplap_cli.output import Printed


class NodeAccount(Printed, frozen=True):
    """`pods` would have to move, as `namespace/name`; `disruption_cost` as in `candidates`.

    `hourly` is USD, 0 if the price is not known, and `estimated` when it is guessed.

    Either `command` is what it would go with, or `stays` says why it does not; a node without a NodePool has neither.
    """

    node: str
    node_pool: str
    instance_type: str
    zone: str
    capacity_type: str
    hourly: float
    estimated: bool
    disruption_cost: float
    pods: tuple[str, ...]
    command: DisruptionProposal | None
    stays: str


def node_account_of(snapshot: DisruptionSnapshot, name: str) -> NodeAccount:
    """The account of a node in the decision on this snapshot.

    Raises:
        InvalidInput: there is no such node, or as `decide`.
    """
    nodes = {node.metadata.name: node for node in snapshot.scheduling.view.nodes}
    node = nodes.get(name)
    if node is None:
        near = get_close_matches(name, sorted(nodes), n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else f"of {len(nodes)} none is called so"
        raise InvalidInput("node", f"there is no node {name}; {hint}")
    decided = decide(snapshot)
    marks = node.metadata.labels
    pools = (node_pool.metadata.name for node_pool in snapshot.scheduling.manifests.node_pools)
    pool = name_of_label(marks.get(labels.NODE_POOL, ""), pools)
    claim = pair([node], snapshot.scheduling.claims)[0].get(name)
    price = node_prices(snapshot.scheduling).of(node, claim)
    moving = [pod for pod in snapshot.scheduling.view.pods if pod.spec.node_name == name and is_reschedulable(pod)]
    return NodeAccount(
        node=name,
        node_pool=pool,
        instance_type=marks.get(labels.INSTANCE_TYPE, ""),
        zone=marks.get(labels.ZONE, ""),
        capacity_type=capacity_type_of(node),
        hourly=price.hourly,
        estimated=price.estimated,
        disruption_cost=disruption_cost(moving),
        pods=tuple(sorted(pod.key for pod in moving)),
        command=next((command for command in decided.commands if name in command.nodes), None),
        stays=next((entry.reason for entry in decided.blocked if entry.node == name), ""),
    )

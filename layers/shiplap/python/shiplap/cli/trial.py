"""The present pods of a cluster on other NodePools, as if it had no node: what they would cost there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from shiplap.cli.migration_page import Trial
from shiplap.cli.options import Sources
from shiplap.cli.sources import read
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod, PodCondition, PodStatus
from shiplap.scheduling.planner import plan
from shiplap.scheduling.pods import comes_back
from shiplap.scheduling.snapshot import Snapshot

_UNSCHEDULABLE = PodStatus(
    phase="Pending", conditions=(PodCondition(type="PodScheduled", status="False", reason="Unschedulable"),)
)
_EKS_KIND = "eks.amazonaws.com/capacityType"
_KINDS = {"SPOT": labels.SPOT, "ON_DEMAND": labels.ON_DEMAND}


def try_out(manifests: Path, state: Sequence[Path], region: str) -> Trial:
    """Plan every pod that would come back elsewhere, on new nodes of these manifests only.

    Raises:
        InvalidInput: the cluster's state or the manifests cannot be used.
    """
    reading = read(Sources(cluster_state=list(state), manifests=[manifests], region=region))
    snapshot = reading.snapshot
    pods = tuple(_homeless(pod) for pod in snapshot.view.pods if _needs_a_node(pod))
    world = msgspec.structs.replace(snapshot.view, pods=pods, nodes=(), events=())
    decided = plan(msgspec.structs.replace(snapshot, view=world, claims=()))
    prices = [_price(node, _offerings(snapshot)) for node in snapshot.view.nodes]
    return Trial(
        pods=len(pods),
        nodes=len(decided.node_claims),
        hourly=decided.hourly,
        present_nodes=len(prices),
        present_hourly=round(sum(prices), 6),
        unpriced_nodes=sum(1 for price in prices if not price),
        left_out=tuple((f"{e.pod.namespace}/{e.pod.name}", e.message) for e in decided.unschedulable),
        region=reading.region,
        notes=reading.notes,
    )


def _needs_a_node(pod: Pod) -> bool:
    return pod.status.phase not in ("Succeeded", "Failed") and comes_back(pod)


def _homeless(pod: Pod) -> Pod:
    """The pod as it would be without a node, on any pool: not held to the group it runs on."""
    ties = (labels.NODE_POOL, "eks.amazonaws.com/nodegroup")
    selector = {key: value for key, value in pod.spec.node_selector.items() if key not in ties}
    spec = msgspec.structs.replace(pod.spec, node_name="", node_selector=selector)
    return msgspec.structs.replace(pod, spec=spec, status=_UNSCHEDULABLE)


def _offerings(snapshot: Snapshot) -> Mapping[tuple[str, str], Sequence[tuple[str, float]]]:
    """Zones and prices by type and capacity type."""
    found: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for item in (item for catalog in snapshot.catalogs for item in catalog.instance_types):
        for offering in item.offerings:
            found.setdefault((item.name, offering.capacity_type), []).append((offering.zone, offering.price))
    return found


def _price(node: Node, offerings: Mapping[tuple[str, str], Iterable[tuple[str, float]]]) -> float:
    """USD per hour; that of another zone where the catalogue does not have the node's; 0 when it knows neither."""
    marks = node.metadata.labels
    kind = marks.get(labels.CAPACITY_TYPE) or _KINDS.get(marks.get(_EKS_KIND, ""), labels.ON_DEMAND)
    known = list(offerings.get((marks.get(labels.INSTANCE_TYPE, ""), kind), ()))
    own = [price for zone, price in known if zone == marks.get(labels.ZONE)]
    return min(own or [price for _, price in known], default=0.0)

"""Pictures of small clusters for frames."""

from __future__ import annotations

import msgspec

from shiplap.drawing.picture import Amounts, ClusterPicture, NodePicture, NodePictureState, PendingPicture, PodPicture
from shiplap.instances.catalog.type_catalog import Offering
from shiplap.instances.offerings.node_prices import NodePrices
from shiplap_cli.commands.top.followed_cluster import FollowedCluster
from shiplap_cli.inputs.cluster_events import ClusterEvent

GIB = 2**30


NOON = 1_767_268_800.0


def node(name: str, *, cpu: int = 1000, price: float = 0.1, **fields: object) -> NodePicture:
    defaults = NodePicture(
        name=name,
        pool="general",
        instance_type="m5.large",
        zone="us-east-1a",
        capacity_type="on-demand",
        hourly=price,
        allocatable=Amounts(2000, 8 * GIB, 29),
        used=Amounts(cpu, 2 * GIB, 3),
        pods=(PodPicture("web", "api", cpu, 2 * GIB),),
        created_at=NOON - 7200,
    )
    return msgspec.structs.replace(defaults, **fields)


def cluster(*nodes: NodePicture, waiting: int = 0, **fields: object) -> ClusterPicture:
    pods = tuple(
        PendingPicture(namespace="web", name=f"wait-{n}", age_s=90.0 - n, millicores=500, reason="no node fits")
        for n in range(waiting)
    )
    picture = ClusterPicture(cluster="prod", taken_at=NOON, nodes=nodes, pending=pods)
    return msgspec.structs.replace(picture, **fields)


THREE = cluster(
    node("a", cpu=500, price=0.3),
    node("b", cpu=1900, pool="flex", tier=1, capacity_type="spot", price=0.05, created_at=NOON - 60),
    node(
        "c", cpu=0, pods=(), used=Amounts(), state=NodePictureState.STARTING, note="Launched", price=0.0, created_at=0.0
    ),
    waiting=2,
)


PRICES = NodePrices(others={"m5.large": (Offering("z", "on-demand", 0.1),)})


def followed(*seen: ClusterEvent) -> FollowedCluster:
    following = FollowedCluster("prod", lambda _region: (PRICES, ""))
    for item in seen:
        following.apply(item)
    return following

"""Writes metrics of a look at a cluster: nodes by pool and tier, dollars per hour, pods and how long they wait.

Nothing is written about a cluster that has nothing: metrics are paid for by the hour in which they have values, so an
install at rest costs almost nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from shiplap.cluster.watcher import is_unschedulable
from shiplap.errors import StoreError
from shiplap.flows.context import FlowContext
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import has_no_object
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.quantity import MEMORY
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.claim_rules import ClaimRule, is_claimed
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import Meter
from shiplap.scheduling.model.snapshot import ClusterView

_LOG = logging.getLogger(__name__)

_GIB = 2**30

_MOST_VALUES = 100
"""Values of one metric that one document of the log holds; of more, evenly spaced ones stand for all."""

NO_POOL = "none"
"""The dimension `pool` of nodes whose NodeClaims users wrote: CloudWatch takes no empty one."""

_WITHOUT_INSTANCE = frozenset({ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.FAILED, ClaimState.GONE})


def of_cluster(cluster: str) -> Mapping[str, str]:
    """The dimensions of what is known per cluster."""
    return {"cluster": cluster}


def measure_nodes(cluster: str, claims: Iterable[NodeClaim], context: FlowContext) -> None:
    """Nodes by pool and tier, what the cluster's instances cost per hour, and what they would at on-demand list price.

    Args:
        cluster: its name.
        claims: all of the cluster.
        context: meter and catalog are used; without a catalogue, instances count at the price they were bought for.
    """
    running = [claim for claim in claims if claim.instance_id and claim.state not in _WITHOUT_INSTANCE]
    if not running:
        return
    for (pool, tier), number in sorted(Counter((claim.plan.node_pool, claim.plan.tier) for claim in running).items()):
        dimensions = {"cluster": cluster, "pool": pool or NO_POOL, "tier": str(tier)}
        context.meter.count("Nodes", number, dimensions=dimensions)
    paid = sum(claim.hourly for claim in running)
    context.meter.count("HourlyCost", paid, "None", dimensions=of_cluster(cluster))
    catalog = _catalog(cluster, context)
    listed = sum(_list_price(claim, catalog) for claim in running)
    context.meter.count("HourlyListPrice", listed, "None", dimensions=of_cluster(cluster))


def measure_pods(cluster: str, view: ClusterView, now: float, meter: Meter, rules: Sequence[ClaimRule] = ()) -> None:
    """Pods on our nodes by pool; pods that wait for a node, and how long the oldest of them has; unreadable objects.

    Args:
        cluster: its name.
        view: of the cluster.
        now: epoch seconds.
        meter: takes the values.
        rules: which pods are ours; those that wait for another autoscaler are not measured.
    """
    if view.unreadable:
        meter.count("ObjectsUnreadable", len(view.unreadable), dimensions=of_cluster(cluster))
    pools = {node.metadata.name: node.metadata.labels.get(labels.NODE_POOL, "") for node in view.nodes}
    placed: Counter[str] = Counter()
    for node, on_node in view.by_node.items():
        placed[pools.get(node, "")] += sum(not has_no_object(pod.metadata.name) for pod in on_node)
    for pool, number in sorted(placed.items()):
        if pool:
            meter.count("Pods", number, dimensions={"cluster": cluster, "pool": pool})
    unbound = [pod for pod in view.unbound if not has_no_object(pod.metadata.name)]
    waiting = [pod for pod in unbound if is_unschedulable(pod) and is_claimed(pod, rules)]
    if waiting:
        meter.count("PodsWaiting", len(waiting), dimensions=of_cluster(cluster))
    ages = _ages(waiting, now)
    if ages:
        meter.count("OldestPodWaiting", ages[-1], "Seconds", dimensions=of_cluster(cluster))


def measure_waits(claims: Iterable[NodeClaim], pods: Iterable[Pod], now: float, meter: Meter) -> None:
    """Measure how old pods are when a node for them is decided: one value for each, or a hundred that stand for more.

    Pods that run, but whose node is on its way out, have not waited and do not count.

    Args:
        claims: the nodes.
        pods: of the cluster.
        now: epoch seconds.
        meter: takes the values.
    """
    planned = {pod.uid for claim in claims for pod in claim.plan.pods if not has_no_object(pod.name)}
    ages = _ages([pod for pod in pods if pod.metadata.uid in planned and not pod.spec.node_name], now)
    for age in _spaced(ages, _MOST_VALUES):
        meter.count("PodAge", age, "Seconds")


def measure_memory(claim: NodeClaim, allocatable: Mapping[str, int], meter: Meter) -> None:
    """GiB of memory a node has beyond what its plan counted on, or lacks; once learned, later plans count on it.

    Args:
        claim: launched.
        allocatable: of its node, canonical units.
        meter: takes the value.
    """
    counted_on = claim.plan.allocatable.get(MEMORY, 0)
    memory = allocatable.get(MEMORY, 0)
    if counted_on and memory > counted_on:
        meter.count("MemoryBeyondPlan", (memory - counted_on) / _GIB, "Gigabytes")
    elif counted_on and memory < counted_on:
        meter.count("MemoryShort", (counted_on - memory) / _GIB, "Gigabytes")


def measure_catalog(catalog: Catalog, now: float, meter: Meter) -> None:
    """For how long the catalogue of a region, and what AWS told of its on-demand prices, have not been refreshed."""
    meter.count("CatalogAge", max(0.0, now - catalog.refreshed_at), "Seconds")


def _ages(pods: Iterable[Pod], now: float) -> list[float]:
    """Seconds since pods were created, ascending; pods that do not say when are left out."""
    created = (pod.metadata.creation_timestamp for pod in pods)
    return sorted(max(0.0, now - epoch(moment)) for moment in created if moment)


def _spaced(values: Sequence[float], most: int) -> Collection[float]:
    """At most so many of some sorted values, the first and the last among them, evenly spaced by rank."""
    if len(values) <= most:
        return values
    return [values[round(rank * (len(values) - 1) / (most - 1))] for rank in range(most)]


def _catalog(cluster: str, context: FlowContext) -> Catalog | None:
    try:
        return context.catalog.load()
    except StoreError as error:
        _LOG.warning("list prices are not known: %s", error, extra={"cluster": cluster})
        return None


def _list_price(claim: NodeClaim, catalog: Catalog | None) -> float:
    prices = catalog.prices.get(claim.known_instance.type) if catalog is not None else None
    return claim.hourly if prices is None or prices.on_demand is None else prices.on_demand

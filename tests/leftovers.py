"""A brute force for pods that a plan left out: every node, claim in flight and single new node is tried for each.

It knows only the rules and the finished plan. Pods that topology constraints bind or count, and pods that share a
volume still to be made, are tried elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from tests.checker import NODE_CLASS, Judge, pilot
from tests.rules import (
    KIND,
    POOL,
    TYPE,
    ZONE,
    add,
    amount,
    collisions,
    combinations,
    meets,
    ports,
    requests,
    suits,
    tolerates,
    volumes_allow,
)


def could_be_placed(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Pods left out although a node that exists, is in flight or could be launched within the limits holds them."""
    search = _Search(snapshot, plan)
    found = []
    for record in plan.unschedulable:
        pod = search.judge.pods[record.pod.namespace, record.pod.name]
        if _shares_volume_to_be_made(snapshot, pod):
            continue
        found += [f"{pod.key} would fit {place}: {record.message}" for place in search.places(pod)]
    return found


def _shares_volume_to_be_made(snapshot: Snapshot, pod: Pod) -> bool:
    """True if another pod uses a claim of this one that has no volume: the first one that binds decides for both."""
    bound = {
        (claim.metadata.namespace or "default", claim.metadata.name)
        for claim in snapshot.view.persistent_volume_claims
        if claim.spec.volume_name
    }
    own = _claims_of(pod) - bound
    return any(own & _claims_of(other) for other in snapshot.view.pods if other is not pod)


def _claims_of(pod: Pod) -> set[tuple[str, str]]:
    claims = (volume.persistent_volume_claim for volume in pod.spec.volumes)
    return {(pod.metadata.namespace or "default", claim.claim_name) for claim in claims if claim is not None}


class NodesOfPools:
    """The nodes that NodePools could still launch beside a plan."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self.snapshot = snapshot
        self.plan = plan
        self.judge = Judge(snapshot, plan)

    def within_limits(self, pool: NodePool) -> Iterator[InstanceType]:
        """The types of which one more node is within the limits of a pool."""
        used = self.judge.used(pool.metadata.name)
        limits = {resource: amount(resource, text) for resource, text in pool.spec.limits.items()}
        for item in self.judge.types.get(pool.spec.template.spec.node_class_ref.name, {}).values():
            more = item.capacity | {"nodes": 1}
            # A limit that is overrun already still lets types pass that have none of that resource.
            if not any(more.get(name, 0) and used.get(name, 0) + more[name] > limit for name, limit in limits.items()):
                yield item

    def nodes(self, pool: NodePool, item: InstanceType) -> Iterator[dict[str, str]]:
        """The labels of every node that a pool could launch of a type now; a `*` among values allows any."""
        spec = pool.spec.template.spec
        rules = [rule for rule in spec.requirements if "*" not in rule.values]
        own = {**pool.spec.template.metadata.labels, POOL: pool.metadata.name, NODE_CLASS: spec.node_class_ref.name}
        custom = {
            rule.key: rule.values
            for rule in rules
            if rule.operator == "In" and rule.key not in (TYPE, ZONE, KIND) and not _defined(self.judge, rule.key)
        }
        keys = {e.key: sorted(e.values) for e in item.requirements if e.values and e.key not in (ZONE, KIND, TYPE)}
        for offering in item.offerings:
            if not offering.available:
                continue
            for choice in combinations({**custom, **keys}):
                node = {**choice, TYPE: item.name, **own, ZONE: offering.zone, KIND: offering.capacity_type}
                if meets(node, [rules]):
                    yield node


class _Search(NodesOfPools):
    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        super().__init__(snapshot, plan)
        self.relied = {
            pilot(self.judge.types[claim.node_class][name])
            for claim in plan.node_claims
            for name in claim.relies_on_estimate
        }

    def places(self, pod: Pod) -> Iterator[str]:
        """Wherever this pod could still go."""
        placed = {
            place.name: [self.judge.pods[e.namespace, e.name] for e in place.pods] for place in self.plan.existing_nodes
        }
        for node in self.snapshot.view.nodes:
            name = node.metadata.name
            ready = all(c.status == "True" for c in node.status.conditions if c.type == "Ready")
            if ready and not any(self.judge.on_node(node, [*placed.get(name, ()), pod])):
                yield f"node {name}"
        for claim in self.snapshot.claims:
            if not claim.node_name and not any(self.judge.on_claim(claim, [*placed.get(claim.name, ()), pod])):
                yield f"claim {claim.name}"
        for pool in self.judge.pools.values():
            if pool.metadata.deletion_timestamp or pool.spec.replicas is not None:
                continue
            if not tolerates(pool.spec.template.spec.taints, pod.spec):
                continue
            types = list(self._fitting(pod, pool))
            if types and self._varied(pool, types):
                yield f"{types[0].name} of pool {pool.metadata.name}"

    def _varied(self, pool: NodePool, types: list[InstanceType]) -> bool:
        """True if these types have as many distinct values as the pool wants."""
        if self.snapshot.settings.min_values_policy == "BestEffort":
            return True
        for rule in pool.spec.template.spec.requirements:
            values = set()
            for item in types:
                own = {e.key: e.values for e in item.requirements} | {TYPE: {item.name}}
                values |= {value for value in own.get(rule.key, ()) if meets({rule.key: value}, [[rule]])}
            if len(values) < (rule.min_values or 0):
                return False
        return True

    def _fitting(self, pod: Pod, pool: NodePool) -> Iterator[InstanceType]:
        """The types of a pool of which one more node is within the limits and holds the pod, in some zone."""
        for item in self.within_limits(pool):
            if any(self._holds(pod, pool, item, node) for node in self.nodes(pool, item)):
                yield item

    def _holds(self, pod: Pod, pool: NodePool, item: InstanceType, node: Mapping[str, str]) -> bool:
        if not suits(pod.spec, node) or not volumes_allow(self.snapshot.view, pod, node):
            return False
        explored = pilot(item) in self.relied or pilot(item) in self.snapshot.piloted
        may = self.snapshot.settings.explore and pod.metadata.uid not in self.snapshot.missed_pods and not explored
        counted = item.capacity if item.verified or may else item.capacity | item.careful
        daemons = self.judge.daemons_on(node, pool.spec.template.spec.taints)
        if any(collisions([(d.metadata.name, ports(d.spec)) for d in daemons] + [("pod", ports(pod.spec))])):
            return False
        load = add([requests(pod), *map(requests, daemons)])
        return all(value <= counted.get(name, 0) - item.overhead.get(name, 0) for name, value in load.items())


def _defined(judge: Judge, key: str) -> bool:
    """True if any type has a requirement for a label."""
    return any(
        entry.key == key for types in judge.types.values() for item in types.values() for entry in item.requirements
    )


def without_topology(snapshot: Snapshot) -> Snapshot:
    """The same pods, free to go anywhere as far as other pods are concerned."""
    replace = msgspec.structs.replace

    def freed(pod: Pod) -> Pod:
        affinity = pod.spec.affinity
        if affinity is not None:
            affinity = replace(affinity, pod_affinity=None, pod_anti_affinity=None)
        return replace(pod, spec=replace(pod.spec, affinity=affinity, topology_spread_constraints=()))

    return replace(snapshot, view=replace(snapshot.view, pods=tuple(map(freed, snapshot.view.pods))))

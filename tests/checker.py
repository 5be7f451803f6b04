"""An independent judge of plans: it shares no code with the planner and knows only the rules.

`violations(snapshot, plan)` lists every broken promise in words; an empty list is a valid plan. Written for clearness,
one pod and one instance type at a time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import product
from typing import Any

from shiplap.api.nodeclaim import PodReference
from shiplap.instances.types import InstanceType
from shiplap.kubernetes.objects import DaemonSet, Node, Pod, PodSpec
from shiplap.scheduling.plan import Plan, PlannedClaim
from shiplap.scheduling.snapshot import Snapshot

ZONE, KIND = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"
TYPE, POOL = "node.kubernetes.io/instance-type", "karpenter.sh/nodepool"
NODE_CLASS = "karpenter.k8s.aws/ec2nodeclass"
_SUFFIX = {"": 1, "m": Decimal("0.001"), "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}

Labels = Mapping[str, str]


def violations(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Everything that is wrong with a plan for a snapshot."""
    judge = _Judge(snapshot, plan)
    return [*judge.each_pod_once(), *judge.claims(), *judge.limits(), *judge.pilots(), *judge.existing()]


def could_be_placed(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Pods left out although one more node could have held them, found by trying every type, offering and pool."""
    return list(_Judge(snapshot, plan).left_out())


class _Judge:
    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self.snapshot = snapshot
        self.plan = plan
        self.pods = {_key(pod): pod for pod in snapshot.view.pods}
        self.pools = {pool.metadata.name: pool for pool in snapshot.manifests.node_pools}
        self.types = {
            catalog.node_class: {item.name: item for item in catalog.instance_types} for catalog in snapshot.catalogs
        }

    def each_pod_once(self) -> Iterator[str]:
        groups = [claim.pods for claim in self.plan.node_claims] + [place.pods for place in self.plan.existing_nodes]
        named = [entry for group in groups for entry in group]
        named += [entry.pod for entry in (*self.plan.unschedulable, *self.plan.ignored)]
        count = Counter((entry.namespace, entry.name) for entry in named)
        for key, pod in self.pods.items():
            wanted = 0 if pod.spec.node_name else 1
            if count.pop(key, 0) != wanted:
                yield f"pod {key} is not named exactly {wanted} times"
        for key in count:
            yield f"pod {key} is not in the snapshot"

    def claims(self) -> Iterator[str]:
        for claim in self.plan.node_claims:
            for problem in self._claim(claim):
                yield f"claim {claim.name}: {problem}"

    def _claim(self, claim: PlannedClaim) -> Iterator[str]:
        pool = self.pools.get(claim.node_pool)
        if pool is None or pool.metadata.deletion_timestamp or pool.spec.replicas is not None:
            yield f"pool {claim.node_pool} takes no part"
            return
        if not claim.instance_types or len(claim.instance_types) > self.snapshot.settings.max_instance_types:
            yield f"{len(claim.instance_types)} instance types"
        if tuple(pool.spec.template.spec.taints) != tuple(claim.taints):
            yield "taints differ from the pool's"
        pods = [self._pod(entry) for entry in claim.pods]
        for pod in pods:
            if not _tolerated(claim.taints, pod.spec, soft=True):
                yield f"{_key(pod)} does not tolerate the taints"
        ports = [port for pod in pods for port in _ports(pod.spec)]
        if any(count > 1 for count in Counter(ports).values()):
            yield f"host ports collide: {ports}"
        types = self.types[claim.node_class]
        for name in claim.instance_types:
            yield from self._type(claim, types[name], pods)
        yield from self._prices(claim)
        yield from self._minimums(claim, types)

    def _type(self, claim: PlannedClaim, item: InstanceType, pods: list[Pod]) -> Iterator[str]:
        pool = self.pools[claim.node_pool]
        nodes = [node for node, _ in self._nodes(claim, item)]
        if not nodes:
            yield f"{item.name} has no available offering that the requirements allow"
        for node in nodes:
            if not _tiered(pool) and not _meets(node, [pool.spec.template.spec.requirements]):
                yield f"{item.name}: {node} does not meet the pool's requirements"
            for pod in pods:
                if not _suits(pod.spec, node):
                    yield f"{item.name}: {_key(pod)} does not suit {node}"
        yield from self._fits(claim, item, pods, nodes)

    def _prices(self, claim: PlannedClaim) -> Iterator[str]:
        types = self.types[claim.node_class]
        prices = [
            min((price for _, price in self._nodes(claim, types[name])), default=float("inf"))
            for name in claim.instance_types
        ]
        if prices != sorted(prices):
            yield f"types are not cheapest first: {prices}"
        launch = claim.launch
        if launch.instance_type != claim.instance_types[0] or abs(launch.price - prices[0]) > 1e-9:
            yield f"launches {launch}, cheapest is {claim.instance_types[0]} at {prices[0]}"

    def _minimums(self, claim: PlannedClaim, types: Mapping[str, InstanceType]) -> Iterator[str]:
        for entry in claim.requirements:
            if not entry.min_values:
                continue
            values = set()
            for name in claim.instance_types:
                known = {name} if entry.key == TYPE else _type_values(types[name], entry.key)
                values |= {value for value in known if _meets({entry.key: value}, [[entry]])}
            if len(values) < entry.min_values:
                yield f"{entry.key} has {len(values)} values, {entry.min_values} wanted"

    def _fits(self, claim: PlannedClaim, item: InstanceType, pods: list[Pod], nodes: list[Labels]) -> Iterator[str]:
        counted = item.capacity
        if not item.verified and item.name not in claim.relies_on_estimate:
            counted = item.capacity | item.careful
        load = _sum(_requests(pod.spec) for pod in pods)
        for node in nodes:
            daemons = _sum(
                _template_requests(daemon)
                for daemon in self.snapshot.view.daemon_sets
                if _tolerated(claim.taints, daemon.spec.template.spec, soft=True)
                and _suits(daemon.spec.template.spec, node)
            )
            for resource, amount in _sum([load, daemons]).items():
                room = counted.get(resource, 0) - item.overhead.get(resource, 0)
                if amount > room:
                    yield f"{item.name}: {resource} {amount} of {room}"

    def _nodes(self, claim: PlannedClaim, item: InstanceType) -> Iterator[tuple[Labels, float]]:
        """The labels of every node this claim may become as this type, with the price."""
        rules: dict[str, list[Any]] = {}
        for entry in claim.requirements:
            rules.setdefault(entry.key, []).append(entry)
        for offering in item.offerings:
            if not offering.available:
                continue
            fixed = {**claim.labels, TYPE: item.name, ZONE: offering.zone, KIND: offering.capacity_type}
            open_keys = {}
            for known in item.requirements:
                if known.key in (TYPE, ZONE, KIND):
                    continue
                values = [value for value in sorted(known.values) if known.has(value)]
                values = [value for value in values if _meets({known.key: value}, [rules.get(known.key, [])])]
                if values:
                    open_keys[known.key] = values
                elif known.values:
                    open_keys[known.key] = []
            for choice in product(*open_keys.values()):
                node = {**dict(zip(open_keys, choice, strict=True)), **fixed}
                if all(_meets(node, [group]) for group in rules.values()):
                    yield node, offering.price

    def limits(self) -> Iterator[str]:
        for name, pool in self.pools.items():
            used = self._used(name)
            for resource, limit in pool.spec.limits.items():
                if used.get(resource, 0) > _amount(resource, limit):
                    planned = any(claim.node_pool == name for claim in self.plan.node_claims)
                    if planned:
                        yield f"pool {name}: {resource} {used[resource]} over limit {limit}"

    def _used(self, pool: str) -> dict[str, int]:
        """What exists, is in flight and is planned, each claim as the largest type it may become."""
        amounts = [
            {"nodes": 1, **{key: _amount(key, text) for key, text in node.status.capacity.items()}}
            for node in self.snapshot.view.nodes
            if node.metadata.labels.get(POOL) == pool and not node.metadata.deletion_timestamp
        ]
        claims = [(c.node_class, c.instance_types) for c in self.plan.node_claims if c.node_pool == pool]
        claims += [(c.node_class, c.instance_types) for c in self.snapshot.claims if c.node_pool == pool]
        for node_class, names in claims:
            largest: dict[str, int] = {"nodes": 1}
            for item in (self.types[node_class][name] for name in names):
                for resource, amount in item.capacity.items():
                    largest[resource] = max(largest.get(resource, 0), amount)
            amounts.append(largest)
        return _sum(amounts)

    def pilots(self) -> Iterator[str]:
        keys: list[str] = []
        for claim in self.plan.node_claims:
            if claim.relies_on_estimate and any(entry.uid in self.snapshot.missed_pods for entry in claim.pods):
                yield f"claim {claim.name} relies on an estimate for a pod that was missed before"
            for name in claim.relies_on_estimate:
                item = self.types[claim.node_class][name]
                keys.append(_pilot(item))
                if item.verified or _pilot(item) in self.snapshot.piloted or not self.snapshot.settings.explore:
                    yield f"claim {claim.name} may not rely on the estimate of {name}"
        for key, count in Counter(keys).items():
            if count > 1:
                yield f"{count} claims rely on the estimate of {key}"

    def existing(self) -> Iterator[str]:
        nodes = {node.metadata.name: node for node in self.snapshot.view.nodes}
        flight = {claim.name: claim for claim in self.snapshot.claims}
        for place in self.plan.existing_nodes:
            pods = [self._pod(entry) for entry in place.pods]
            if place.name in nodes:
                for problem in self._existing(nodes[place.name], pods):
                    yield f"node {place.name}: {problem}"
            elif place.name in flight:
                load = _sum(_requests(pod.spec) for pod in pods)
                for resource, amount in load.items():
                    if amount > flight[place.name].allocatable.get(resource, 0):
                        yield f"claim in flight {place.name}: {resource} {amount}"
            else:
                yield f"there is no node {place.name}"

    def _existing(self, node: Node, pods: list[Pod]) -> Iterator[str]:
        if node.spec.unschedulable or node.metadata.deletion_timestamp:
            yield "is cordoned or being deleted"
        for pod in pods:
            if not _tolerated(node.spec.taints, pod.spec, soft=True):
                yield f"{_key(pod)} does not tolerate the taints"
            if not _suits(pod.spec, node.metadata.labels):
                yield f"{_key(pod)} does not suit its labels"
        bound = [pod for pod in self.pods.values() if pod.spec.node_name == node.metadata.name]
        ports = Counter(port for pod in (*pods, *bound) for port in _ports(pod.spec))
        if any(count > 1 for count in ports.values()):
            yield f"host ports collide: {ports}"
        for resource, amount in _sum(_requests(pod.spec) for pod in (*pods, *bound)).items():
            room = _amount(resource, node.status.allocatable.get(resource, 0))
            if amount > room and any(_requests(pod.spec).get(resource) for pod in pods):
                yield f"{resource} {amount} of {room}"

    def left_out(self) -> Iterator[str]:
        for record in self.plan.unschedulable:
            pod = self._pod(record.pod)
            for pool in self.pools.values():
                name = self._fitting_node(pod, pool.metadata.name)
                if name:
                    yield f"{_key(pod)} would fit {name} of pool {pool.metadata.name}: {record.message}"

    def _fitting_node(self, pod: Pod, pool_name: str) -> str:
        """The first type whose node could hold this pod alone within what the limits leave; empty when none can."""
        pool = self.pools[pool_name]
        spec = pool.spec.template.spec
        if pool.metadata.deletion_timestamp or pool.spec.replicas is not None or _tiered(pool):
            return ""
        if any(rule.min_values for rule in spec.requirements) or not _tolerated(spec.taints, pod.spec, soft=True):
            return ""
        used = self._used(pool_name)
        relied = {
            _pilot(self.types[claim.node_class][name])
            for claim in self.plan.node_claims
            for name in claim.relies_on_estimate
        }
        for item in self.types.get(spec.node_class_ref.name, {}).values():
            total = _sum([used, item.capacity, {"nodes": 1}])
            if any(total.get(resource, 0) > _amount(resource, limit) for resource, limit in pool.spec.limits.items()):
                continue
            explored = _pilot(item) in relied or _pilot(item) in self.snapshot.piloted
            estimate = not explored and record_may_explore(self.snapshot, pod)
            counted = item.capacity if item.verified or estimate else item.capacity | item.careful
            pool_labels = {**pool.spec.template.metadata.labels, POOL: pool_name, NODE_CLASS: spec.node_class_ref.name}
            for offering in item.offerings:
                if not offering.available:
                    continue
                keys = {
                    e.key: sorted(e.values) for e in item.requirements if e.values and e.key not in (ZONE, KIND, TYPE)
                }
                for choice in product(*keys.values()):
                    node = {**dict(zip(keys, choice, strict=True)), TYPE: item.name, **pool_labels}
                    node |= {ZONE: offering.zone, KIND: offering.capacity_type}
                    if not _meets(node, [spec.requirements]) or not _suits(pod.spec, node):
                        continue
                    daemons = _sum(
                        _template_requests(daemon)
                        for daemon in self.snapshot.view.daemon_sets
                        if _tolerated(spec.taints, daemon.spec.template.spec, soft=True)
                        and any(
                            _suits(daemon.spec.template.spec, {**node, ZONE: other.zone, KIND: other.capacity_type})
                            for other in item.offerings
                        )
                    )
                    load = _sum([_requests(pod.spec), daemons])
                    if all(
                        amount <= counted.get(resource, 0) - item.overhead.get(resource, 0)
                        for resource, amount in load.items()
                    ):
                        return item.name
        return ""

    def _pod(self, entry: PodReference) -> Pod:
        return self.pods[entry.namespace, entry.name]


def record_may_explore(snapshot: Snapshot, pod: Pod) -> bool:
    """Whether a pod may be put on a type nobody has run."""
    return snapshot.settings.explore and pod.metadata.uid not in snapshot.missed_pods


def _key(pod: Pod) -> tuple[str, str]:
    return (pod.metadata.namespace or "default", pod.metadata.name)


def _pilot(item: InstanceType) -> str:
    return f"{item.ami}/{item.name}#{item.kubelet_hash}"


def _tiered(pool: Any) -> bool:
    return any("*" in value for rule in pool.spec.template.spec.requirements for value in rule.values)


def _type_values(item: InstanceType, key: str) -> set[str]:
    return {value for entry in item.requirements if entry.key == key for value in entry.values}


def _amount(resource: str, text: str | int | float) -> int:
    found = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text))
    assert found is not None, text
    value = Decimal(found[1]) * _SUFFIX[found[2]] * (1000 if resource == "cpu" else 1)
    return int(value.to_integral_value(rounding="ROUND_CEILING"))


def _requests(spec: PodSpec) -> dict[str, int]:
    """Plain containers only, which is all the generated pods have."""
    amounts = [{key: _amount(key, text) for key, text in c.resources.requests.items()} for c in spec.containers]
    return {key: amount for key, amount in _sum([*amounts, {"pods": 1}]).items() if amount}


def _template_requests(daemon: DaemonSet) -> dict[str, int]:
    return _requests(daemon.spec.template.spec)


def _sum(lists: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for amounts in lists:
        total.update(amounts)
    return dict(total)


def _ports(spec: PodSpec) -> list[tuple[int, str]]:
    return [(port.host_port, port.protocol) for c in spec.containers for port in c.ports if port.host_port]


def _tolerated(taints: Iterable[Any], spec: PodSpec, *, soft: bool) -> bool:
    for taint in taints:
        if soft and taint.effect == "PreferNoSchedule":
            continue
        for toleration in spec.tolerations:
            key = toleration.key in ("", taint.key)
            effect = toleration.effect in ("", taint.effect)
            value = toleration.operator == "Exists" or (toleration.key and toleration.value == taint.value)
            if key and effect and value:
                break
        else:
            return False
    return True


def _suits(spec: PodSpec, node: Labels) -> bool:
    if any(node.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    return affinity is None or _meets(node, [term.match_expressions for term in affinity.node_selector_terms])


def _meets(node: Labels, terms: Iterable[Iterable[Any]]) -> bool:
    """Whether some term's expressions all hold."""
    return any(all(_holds(node.get(rule.key), rule.operator, rule.values) for rule in term) for term in terms)


def _holds(value: str | None, operator: str, values: tuple[str, ...]) -> bool:
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    number = int(value) if value is not None and value.isdigit() else None
    if number is None:
        return False
    bound = int(values[0])
    return {"Gt": number > bound, "Lt": number < bound, "Gte": number >= bound, "Lte": number <= bound}[operator]

"""Judges what a plan buys, and whether it is valid: one judge for the claims of any scheduler.

A claim says which instance types and which labels its node may have; the launch picks one. **The price rule**: it is
the cheapest available offering of the claim's types that the claim's requirements allow, as Karpenter's launch of
on-demand capacity chooses; between equal prices the first type, zone and capacity type by name. The judge looks at the
nodes that come of it, with the labels they then have: NodePool, taints, node selection, resources with those of
DaemonSets, host ports, limits, and whether kube-scheduler would bind every pod to its node. It shares no code with the
planner.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from benchmarks.karpenter.random_batches import Batch
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import DaemonSet, Pod
from shiplap.manifests.custom_resources import RequirementSpec
from tests.karpenter.karpenter_scheduler import LaunchedOffering, OpenedClaim, ScheduledBatch
from tests.rules import HOST, KIND, POOL, TYPE, ZONE, add, amount, collisions, holds, meets, ports, requests, suits
from tests.rules import tolerates as tolerated
from tests.topology_checker import counts, required_terms, selected, spreads_of

_TINY = 1e-9


@dataclass
class LaunchedNode:
    """A node after its launch, with the pods that are meant for it."""

    name: str
    claim: OpenedClaim
    item: InstanceType
    offering: LaunchedOffering
    labels: Mapping[str, str]
    pods: list[Pod] = field(default_factory=list)


@dataclass(frozen=True)
class Verdict:
    """The verdict on a plan: what it buys, how many pods have a place, and all that is wrong with it."""

    hourly: float
    placed: int
    nodes: int
    violations: tuple[str, ...]


def judge(batch: Batch, scheduled: ScheduledBatch) -> Verdict:
    """Launch the claims by the price rule and judge the nodes."""
    violations = list(_named_once(batch, scheduled))
    nodes = []
    for number, claim in enumerate(scheduled.claims):
        node = launch(batch, claim, f"node-{number:05d}")
        if node is None:
            violations.append(f"claim {number} allows no offering")
            continue
        if abs(node.offering.price - claim.launch.price) > _TINY:
            violations.append(
                f"{node.name} costs {node.offering.price}, not {claim.launch.price} as the scheduler says"
            )
        nodes.append(node)
    for node in nodes:
        violations += [f"{node.name}: {text}" for text in _node_violations(batch, node)]
    violations += _over_limits(batch, nodes)
    violations += [f"no order binds {pod.metadata.name} to {node.name}" for node, pod in never_bound(nodes)]
    hourly = sum(node.offering.price for node in nodes)
    return Verdict(hourly, sum(len(node.pods) for node in nodes), len(nodes), tuple(violations))


def launch(batch: Batch, claim: OpenedClaim, name: str) -> LaunchedNode | None:
    """The node that the price rule makes of a claim; None if no offering is allowed."""
    types = {item.name: item for item in batch.types if item.name in claim.instance_types}
    rules: dict[str, list[RequirementSpec]] = defaultdict(list)
    for rule in claim.requirements:
        rules[rule.key].append(rule)
    found = min(
        (
            (offering.price, item.name, offering.zone, offering.capacity_type)
            for item in types.values()
            for offering in item.offerings
            if offering.available and _allowed(item, {ZONE: offering.zone, KIND: offering.capacity_type}, rules)
        ),
        default=None,
    )
    if found is None:
        return None
    price, instance_type, zone, capacity_type = found
    offering = LaunchedOffering(instance_type, zone, capacity_type, price)
    item = types[instance_type]
    known = {pod.metadata.name: pod for pod in batch.typed_pods}
    pods = [known[pod] for pod in claim.pods if pod in known]
    return LaunchedNode(name, claim, item, offering, _labels(batch, claim, item, offering, name), pods)


def _allowed(item: InstanceType, offered: Mapping[str, str], rules: Mapping[str, Sequence[RequirementSpec]]) -> bool:
    """True if some node of a type and an offering meets the requirements on labels that the type defines."""
    return all(
        any(all(holds(value, rule.operator, rule.values) for rule in rules.get(entry.key, ())) for value in values)
        for entry in item.requirements
        for values in [[offered[entry.key]] if entry.key in offered else sorted(entry.values) or [None]]
    )


def _labels(
    batch: Batch, claim: OpenedClaim, item: InstanceType, offering: LaunchedOffering, name: str
) -> dict[str, str]:
    """Of a label for which several values are allowed the first; no pod may depend on which it is."""
    pool = next((pool for pool in batch.typed_pools if pool.metadata.name == claim.node_pool), None)
    labels: dict[str, str] = {}
    for rule in claim.requirements:
        if rule.operator == "In" and len(rule.values) == 1:
            labels[rule.key] = rule.values[0]
    for entry in item.requirements:
        fitting = [
            value
            for value in sorted(entry.values)
            if all(holds(value, rule.operator, rule.values) for rule in claim.requirements if rule.key == entry.key)
        ]
        labels.update({entry.key: fitting[0]} if fitting else {})
    if pool is not None:
        labels |= pool.spec.template.metadata.labels
    bought = {TYPE: item.name, ZONE: offering.zone, KIND: offering.capacity_type}
    return {**labels, **bought, POOL: claim.node_pool, HOST: name}


def _named_once(batch: Batch, scheduled: ScheduledBatch) -> Iterator[str]:
    named = Counter(pod for claim in scheduled.claims for pod in claim.pods)
    named.update(list(scheduled.left_out))
    for pod in batch.typed_pods:
        number = named.pop(pod.metadata.name, 0)
        if number != 1:
            yield f"{pod.metadata.name} is named {number} times"
    yield from (f"{name} is not in the batch" for name in named)


def _node_violations(batch: Batch, node: LaunchedNode) -> Iterator[str]:
    pool = next((pool for pool in batch.typed_pools if pool.metadata.name == node.claim.node_pool), None)
    if pool is None:
        yield f"there is no NodePool {node.claim.node_pool}"
        return
    template = pool.spec.template.spec
    if not meets(node.labels, [template.requirements]):
        yield "does not meet the requirements of its NodePool"
    if not node.pods:
        yield "holds no pod"
    daemons = [daemon for daemon in batch.typed_daemon_sets if _runs_on(daemon, node, template.taints)]
    for pod in node.pods:
        if not tolerated(template.taints, pod.spec):
            yield f"{pod.metadata.name} does not tolerate the taints"
        if not suits(pod.spec, node.labels):
            yield f"{pod.metadata.name} is not allowed on its labels"
    everyone = [*node.pods, *(Pod(metadata=daemon.metadata, spec=daemon.spec.template.spec) for daemon in daemons)]
    for resource, wanted in add(map(requests, everyone)).items():
        left = node.item.capacity.get(resource, 0) - node.item.overhead.get(resource, 0)
        if wanted > left:
            yield f"{resource} {wanted} of {left} on {node.item.name}"
    yield from collisions((pod.metadata.name, ports(pod.spec)) for pod in everyone)


def _runs_on(daemon: DaemonSet, node: LaunchedNode, taints: Iterable[object]) -> bool:
    spec = daemon.spec.template.spec
    return tolerated(taints, spec) and suits(spec, node.labels)


def _over_limits(batch: Batch, nodes: Sequence[LaunchedNode]) -> Iterator[str]:
    for pool in batch.typed_pools:
        mine = [node for node in nodes if node.claim.node_pool == pool.metadata.name]
        used = add([{"nodes": 1, **node.item.capacity} for node in mine])
        for resource, limit in pool.spec.limits.items():
            if used.get(resource, 0) > amount(resource, limit):
                yield f"NodePool {pool.metadata.name}: {used[resource]} {resource}, limit {limit}"


def never_bound(nodes: Sequence[LaunchedNode]) -> list[tuple[LaunchedNode, Pod]]:
    """Pods that kube-scheduler would not bind to their nodes in any of the orders tried; the fewest of these.

    All nodes are there, and pods bind one by one, each again and again until its constraints hold at that moment. A
    zone without a pod counts as empty from the beginning, which is stricter than a cluster in which nodes come one by
    one.
    """
    waiting = [(node, pod) for node in nodes for pod in node.pods]
    orders: list[Callable[[tuple[LaunchedNode, Pod]], tuple[object, ...]]] = [
        lambda place: (not _is_constrained(place[1]), place[1].metadata.name),
        lambda place: (_is_constrained(place[1]), place[1].metadata.name),
        lambda place: (not _is_constrained(place[1]), place[0].name, place[1].metadata.name),
        lambda place: (_is_constrained(place[1]), place[0].name, place[1].metadata.name),
    ]
    fewest = waiting
    for order in orders:
        left = _Binding(nodes).bind(sorted(waiting, key=order))
        fewest = min(fewest, left, key=len)
        if not left:
            break
    return fewest


def _is_constrained(pod: Pod) -> bool:
    return bool(spreads_of(pod) or required_terms(pod, "pod_affinity") or required_terms(pod, "pod_anti_affinity"))


class _Rule:
    """One constraint on a label, with the pods that it counts by the label's value and those that own it."""

    def __init__(self, key: str, counts_pod: Callable[[Pod], bool]) -> None:
        self.key = key
        self.counts_pod = counts_pod
        self.counted: Counter[str] = Counter()
        self.owners: Counter[str] = Counter()
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], bool] = {}

    def matches(self, pod: Pod) -> bool:
        """True if the rule counts a pod; the rule computes this once for pods of equal labels."""
        key = (pod.metadata.namespace, tuple(sorted(pod.metadata.labels.items())))
        if key not in self._known:
            self._known[key] = self.counts_pod(pod)
        return self._known[key]


class _Binding:
    """kube-scheduler at work on nodes that are all there."""

    def __init__(self, nodes: Sequence[LaunchedNode]) -> None:
        self._nodes = nodes
        self._rules: dict[str, _Rule] = {}
        self._domains: dict[tuple[str, str], frozenset[str]] = {}
        self._of_pod: dict[str, tuple[list[tuple[int, str, _Rule]], list[_Rule], list[_Rule]]] = {}
        for node in nodes:
            for pod in node.pods:
                self._of_pod[pod.metadata.name] = self._rules_of(pod)

    def bind(self, waiting: Sequence[tuple[LaunchedNode, Pod]]) -> list[tuple[LaunchedNode, Pod]]:
        """Bind pods in this order, and those that have to wait again; returns those that are never bound."""
        left = list(waiting)
        while left:
            still = [(node, pod) for node, pod in left if not self._bound(node, pod)]
            if len(still) == len(left):
                break
            left = still
        return left

    def _bound(self, node: LaunchedNode, pod: Pod) -> bool:
        spreads, near, away = self._of_pod[pod.metadata.name]
        if not (
            all(self._is_even(node, pod, skew, selection, rule) for skew, selection, rule in spreads)
            and self._has_company(node, pod, near)
            and not any(rule.counted[node.labels[rule.key]] for rule in away)
            and not any(self._keeps_off(rule, node, pod) for rule in self._rules.values() if rule.owners)
        ):
            return False
        for rule in self._rules.values():
            if rule.matches(pod) and rule.key in node.labels:
                rule.counted[node.labels[rule.key]] += 1
        for rule in away:
            rule.owners[node.labels[rule.key]] += 1
        return True

    def _is_even(self, node: LaunchedNode, pod: Pod, skew: int, selection: str, rule: _Rule) -> bool:
        here = rule.counted[node.labels[rule.key]]
        lowest = 0
        if rule.key != HOST:  # a further node is a further, empty domain at any time
            lowest = min(rule.counted[value] for value in self._allowed_domains(pod, selection, rule.key))
        return here + rule.matches(pod) - lowest <= skew

    def _allowed_domains(self, pod: Pod, selection: str, key: str) -> frozenset[str]:
        """The values of a label on nodes that the pod may use; pods of the same node selection have the same."""
        if (selection, key) not in self._domains:
            found = {node.labels[key] for node in self._nodes if suits(pod.spec, node.labels)}
            self._domains[selection, key] = frozenset(found)
        return self._domains[selection, key]

    @staticmethod
    def _has_company(node: LaunchedNode, pod: Pod, near: Sequence[_Rule]) -> bool:
        if all(rule.counted[node.labels[rule.key]] for rule in near):
            return True
        return all(rule.matches(pod) and not rule.counted.total() for rule in near)

    @staticmethod
    def _keeps_off(rule: _Rule, node: LaunchedNode, pod: Pod) -> bool:
        """True if a pod that is there keeps this pod off the node."""
        return bool(rule.owners[node.labels[rule.key]]) and rule.matches(pod)

    def _rules_of(self, pod: Pod) -> tuple[list[tuple[int, str, _Rule]], list[_Rule], list[_Rule]]:
        """The constraints of a pod: spread with skew and node selection, affinity, anti-affinity."""
        namespace = pod.metadata.namespace or "default"
        selection = msgspec.json.encode((pod.spec.node_selector, pod.spec.affinity and pod.spec.affinity.node_affinity))
        spreads = []
        for spread in spreads_of(pod):
            counted = partial(selected, spread, pod)
            rule = self._rule(f"spread {namespace} {spread}", spread.topology_key, counted)
            spreads.append((spread.max_skew, selection.decode(), rule))
        near, away = (
            [
                self._rule(f"{kind} {namespace} {term}", term.topology_key, partial(counts, term, pod))
                for term in required_terms(pod, kind)
            ]
            for kind in ("pod_affinity", "pod_anti_affinity")
        )
        return spreads, near, away

    def _rule(self, name: str, key: str, counts_pod: Callable[[Pod], bool]) -> _Rule:
        return self._rules.setdefault(name, _Rule(key, counts_pod))

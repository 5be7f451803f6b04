"""An independent judge of plans: it shares no code with the planner and knows only the rules.

`violations(snapshot, plan)` lists every broken promise in words; an empty list is a valid plan. Topology is judged by
`tests.topology_checker`. Written for clearness, one pod and one instance type at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import DaemonSet, Node, Pod
from shiplap.manifests.nodeclaim import NodeClaim, PodReference
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import Snapshot
from tests.rules import (
    KIND,
    POOL,
    TYPE,
    ZONE,
    Amounts,
    Labels,
    add,
    amount,
    attached,
    collisions,
    combinations,
    meets,
    most,
    ports,
    requests,
    suits,
    tolerates,
    volumes_allow,
)

NODE_CLASS = "karpenter.k8s.aws/ec2nodeclass"
_RELAXED = "karpenter.sh/nodeclaim-min-values-relaxed"
_LEAVING = ("Disrupting", "Draining", "Terminating")
_PASSING = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "karpenter.sh/unregistered")


def violations(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Everything that is wrong with a plan for a snapshot, topology aside."""
    judge = Judge(snapshot, plan)
    return [
        *judge.each_pod_once(),
        *judge.claims(),
        *judge.limits(),
        *judge.pilots(),
        *judge.reservations(),
        *judge.existing(),
    ]


class Judge:
    """A plan and what it was made of."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self.snapshot = snapshot
        self.plan = plan
        self.pods = {_key(pod): pod for pod in snapshot.view.pods}
        self.pools = {pool.metadata.name: pool for pool in snapshot.manifests.node_pools}
        self.types = {
            catalog.node_class: {item.name: item for item in catalog.instance_types} for catalog in snapshot.catalogs
        }
        self.daemon_pods = self._daemon_pods()

    def each_pod_once(self) -> Iterator[str]:
        """Every pod without a node is named once, and pods of leaving nodes at most once."""
        groups = [claim.pods for claim in self.plan.node_claims] + [place.pods for place in self.plan.existing_nodes]
        named = [entry for group in groups for entry in group]
        named += [entry.pod for entry in (*self.plan.unschedulable, *self.plan.ignored)]
        count = Counter((entry.namespace, entry.name) for entry in named)
        for key, pod in self.pods.items():
            number = count.pop(key, 0)
            over = pod.status.phase in ("Succeeded", "Failed") or bool(pod.metadata.deletion_timestamp)
            if pod.spec.node_name or over:
                if number and not (number == 1 and pod.spec.node_name in self._leaving()):
                    yield f"pod {key}, which is not waiting, is named {number} times"
            elif number != 1:
                yield f"pod {key} is named {number} times"
        for key in count:
            yield f"pod {key} is not in the snapshot"

    def claims(self) -> Iterator[str]:
        """Each claim with its pods, whatever type, zone and capacity type it becomes."""
        names = Counter(claim.name for claim in self.plan.node_claims)
        names.update(claim.name for claim in self.snapshot.claims)
        yield from (f"{number} claims are called {name}" for name, number in names.items() if number > 1)
        for claim in self.plan.node_claims:
            for problem in self._claim(claim):
                yield f"claim {claim.name}: {problem}"
        total = sum(claim.launch.price for claim in self.plan.node_claims)
        if abs(total - self.plan.hourly) > 1e-5:
            yield f"costs {total}, not {self.plan.hourly}"

    def _claim(self, claim: PlannedClaim) -> Iterator[str]:
        pool = self.pools.get(claim.node_pool)
        static = pool is not None and pool.spec.replicas is not None
        if pool is None or pool.metadata.deletion_timestamp or (static and claim.pods):
            yield f"pool {claim.node_pool} takes no part"
            return
        template = pool.spec.template
        if not claim.instance_types or len(claim.instance_types) > self.snapshot.settings.max_instance_types:
            yield f"{len(claim.instance_types)} instance types"
        if len(set(claim.instance_types)) != len(claim.instance_types):
            yield "lists a type twice"
        if (template.spec.taints, template.spec.startup_taints) != (claim.taints, claim.startup_taints):
            yield "taints differ from the pool's"
        if claim.node_class != template.spec.node_class_ref.name:
            yield f"is of the EC2NodeClass {claim.node_class}"
        for key, value in {**template.metadata.labels, POOL: claim.node_pool, NODE_CLASS: claim.node_class}.items():
            if claim.labels.get(key) != value:
                yield f"label {key} is {claim.labels.get(key)}, not {value}"
        if not claim.pods and not static:
            yield "holds no pod"
        pods = [self._pod(entry) for entry in claim.pods]
        yield from (
            f"{_key(pod)} does not tolerate the taints" for pod in pods if not tolerates(claim.taints, pod.spec)
        )
        types = self.types[claim.node_class]
        unknown = [name for name in claim.instance_types if name not in types]
        if unknown:
            yield f"types {unknown} are not in the catalogue"
        if unknown or not claim.instance_types:
            return
        for name in claim.instance_types:
            yield from self._type(claim, types[name], pods)
        yield from self._requests(claim, pods)
        yield from self._prices(claim)
        yield from self._minimums(claim, types)

    def _type(self, claim: PlannedClaim, item: InstanceType, pods: list[Pod]) -> Iterator[str]:
        pool = self.pools[claim.node_pool]
        nodes = [node for node, _ in self.nodes(claim, item)]
        if not nodes:
            yield f"{item.name} has no available offering that the requirements allow"
        for node in nodes:
            if not _tiered(pool) and not meets(node, [pool.spec.template.spec.requirements]):
                yield f"{item.name}: {node} does not meet the pool's requirements"
            for pod in pods:
                if not suits(pod.spec, node):
                    yield f"{item.name}: {_key(pod)} does not suit {node}"
                if not volumes_allow(self.snapshot.view, pod, node):
                    yield f"{item.name}: the volumes of {_key(pod)} cannot be used on {node}"
        for node in nodes:
            estimate = item.verified or item.name in claim.relies_on_estimate
            yield from self._load(f"{item.name}", item, pods, node, claim.taints, estimate=estimate)

    def _load(
        self, what: str, item: InstanceType, pods: list[Pod], node: Labels, taints: Iterable[Any], *, estimate: bool
    ) -> Iterator[str]:
        """Resources and host ports of a node to come, daemons included."""
        counted = item.capacity if estimate else item.capacity | item.careful
        daemons = self.daemons_on(node, taints)
        load = add([*map(requests, pods), *(requests(daemon) for daemon in daemons)])
        for resource, wanted in load.items():
            room = counted.get(resource, 0) - item.overhead.get(resource, 0)
            if wanted > room:
                yield f"{what}: {resource} {wanted} of {room}"
        owners = [(f"daemon {daemon.metadata.name}", ports(daemon.spec)) for daemon in daemons]
        yield from collisions([*owners, *((pod.metadata.name, ports(pod.spec)) for pod in pods)])

    def _requests(self, claim: PlannedClaim, pods: list[Pod]) -> Iterator[str]:
        """Yield each request of a claim below its pods and the fewest daemons, or above its allocatable amount."""
        loads = [
            add(map(requests, self.daemons_on(node, claim.taints)))
            for name in claim.instance_types
            for node, _ in self.nodes(claim, self.types[claim.node_class][name])
        ]
        daemons = {key: min(load.get(key, 0) for load in loads) for load in loads[:1] for key in load}
        for resource, wanted in add([*map(requests, pods), daemons]).items():
            if claim.requests.get(resource, 0) < wanted:
                yield f"requests {claim.requests.get(resource, 0)} {resource}, its pods {wanted}"
        for resource, wanted in claim.requests.items():
            if claim.allocatable.get(resource, 0) < wanted:
                yield f"allocatable {claim.allocatable.get(resource, 0)} {resource} of {wanted} requested"

    def _prices(self, claim: PlannedClaim) -> Iterator[str]:
        types = self.types[claim.node_class]
        prices = [
            min((price for _, price in self.nodes(claim, types[name])), default=float("inf"))
            for name in claim.instance_types
        ]
        if prices != sorted(prices):
            yield f"types are not cheapest first: {prices}"
        launch = claim.launch
        if launch.instance_type != claim.instance_types[0] or abs(launch.price - prices[0]) > 1e-9:
            yield f"launches {launch}, cheapest is {claim.instance_types[0]} at {prices[0]}"
        offered = {
            (node[ZONE], node[KIND])
            for node, price in self.nodes(claim, types[claim.instance_types[0]])
            if abs(price - launch.price) <= 1e-9
        }
        if (launch.zone, launch.capacity_type) not in offered:
            yield f"launches {launch}, which is not offered"

    def _minimums(self, claim: PlannedClaim, types: Mapping[str, InstanceType]) -> Iterator[str]:
        wanted = {entry.key: entry.min_values for entry in claim.requirements if entry.min_values}
        pool = self.pools[claim.node_pool]
        relaxed = claim.annotations.get(_RELAXED) == "true"
        if relaxed and self.snapshot.settings.min_values_policy != "BestEffort":
            yield "relaxes minValues, which are strict"
        for rule in pool.spec.template.spec.requirements:
            if rule.min_values and not relaxed and wanted.get(rule.key, 0) < rule.min_values:
                yield f"lost minValues {rule.min_values} of {rule.key}"
        for key, least in wanted.items():
            rules = [entry for entry in claim.requirements if entry.key == key]
            values = set()
            for name in claim.instance_types:
                known = {name} if key == TYPE else _type_values(types[name], key)
                values |= {value for value in known if meets({key: value}, [rules])}
            if len(values) < least:
                yield f"{key} has {len(values)} values, {least} wanted"

    def nodes(
        self, claim: PlannedClaim | NodeClaim, item: InstanceType, *, available: bool = True
    ) -> Iterator[tuple[dict[str, str], float]]:
        """The labels of every node this claim may become as this type, with the price."""
        plan = claim.plan if isinstance(claim, NodeClaim) else claim
        rules: dict[str, list[Any]] = {}
        for entry in plan.requirements:
            rules.setdefault(entry.key, []).append(entry)
        for offering in item.offerings:
            if available and not offering.available:
                continue
            fixed = {**plan.labels, TYPE: item.name, ZONE: offering.zone, KIND: offering.capacity_type}
            if any(plan.labels.get(key, fixed[key]) != fixed[key] for key in (TYPE, ZONE, KIND)):
                continue
            open_keys = {
                known.key: [v for v in sorted(known.values) if meets({known.key: v}, [rules.get(known.key, [])])]
                for known in item.requirements
                if known.key not in (TYPE, ZONE, KIND) and known.values
            }
            for choice in combinations(open_keys):
                node = {**choice, **fixed}
                if all(meets(node, [group]) for group in rules.values()):
                    yield node, offering.price

    def limits(self) -> Iterator[str]:
        """No pool exceeds a limit, `nodes` included, if this plan launches anything for it."""
        for name, pool in self.pools.items():
            if not any(claim.node_pool == name for claim in self.plan.node_claims):
                continue
            used, planned = self.used(name), self._planned(name)
            for resource, limit in pool.spec.limits.items():
                # What is over its limit already must not become more.
                if used.get(resource, 0) > amount(resource, limit) and planned.get(resource, 0):
                    yield f"pool {name}: {resource} {used[resource]} over limit {limit}"

    def used(self, pool: str) -> Amounts:
        """Return the use of a pool: existing, in flight, planned; a claim counts as the largest type it may become."""
        paired = {claim.node_name for claim in self.snapshot.claims}
        amounts = [
            {"nodes": 1, **{key: amount(key, text) for key, text in node.status.capacity.items()}}
            for node in self.snapshot.view.nodes
            if node.metadata.labels.get(POOL) == pool and node.metadata.name not in self._leaving()
        ]
        for claim in self.snapshot.claims:
            known = {node.metadata.name for node in self.snapshot.view.nodes}
            if claim.plan.node_pool == pool and not (claim.node_name in known and claim.node_name in paired):
                amounts.append(self._largest(claim.plan.node_class, claim.plan.instance_types))
        return add([*amounts, self._planned(pool)])

    def _planned(self, pool: str) -> Amounts:
        claims = [claim for claim in self.plan.node_claims if claim.node_pool == pool]
        return add(self._largest(claim.node_class, claim.instance_types) for claim in claims)

    def _largest(self, node_class: str, names: Iterable[str]) -> Amounts:
        known = self.types.get(node_class, {})
        return most([{"nodes": 1}, *(known[name].capacity for name in names if name in known)])

    def pilots(self) -> Iterator[str]:
        """At most one claim relies on the estimate of an unverified type, and none for pods that were let down."""
        keys: list[str] = []
        for claim in self.plan.node_claims:
            if claim.relies_on_estimate and any(entry.uid in self.snapshot.missed_pods for entry in claim.pods):
                yield f"claim {claim.name} relies on an estimate for a pod that was missed before"
            for name in claim.relies_on_estimate:
                item = self.types[claim.node_class].get(name)
                if item is None or name not in claim.instance_types:
                    yield f"claim {claim.name} relies on the estimate of {name}, which it does not list"
                    continue
                keys.append(pilot(item))
                if item.verified or pilot(item) in self.snapshot.piloted or not self.snapshot.settings.explore:
                    yield f"claim {claim.name} may not rely on the estimate of {name}"
        for key, count in Counter(keys).items():
            if count > 1:
                yield f"{count} claims rely on the estimate of {key}"

    def reservations(self) -> Iterator[str]:
        """No more claims launch into a capacity reservation than it has instances left."""
        held = {
            offering.reservation_id: offering.reservation_capacity
            for types in self.types.values()
            for item in types.values()
            for offering in item.offerings
            if offering.reservation_id
        }
        used = Counter(claim.launch.reservation_id for claim in self.plan.node_claims if claim.launch.reservation_id)
        for reservation, number in used.items():
            if number > held.get(reservation, 0):
                yield f"{number} claims launch into reservation {reservation}, which holds {held.get(reservation, 0)}"

    def existing(self) -> Iterator[str]:
        """Pods put on nodes that exist and on claims in flight."""
        nodes = {node.metadata.name: node for node in self.snapshot.view.nodes}
        flight = {claim.name: claim for claim in self.snapshot.claims}
        yield from (
            f"node {name} is named {number} times"
            for name, number in Counter(place.name for place in self.plan.existing_nodes).items()
            if number > 1
        )
        for place in self.plan.existing_nodes:
            pods = [self._pod(entry) for entry in place.pods]
            if place.name in nodes:
                yield from (f"node {place.name}: {text}" for text in self.on_node(nodes[place.name], pods))
            elif place.name in flight:
                yield from (f"claim in flight {place.name}: {text}" for text in self.on_claim(flight[place.name], pods))
            else:
                yield f"there is no node {place.name}"

    def on_claim(self, claim: NodeClaim, pods: list[Pod]) -> Iterator[str]:
        """Yield each fault in putting these pods on a claim in flight, whatever node it becomes."""
        yield from (
            f"{_key(pod)} does not tolerate the taints" for pod in pods if not tolerates(claim.plan.taints, pod.spec)
        )
        if claim.plan.relies_on_estimate and any(pod.metadata.uid in self.snapshot.missed_pods for pod in pods):
            yield "relies on an estimate for a pod that was missed before"
        known = self.types.get(claim.plan.node_class, {})
        for name in (claim.known_instance.type,) if claim.known_instance.type else claim.plan.instance_types:
            if name not in known:
                continue
            item = known[name]
            estimate = item.verified or name in claim.plan.relies_on_estimate
            for node, _ in self.nodes(claim, item, available=False):
                for pod in pods:
                    if not suits(pod.spec, node) or not volumes_allow(self.snapshot.view, pod, node):
                        yield f"{_key(pod)} does not suit {node}"
                yield from self._load(name, item, pods, node, claim.plan.taints, estimate=estimate)

    def on_node(self, node: Node, pods: list[Pod]) -> Iterator[str]:
        """Yield each fault in putting these pods on a node next to the pods that use it."""
        if node.spec.unschedulable or node.metadata.name in self._leaving():
            yield "is cordoned or on its way out"
        labels = {"kubernetes.io/hostname": node.metadata.name, **node.metadata.labels}
        taints = self._lasting_taints(node)
        for pod in pods:
            if not tolerates(taints, pod.spec):
                yield f"{_key(pod)} does not tolerate the taints"
            if not suits(pod.spec, labels):
                yield f"{_key(pod)} does not suit its labels"
            if not volumes_allow(self.snapshot.view, pod, labels):
                yield f"the volumes of {_key(pod)} cannot be used there"
        bound = self.bound(node.metadata.name)
        coming = self._daemons_to_come(labels, taints, bound)
        taken = ("a pod there", [port for pod in bound for port in ports(pod.spec)])
        yield from collisions([taken, *((pod.metadata.name, ports(pod.spec)) for pod in pods)])
        allocatable = {key: amount(key, text) for key, text in node.status.allocatable.items()}
        new = add(map(requests, pods))
        for resource, wanted in add([*map(requests, (*bound, *pods)), coming]).items():
            if wanted > allocatable.get(resource, 0) and new.get(resource):
                yield f"{resource} {wanted} of {allocatable.get(resource, 0)}"
        before, after = (attached(self.snapshot.view, group) for group in (bound, [*bound, *pods]))
        for csi in (item for item in self.snapshot.view.csi_nodes if item.metadata.name == node.metadata.name):
            for driver in csi.spec.drivers or ():
                number = len(after.get(driver.name, ()))
                count = driver.allocatable.count if driver.allocatable is not None else None
                if count is not None and number > max(count, len(before.get(driver.name, ()))):
                    yield f"{number} volumes of {driver.name}, at most {count}"

    def _lasting_taints(self, node: Node) -> list[Any]:
        """The taints of a node once it is initialised."""
        pool = self.pools.get(node.metadata.labels.get(POOL, ""))
        if pool is None or node.metadata.labels.get("karpenter.sh/initialized") == "true":
            return list(node.spec.taints)
        startup = pool.spec.template.spec.startup_taints
        return [taint for taint in node.spec.taints if taint not in startup and taint.key not in _PASSING]

    def bound(self, node: str) -> list[Pod]:
        """The pods that use a node."""
        return [
            pod
            for pod in self.pods.values()
            if (pod.spec.node_name == node or pod.status.nominated_node_name == node)
            and pod.status.phase not in ("Succeeded", "Failed")
        ]

    def daemons_on(self, node: Labels, taints: Iterable[Any]) -> list[Pod]:
        """A pod of every DaemonSet that will run on a node."""
        marked = {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true", **node}
        return [
            pod
            for daemon, pod in self.daemon_pods
            if tolerates(taints, daemon.spec.template.spec) and suits(daemon.spec.template.spec, marked)
        ]

    def _daemon_pods(self) -> list[tuple[DaemonSet, Pod]]:
        """Every DaemonSet with its newest running pod, or one made of its template."""
        found = []
        for daemon in self.snapshot.view.daemon_sets:
            name, namespace = daemon.metadata.name, daemon.metadata.namespace or "default"
            running = [
                pod
                for pod in self.pods.values()
                if pod.spec.node_name
                and (pod.metadata.namespace or "default") == namespace
                and any(owner.kind == "DaemonSet" and owner.name == name for owner in pod.metadata.owner_references)
            ]
            newest = max(
                running, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name), default=None
            )
            found.append((daemon, newest or Pod(metadata=daemon.metadata, spec=daemon.spec.template.spec)))
        return found

    def _daemons_to_come(self, labels: Labels, taints: Iterable[Any], bound: list[Pod]) -> Amounts:
        expected = add(map(requests, self.daemons_on(labels, taints)))
        here = add(
            requests(pod) for pod in bound if any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)
        )
        return {resource: max(wanted - here.get(resource, 0), 0) for resource, wanted in expected.items()}

    def _leaving(self) -> set[str]:
        out = {claim.node_name for claim in self.snapshot.claims if claim.state in _LEAVING}
        return out | {node.metadata.name for node in self.snapshot.view.nodes if node.metadata.deletion_timestamp}

    def _pod(self, entry: PodReference) -> Pod:
        return self.pods[entry.namespace, entry.name]


def pilot(item: InstanceType) -> str:
    """Return the name that snapshots give an unverified (AMI, type, kubelet settings)."""
    return f"{item.ami}/{item.name}#{item.kubelet_hash}"


def _key(pod: Pod) -> tuple[str, str]:
    return (pod.metadata.namespace or "default", pod.metadata.name)


def _tiered(pool: Any) -> bool:
    return any("*" in value for rule in pool.spec.template.spec.requirements for value in rule.values)


def _type_values(item: InstanceType, key: str) -> set[str]:
    if key in (ZONE, KIND):
        return {offering.zone if key == ZONE else offering.capacity_type for offering in item.offerings}
    return {value for entry in item.requirements if entry.key == key for value in entry.values}

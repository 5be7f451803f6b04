"""A stage for the flows: all fakes on one clock, kubelets and a kube-scheduler played by hand, queues in between.

Nothing happens by itself: a test says when nodes join, when messages are delivered and how far the clock moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from shiplap.flows import messages
from shiplap.flows.context import FlowContext
from shiplap.flows.interrupt import notices
from shiplap.flows.interrupt.interrupt import interrupt
from shiplap.flows.lifecycle import lifecycle
from shiplap.flows.live_settings import AS_DEPLOYED
from shiplap.flows.messages import NodeSeen, PodsPending, Sweep, Timer
from shiplap.flows.planning.futile_launches import pod_kind
from shiplap.flows.schedule.schedule import ScheduleReport, schedule
from shiplap.instances.capacity.capacity_setting import cluster_setting
from shiplap.instances.catalog.ec2_catalog import (
    Catalog,
    Ec2InstanceType,
    MemoryInfo,
    NetworkCard,
    NetworkInfo,
    ProcessorInfo,
    TypePrices,
    VCpuInfo,
)
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.resolve import instance_types
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Toleration
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import MEMORY, format_resources, parse_resources
from shiplap.kubernetes.taints import untolerated
from shiplap.manifests.custom_resources import EC2NodeClass, Manifests, NodePool
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import Instance
from shiplap.settings import ClusterSettings, Settings
from shiplap_lab.fakes.cluster import ApiServer, FakeCluster
from shiplap_lab.fakes.compute import FakeCompute, FakeHealth
from shiplap_lab.fakes.faults import Crash, Faults
from shiplap_lab.fakes.signals import FakeBus, FakeClock, FakeMeter, FakeTimers
from shiplap_lab.fakes.state import FakeJoins, FakeState
from shiplap_lab.fakes.stores import FakeCapacity, FakeCatalog, FakeRecorder
from shiplap_lab.policies.policy_plays import fake_ports, ports_of
from tests.builders.pools import family_pool

CLUSTER = "demo"
ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
MIB = 2**20

_SIZES = {"large": (2, 3, 10), "xlarge": (4, 4, 15), "2xlarge": (8, 4, 15)}
_GIB_PER_CPU = {"c7i-flex": 2, "c7i": 2, "m6i": 4, "r6i": 8}
_PRICE_PER_CPU = {"c7i-flex": 0.040, "c7i": 0.042, "m6i": 0.048, "r6i": 0.063}


def catalog(*, spot: bool = False) -> Catalog:
    """Four families in three sizes, in three zones."""
    types, prices = [], {}
    for family in sorted(_GIB_PER_CPU):
        for size, (cpus, interfaces, addresses) in sorted(_SIZES.items()):
            name = f"{family}.{size}"
            types.append(
                Ec2InstanceType(
                    instance_type=name,
                    v_cpu_info=VCpuInfo(cpus),
                    memory_info=MemoryInfo(cpus * _GIB_PER_CPU[family] * 1024),
                    network_info=NetworkInfo(addresses, interfaces, 0, (NetworkCard(interfaces),)),
                    processor_info=ProcessorInfo(("x86_64",), 3.2, "Intel"),
                    hypervisor="nitro",
                    supported_usage_classes=("on-demand", "spot") if spot else ("on-demand",),
                    supported_virtualization_types=("hvm",),
                )
            )
            prices[name] = TypePrices(round(cpus * _PRICE_PER_CPU[family], 4))
    zones = {item.instance_type: ZONES for item in types}
    return Catalog(region="eu-west-1", types=tuple(types), zones=zones, prices=prices)


FLEX_FIRST = (family_pool("fallback", ("c7i", "m6i"), weight=1), family_pool("flex", ("c7i-flex",), weight=10))
NODE_CLASS = msgspec.convert({"metadata": {"name": "default"}, "spec": {"amiFamily": "AL2023"}}, EC2NodeClass)


def share(fraction: float) -> Callable[[InstanceType, int], int]:
    """Nodes whose memory is this fraction of what EC2 states."""
    return lambda _, nominal: int(nominal * fraction)


USUAL_MEMORY = share(0.95)


class Stage:
    """One cluster. Attributes are the fakes.

    `nominal` maps a type to the memory EC2 states, bytes; `launched` an instance id to its claim as it was then.
    Instances in `broken` never join. A stage `beside` another is a second cluster of the same account: they share
    time, faults, state, notes of joins, what optional features note, and learned capacity.
    """

    def __init__(
        self,
        pools: Sequence[NodePool] = FLEX_FIRST,
        *,
        spot: bool = False,
        true_memory: Callable[[InstanceType, int], int] = USUAL_MEMORY,
        beside: Stage | None = None,
    ) -> None:
        sold = catalog(spot=spot)
        manifests = Manifests(node_pools=tuple(pools), node_classes=(NODE_CLASS,))
        self.name = CLUSTER if beside is None else f"{beside.name}-too"
        self.settings = ClusterSettings(name=self.name, region="eu-west-1", install="shiplap", manifests=manifests)
        self.manifest_state = AS_DEPLOYED
        self.clock = FakeClock() if beside is None else beside.clock
        self.faults = Faults() if beside is None else beside.faults
        self.server = ApiServer(self.clock)
        self.cluster = FakeCluster(self.server, faults=self.faults)
        numbers = None if beside is None else beside.compute.numbers
        self.compute = FakeCompute(self.clock, faults=self.faults, zones=ZONES, numbers=numbers)
        self.state = FakeState(self.faults) if beside is None else beside.state
        self.capacity = FakeCapacity(self.faults) if beside is None else beside.capacity
        self.bus = FakeBus(self.faults)
        self.timers = FakeTimers(self.clock, self.faults)
        self.recorder = FakeRecorder(self.faults)
        self.meter = FakeMeter()
        self.health = FakeHealth(self.faults)
        self.joins = FakeJoins(self.faults) if beside is None else beside.joins
        self.policy_ports = fake_ports(self.faults) if beside is None else beside.policy_ports
        self.context = FlowContext(
            clock=self.clock,
            cluster=self.cluster,
            compute=self.compute,
            state=self.state,
            capacity=self.capacity,
            catalog=FakeCatalog(sold, self.faults),
            bus=self.bus,
            timers=self.timers,
            recorder=self.recorder,
            meter=self.meter,
            health=self.health,
            joins=self.joins,
            policy_ports=ports_of(self.policy_ports, tuple(self.policy_ports)),
        )
        self.nominal = {item.instance_type: item.memory_info.size_in_mi_b * MIB for item in sold.types}
        self._true_memory = true_memory
        self.launched: dict[str, NodeClaim] = {}
        self.broken: set[str] = set()
        self.compute.on_launch.append(lambda instance, request, _: self.launched.update({instance.id: request.claim}))
        self._spectator = FakeCluster(self.server)  # sees the cluster without passing through faults
        self._invocations = 0
        self._told = 0
        formula = instance_types(
            sold, NODE_CLASS, cluster_setting(self.settings, ()), resolved=None, learned=(), unavailable=()
        )
        self.types = {item.name: item for item in formula}

    def with_policies(self) -> Stage:
        """Let flows use the optional features that the settings switch on."""
        on = self.settings.policies_on
        self.context = replace(self.context, policies=on)
        return self

    # What users do

    def add_pods(
        self,
        count: int,
        *,
        cpu: str = "1",
        memory: str = "1Gi",
        prefix: str = "web",
        selector: Mapping[str, str] | None = None,
        tolerations: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """Pods that kube-scheduler has found no node for."""
        pending = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        for number in range(count):
            container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
            self.server.create(
                "pods",
                {
                    "metadata": {"name": f"{prefix}-{number:03d}", "uid": f"uid-{prefix}-{number:03d}"},
                    "spec": {
                        "containers": [container],
                        "nodeSelector": dict(selector or {}),
                        "tolerations": [dict(item) for item in tolerations],
                    },
                    "status": {"phase": "Pending", "conditions": [pending]},
                },
            )

    def prove_pending_kinds(self, prefix: str = "") -> None:
        """Nodes have run pods like those that wait, so that a burst of them is not bounded."""
        pods = [pod for pod in self.cluster.pending_pods() if pod.metadata.name.startswith(prefix)]
        self.state.mark_proven(self.name, sorted({pod_kind(pod) for pod in pods}), self.clock.now())

    # What kubelets and kube-scheduler do

    def true_capacity(self, name: str) -> dict[str, int]:
        """Return the true capacity of a node of a type, canonical units."""
        known = self.types[name]
        return {**known.capacity, MEMORY: self._true_memory(known, self.nominal[name])}

    def join(self, *instances: Instance, ready: bool = True) -> None:
        """Kubelets of instances register their Nodes; without arguments, those of all that have none yet."""
        present = {node.spec.provider_id for node in self._spectator.nodes()}
        for instance in instances or self.compute.alive():
            if instance.provider_id not in present and instance.id not in self.broken:
                self._join(instance, ready=ready)

    def _join(self, instance: Instance, *, ready: bool) -> None:
        self.server.create("nodes", self.node_object(instance, ready=ready))

    def node_object(self, instance: Instance, *, ready: bool) -> dict[str, Any]:
        """Return the Node that the kubelet of an instance registers."""
        claim = self.launched[instance.id]
        capacity = self.true_capacity(instance.instance_type)
        overhead = self.types[instance.instance_type].overhead
        allocatable = {name: amount - overhead.get(name, 0) for name, amount in capacity.items()}
        unregistered = {"key": labels.UNREGISTERED_TAINT, "effect": "NoExecute"}
        return {
            "metadata": {"name": instance.private_dns, "labels": dict(claim.plan.labels)},
            "spec": {"providerID": instance.provider_id, "taints": [unregistered]},
            "status": {
                "capacity": format_resources(capacity),
                "allocatable": format_resources(allocatable),
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
                "nodeInfo": {"bootID": f"boot-{instance.id}"},
            },
        }

    def bind(self) -> int:
        """Kube-scheduler: pending pods go to the node they are nominated to, or else to the first one, by name, that is
        open and has room; returns how many. Room is kept for those that are nominated.
        """
        view = self._spectator.view()
        room = {node.metadata.name: parse_resources(node.status.allocatable) for node in view.nodes}
        taints = {node.metadata.name: node.spec.taints for node in view.nodes}
        for pod in view.pods:
            if pod.spec.node_name in room:
                _take(room[pod.spec.node_name], pod_requests(pod))
        open_to: dict[tuple[Toleration, ...], list[str]] = {}
        bound = 0
        for pod in sorted(view.pods, key=lambda item: not item.status.nominated_node_name):
            if pod.spec.node_name:
                continue
            wanted = pod_requests(pod)
            tolerations = pod.spec.tolerations
            if tolerations not in open_to:
                open_to[tolerations] = sorted(n for n in room if untolerated(taints[n], tolerations) is None)
            nominated = [n for n in open_to[tolerations] if n == pod.status.nominated_node_name]
            names = chain(nominated, open_to[tolerations])
            name = next((n for n in names if all(room[n].get(r, 0) >= a for r, a in wanted.items())), None)
            if name is not None:
                _take(room[name], wanted)
                self.server.bind(pod.metadata.name, name, pod.metadata.namespace)
                bound += 1
        return bound

    # What the queues do

    def schedule(
        self, *hints: PodsPending | Sweep, context: FlowContext | None = None, seconds: float = 300.0
    ) -> ScheduleReport:
        """One invocation of the schedule function."""
        self._invocations += 1
        hints = hints or (PodsPending(self.name, self.clock.now()),)
        owner = f"invocation-{self._invocations}"
        deadline = self.clock.now() + seconds
        return schedule(
            self.settings,
            hints,
            context or self.context,
            owner=owner,
            deadline=deadline,
            manifest_state=self.manifest_state,
        )

    def sweep(self) -> ScheduleReport:
        """One invocation for a sweep."""
        return self.schedule(Sweep(self.name, self.clock.now()))

    def attend(self, *hints: NodeSeen | Timer) -> lifecycle.LifecycleReport:
        """One invocation of the lifecycle function; without hints, for every Node there is."""
        seen = hints or tuple(
            NodeSeen(self.name, node.metadata.name, node.spec.provider_id) for node in self._spectator.nodes()
        )
        report = lifecycle.visit_claims(self.settings, seen, self.context)
        if report.failures:
            raise report.failures[0].error
        return report

    def interrupt(self, body: str) -> None:
        """One invocation of the interrupt function for an event of AWS."""
        notice = notices.read_notice(body, "queue")
        interrupt(notice, Settings((self.settings,)), self.state, lambda _: self.context, self.meter)

    def due(self) -> list[Timer]:
        """Take the timers that are due."""
        return [Timer(item.cluster, item.claim, item.step) for item in self.timers.take_due(self.clock.now())]

    def attend_timers(self) -> None:
        """Deliver the timers that are due."""
        if due := self.due():
            self.attend(*due)

    def told(self) -> list[messages.Message]:
        """Take the hints published since the last time, in the envelope EventBridge would deliver them in."""
        fresh, self._told = self.bus.events[self._told :], len(self.bus.events)
        bodies = [{"detail-type": event.detail_type, "source": event.source, "detail": event.detail} for event in fresh]
        known = (messages.POD_PENDING, messages.NODE_JOINED, messages.NODE_READY)
        return [messages.decode(msgspec.json.encode(body), "queue") for body in bodies if body["detail-type"] in known]

    def play_on(self, minutes: int = 30) -> None:
        """Sweep every minute, deliver timers, let nodes join and pods bind, until all is quiet."""
        for _ in range(minutes):
            self.sweep()
            self.join()
            self.attend(*self.due())
            self.bind()
            if self.quiet():
                return
            self.clock.advance(60)
        raise AssertionError(f"not quiet after {minutes} minutes: {self.summary()}")

    def dies(self, act: Callable[[], object]) -> bool:
        """Run one invocation; True when it died of an injected crash."""
        try:
            act()
        except Crash:
            return True
        return False

    # What can be asserted

    def pending(self) -> int:
        """Pods without a node."""
        return len(self._spectator.pending_pods())

    def claims(self) -> tuple[NodeClaim, ...]:
        """All that are not Gone, by name."""
        return self.state.claims(self.name)

    def objects(self, plural: str = "nodeclaims") -> dict[str, Any]:
        """All objects of a kind that the API server has, by name."""
        return {item["metadata"]["name"]: item for item in self.server.list(plural).items}

    def quiet(self) -> bool:
        """All pods are bound, and every claim that has not ended is in service."""
        return not self.pending() and all(c.state in ("Initialized", "Failed") for c in self.claims())

    def summary(self) -> str:
        states = [f"{c.name}:{c.state}" for c in self.claims()]
        return f"{self.pending()} pending, claims {states}, {len(self.compute.alive())} instances"


def _take(room: dict[str, int], wanted: Mapping[str, int]) -> None:
    for resource, amount in wanted.items():
        room[resource] = room.get(resource, 0) - amount

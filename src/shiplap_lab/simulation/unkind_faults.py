"""Faults of the campaign `unkind`: nodes, instances, events, manifests and tables that behave unlike the usual ones.

`FaultInjector` and `UnsettledCompute` apply those that hit requests, invocations and descriptions. Here are those that
begin something in the clusters or in EC2, and undo it when they are over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

from shiplap.errors import ObjectNotFound
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, ObjectMeta
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.custom_resources import Manifests
from shiplap.ports import Instance
from shiplap_lab.api_server.stored_pods import condition
from shiplap_lab.cluster_simulator.informer import Kept
from shiplap_lab.cluster_simulator.kubelet import is_ready
from shiplap_lab.cluster_simulator.simulated_cluster import SimulatedCluster
from shiplap_lab.scenarios.scenario import Fault
from shiplap_lab.virtual_time.event_loop import EventLoop
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from shiplap_lab.virtual_time.simulated_install import SimulatedInstall
from shiplap_lab.virtual_time.trace import Trace
from shiplap_lab.virtual_time.unsettled_compute import UnsettledCompute, node_classes_amis

_WARNING_S = 120.0
_LATER_S = 45.0
"""How much later than the first a second spot warning says that it happened, in seconds."""

_FLAP_EVERY_S = (40.0, 150.0)
_FLAP_S = (5.0, 90.0)
_DIES_S = (1.0, 25.0)
_STARTUP_S = 6.0
"""When the controller of a startup taint takes it away, in seconds after the taint has appeared."""

_DEVICE_S = (5.0, 20.0)
"""When a device plugin reports, in seconds after its node is Ready."""

_NOT_READY = {"key": labels.NOT_READY_TAINT, "effect": "NoSchedule"}


class UnkindWorld(NamedTuple):
    """The faults' world. `warn` sends a spot warning that names a moment; `lose` ends an instance for a code."""

    loop: EventLoop
    faults: FaultInjector
    trace: Trace
    compute: UnsettledCompute
    clusters: Mapping[str, SimulatedCluster[Instance]]
    installs: Mapping[str, SimulatedInstall]
    manifests: Mapping[str, Manifests]
    warn: Callable[[str, float], object]
    lose: Callable[[str, str], object]
    restart: Callable[[], object]
    devices: Mapping[str, int]


class UnkindFaults:
    """Begins and ends faults; `launched` and `ended` tell it of instances."""

    def __init__(self, world: UnkindWorld) -> None:
        self._world = world
        self._loop, self._faults = world.loop, world.faults
        self._releases = 0
        self._subnets = world.compute.subnets
        self._ended_names: list[str] = []
        self._tables: dict[int, dict[str, Any]] = {}
        self._budgets: dict[str, Any] = {}
        self._begins: dict[str, Callable[[int, Fault], None]] = {
            "flap": self._begin_to_flap,
            "late-warning": self._warn_late,
            "ami-drift": self._release_ami,
            "address-again": self._give_names_again,
            "pdb-zero": self._allow_no_eviction,
            "daemon-set": self._add_daemon_set,
            "restore": self._keep_tables,
        }
        self._ends: dict[str, Callable[[int, Fault], None]] = {
            "address-again": self._keep_names,
            "subnets": self._select_all_subnets,
            "pdb-zero": self._allow_evictions,
            "daemon-set": self._remove_daemon_set,
            "restore": self._restore_tables,
            "watch-gone": self._forget_changes,
        }
        for name, cluster in sorted(world.clusters.items()):
            self._remove_startup_taints(name, cluster)
            if world.devices:
                cluster.informer.listeners.append(partial(self._plug_devices, name, set[str]()))

    def begin(self, number: int, fault: Fault) -> None:
        """Do what happens when a fault becomes active."""
        if fault.kind in self._begins:
            self._begins[fault.kind](number, fault)

    def end(self, number: int, fault: Fault) -> None:
        """Do what happens when a fault is over."""
        if fault.kind in self._ends:
            self._ends[fault.kind](number, fault)

    # EC2

    def launched(self, instance: Instance) -> None:
        """An instance was launched: it may end at once."""
        if self._faults.hits("ends-at-once"):
            for number, _ in self._faults.active_of("ends-at-once")[:1]:
                seconds = self._faults.random_of(number).uniform(*_DIES_S)
                self._loop.after(seconds, partial(self._world.lose, instance.id, "Server.InternalError"))

    def ended(self, instance: Instance) -> None:
        """An instance has ended: its host name may be given again."""
        self._ended_names.append(instance.private_dns)
        if self._faults.active_of("address-again"):
            self._world.compute.freed_names.append(instance.private_dns)

    def _warn_late(self, number: int, fault: Fault) -> None:
        """Spot takes instances back; the warning arrives late and twice, the second with a later moment."""
        spot = [instance for instance in self._world.compute.alive() if instance.capacity_type == "spot"]
        for delay_s, instance in self._faults.drawn_from(spot, number, fault):
            self._loop.after(delay_s, partial(self._take_back, number, instance.id))

    def _take_back(self, number: int, instance_id: str) -> None:
        chance, now = self._faults.random_of(number), self._loop.now()
        self._faults.effects["late-warning"] += 1
        self._world.trace.record("spot warning", instance=instance_id, late=True)
        for moment in (now, now + chance.uniform(0, _LATER_S)):
            self._loop.after(chance.uniform(1, _WARNING_S), partial(self._world.warn, instance_id, moment))
        self._loop.after(_WARNING_S, partial(self._world.lose, instance_id, ""))

    def _release_ami(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - nothing of the fault matters
        """Each EC2NodeClass resolves to a new AMI from now on."""
        self._releases += 1
        classes = {item.metadata.name for each in self._world.manifests.values() for item in each.node_classes}
        self._world.compute.amis.update(node_classes_amis(sorted(classes), self._releases))
        self._faults.effects["ami-drift"] += bool(self._world.compute.alive())

    def _give_names_again(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - as it is called
        """Host names of instances that have ended before are given again, too."""
        compute = self._world.compute
        used = {item.private_dns for item in compute.alive()} | set(compute.freed_names)
        compute.freed_names += [name for name in dict.fromkeys(self._ended_names) if name not in used]

    def _keep_names(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - as it is called
        if not self._faults.active_of("address-again"):
            self._world.compute.freed_names.clear()

    def _select_all_subnets(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - as it is called
        if not self._faults.active_of("subnets"):
            self._world.compute.subnets = self._subnets

    # Nodes

    def _begin_to_flap(self, number: int, fault: Fault) -> None:
        chance = self._faults.random_of(number)
        until = self._loop.now() + fault.minutes * 60
        for name, cluster in sorted(self._world.clusters.items()):
            for node in sorted(cluster.informer.nodes):
                if chance.random() < fault.amount:
                    self._loop.after(chance.uniform(0, 60), partial(self._become_unready, number, name, node, until))

    def _become_unready(self, number: int, cluster: str, node: str, until: float) -> None:
        chance = self._faults.random_of(number)
        seen = self._node(cluster, node)
        if seen is None or self._loop.now() >= until:
            return
        if is_ready(seen) and not self._faults.active_of("api-down"):
            self._faults.effects["flap"] += 1
            self._say_ready(cluster, seen, ready=False)
            self._loop.after(
                chance.uniform(*_FLAP_S), partial(self._become_ready, cluster, seen.spec.provider_id, node)
            )
        self._loop.after(chance.uniform(*_FLAP_EVERY_S), partial(self._become_unready, number, cluster, node, until))

    def _become_ready(self, cluster: str, provider_id: str, node: str) -> None:
        if self._faults.active_of("api-down"):
            self._loop.after(5.0, partial(self._become_ready, cluster, provider_id, node))
            return
        seen = self._node(cluster, node)
        alive = {item.provider_id for item in self._world.compute.alive()}
        if seen is not None and seen.spec.provider_id == provider_id and provider_id in alive:
            self._say_ready(cluster, seen, ready=True)

    def _node(self, cluster: str, name: str) -> Node | None:
        informer = self._world.clusters[cluster].informer
        informer.refresh()
        return informer.nodes.get(name)

    def _say_ready(self, cluster: str, node: Node, *, ready: bool) -> None:
        """As the kubelet and the node lifecycle controller do: the condition, and the taint that follows it."""
        server, name = self._world.clusters[cluster].server, node.metadata.name
        reason = "KubeletReady" if ready else "KubeletNotReady"
        said = condition("Ready", "True" if ready else "False", rfc3339(self._loop.now()), reason, "")
        server.patch("nodes", name, {"status": {"conditions": [said]}}, strategic=True, subresource="status")
        taints = server.get("nodes", name)["spec"].get("taints", [])
        left = [taint for taint in taints if taint["key"] != labels.NOT_READY_TAINT]
        server.patch("nodes", name, {"spec": {"taints": left if ready else [*left, _NOT_READY]}})

    def _remove_startup_taints(self, name: str, cluster: SimulatedCluster[Instance]) -> None:
        """Play the controller that takes the startup taints of NodePools away."""
        startup = {
            (taint.key, taint.effect)
            for pool in self._world.manifests[name].node_pools
            for taint in pool.spec.template.spec.startup_taints
        }
        seen: set[str] = set()

        def changed(plural: str, key: str, _before: Kept | None, after: Kept | None) -> None:
            if plural != "nodes" or not isinstance(after, Node) or after.metadata.uid in seen:
                return
            if any((taint.key, taint.effect) in startup for taint in after.spec.taints):
                seen.add(after.metadata.uid)
                late = self._faults.amount_of("startup-taint")
                self._loop.after(_STARTUP_S + late, remove(key))

        def remove(node: str) -> Callable[[], None]:
            def act() -> None:
                if self._faults.active_of("api-down"):
                    self._loop.after(5.0, act)
                    return
                try:
                    taints = cluster.server.get("nodes", node)["spec"].get("taints", [])
                except ObjectNotFound:
                    return
                left = [taint for taint in taints if (taint["key"], taint["effect"]) not in startup]
                cluster.server.patch("nodes", node, {"spec": {"taints": left}})

            return act

        if startup:
            cluster.informer.listeners.append(changed)

    def _plug_devices(
        self, cluster: str, seen: set[str], plural: str, _key: str, _before: Kept | None, after: Kept | None
    ) -> None:
        """Play the device plugin of each node, which reports once the node is Ready."""
        if plural != "nodes" or not isinstance(after, Node) or after.metadata.uid in seen or not is_ready(after):
            return
        seen.add(after.metadata.uid)
        late = self._faults.amount_of("late-device")
        chance = Random(f"{after.spec.provider_id}:device")  # noqa: S311 - repeatable chance
        self._loop.after(chance.uniform(*_DEVICE_S) + late, partial(self._report_devices, cluster, after.metadata))

    def _report_devices(self, cluster: str, node: ObjectMeta) -> None:
        if self._faults.active_of("api-down"):
            self._loop.after(5.0, partial(self._report_devices, cluster, node))
            return
        seen = self._node(cluster, node.name)
        if seen is not None and seen.metadata.uid == node.uid:
            reported = {name: str(number) for name, number in self._world.devices.items()}
            status = {"status": {"capacity": reported, "allocatable": reported}}
            self._world.clusters[cluster].server.patch("nodes", node.name, status, subresource="status")

    # Objects

    def _allow_no_eviction(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - as it is called
        """The budgets of groups that match allow no eviction; a spot warning ends that at a pod's last moment."""
        self._set_budgets(0)

    def _allow_evictions(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - as it is called
        if not self._faults.active_of("pdb-zero"):
            self._set_budgets(None)

    def _set_budgets(self, most: int | None) -> None:
        kept = self._budgets
        for name, cluster in sorted(self._world.clusters.items()):
            for item in cluster.server.list("poddisruptionbudgets").items:
                meta = item["metadata"]
                key = f"{name}/{meta['namespace']}/{meta['name']}"
                kept.setdefault(key, item["spec"]["maxUnavailable"])
                spec = {"maxUnavailable": kept[key] if most is None else most}
                cluster.server.patch("poddisruptionbudgets", meta["name"], {"spec": spec}, meta["namespace"])

    def _add_daemon_set(self, number: int, fault: Fault) -> None:
        """A DaemonSet that requests `amount` millicores comes to every node; later launches have to count it."""
        name = _daemon_set_name(number)
        requests = {"cpu": f"{fault.amount:.0f}m", "memory": "100Mi"}
        container = {"name": "main", "image": "example/daemon:v1", "resources": {"requests": requests}}
        labelled = {"app": name}
        body = {
            "metadata": {"name": name, "namespace": "kube-system"},
            "spec": {
                "selector": {"matchLabels": labelled},
                "template": {
                    "metadata": {"labels": labelled},
                    "spec": {
                        "priorityClassName": "system-node-critical",
                        "priority": 2_000_001_000,
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [container],
                    },
                },
            },
        }
        for cluster in self._world.clusters.values():
            cluster.server.create("daemonsets", body, "kube-system")

    def _remove_daemon_set(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - as it is called
        """The DaemonSet goes, and its pods with it."""
        name = _daemon_set_name(number)
        for cluster in self._world.clusters.values():
            cluster.server.delete("daemonsets", name, "kube-system")
            for pod in cluster.server.list("pods").items:
                meta = pod["metadata"]
                if meta.get("labels", {}).get("app") == name:
                    self._faults.effects["daemon-set"] += bool(pod["spec"].get("nodeName"))
                    cluster.server.delete("pods", meta["name"], meta["namespace"], grace_s=0)

    def _forget_changes(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - as it is called
        """Watches that go on from where they were broken are told to list again."""
        for cluster in self._world.clusters.values():
            cluster.server.compact()

    # Tables

    def _keep_tables(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - as it is called
        self._tables[number] = {name: install.state.backup() for name, install in self._world.installs.items()}

    def _restore_tables(self, number: int, fault: Fault) -> None:  # noqa: ARG002 - as it is called
        """Table `state` of each install is as it was when the fault began; no function runs meanwhile."""
        self._world.restart()
        for name, backup in self._tables.pop(number).items():
            install = self._world.installs[name]
            before = len(install.state.written)
            install.state.restore(backup)
            self._faults.effects["restore"] += 1
            self._world.trace.record("restored", install=name, claims=before)


def _daemon_set_name(number: int) -> str:
    return f"late-{number}"

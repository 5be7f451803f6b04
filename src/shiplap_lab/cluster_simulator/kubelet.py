"""Kubelets: instances become Nodes, Nodes become Ready, their pods run, and ended instances take both with them.

The parts of the cloud controller, the node lifecycle controller and pod garbage collection that go with that are
played here, too: the not-ready taint is taken away, a Node of which nothing is heard is marked unreachable, and the
pods of a node that is gone end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from shiplap.errors import InvalidInput, ObjectConflict, ObjectNotFound
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.timestamps import epoch, rfc3339
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.api_server.stored_pods import condition
from shiplap_lab.cluster_simulator.event_queue import EventQueue
from shiplap_lab.cluster_simulator.informer import Informer, Kept

_RETRY_S = 5.0
"""When a kubelet or controller tries again that could not reach the API server, or whose Node's name is taken."""

REBOOT_S = 60.0
"""How long a machine takes from the request for a reboot until its kubelet reports again."""

UNHEARD_S = 40.0
"""How long nothing is heard of a Node until the node lifecycle controller marks it: kube-controller-manager's default
up to Kubernetes 1.31; later ones wait for ten seconds more."""

ORPHANED_S = 40.0
"""How long a pod outlives its Node: kube-controller-manager's pod garbage collector looks twice before it deletes."""


class Bootable(Protocol):
    """An instance as far as its kubelet identifies itself by it."""

    @property
    def id(self) -> str: ...

    @property
    def provider_id(self) -> str: ...


M = TypeVar("M", bound=Bootable)
M_contra = TypeVar("M_contra", bound=Bootable, contravariant=True)


class NodeSource(Protocol[M_contra]):
    """Decides what becomes of machines: the Node that each registers, and how many seconds everything takes.

    `join_s` counts from the boot until the Node appears, None for a machine that never joins; `ready_s` from then until
    the Node is Ready, None for one that never is; `pod_start_s` from binding until a pod runs; `pod_end_s` from its
    deletion until a pod has ended; `node_gone_s` from the end of a machine until its Node is removed.
    """

    pod_start_s: float
    node_gone_s: float

    def node_object(self, machine: M_contra, now: float) -> dict[str, Any]:
        """Raises InvalidInput when the machine's boot script would fail."""

    def join_s(self, machine: M_contra) -> float | None: ...

    def ready_s(self, machine: M_contra) -> float | None: ...

    def pod_end_s(self, uid: str) -> float: ...


class Kubelets(Generic[M]):
    """All kubelets of one cluster. Nothing reaches the API server while `is_down`.

    Attributes:
        broken: why machines could not boot, by instance id; they never join, as real ones would not.
        on_join: called with each machine whose Node appears.
        on_gone: called with each machine whose Node is removed.
    """

    def __init__(
        self,
        server: ApiServer,
        informer: Informer,
        events: EventQueue,
        nodes: NodeSource[M],
        is_down: Callable[[], bool],
    ) -> None:
        self.broken: dict[str, str] = {}
        self.on_join: list[Callable[[M], object]] = []
        self.on_gone: list[Callable[[M], object]] = []
        self._server, self._informer, self._events, self._nodes = server, informer, events, nodes
        self._is_down = is_down
        self._ended: set[str] = set()
        self._boots: dict[str, int] = {}
        self._node_of: dict[str, str] = {}
        self._on_node: dict[str, dict[str, Pod]] = {}
        self._to_visit: set[str] = set()
        self._starting: set[str] = set()
        self._ending: set[str] = set()
        informer.listeners.append(self._changed)

    def boot(self, machine: M, *, since: float) -> None:
        """A machine runs since a moment; after a while its kubelet registers a Node, unless something is wrong."""
        delay = self._nodes.join_s(machine)
        if delay is not None:
            ready_s = self._nodes.ready_s(machine)
            self._events.at(since + delay, partial(self._register, machine, ready_s))

    def end(self, machine: M) -> None:
        """A machine has ended; the cloud's controller notices after a while."""
        self._ended.add(machine.provider_id)
        self._events.after(self._nodes.node_gone_s, partial(self._remove_node, machine))
        self._events.after(UNHEARD_S, partial(self._become_unreachable, machine))

    def reboot(self, machine: M) -> None:
        """A machine restarts: its Node is not Ready until its kubelet reports another boot. Its pods stay on it."""
        self._boots[machine.id] = self._boots.get(machine.id, 1) + 1
        self._shut_down(machine)
        self._events.after(REBOOT_S, partial(self._start_again, machine))

    def pods_of(self, node: str) -> list[Pod]:
        """Pods bound to a node, by name, as of the last look."""
        return [pod for _, pod in sorted(self._on_node.get(node, {}).items())]

    def step(self) -> None:
        """Pods that were bound start after a moment, and pods that are to end do so within their grace period."""
        for key in sorted(self._to_visit & self._informer.pods.keys()):
            pod = self._informer.pods[key]
            uid = pod.metadata.uid
            if pod.metadata.deletion_timestamp:
                if uid not in self._ending:
                    self._ending.add(uid)
                    ends_at = self._events.now() + self._nodes.pod_end_s(uid)
                    self._events.at(
                        min(epoch(pod.metadata.deletion_timestamp), ends_at), partial(self._end_pod, key, uid)
                    )
            elif pod.status.phase == "Pending" and uid not in self._starting:
                self._starting.add(uid)
                self._events.after(self._nodes.pod_start_s, partial(self._start_pod, key, uid))
        self._to_visit.clear()

    def _changed(self, plural: str, key: str, before: Kept | None, after: Kept | None) -> None:
        if plural == "pods":
            if isinstance(before, Pod) and before.spec.node_name:
                self._on_node[before.spec.node_name].pop(key, None)
            if isinstance(after, Pod) and after.spec.node_name:
                self._on_node.setdefault(after.spec.node_name, {})[key] = after
                self._to_visit.add(key)
        elif isinstance(after, Node):
            self._node_of[after.spec.provider_id] = key
            if before is None:
                self._to_visit.update(self._on_node.get(key, ()))
        elif isinstance(before, Node) and self._node_of.get(before.spec.provider_id) == key:
            del self._node_of[before.spec.provider_id]
            if self._on_node.get(key):
                self._events.after(ORPHANED_S, partial(self._collect, key))

    def _postponed(self, act: Callable[[], None]) -> bool:
        """True if the API server does not answer; then the event queue runs the act again later."""
        down = self._is_down()
        if down:
            self._events.after(_RETRY_S, act)
        return down

    def _register(self, machine: M, ready_s: float | None) -> None:
        again = partial(self._register, machine, ready_s)
        if machine.provider_id in self._ended or self._postponed(again):
            return
        try:
            made = self._nodes.node_object(machine, self._events.now())
            made["status"].setdefault("nodeInfo", {})["bootID"] = self._boot_of(machine)
            node = self._server.create("nodes", made)
        except InvalidInput as error:
            self.broken[machine.id] = str(error)
            return
        except ObjectConflict:
            self._events.after(_RETRY_S, again)  # a node of this name is still there
            return
        for tell in self.on_join:
            tell(machine)
        if ready_s is not None:
            self._events.after(ready_s, partial(self._become_ready, machine, node["metadata"]["name"]))

    def _become_ready(self, machine: M, name: str) -> None:
        if machine.provider_id in self._ended or self._postponed(partial(self._become_ready, machine, name)):
            return
        moment = rfc3339(self._events.now())
        ready = condition("Ready", "True", moment, "KubeletReady", "kubelet is posting ready status")
        try:
            node = self._server.patch(
                "nodes", name, {"status": {"conditions": [ready]}}, strategic=True, subresource="status"
            )
        except ObjectNotFound:
            return  # somebody removed the Node already
        taints = node["spec"].get("taints", [])
        left = [taint for taint in taints if taint["key"] != labels.NOT_READY_TAINT]
        if left != taints:
            self._server.patch("nodes", name, {"spec": {"taints": left}})

    def _boot_of(self, machine: M) -> str:
        return f"{machine.id}-{self._boots.get(machine.id, 1)}"

    def _shut_down(self, machine: M) -> None:
        """The kubelet says so as its last word, and the node lifecycle controller adds the taint."""
        if machine.provider_id in self._ended or self._postponed(partial(self._shut_down, machine)):
            return
        self._informer.refresh()
        name = self._node_of.get(machine.provider_id)
        if name is None:
            return
        said = condition("Ready", "False", rfc3339(self._events.now()), "KubeletNotReady", "node is shutting down")
        status = {"status": {"conditions": [said]}}
        try:
            node = self._server.patch("nodes", name, status, strategic=True, subresource="status")
            other = [taint for taint in node["spec"].get("taints", []) if taint["key"] != labels.NOT_READY_TAINT]
            not_ready = {"key": labels.NOT_READY_TAINT, "effect": "NoSchedule"}
            self._server.patch("nodes", name, {"spec": {"taints": [*other, not_ready]}})
        except ObjectNotFound:
            return  # somebody removed the Node already

    def _start_again(self, machine: M) -> None:
        if machine.provider_id in self._ended or self._postponed(partial(self._start_again, machine)):
            return
        self._informer.refresh()
        name = self._node_of.get(machine.provider_id)
        if name is None:
            return
        info = {"status": {"nodeInfo": {"bootID": self._boot_of(machine)}}}
        try:
            self._server.patch("nodes", name, info, strategic=True, subresource="status")
        except ObjectNotFound:
            return  # somebody removed the Node already
        self._become_ready(machine, name)

    def _remove_node(self, machine: M) -> None:
        if self._postponed(partial(self._remove_node, machine)):
            return
        self._informer.refresh()
        name = self._node_of.get(machine.provider_id)
        if name is None:
            return
        for tell in self.on_gone:
            tell(machine)
        self._delete("nodes", name)
        for pod in self.pods_of(name):
            self._delete("pods", pod.metadata.name, pod.metadata.namespace)

    def _collect(self, name: str) -> None:
        """Whoever has removed a Node has not removed its pods; no kubelet ends them any more."""
        if self._postponed(partial(self._collect, name)):
            return
        self._informer.refresh()
        if name not in self._informer.nodes:
            for pod in self.pods_of(name):
                self._delete("pods", pod.metadata.name, pod.metadata.namespace)

    def _become_unreachable(self, machine: M) -> None:
        """A finalizer holds the Node, or its removal has not been noticed: new pods keep off it."""
        if self._postponed(partial(self._become_unreachable, machine)):
            return
        self._informer.refresh()
        name = self._node_of.get(machine.provider_id)
        if name is None:
            return
        moment = rfc3339(self._events.now())
        unknown = condition("Ready", "Unknown", moment, "NodeStatusUnknown", "Kubelet stopped posting node status.")
        status = {"status": {"conditions": [unknown]}}
        unreachable = [{"key": labels.UNREACHABLE_TAINT, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        try:
            node = self._server.patch("nodes", name, status, strategic=True, subresource="status")
            other = [taint for taint in node["spec"].get("taints", []) if taint["key"] != labels.NOT_READY_TAINT]
            self._server.patch("nodes", name, {"spec": {"taints": [*other, *unreachable]}})
        except ObjectNotFound:
            return  # its finalizer went in this moment

    def _pod_of(self, key: str, uid: str) -> Pod | None:
        """The pod, if it is still the same one and the machine under it runs."""
        pod = self._informer.pods.get(key)
        node = self._informer.nodes.get(pod.spec.node_name) if pod is not None and pod.metadata.uid == uid else None
        return pod if node is not None and node.spec.provider_id not in self._ended else None

    def _end_pod(self, key: str, uid: str) -> None:
        if self._postponed(partial(self._end_pod, key, uid)):
            return
        self._ending.discard(uid)
        pod = self._pod_of(key, uid)
        if pod is not None:
            self._delete("pods", pod.metadata.name, pod.metadata.namespace)

    def _start_pod(self, key: str, uid: str) -> None:
        if self._postponed(partial(self._start_pod, key, uid)):
            return
        self._starting.discard(uid)
        pod = self._pod_of(key, uid)
        if pod is None:
            return
        now = rfc3339(self._events.now())
        conditions = [condition(kind, "True", now) for kind in ("Initialized", "ContainersReady", "Ready")]
        status = {"phase": "Running", "startTime": now, "conditions": conditions}
        patch = {"metadata": {"uid": uid}, "status": status}
        name, namespace = pod.metadata.name, pod.metadata.namespace
        try:
            self._server.patch("pods", name, patch, namespace, strategic=True, subresource="status")
        except (ObjectConflict, ObjectNotFound):
            return  # deleted or recreated while it was starting

    def _delete(self, plural: str, name: str, namespace: str = "") -> None:
        try:
            self._server.delete(plural, name, namespace, grace_s=0)
        except ObjectNotFound:
            return  # somebody else was faster

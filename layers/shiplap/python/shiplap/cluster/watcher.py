"""Watches a cluster for changes that may need a decision: pods become unschedulable, nodes join or become ready.

A change is only a hint that makes decisions fast: the sweep finds everything that a watch misses. So nothing is kept
beyond the iteration, and a broken watch simply begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from queue import Empty, Queue
from threading import Event, Thread
from typing import TypeVar

import msgspec

from shiplap.errors import ClusterDenied, ClusterUnreachable, ResourceVersionGone, TooManyRequests
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import TERMINAL_PHASES, Node, Pod
from shiplap.ports import Clock, ClusterApi, WatchEvent

KINDS = ("nodes", "pods")

_WINDOW_S = 60.0
"""One watch request lasts no longer, so that an iteration that was left does not keep a connection for long."""

_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, *(8 * (30.0,)))
"""Before each new try after a failure; as many failures in a row are borne: a control plane is replaced in minutes."""

_DENIALS = 5
"""As many in a row are borne; missing permissions are for people to fix."""

GATHER_S = 0.02
"""How long what follows a change is waited for, in seconds, so that a burst becomes few events."""


class ChangeBatch(msgspec.Struct, frozen=True):
    """Changes: pods that became unschedulable, nodes that appeared, nodes that became ready; sorted by name."""

    pods: tuple[Pod, ...] = ()
    joined: tuple[Node, ...] = ()
    ready: tuple[Node, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything in it."""
        return bool(self.pods or self.joined or self.ready)


class ListedObjects(msgspec.Struct, frozen=True):
    """All pending pods or all nodes, at the start of a watch or when it had to begin again."""

    kind: str
    objects: tuple[Pod, ...] | tuple[Node, ...]


Observed = ListedObjects | WatchEvent


class Tracker:
    """Remembers what was reported, so that each pod and node is reported once per change that matters.

    Of the nodes there from the start only those are reported that were launched for a NodePool and are not initialised:
    a watch that takes over from another must not report every node of the cluster.
    """

    def __init__(self) -> None:
        self._unschedulable: set[str] = set()
        self._nodes: dict[str, bool] | None = None
        self._pods: dict[str, Pod] = {}
        self._joined: dict[str, Node] = {}
        self._ready: dict[str, Node] = {}

    def see(self, seen: Observed) -> None:
        """Take note of a list or a change."""
        if isinstance(seen, ListedObjects):
            if seen.kind == "pods":
                self._list_pods(seen.objects)
            else:
                self._list_nodes(seen.objects)
        elif seen.type != "BOOKMARK":
            if isinstance(seen.object, Pod):
                self._see_pod(seen.object, gone=seen.type == "DELETED")
            else:
                self._see_node(seen.object, gone=seen.type == "DELETED")

    @property
    def has_news(self) -> bool:
        """Whether `take` would return anything."""
        return bool(self._pods or self._joined or self._ready)

    def take(self) -> ChangeBatch:
        """The changes since the last call."""
        batch = ChangeBatch(_sorted(self._pods), _sorted(self._joined), _sorted(self._ready))
        self._pods, self._joined, self._ready = {}, {}, {}
        return batch

    def _list_pods(self, pods: Sequence[Pod | Node]) -> None:
        self._unschedulable &= {pod.metadata.uid for pod in pods}
        for pod in pods:
            if isinstance(pod, Pod):
                self._see_pod(pod, gone=False)

    def _list_nodes(self, nodes: Sequence[Pod | Node]) -> None:
        listed = [node for node in nodes if isinstance(node, Node)]
        if self._nodes is None:
            self._nodes = {node.metadata.uid: _is_ready(node) for node in listed if not _is_unfinished(node)}
        present = {node.metadata.uid for node in listed}
        self._nodes = {uid: ready for uid, ready in self._nodes.items() if uid in present}
        for node in listed:
            self._see_node(node, gone=False)

    def _see_pod(self, pod: Pod, *, gone: bool) -> None:
        uid = pod.metadata.uid
        if gone or not is_unschedulable(pod):
            self._unschedulable.discard(uid)
            self._pods.pop(uid, None)
        elif uid not in self._unschedulable:
            self._unschedulable.add(uid)
            self._pods[uid] = pod

    def _see_node(self, node: Node, *, gone: bool) -> None:
        known = self._nodes = {} if self._nodes is None else self._nodes
        uid, ready = node.metadata.uid, _is_ready(node)
        if gone:
            for nodes in (known, self._joined, self._ready):
                nodes.pop(uid, None)
            return
        if uid not in known:
            self._joined[uid] = node
        if ready and not known.get(uid):
            self._ready[uid] = node
        known[uid] = ready


class KindWatch:
    """One kind of object, listed first and then watched from where the list ended."""

    def __init__(self, api: ClusterApi, kind: str) -> None:
        self.kind = kind
        self._api = api
        self._version = ""

    def poll(self, timeout_s: float) -> Iterator[Observed]:
        """One round: a list if there is nothing to continue from, then changes for `timeout_s` seconds.

        Raises:
            ClusterError: or one of its kinds; the next round continues or begins again, whichever is possible.
        """
        if not self._version:
            objects, version = self._api.list_for_watch(self.kind)
            yield ListedObjects(self.kind, objects)
            self._version = version
        try:
            for event in self._api.watch(self.kind, self._version, timeout_s):
                self._version = event.resource_version
                yield event
        except ResourceVersionGone:
            self._version = ""


def poll_once(watches: Sequence[KindWatch], tracker: Tracker) -> ChangeBatch:
    """One round of every watch without waiting: for a simulation, in which nothing happens meanwhile."""
    for watch in watches:
        for seen in watch.poll(0.0):
            tracker.see(seen)
    return tracker.take()


def change_batches(
    api: ClusterApi,
    *,
    clock: Clock,
    deadline_at: float,
    pause: Callable[[float], None],
    gather_s: float = GATHER_S,
    established: Callable[[], None] | None = None,
    retired: Event | None = None,
) -> Iterator[ChangeBatch]:
    """Changes as they happen, until `deadline_at` (epoch seconds) or `retired`.

    Every change within `gather_s` seconds of a first change is part of its batch. Lost connections and throttling
    are borne for minutes, denials for seconds, with pauses. `established` is called once it is known what was there at
    the start.

    Raises:
        ClusterError: the API server goes on to deny what is asked, or stays unreachable.
    """
    queue: Queue[Observed | Exception] = Queue()
    stop = Event()
    for kind in KINDS:
        arguments = (KindWatch(api, kind), clock, deadline_at, pause, stop, queue)
        Thread(target=_read, args=arguments, name=f"watch-{kind}", daemon=True).start()
    tracker = Tracker()
    due_at = deadline_at
    unseen = set(KINDS)
    try:
        while (now := clock.now()) < deadline_at and not (retired is not None and retired.is_set()):
            if now >= due_at:
                due_at = deadline_at
                if batch := tracker.take():  # empty when a pod was bound meanwhile
                    yield batch
            try:
                seen = queue.get(timeout=max(0.001, min(1.0, due_at - now)))
            except Empty:
                continue
            if isinstance(seen, Exception):
                raise seen
            tracker.see(seen)
            if tracker.has_news and due_at == deadline_at:
                due_at = min(deadline_at, clock.now() + gather_s)
            if unseen and isinstance(seen, ListedObjects):
                unseen.discard(seen.kind)
                if not unseen and established is not None:
                    established()
        if batch := tracker.take():
            yield batch
    finally:
        stop.set()


def _read(
    watch: KindWatch,
    clock: Clock,
    deadline_at: float,
    pause: Callable[[float], None],
    stop: Event,
    queue: Queue[Observed | Exception],
) -> None:
    """The body of a reading thread: rounds of one watch until the deadline, a lasting failure or `stop`."""
    failures = 0
    while not stop.is_set() and (now := clock.now()) < deadline_at:
        try:
            for seen in watch.poll(min(_WINDOW_S, deadline_at - now)):
                if stop.is_set():
                    return
                queue.put(seen)
                failures = 0
        except (ClusterUnreachable, ClusterDenied, TooManyRequests) as error:
            # An API server that has just started denies everything until it has read its roles.
            if failures == (_DENIALS if isinstance(error, ClusterDenied) else len(_PAUSES_S)):
                queue.put(error)
                return
            pause(_PAUSES_S[failures])
            failures += 1
        except Exception as error:  # noqa: BLE001 - handed to the iteration, which raises it: a thread has no caller
            queue.put(error)
            return
        else:
            failures = 0
            if clock.now() - now < _PAUSES_S[0]:
                pause(_PAUSES_S[0])  # a server that ends watches at once must not be asked in a tight loop


Found = TypeVar("Found", Pod, Node)


def _sorted(found: dict[str, Found]) -> tuple[Found, ...]:
    return tuple(sorted(found.values(), key=lambda item: (item.metadata.namespace, item.metadata.name)))


def _is_ready(node: Node) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)


def _is_unfinished(node: Node) -> bool:
    """Launched for a NodePool, and not yet registered and initialised."""
    ours = labels.NODE_POOL in node.metadata.labels or any(
        taint.key == labels.UNREGISTERED_TAINT for taint in node.spec.taints
    )
    return ours and node.metadata.labels.get(labels.INITIALIZED) != "true"


def is_unschedulable(pod: Pod) -> bool:
    """Whether kube-scheduler has looked for a node for this pod and found none.

    Karpenter's rule: unbound, condition PodScheduled False with reason Unschedulable, not nominated to a node (it
    preempts there, or its node is on the way), and not a pod that belongs to a node anyway (of a DaemonSet, or static).
    Pods held by scheduling gates have another reason; pods that end need no node.
    """
    if pod.spec.node_name or pod.status.nominated_node_name or pod.metadata.deletion_timestamp:
        return False
    if pod.status.phase in TERMINAL_PHASES:
        return False
    if any(owner.kind in ("DaemonSet", "Node") for owner in pod.metadata.owner_references):
        return False
    return any(
        condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable"
        for condition in pod.status.conditions
    )

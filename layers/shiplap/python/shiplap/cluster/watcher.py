"""Watches a cluster for changes that may need a decision: pods become unschedulable, nodes join or become ready.

A change is only a hint that makes decisions fast: the sweep finds everything that a watch misses. So nothing is kept
beyond the iteration, and a broken watch simply begins again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, Queue
from threading import Event, Thread
from typing import TypeVar

import msgspec

from shiplap.errors import ClusterDenied, ClusterError, ClusterUnreachable, ResourceVersionGone, TooManyRequests
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import TERMINAL_PHASES, CustomObject, Node, Pod, goes_with_node, is_ready
from shiplap.manifests.live.nodeclaim_objects import INSTALL_LABEL
from shiplap.ports import MANIFEST_KINDS, Clock, ClusterApi, Listed, WatchEvent

_LOG = logging.getLogger(__name__)

KINDS = ("nodes", "pods")

_WINDOW_S = 60.0
"""One watch request lasts no longer, so that an iteration that was left does not keep a connection for long."""

_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, *(8 * (30.0,)))
"""Before each new try after a failure; as many failures in a row are borne: a control plane is replaced in minutes."""

_BORNE = (ClusterUnreachable, ClusterDenied, TooManyRequests)
_DENIALS = 5
"""As many in a row are borne; missing permissions are for people to fix."""

_WITHOUT_MANIFESTS_S = 30.0
"""Pause of a watch of manifests after any failure, in seconds: a CRD may be missing. Pods are watched all the same."""

MANIFESTS_S = 1.0
"""Edits of manifests are told of at most so often, in seconds."""

ROOM_S = 5.0
"""How long after a pod has got a node that is told of, and no sooner after it was told of before, in seconds."""

LOOK_S = 1.0
"""How often it is looked whether a successor has taken over while nothing changes, in seconds."""

GATHER_S = 0.02
"""How long what follows a change is waited for, in seconds, so that a burst becomes few events."""


class ChangeBatch(msgspec.Struct, frozen=True):
    """Changes: pods that became unschedulable, nodes that appeared, nodes that became ready; sorted by name.

    `manifests` are those that users have created, edited or deleted, NodeClaims that users have created, and NodeClaims
    and Nodes that are being deleted. `room_taken`: pods have got nodes, of whose room CapacityBuffers may keep some.
    """

    pods: tuple[Pod, ...] = ()
    joined: tuple[Node, ...] = ()
    ready: tuple[Node, ...] = ()
    manifests: tuple[CustomObject, ...] = ()
    room_taken: bool = False

    def __bool__(self) -> bool:
        """True if the batch holds any change."""
        return bool(self.pods or self.joined or self.ready or self.manifests or self.room_taken)


class ListedObjects(msgspec.Struct, frozen=True):
    """All pending pods, all nodes or all manifests of a kind, at the start of a watch or when it had to begin again."""

    kind: str
    objects: Listed


Observed = ListedObjects | WatchEvent


class Tracker:
    """Remembers what was reported, so that each pod and node is reported once per change that matters.

    Of the nodes there from the start only those are reported that were launched for a NodePool and are not initialised:
    a watch that takes over from another must not report every node of the cluster. `buffers`: there are CapacityBuffers
    although no manifests are watched.
    """

    def __init__(self, *, manifests: bool = False, buffers: bool = False) -> None:
        self._with_manifests = manifests
        self._with_buffers = buffers
        self._room_taken = False
        self._unschedulable: set[str] = set()
        self._nodes: dict[str, bool] | None = None
        self._pods: dict[str, Pod] = {}
        self._joined: dict[str, Node] = {}
        self._ready: dict[str, Node] = {}
        self._manifests = ManifestTracker()

    def see(self, seen: Observed) -> None:
        """Take note of a list or a change."""
        if isinstance(seen, ListedObjects):
            if seen.kind in MANIFEST_KINDS:
                self._manifests.see_list(seen)
            elif seen.kind == "pods":
                self._list_pods(seen.objects)
            else:
                self._list_nodes(seen.objects)
        elif seen.type != "BOOKMARK":
            if isinstance(seen.object, Pod):
                self._see_pod(seen.object, gone=seen.type == "DELETED")
            elif isinstance(seen.object, CustomObject):
                self._manifests.see(seen.object, gone=seen.type == "DELETED")
            else:
                self._see_node(seen.object, gone=seen.type == "DELETED")
                if self._with_manifests and seen.object.metadata.deletion_timestamp:
                    self._manifests.see(CustomObject(seen.object.metadata, "Node"), gone=seen.type == "DELETED")

    @property
    def has_news(self) -> bool:
        """True if `take` would return anything but manifests."""
        return bool(self._pods or self._joined or self._ready)

    @property
    def has_manifests(self) -> bool:
        """True if manifests have changed."""
        return self._manifests.has_news

    @property
    def room_taken(self) -> bool:
        """True if a pod took room that a CapacityBuffer may have kept."""
        return self._room_taken

    def take(self, *, with_manifests: bool = True, with_room: bool = True) -> ChangeBatch:
        """The changes since the last call."""
        manifests = self._manifests.take() if with_manifests else ()
        taken = with_room and self._room_taken
        batch = ChangeBatch(_sorted(self._pods), _sorted(self._joined), _sorted(self._ready), manifests, taken)
        self._pods, self._joined, self._ready = {}, {}, {}
        self._room_taken = self._room_taken and not with_room
        return batch

    def _list_pods(self, pods: Sequence[Pod | Node | CustomObject]) -> None:
        self._unschedulable &= {pod.metadata.uid for pod in pods}
        for pod in pods:
            if isinstance(pod, Pod):
                self._see_pod(pod, gone=False)

    def _list_nodes(self, nodes: Sequence[Pod | Node | CustomObject]) -> None:
        listed = [node for node in nodes if isinstance(node, Node)]
        if self._nodes is None:
            self._nodes = {node.metadata.uid: is_ready(node.status) for node in listed if not _is_unfinished(node)}
        present = {node.metadata.uid for node in listed}
        self._nodes = {uid: ready for uid, ready in self._nodes.items() if uid in present}
        for node in listed:
            self._see_node(node, gone=False)

    def _see_pod(self, pod: Pod, *, gone: bool) -> None:
        uid = pod.metadata.uid
        if gone and (
            self._with_buffers or self._manifests.has_buffers
        ):  # it has got a node: only pods without are seen
            self._room_taken = True
        if gone or not is_unschedulable(pod):
            self._unschedulable.discard(uid)
            self._pods.pop(uid, None)
        elif uid not in self._unschedulable:
            self._unschedulable.add(uid)
            self._pods[uid] = pod

    def _see_node(self, node: Node, *, gone: bool) -> None:
        known = self._nodes = {} if self._nodes is None else self._nodes
        uid, ready = node.metadata.uid, is_ready(node.status)
        if gone:
            for nodes in (known, self._joined, self._ready):
                nodes.pop(uid, None)
            return
        if uid not in known:
            self._joined[uid] = node
        if ready and not known.get(uid):
            self._ready[uid] = node
        known[uid] = ready


_NODE_CLAIM, _BUFFER = "NodeClaim", "CapacityBuffer"
_ONLY_DELETED = (_NODE_CLAIM, "Node")


class ManifestTracker:
    """Tracks the manifests that users have changed: a status that a controller writes is no change.

    Of Nodes only a deletion is a change; of NodeClaims also a new object that a user wrote.
    """

    def __init__(self) -> None:
        self._listed: set[str] = set()
        self._known: dict[str, tuple[object, ...]] = {}
        self._changed: dict[str, CustomObject] = {}
        self._buffers: set[str] = set()

    def see_list(self, seen: ListedObjects) -> None:
        """All of a kind. The first list changes nothing: whoever decides has read them by itself."""
        objects = [item for item in seen.objects if isinstance(item, CustomObject)]
        if seen.kind == "nodeclaims":
            objects = [CustomObject(item.metadata, _NODE_CLAIM) for item in objects]
        if seen.kind in self._listed:
            for item in objects:
                self.see(item, gone=False)
        if seen.kind == "capacitybuffers":
            self._buffers = {item.metadata.uid for item in objects}
        self._listed.add(seen.kind)
        self._known |= {item.metadata.uid: _written(item) for item in objects}

    def see(self, item: CustomObject, *, gone: bool) -> None:
        """One object as it is now."""
        uid = item.metadata.uid
        if item.kind == _BUFFER:
            (self._buffers.discard if gone else self._buffers.add)(uid)
        is_new = not gone and uid not in self._known and _asks_for_a_node(item)
        if item.kind in _ONLY_DELETED and not is_new and (gone or not item.metadata.deletion_timestamp):
            return
        if gone:
            self._known.pop(uid, None)
        elif self._known.get(uid) == _written(item):
            return
        else:
            self._known[uid] = _written(item)
        self._changed[uid] = item

    @property
    def has_buffers(self) -> bool:
        """True if there are CapacityBuffers."""
        return bool(self._buffers)

    @property
    def has_news(self) -> bool:
        """True if `take` would return anything."""
        return bool(self._changed)

    def take(self) -> tuple[CustomObject, ...]:
        """Return the objects that have changed since the last call, sorted by name."""
        changed, self._changed = self._changed, {}
        return tuple(sorted(changed.values(), key=lambda item: (item.kind, item.metadata.name, item.metadata.uid)))


def _asks_for_a_node(item: CustomObject) -> bool:
    """True if a NodeClaim may come from a user: other NodeClaims have our label or the label of a NodePool."""
    marks = item.metadata.labels
    return item.kind == _NODE_CLAIM and INSTALL_LABEL not in marks and labels.NODE_POOL not in marks


def _written(item: CustomObject) -> tuple[object, ...]:
    """Return the parts that a user writes: the API server raises the generation with every change of the spec."""
    metadata = item.metadata
    notes = {key: value for key, value in metadata.annotations.items() if not key.startswith("karpenter.")}
    return metadata.generation, sorted(notes.items()), sorted(metadata.labels.items()), metadata.deletion_timestamp


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


class EditPace:
    """Decides when a watcher passes changes on, in epoch seconds.

    It passes edits on once in MANIFESTS_S, taken room after ROOM_S, all other changes at once.
    """

    def __init__(self, tracker: Tracker, deadline_at: float, gather_s: float) -> None:
        self._tracker, self._deadline_at, self._gather_s = tracker, deadline_at, gather_s
        self._edits_told_at = 0.0
        self._news_at = self._edits_at = self._room_at = deadline_at

    @property
    def due_at(self) -> float:
        """The epoch second at which the next changes are due."""
        return min(self._news_at, self._edits_at, self._room_at)

    def note(self, now: float) -> None:
        """The tracker has seen something."""
        if self._tracker.has_news:
            self._news_at = min(self._news_at, now + self._gather_s)
        if self._tracker.has_manifests:
            self._edits_at = min(self._edits_at, max(self._edits_told_at + MANIFESTS_S, now + self._gather_s))
        if self._tracker.room_taken:
            self._room_at = min(self._room_at, now + ROOM_S)

    def take(self, now: float) -> ChangeBatch:
        """Return the changes that are due now."""
        edits, room = now >= self._edits_at, now >= self._room_at
        batch = self._tracker.take(with_manifests=edits, with_room=room)
        self._news_at = self._deadline_at
        if edits:
            self._edits_at, self._edits_told_at = self._deadline_at, now
        if room:
            self._room_at = self._deadline_at
        return batch


def change_batches(
    api: ClusterApi,
    *,
    clock: Clock,
    deadline_at: float,
    pause: Callable[[float], None],
    gather_s: float = GATHER_S,
    established: Callable[[], None] | None = None,
    retired: Event | None = None,
    manifests: bool = False,
    buffers: bool = False,
) -> Iterator[ChangeBatch]:
    """Changes as they happen, until `deadline_at` (epoch seconds) or `retired`.

    Every change within `gather_s` seconds of a first change is part of its batch. With `manifests`, users' edits of
    them are watched as well; they are told of at most once in MANIFESTS_S. Where there are CapacityBuffers, among these
    manifests or by `buffers`, pods that get nodes are told of, at most once in ROOM_S. Lost connections and throttling
    are borne for minutes, denials for seconds, with pauses. `established` is called once it is known what was there at
    the start.

    Raises:
        ClusterError: the API server goes on to deny what is asked, or stays unreachable.
    """
    queue: Queue[Observed | Exception] = Queue()
    stop = Event()
    for kind in (*KINDS, *(MANIFEST_KINDS if manifests else ())):
        arguments = (KindWatch(api, kind), clock, deadline_at, pause, stop, queue)
        Thread(target=_read, args=arguments, name=f"watch-{kind}", daemon=True).start()
    tracker = Tracker(manifests=manifests, buffers=buffers)
    pace = EditPace(tracker, deadline_at, gather_s)
    unseen = set(KINDS)
    try:
        while (now := clock.now()) < deadline_at and not (retired is not None and retired.is_set()):
            if now >= pace.due_at and (batch := pace.take(now)):  # empty when a pod was bound meanwhile
                yield batch
            try:
                seen = queue.get(timeout=max(0.001, min(LOOK_S, pace.due_at - now)))
            except Empty:
                continue
            if isinstance(seen, Exception):
                raise seen
            tracker.see(seen)
            pace.note(clock.now())
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
        except ClusterError as error:
            if watch.kind in MANIFEST_KINDS:  # the sweep reads manifests, and says what is wrong with reading them
                _LOG.info("%s are not watched: %s", watch.kind, error)
                pause(_WITHOUT_MANIFESTS_S)
                continue
            if not isinstance(error, _BORNE):
                queue.put(error)
                return
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


def _is_unfinished(node: Node) -> bool:
    """Launched for a NodePool, and not yet registered and initialised."""
    ours = labels.NODE_POOL in node.metadata.labels or any(
        taint.key == labels.UNREGISTERED_TAINT for taint in node.spec.taints
    )
    return ours and node.metadata.labels.get(labels.INITIALIZED) != "true"


def is_unschedulable(pod: Pod) -> bool:
    """True if kube-scheduler has looked for a node for this pod and found none.

    Karpenter's rule: unbound, condition PodScheduled False with reason Unschedulable, not nominated to a node (it
    preempts there, or its node is on the way), and not a pod that belongs to a node anyway (of a DaemonSet, or static).
    Pods held by scheduling gates have another reason; pods that end need no node.
    """
    if pod.spec.node_name or pod.status.nominated_node_name or pod.metadata.deletion_timestamp:
        return False
    if pod.status.phase in TERMINAL_PHASES:
        return False
    if goes_with_node(pod.metadata):
        return False
    return any(
        condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable"
        for condition in pod.status.conditions
    )

"""The bound pods of a large cluster in about a hundred bytes each, so that a decision can load instead of list them.

A pod is first reduced (`lean_pod`) to the fields that decisions read: its identity, its node, its requests, the labels
and owners that topology and budgets look at, and its protections. Versions, addresses, checksums, volumes of tokens and
the times of conditions go.

Reduced pods of one controller are almost equal, so equal parts are stored once: the *shared spec* (specification,
status and annotations) and the *shared metadata* (namespace, labels, owners). A row holds the indexes of both and of
the node, and the pod's own name, uid and times. Rows are MessagePack arrays, each encoded once, when its pod changes. A
document is the tables and the rows one behind the other, compressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy

import msgspec
from msgspec.structs import force_setattr, replace

from shiplap.errors import InvalidInput
from shiplap.garbage_collection import garbage_collection_paused
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import (
    Container,
    ContainerStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from shiplap.kubernetes.pod_requests import RESIZE_PENDING

_NO_STATUS: tuple[ContainerStatus, ...] = ()


def lean_pod(pod: Pod) -> Pod:
    """The pod with the fields that decisions read; reducing it twice changes nothing.

    Decisions about bound pods read neither the resourceVersion, nor annotations other than these two, nor volumes
    without a claim, nor container ports without a host port. The status of a container counts only while the kubelet
    holds other amounts than the container requests. The start time counts only where it ends a protection.
    """
    meta = pod.metadata
    annotations = {key: meta.annotations[key] for key in labels.ANNOTATIONS_OF_PODS if key in meta.annotations}
    return Pod(
        ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            labels=meta.labels,
            annotations=annotations,
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=meta.deletion_timestamp,
            owner_references=meta.owner_references,
        ),
        _lean_spec(pod.spec),
        _lean_status(pod, timed=labels.DO_NOT_DISRUPT in annotations),
    )


def merged_pods(pending: Sequence[Pod], bound: Sequence[Pod]) -> tuple[Pod, ...]:
    """All pods of a cluster, each once, although the two lists were read at different times.

    A pod in both lists was bound in between. Of two pods with one name the younger exists: the
    other had to go first.
    """
    waiting = {(pod.metadata.namespace, pod.metadata.name): pod for pod in pending}
    gone = set()
    for pod in bound if waiting else ():
        key = (pod.metadata.namespace, pod.metadata.name)
        other = waiting.get(key)
        if other is not None:
            same = other.metadata.uid == pod.metadata.uid
            if not same and (other.metadata.creation_timestamp or "") >= (pod.metadata.creation_timestamp or ""):
                gone.add(pod.metadata.uid)
            else:
                del waiting[key]
    staying = [pod for pod in bound if pod.metadata.uid not in gone] if gone else bound
    return (*waiting.values(), *staying)


def _lean_spec(spec: PodSpec) -> PodSpec:
    return replace(
        spec,
        containers=tuple(map(_without_own_ports, spec.containers)),
        init_containers=tuple(map(_without_own_ports, spec.init_containers)),
        volumes=tuple(volume for volume in spec.volumes if volume.persistent_volume_claim or volume.ephemeral),
    )


def _without_own_ports(container: Container) -> Container:
    if not container.ports:
        return container
    return replace(container, ports=tuple(port for port in container.ports if port.host_port))


def _lean_status(pod: Pod, *, timed: bool) -> PodStatus:
    status, spec = pod.status, pod.spec
    pod_level = spec.resources is not None  # without pod-level resources these fields are not read
    return PodStatus(
        phase=status.phase,
        nominated_node_name="" if spec.node_name else status.nominated_node_name,
        start_time=status.start_time if timed else "",
        conditions=tuple(filter(None, map(_lean_condition, status.conditions))),
        container_statuses=_resize_statuses(status.container_statuses, spec.containers),
        init_container_statuses=_resize_statuses(status.init_container_statuses, spec.init_containers),
        resources=status.resources if pod_level else None,
        allocated_resources=status.allocated_resources if pod_level else {},
    )


def _lean_condition(condition: PodCondition) -> PodCondition | None:
    """Return the part of a condition that shows if the pod is ready, or why its resize waits; else None."""
    if condition.type == RESIZE_PENDING:
        return PodCondition(type=condition.type, status=condition.status, reason=condition.reason)
    return PodCondition(type=condition.type, status=condition.status) if condition.type == "Ready" else None


def _resize_statuses(
    statuses: Sequence[ContainerStatus], containers: Sequence[Container]
) -> tuple[ContainerStatus, ...]:
    """The statuses that change the amounts a pod takes; the others repeat the requests of their container."""
    if not statuses:
        return _NO_STATUS
    requests = {container.name: container.resources.requests for container in containers}
    return tuple(
        ContainerStatus(
            name=status.name,
            allocated_resources=status.allocated_resources,
            resources=None if status.resources is None else ResourceRequirements(requests=status.resources.requests),
        )
        for status in statuses
        if status.name in requests and not _repeats_requests(status, requests[status.name])
    )


def _repeats_requests(status: ContainerStatus, requests: Mapping[str, str | int | float]) -> bool:
    allocated, actual = status.allocated_resources, status.resources
    return (not allocated or allocated == requests) and (actual is None or actual.requests == requests)


FORMAT = 1
"""The format of documents. A document of another format is ignored."""

_LEVEL = 1
_OWN_NAME, _OWN_ORDINAL = "\0name", "\0ordinal"  # no label's value holds a NUL
_UID_BYTES = 16
_END = b"\xff"
_ORDINAL_LABEL = "apps.kubernetes.io/pod-index"


class SharedSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The parts that pods of one template share; node and start time are left empty."""

    spec: PodSpec
    status: PodStatus
    annotations: dict[str, str]


class SharedMetadata(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The parts that pods of one controller share; label values that repeat a pod's name are placeholders."""

    namespace: str
    labels: dict[str, str]
    owners: tuple[OwnerReference, ...]


class PodRow(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A pod: its indexes in the three tables, and its own fields. `uid` is packed."""

    shared_spec: int
    shared_metadata: int
    node: int
    name: str
    uid: bytes
    created: str | None = ""
    deleted: str = ""
    started: str = ""


class SnapshotHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a document; times are epoch seconds.

    `version` is the resourceVersion the document stands for, as of `taken_at`. `listed_at` is the time of the list it
    goes back to, `kept_since` the time at which its keeper began. Without `complete` it holds no pods: the cluster is
    too small, or too large for its keeper.
    """

    cluster: str
    version: str
    taken_at: float
    listed_at: float
    kept_since: float
    complete: bool = True
    format: int = FORMAT


class _Document(msgspec.Struct, frozen=True, array_like=True, gc=False):
    header: SnapshotHeader
    shared_specs: tuple[SharedSpec | None, ...]
    shared_metadata: tuple[SharedMetadata | None, ...]
    nodes: tuple[str | None, ...]
    rows: tuple[PodRow, ...]


class _EncodedDocument(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A document whose tables and rows stay encoded."""

    header: SnapshotHeader
    shared_specs: tuple[msgspec.Raw, ...]
    shared_metadata: tuple[msgspec.Raw, ...]
    nodes: tuple[msgspec.Raw, ...]
    rows: msgspec.Raw


class _Preamble(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of a document of any format."""

    header: dict[str, msgspec.Raw]


_encode = msgspec.msgpack.Encoder().encode
_DOCUMENT = msgspec.msgpack.Decoder(_Document)
_ENCODED_DOCUMENT = msgspec.msgpack.Decoder(_EncodedDocument)
_ROW = msgspec.msgpack.Decoder(PodRow)
_ROWS = msgspec.msgpack.Decoder(tuple[PodRow, ...])
_PREAMBLE = msgspec.msgpack.Decoder(_Preamble)
_NOTHING = _encode(None)


class _SharedValues:
    """Encoded values, each kept once while it is used, and their indexes in the table; `size_bytes` of all together."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.values: list[bytes] = []
        self._indexes: dict[bytes, int] = {}
        self._uses: list[int] = []
        self._free: list[int] = []

    def take(self, value: bytes) -> int:
        """The index of the value, which has one more user now."""
        index = self._indexes.get(value)
        if index is not None:
            self._uses[index] += 1
            return index
        if self._free:
            index = self._free.pop()
            self.values[index], self._uses[index] = value, 1
        else:
            index = len(self.values)
            self.values.append(value)
            self._uses.append(1)
        self._indexes[value] = index
        self.size_bytes += len(value)
        return index

    def drop(self, index: int) -> None:
        """The value at the index has one user less."""
        self._uses[index] -= 1
        if not self._uses[index]:
            self.size_bytes -= len(self.values[index])
            del self._indexes[self.values[index]]
            self.values[index] = _NOTHING
            self._free.append(index)


class PodTable:
    """The bound pods of a cluster as they change, by uid, ready to become a document at any time."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._size_of_rows = 0
        self._shared_specs, self._shared_metadata, self._nodes = _SharedValues(), _SharedValues(), _SharedValues()
        self.changes = 0

    def __len__(self) -> int:
        """Return the number of pods."""
        return len(self._rows)

    @property
    def size_bytes(self) -> int:
        """The bytes of all pods together, encoded."""
        shared = (self._shared_specs, self._shared_metadata, self._nodes)
        return self._size_of_rows + sum(values.size_bytes for values in shared)

    def put(self, pod: Pod) -> None:
        """Store a pod, replacing the one of its uid; `changes` grows if that makes a difference."""
        item = lean_pod(pod)
        meta, spec, status = item.metadata, item.spec, item.status
        form = SharedSpec(_with_node(spec, ""), _with_start_time(status, ""), meta.annotations)
        row = PodRow(
            self._shared_specs.take(_encode(form)),
            self._shared_metadata.take(
                _encode(SharedMetadata(meta.namespace, _shared_labels(meta), meta.owner_references))
            ),
            self._nodes.take(_encode(spec.node_name)),
            meta.name,
            _packed_uid(meta.uid),
            meta.creation_timestamp,
            meta.deletion_timestamp,
            status.start_time,
        )
        self._put(row)

    def drop(self, uid: str) -> None:
        """Forget a pod, if it is known."""
        known = self._rows.pop(_packed_uid(uid), None)
        if known is not None:
            self.changes += 1
            self._size_of_rows -= len(known)
            self._release(known)

    def clear(self) -> None:
        """Forget all pods."""
        self._rows.clear()
        self._size_of_rows = 0
        self._shared_specs, self._shared_metadata, self._nodes = _SharedValues(), _SharedValues(), _SharedValues()
        self.changes += 1

    def document(self, header: SnapshotHeader) -> bytes:
        """The table as a document, which `decode_pods` reads."""
        raw = msgspec.Raw
        parts = _EncodedDocument(
            header,
            tuple(map(raw, self._shared_specs.values)),
            tuple(map(raw, self._shared_metadata.values)),
            tuple(map(raw, self._nodes.values)),
            raw(b"\xdd" + len(self._rows).to_bytes(4, "big") + b"".join(self._rows.values())),
        )
        return zlib.compress(_encode(parts), _LEVEL)

    @classmethod
    def of(cls, document: bytes) -> tuple[PodTable, SnapshotHeader]:
        """The table of a document, without unused indexes. Raises InvalidInput."""
        with _decoding():
            parts = _ENCODED_DOCUMENT.decode(_decompressed(document))
            table = cls()
            for row in _ROWS.decode(parts.rows):
                spec = table._shared_specs.take(bytes(parts.shared_specs[row.shared_spec]))
                metadata = table._shared_metadata.take(bytes(parts.shared_metadata[row.shared_metadata]))
                node = table._nodes.take(bytes(parts.nodes[row.node]))
                table._put(msgspec.structs.replace(row, shared_spec=spec, shared_metadata=metadata, node=node))
        table.changes = 0
        return table, parts.header

    def _put(self, row: PodRow) -> None:
        """Store a row whose indexes have been taken."""
        encoded = _encode(row)
        known = self._rows.get(row.uid)
        if known is not None:
            self._release(known)
        if known != encoded:
            self._size_of_rows += len(encoded) - len(known or b"")
            self._rows[row.uid] = encoded
            self.changes += 1

    def _release(self, encoded: bytes) -> None:
        row = _ROW.decode(encoded)
        self._shared_specs.drop(row.shared_spec)
        self._shared_metadata.drop(row.shared_metadata)
        self._nodes.drop(row.node)


def decode_pods(document: bytes) -> tuple[SnapshotHeader, list[Pod]]:
    """The header of a document, and its reduced pods, in no order.

    Raises:
        InvalidInput: it is not a document of this format.
    """
    with _decoding():
        document_ = _DOCUMENT.decode(_decompressed(document))
        return document_.header, _pods(document_)


def encode_pods(pods: Iterable[Pod], header: SnapshotHeader) -> bytes:
    """A document of these pods."""
    table = PodTable()
    for pod in pods:
        table.put(pod)
    return table.document(header)


def _pods(document: _Document) -> list[Pod]:
    specs, metadata, nodes = document.shared_specs, document.shared_metadata, document.nodes
    has_placeholders = [known is not None and _has_placeholders(known.labels) for known in metadata]
    pods = []
    for row in document.rows:
        shared, common, node = specs[row.shared_spec], metadata[row.shared_metadata], nodes[row.node]
        if shared is None or common is None or node is None:
            raise msgspec.ValidationError("a row refers to nothing")
        pods.append(
            Pod(
                ObjectMeta(
                    name=row.name,
                    namespace=common.namespace,
                    uid=_uid_of(row.uid),
                    labels=_own_labels(common.labels, row.name)
                    if has_placeholders[row.shared_metadata]
                    else common.labels,
                    annotations=shared.annotations,
                    creation_timestamp=row.created,
                    deletion_timestamp=row.deleted,
                    owner_references=common.owners,
                ),
                _with_node(shared.spec, node),
                _with_start_time(shared.status, row.started) if row.started else shared.status,
            )
        )
    return pods


def _decompressed(document: bytes) -> bytes:
    """The encoded document, if it has this format."""
    encoded = zlib.decompress(document)
    stated = _PREAMBLE.decode(encoded).header.get("format")
    if stated is None or msgspec.msgpack.decode(stated) != FORMAT:
        raise msgspec.ValidationError(f"not of format {FORMAT}")
    return encoded


@contextmanager
def _decoding() -> Iterator[None]:
    """Unreadable bytes are invalid input."""
    with garbage_collection_paused():
        try:
            yield
        except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, IndexError) as error:
            raise InvalidInput("cluster snapshot", f"cannot be read: {error}") from error


def _with_node(spec: PodSpec, node: str) -> PodSpec:
    """The specification with another node; a copy is several times as quick as a new struct."""
    other = copy(spec)
    force_setattr(other, "node_name", node)
    return other


def _with_start_time(status: PodStatus, at: str) -> PodStatus:
    other = copy(status)
    force_setattr(other, "start_time", at)
    return other


def _shared_labels(meta: ObjectMeta) -> dict[str, str]:
    """Labels of which those that a StatefulSet gives to each pod are placeholders."""
    name, labels = meta.name, meta.labels
    ordinal = labels.get(_ORDINAL_LABEL)
    if ordinal is not None and ordinal == name.rpartition("-")[2]:
        labels = {**labels, _ORDINAL_LABEL: _OWN_ORDINAL}
    if name in labels.values():
        labels = {key: _OWN_NAME if value == name else value for key, value in labels.items()}
    return labels


def _has_placeholders(labels: dict[str, str]) -> bool:
    return _OWN_NAME in labels.values() or _OWN_ORDINAL in labels.values()


def _own_labels(labels: dict[str, str], name: str) -> dict[str, str]:
    own = {_OWN_NAME: name, _OWN_ORDINAL: name.rpartition("-")[2]}
    return {key: own.get(value, value) for key, value in labels.items()}


def _packed_uid(uid: str) -> bytes:
    """A canonical uid in sixteen bytes; any other as text, ended by a byte that no text holds, in more or fewer."""
    try:
        packed = bytes.fromhex(uid.replace("-", ""))
    except ValueError:
        packed = b""
    if len(packed) == _UID_BYTES and _uid_of(packed) == uid:
        return packed
    text = uid.encode() + _END
    return text + _END if len(text) == _UID_BYTES else text


def _uid_of(packed: bytes) -> str:
    if len(packed) != _UID_BYTES:
        return packed.rstrip(_END).decode()
    text = packed.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

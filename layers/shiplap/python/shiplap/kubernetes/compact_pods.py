"""The bound pods of a large cluster in about a hundred bytes each, so that a decision can load instead of list them.

Pods of one controller are almost alike. What equal pods share is kept once: their *form* (specification, status and the
annotations that count) and their *family* (namespace, labels, owners). A row says which form, family and node a pod has
and what is its own: name, uid, times. Rows are MessagePack arrays, each encoded once, when its pod changes: a document
is the tables and the rows put one behind the other, compressed. Only lean pods (`kubernetes.lean_pod`) are kept.

A bound pod without what no decision reads: what is left of equal pods is equal, so that it can be kept once.

Pods differ in much that decisions never look at: versions, addresses, checksums, tokens' volumes, the times of their
conditions. A pod keeps its identity, where it is, what it takes of its node, what topology and budgets see of it, and
what protects it.
"""

from __future__ import annotations

import gc
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy

import msgspec
from msgspec.structs import force_setattr, replace

from shiplap.errors import InvalidInput
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

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""How much a pod's controller would rather keep it."""

_ANNOTATIONS = (labels.DO_NOT_DISRUPT, DELETION_COST)
_NO_STATUS: tuple[ContainerStatus, ...] = ()


def lean_pod(pod: Pod) -> Pod:
    """The pod as decisions see it; leaning twice changes nothing.

    Decisions about bound pods read nothing else: neither a pod's resourceVersion, nor other annotations than the two
    that speak to them, nor volumes without a claim, nor ports that no host gives. A container's status counts only
    while the kubelet holds other amounts for it than it asks for, the start only where it ends a protection.
    """
    meta = pod.metadata
    annotations = {key: meta.annotations[key] for key in _ANNOTATIONS if key in meta.annotations}
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
    """All pods of a cluster, each once, whichever of the two was looked at first.

    One that is in both was bound in between. Of two with one name the younger exists: the other had to go before.
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
        volumes=tuple(item for item in spec.volumes if item.persistent_volume_claim or item.ephemeral),
    )


def _without_own_ports(container: Container) -> Container:
    if not container.ports:
        return container
    return replace(container, ports=tuple(port for port in container.ports if port.host_port))


def _lean_status(pod: Pod, *, timed: bool) -> PodStatus:
    status, spec = pod.status, pod.spec
    by_itself = spec.resources is not None  # otherwise what the kubelet says of the pod as a whole is not asked for
    return PodStatus(
        phase=status.phase,
        nominated_node_name="" if spec.node_name else status.nominated_node_name,
        start_time=status.start_time if timed else "",
        conditions=tuple(
            PodCondition(type=item.type, status=item.status) for item in status.conditions if item.type == "Ready"
        ),
        container_statuses=_resize_statuses(status.container_statuses, spec.containers),
        init_container_statuses=_resize_statuses(status.init_container_statuses, spec.init_containers),
        resources=status.resources if by_itself else None,
        allocated_resources=status.allocated_resources if by_itself else {},
    )


def _resize_statuses(
    statuses: Sequence[ContainerStatus], containers: Sequence[Container]
) -> tuple[ContainerStatus, ...]:
    """The statuses that change what the pod takes: the others say again what the container asks for."""
    if not statuses:
        return _NO_STATUS
    asked = {container.name: container.resources.requests for container in containers}
    return tuple(
        ContainerStatus(
            name=item.name,
            allocated_resources=item.allocated_resources,
            resources=None if item.resources is None else ResourceRequirements(requests=item.resources.requests),
        )
        for item in statuses
        if item.name in asked and not _repeats_requests(item, asked[item.name])
    )


def _repeats_requests(status: ContainerStatus, requests: Mapping[str, str | int | float]) -> bool:
    allocated, actual = status.allocated_resources, status.resources
    return (not allocated or allocated == requests) and (actual is None or actual.requests == requests)


FORMAT = 1
"""Changes with what a document means; a document of another format is as good as none."""

_LEVEL = 1
_OWN_NAME, _OWN_ORDINAL = "\0name", "\0ordinal"  # no label's value holds a NUL
_UID_BYTES = 16
_END = b"\xff"
_ORDINAL_LABEL = "apps.kubernetes.io/pod-index"


class SharedSpec(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What pods of one template have in common; the node and the start are the pod's own."""

    spec: PodSpec
    status: PodStatus
    annotations: dict[str, str]


class SharedMetadata(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What pods of one controller have in common; label values that repeat a pod's name stand as placeholders."""

    namespace: str
    labels: dict[str, str]
    owners: tuple[OwnerReference, ...]


class PodRow(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A pod: places in the three tables, and what is its own. `uid` is packed."""

    form: int
    family: int
    node: int
    name: str
    uid: bytes
    created: str | None = ""
    deleted: str = ""
    started: str = ""


class SnapshotHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a document says about itself.

    `version` is the resourceVersion it stands for, `taken_at` the epoch second at which it did, `listed_at` that of the
    list it goes back to, `kept_since` that at which its keeper began. Without `complete` it holds no pods: the cluster
    is too small, or too large for its keeper.
    """

    cluster: str
    version: str
    taken_at: float
    listed_at: float
    kept_since: float
    complete: bool = True
    format: int = FORMAT


class _Document(msgspec.Struct, frozen=True, array_like=True, gc=False):
    standing: SnapshotHeader
    forms: tuple[SharedSpec | None, ...]
    families: tuple[SharedMetadata | None, ...]
    nodes: tuple[str | None, ...]
    rows: tuple[PodRow, ...]


class _EncodedDocument(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A document whose tables and rows are left encoded."""

    standing: SnapshotHeader
    forms: tuple[msgspec.Raw, ...]
    families: tuple[msgspec.Raw, ...]
    nodes: tuple[msgspec.Raw, ...]
    rows: msgspec.Raw


class _Preamble(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of a document of any format."""

    standing: dict[str, msgspec.Raw]


_encode = msgspec.msgpack.Encoder().encode
_DOCUMENT = msgspec.msgpack.Decoder(_Document)
_ENCODED_DOCUMENT = msgspec.msgpack.Decoder(_EncodedDocument)
_ROW = msgspec.msgpack.Decoder(PodRow)
_ROWS = msgspec.msgpack.Decoder(tuple[PodRow, ...])
_PREAMBLE = msgspec.msgpack.Decoder(_Preamble)
_NOTHING = _encode(None)


class _SharedValues:
    """Encoded values, each kept once as long as anybody uses it, and the places they have in their table."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self._places: dict[bytes, int] = {}
        self._uses: list[int] = []
        self._free: list[int] = []

    def take(self, value: bytes) -> int:
        """The value's place, for one more user."""
        place = self._places.get(value)
        if place is not None:
            self._uses[place] += 1
            return place
        if self._free:
            place = self._free.pop()
            self.values[place], self._uses[place] = value, 1
        else:
            place = len(self.values)
            self.values.append(value)
            self._uses.append(1)
        self._places[value] = place
        return place

    def drop(self, place: int) -> None:
        """One user less."""
        self._uses[place] -= 1
        if not self._uses[place]:
            del self._places[self.values[place]]
            self.values[place] = _NOTHING
            self._free.append(place)


class PodTable:
    """The bound pods of a cluster as they change, by uid, ready to become a document at any time."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._forms, self._families, self._nodes = _SharedValues(), _SharedValues(), _SharedValues()
        self.changes = 0

    def __len__(self) -> int:
        """How many pods there are."""
        return len(self._rows)

    def put(self, pod: Pod) -> None:
        """Note a pod as it is, in the place of the one of its uid; `changes` grows if that makes a difference."""
        item = lean_pod(pod)
        meta, spec, status = item.metadata, item.spec, item.status
        form = SharedSpec(_with_node(spec, ""), _with_start_time(status, ""), meta.annotations)
        row = PodRow(
            self._forms.take(_encode(form)),
            self._families.take(_encode(SharedMetadata(meta.namespace, _shared_labels(meta), meta.owner_references))),
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
            self._release(known)

    def clear(self) -> None:
        """Forget all pods."""
        self._rows.clear()
        self._forms, self._families, self._nodes = _SharedValues(), _SharedValues(), _SharedValues()
        self.changes += 1

    def document(self, standing: SnapshotHeader) -> bytes:
        """The table as a document; `decode_pods` is the inverse."""
        raw = msgspec.Raw
        parts = _EncodedDocument(
            standing,
            tuple(map(raw, self._forms.values)),
            tuple(map(raw, self._families.values)),
            tuple(map(raw, self._nodes.values)),
            raw(b"\xdd" + len(self._rows).to_bytes(4, "big") + b"".join(self._rows.values())),
        )
        return zlib.compress(_encode(parts), _LEVEL)

    @classmethod
    def of(cls, document: bytes) -> tuple[PodTable, SnapshotHeader]:
        """The table a document was made of, places closed up. Raises InvalidInput."""
        with _decoding():
            parts = _ENCODED_DOCUMENT.decode(_decompressed(document))
            table = cls()
            for row in _ROWS.decode(parts.rows):
                form = table._forms.take(bytes(parts.forms[row.form]))
                family = table._families.take(bytes(parts.families[row.family]))
                node = table._nodes.take(bytes(parts.nodes[row.node]))
                table._put(msgspec.structs.replace(row, form=form, family=family, node=node))
        table.changes = 0
        return table, parts.standing

    def _put(self, row: PodRow) -> None:
        """Store a row whose places have been taken."""
        encoded = _encode(row)
        known = self._rows.get(row.uid)
        if known is not None:
            self._release(known)
        if known != encoded:
            self._rows[row.uid] = encoded
            self.changes += 1

    def _release(self, encoded: bytes) -> None:
        row = _ROW.decode(encoded)
        self._forms.drop(row.form)
        self._families.drop(row.family)
        self._nodes.drop(row.node)


def decode_pods(document: bytes) -> tuple[SnapshotHeader, list[Pod]]:
    """What a document says about itself, and its pods, lean, in no order.

    Raises:
        InvalidInput: it is not a document of this format.
    """
    with _decoding():
        found = _DOCUMENT.decode(_decompressed(document))
        return found.standing, _pods(found)


def encode_pods(pods: Iterable[Pod], standing: SnapshotHeader) -> bytes:
    """A document of these pods."""
    table = PodTable()
    for pod in pods:
        table.put(pod)
    return table.document(standing)


def _pods(found: _Document) -> list[Pod]:
    forms, families, nodes = found.forms, found.families, found.nodes
    owned = [family is not None and _has_placeholders(family.labels) for family in families]
    made = []
    for row in found.rows:
        form, family, node = forms[row.form], families[row.family], nodes[row.node]
        if form is None or family is None or node is None:
            raise msgspec.ValidationError("a row refers to nothing")
        made.append(
            Pod(
                ObjectMeta(
                    name=row.name,
                    namespace=family.namespace,
                    uid=_uid_of(row.uid),
                    labels=_own_labels(family.labels, row.name) if owned[row.family] else family.labels,
                    annotations=form.annotations,
                    creation_timestamp=row.created,
                    deletion_timestamp=row.deleted,
                    owner_references=family.owners,
                ),
                _with_node(form.spec, node),
                _with_start_time(form.status, row.started) if row.started else form.status,
            )
        )
    return made


def _decompressed(document: bytes) -> bytes:
    """The encoded document, once it has said that it has this format."""
    encoded = zlib.decompress(document)
    stated = _PREAMBLE.decode(encoded).standing.get("format")
    if stated is None or msgspec.msgpack.decode(stated) != FORMAT:
        raise msgspec.ValidationError(f"not of format {FORMAT}")
    return encoded


@contextmanager
def _decoding() -> Iterator[None]:
    """What is not a document is invalid input; the collector rests, for decoding makes objects and no garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, IndexError) as error:
        raise InvalidInput("cluster snapshot", f"cannot be read: {error}") from error
    finally:
        if was_enabled:
            gc.enable()


def _with_node(spec: PodSpec, node: str) -> PodSpec:
    """The specification with another node; a copy is several times as quick as a struct made anew."""
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
    """A canonical uid in sixteen bytes; any other as text, ended by what no text holds, in more or fewer."""
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

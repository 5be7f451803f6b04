"""Parts of a record that other records have too: each is a chunk, named by its content and stored once a day.

A record has a reference where a chunk belongs: in the place of the instance types of an EC2NodeClass, of their
offerings, and of long lists. A list that has changed a little since its chunk was stored names the stretches that are
the same and holds what is new. A version that knows no chunks finds no list there, and says that it cannot read the
record.

A process remembers what it has stored on a day (`ChunkMemory`), so that it encodes unchanged instance types once.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from shiplap.errors import StoreError
from shiplap.instances.catalog.type_catalog import InstanceType

LEAST_BYTES = 65_536
"""A smaller part stays in its record: to store it apart costs more than to store it again."""

_LEAST_ITEMS = 64
"""A shorter list is not even measured."""

_NEW_SHARE = 16
"""A list of which more than a sixteenth is new gets a chunk of its own. If two pods in a thousand change between
decisions, chunks and what records hold beside them have equal shares of all bytes then, which are fewest so."""

_CATALOGS = 8
"""Catalogues remembered: those of a cluster's EC2NodeClasses, and of a decision before prices changed."""

_DIGEST_CHARS = 32
_ITEM_DIGEST_BYTES = 16
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


class TypesReference(msgspec.Struct, frozen=True):
    """Stands for instance types: the names of two chunks, the types without offerings and the offerings of each."""

    chunk: str
    offerings: str


class ListReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stands for a list: the name of a chunk, and `stretches` of the list, all of the chunk if there are none.

    A stretch is a pair, first place and end in the chunk, or one item that the chunk lacks.
    """

    chunk: str
    stretches: tuple[tuple[int, int] | msgspec.Raw, ...] = ()


class Chunk(msgspec.Struct, frozen=True):
    """Some content, compressed; its name is the day and the digest of what is compressed."""

    name: str
    document: bytes


class _KnownCatalog(msgspec.Struct, frozen=True, eq=False):
    """Instance types that were looked at, and what stands for them; None if they stay in the record."""

    instance_types: tuple[InstanceType, ...]
    reference: TypesReference | None


class _KnownList(msgspec.Struct, frozen=True, eq=False):
    """A chunk with a list: the place of each item by its digest, and the size of all, uncompressed."""

    chunk: str
    places: dict[bytes, int]
    size_bytes: int


class ChunkMemory(msgspec.Struct, frozen=True, eq=False):
    """The chunks that are known to be stored on a day (YYYY-MM-DD)."""

    day: str = ""
    catalogs: tuple[_KnownCatalog, ...] = ()
    lists: dict[str, _KnownList] = {}


class ChunkedSnapshot(msgspec.Struct, frozen=True, eq=False):
    """A snapshot as it is recorded, with references; the chunks to store before it; the memory once they are stored."""

    recorded: Any
    chunks: tuple[Chunk, ...]
    memory: ChunkMemory


def chunked(recorded: Any, day: str, memory: ChunkMemory, *, least_bytes: int = LEAST_BYTES) -> ChunkedSnapshot:
    """Replace what other records have too by references, but for parts of fewer bytes.

    `recorded` is as of `recorded_snapshot`.
    """
    work = _Chunking(day, memory, least_bytes)
    catalogs = tuple(work.catalog(catalog) for catalog in recorded.catalogs)
    view = work.lists(recorded.view, "view")
    manifests = work.lists(recorded.manifests, "manifests")
    claims = work.list(recorded.claims, "claims")
    changed = replace(recorded, catalogs=catalogs, view=view, manifests=manifests, claims=claims)
    return ChunkedSnapshot(changed, tuple(work.chunks), ChunkMemory(day, tuple(work.catalogs), work.known))


class _Chunking:
    """The chunks of one snapshot."""

    def __init__(self, day: str, memory: ChunkMemory, least_bytes: int) -> None:
        self._day = day
        self._least_bytes = least_bytes
        self.chunks: list[Chunk] = []
        self.catalogs = list(memory.catalogs) if memory.day == day else []
        self.known = dict(memory.lists) if memory.day == day else {}

    def catalog(self, catalog: Any) -> Any:
        """The types of an EC2NodeClass as references; small ones as they are."""
        types = catalog.instance_types
        if not types:
            return catalog
        known = next((item for item in self.catalogs if item.instance_types is types), None)
        if known is None:
            known = _KnownCatalog(types, self._types(types))
            self.catalogs = [known, *self.catalogs][:_CATALOGS]
        return catalog if known.reference is None else replace(catalog, instance_types=known.reference)

    def _types(self, types: Sequence[InstanceType]) -> TypesReference | None:
        bare = _ENCODER.encode([replace(item, offerings=()) for item in types])
        sold = _ENCODER.encode([item.offerings for item in types])
        if len(bare) + len(sold) < self._least_bytes:
            return None
        return TypesReference(self._add(bare), self._add(sold))

    def lists(self, holder: Any, name: str) -> Any:
        """A struct with references in the place of its long lists."""
        values = {field: getattr(holder, field) for field in holder.__struct_fields__}
        lists = {field: self.list(value, f"{name}.{field}") for field, value in values.items() if _is_list(value)}
        changed = {field: value for field, value in lists.items() if value is not values[field]}
        return replace(holder, **changed) if changed else holder  # what is a default is not written

    def list(self, items: Sequence[msgspec.Struct], name: str) -> Any:
        """A reference to a long list; a short one as it is."""
        if not _is_list(items):
            return items
        encoded = [_ENCODER.encode(item) for item in items]
        size_bytes = sum(map(len, encoded))
        if size_bytes < self._least_bytes:
            return items
        digests = [hashlib.blake2b(item, digest_size=_ITEM_DIGEST_BYTES).digest() for item in encoded]
        known = self.known.get(name)
        if known is not None:
            new_bytes = sum(
                len(item) for item, digest in zip(encoded, digests, strict=True) if digest not in known.places
            )
            if new_bytes * _NEW_SHARE <= known.size_bytes:
                return ListReference(known.chunk, _stretches(encoded, digests, known))
        chunk = self._add(_ENCODER.encode(tuple(map(msgspec.Raw, encoded))))
        places = {digest: place for place, digest in enumerate(digests)}
        self.known[name] = _KnownList(chunk, places, size_bytes)
        return ListReference(chunk)

    def _add(self, content: bytes) -> str:
        name = f"{self._day}/{_digest(content)}"
        self.chunks.append(Chunk(name, zlib.compress(content, level=3)))
        return name


def _is_list(value: object) -> bool:
    return isinstance(value, tuple) and len(value) >= _LEAST_ITEMS


def _stretches(
    encoded: Iterable[bytes], digests: Iterable[bytes], known: _KnownList
) -> tuple[tuple[int, int] | msgspec.Raw, ...]:
    """The list in terms of the chunk; nothing if it is the chunk."""
    found: list[Any] = []
    first = end = 0
    for item, digest in zip(encoded, digests, strict=True):
        place = known.places.get(digest, -1)
        if place >= 0 and place == end:
            end += 1
            continue
        if end > first:
            found.append((first, end))
        if place >= 0:
            first, end = place, place + 1
        else:
            found.append(msgspec.Raw(item))
            first = end = 0
    if end > first:
        found.append((first, end))
    return () if found == [(0, len(known.places))] else tuple(found)


def names_chunks(loose: dict[str, Any]) -> bool:
    """True if a record, decoded without types, has references."""
    return any(_is_reference(holder[key]) for holder, key in _places(loose))


def whole(document: bytes, chunk: Callable[[str], bytes]) -> bytes:
    """Return a record without references; `chunk` reads the document of a chunk by name and raises StoreError.

    What has no references, or is no record, is returned as it is.

    Raises:
        StoreError: a chunk is missing or damaged.
    """
    try:
        loose = msgspec.msgpack.decode(zlib.decompress(document))
    except (zlib.error, msgspec.DecodeError):
        return document
    if not isinstance(loose, dict) or not names_chunks(loose):
        return document
    for holder, key in _places(loose):
        if _is_reference(holder[key]):
            holder[key] = _items(holder[key], chunk)
    return zlib.compress(msgspec.msgpack.encode(loose), level=3)


def _items(reference: dict[str, Any], chunk: Callable[[str], bytes]) -> list[Any]:
    items = _content(reference["chunk"], chunk)
    if "offerings" in reference:
        for item, offerings in zip(items, _content(reference["offerings"], chunk), strict=True):
            item["offerings"] = offerings
    if "stretches" not in reference:
        return items
    found: list[Any] = []
    for stretch in reference["stretches"]:
        found += items[stretch[0] : stretch[1]] if isinstance(stretch, list) else [stretch]
    return found


def _content(name: str, chunk: Callable[[str], bytes]) -> list[Any]:
    """Raises StoreError."""
    try:
        content = zlib.decompress(chunk(name))
    except zlib.error as error:
        raise StoreError(f"chunk {name} of a record is damaged: {error}") from error
    if not name.endswith(f"/{_digest(content)}"):
        raise StoreError(f"chunk {name} of a record is damaged: its content has another digest")
    items: list[Any] = msgspec.msgpack.decode(content)
    return items


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGEST_CHARS]


def _is_reference(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("chunk"), str)


def _places(loose: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """The places where a reference may be: mappings and keys."""
    snapshot = loose.get("snapshot")
    if isinstance(snapshot, dict) and "scheduling" in snapshot:
        snapshot = snapshot["scheduling"]
    if not isinstance(snapshot, dict):
        return []
    catalogs = snapshot.get("catalogs")
    holders = [snapshot.get("view"), snapshot.get("manifests"), *(catalogs if isinstance(catalogs, list) else ())]
    found = [(holder, key) for holder in holders if isinstance(holder, dict) for key in holder]
    return [(snapshot, "claims"), *found] if "claims" in snapshot else found

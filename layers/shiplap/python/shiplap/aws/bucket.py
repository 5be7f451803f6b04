"""The bucket: the instance-type catalogue and the recorded decisions."""

from __future__ import annotations

import hashlib
import logging
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from botocore.exceptions import ClientError

from shiplap.aws.failures import code_of, store_errors
from shiplap.disruption.decision_memory import DecisionMemory
from shiplap.errors import StoreError
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.readiness.nodeclass_status import DryRuns, InstallStatus
from shiplap.manifests.live.live_manifests import LiveManifests
from shiplap.node_identities import KeptIdentities
from shiplap.records import scheduling_record as records
from shiplap.records.chunked_recorder import ChunkedRecorder

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_LOG = logging.getLogger(__name__)

CATALOG_PREFIX = "catalog/"
RECORDS_PREFIX = "records/"
CHUNKS_PREFIX = "chunks/"
STATUS_KEY = "status/clusters.json"
MEMORY_PREFIX = "memory/"
REHEARSALS_PREFIX = "rehearsals/"
IDENTITIES_PREFIX = "identities/"
MANIFESTS_PREFIX = "manifests/"
CLUSTERS_PREFIX = "clusters/"

_DAY_S = 24 * 3600
_IS_THERE, _BEING_WRITTEN = "PreconditionFailed", "ConditionalRequestConflict"

_DECODER = msgspec.msgpack.Decoder(Catalog)


class BucketCatalog:
    """A CatalogStore for one region: `catalog/<region>/<digest>` and, in `catalog/<region>/latest`, the digest in use.

    The document is written before the pointer, so that a reader finds either the old catalogue or the new one, whole.
    A catalogue once loaded is kept for as long as the pointer names it: a warm function reads a few bytes.
    """

    def __init__(self, client: S3Client, bucket: str, region: str) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = f"{CATALOG_PREFIX}{region}/"
        self._loaded: tuple[str, Catalog] | None = None

    def load(self) -> Catalog:
        digest = _read(self._client, self._bucket, f"{self._prefix}latest").decode()
        if self._loaded is None or self._loaded[0] != digest:
            document = _read(self._client, self._bucket, self._prefix + digest)
            self._loaded = digest, _decode(document, self._prefix + digest)
        return self._loaded[1]

    def save(self, catalog: Catalog) -> None:
        document = zlib.compress(msgspec.msgpack.encode(catalog, order="deterministic"), level=6)
        digest = hashlib.sha256(document).hexdigest()[:32]
        write_document(self._client, self._bucket, self._prefix + digest, document)
        write_document(self._client, self._bucket, f"{self._prefix}latest", digest.encode())


class BucketStatus:
    """A StatusStore: one document for all clusters of the install, replaced as a whole; the bucket keeps versions."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def load(self) -> InstallStatus:
        document = find_document(self._client, self._bucket, STATUS_KEY)
        if document is None:
            return InstallStatus()
        try:
            return msgspec.json.decode(document, type=InstallStatus)
        except msgspec.DecodeError as error:
            raise StoreError(f"{STATUS_KEY} is no status: {error}") from error

    def save(self, status: InstallStatus) -> None:
        document = msgspec.json.format(msgspec.json.encode(status, order="deterministic"), indent=1)
        write_document(self._client, self._bucket, STATUS_KEY, document)


class BucketKeptIdentities:
    """A KeptIdentityStore for one region: `identities/<region>.json`."""

    def __init__(self, client: S3Client, bucket: str, region: str) -> None:
        self._client = client
        self._bucket = bucket
        self._key = f"{IDENTITIES_PREFIX}{region}.json"

    def load(self) -> KeptIdentities:
        document = find_document(self._client, self._bucket, self._key)
        if document is None:
            return KeptIdentities()
        try:
            return msgspec.json.decode(document, type=KeptIdentities)
        except msgspec.DecodeError as error:
            raise StoreError(f"{self._key} holds no identities of nodes: {error}") from error

    def save(self, kept: KeptIdentities) -> None:
        write_document(self._client, self._bucket, self._key, msgspec.json.encode(kept, order="deterministic"))


class BucketDryRuns:
    """A DryRunStore: `rehearsals/<cluster>.json`."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def load(self, cluster: str) -> DryRuns:
        key = f"{REHEARSALS_PREFIX}{cluster}.json"
        document = find_document(self._client, self._bucket, key)
        if document is None:
            return DryRuns()
        try:
            return msgspec.json.decode(document, type=DryRuns)
        except msgspec.DecodeError as error:
            _LOG.warning("rehearsals cannot be read: %s", error, extra={"cluster": cluster, "key": key})
            return DryRuns()

    def save(self, cluster: str, rehearsals: DryRuns) -> None:
        document = msgspec.json.encode(rehearsals)
        write_document(self._client, self._bucket, f"{REHEARSALS_PREFIX}{cluster}.json", document)


class BucketManifests:
    """A ManifestStore: `manifests/<cluster>.json`."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def load(self, cluster: str) -> LiveManifests:
        key = f"{MANIFESTS_PREFIX}{cluster}.json"
        document = find_document(self._client, self._bucket, key)
        if document is None:
            return LiveManifests()
        try:
            return msgspec.json.decode(document, type=LiveManifests)
        except msgspec.DecodeError as error:
            _LOG.warning("manifests cannot be read: %s", error, extra={"cluster": cluster, "key": key})
            return LiveManifests()

    def save(self, cluster: str, manifests: LiveManifests) -> None:
        document = msgspec.json.encode(manifests, order="deterministic")
        write_document(self._client, self._bucket, f"{MANIFESTS_PREFIX}{cluster}.json", document)


class BucketMemory:
    """A MemoryStore: `memory/<cluster>`, compressed."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def load(self, cluster: str) -> DecisionMemory:
        key = MEMORY_PREFIX + cluster
        document = find_document(self._client, self._bucket, key)
        if document is None:
            return DecisionMemory()
        try:
            return msgspec.msgpack.decode(zlib.decompress(document), type=DecisionMemory)
        except (zlib.error, msgspec.DecodeError) as error:
            _LOG.warning("memory cannot be read and begins again: %s", error, extra={"cluster": cluster, "key": key})
            return DecisionMemory()

    def save(self, cluster: str, memory: DecisionMemory) -> None:
        document = zlib.compress(msgspec.msgpack.encode(memory), level=1)
        write_document(self._client, self._bucket, MEMORY_PREFIX + cluster, document)


class BucketSnapshots:
    """A SnapshotStore: `clusters/<cluster>`; the time its keeper began is metadata, which costs no transfer."""

    _KEPT_SINCE = "kept-since"

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def load(self, cluster: str) -> bytes | None:
        return find_document(self._client, self._bucket, CLUSTERS_PREFIX + cluster)

    def save(self, cluster: str, document: bytes, kept_since: float) -> None:
        key = CLUSTERS_PREFIX + cluster
        with store_errors(f"write s3://{self._bucket}/{key}"):
            self._client.put_object(
                Bucket=self._bucket, Key=key, Body=document, Metadata={self._KEPT_SINCE: repr(kept_since)}
            )

    def kept_since(self, cluster: str) -> float:
        key = CLUSTERS_PREFIX + cluster
        with store_errors(f"read s3://{self._bucket}/{key}"):
            try:
                metadata = self._client.head_object(Bucket=self._bucket, Key=key)["Metadata"]
            except ClientError as error:
                if code_of(error) != "404":  # an answer to HEAD has no body that could name an error
                    raise
                return 0.0
        try:
            return float(metadata.get(self._KEPT_SINCE, "0"))
        except ValueError as error:
            raise StoreError(f"{key}: {self._KEPT_SINCE} is no time: {error}") from error


class BucketRecorder(ChunkedRecorder):
    """A FlightRecorder, and FlightRecords: `records/<cluster>/<date>/<id>`, a compressed snapshot with its decision.

    Chunks are `chunks/<date>/<digest>`.
    """

    def __init__(self, client: S3Client, bucket: str) -> None:
        super().__init__()
        self._client = client
        self._bucket = bucket

    def ids(self, cluster: str, first_at: float, last_at: float) -> tuple[str, ...]:
        """One listing per day, the first from its moment on, so that looking for the newest costs no more than they."""
        names: list[str] = []
        for day in range(int(first_at // _DAY_S), int(last_at // _DAY_S) + 1):
            moment = datetime.fromtimestamp(max(day * _DAY_S, int(first_at)), UTC)
            prefix = f"{RECORDS_PREFIX}{cluster}/{moment:%Y-%m-%d}/"
            names += self._listed(prefix, after=f"{prefix}{moment:%H%M%S}")
        return tuple(name for name in sorted(names) if int(first_at) <= records.written_at(name) <= last_at)

    def named(self, tail: str) -> tuple[str, ...]:
        """Ids that end in `tail` (TIME-EPOCH-DIGEST), of any cluster and day."""
        days = [day for cluster in self._folders(RECORDS_PREFIX) for day in self._folders(cluster)]
        return tuple(name for day in days for name in self._listed(day + tail) if name.rpartition("/")[2] == tail)

    def _listed(self, prefix: str, after: str = "") -> list[str]:
        """Ids of the records below a prefix, those that sort behind `after`."""
        with store_errors(f"list s3://{self._bucket}/{prefix}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix, StartAfter=after
            )
            return [item["Key"].removeprefix(RECORDS_PREFIX) for page in pages for item in page.get("Contents", ())]

    def _folders(self, prefix: str) -> list[str]:
        with store_errors(f"list s3://{self._bucket}/{prefix}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix, Delimiter="/"
            )
            return [item["Prefix"] for page in pages for item in page.get("CommonPrefixes", ())]

    def stored(self, record_id: str) -> bytes:
        """Raises StoreError when there is none of this id."""
        return _read(self._client, self._bucket, RECORDS_PREFIX + record_id)

    def _write(self, record_id: str, document: bytes) -> None:
        write_document(self._client, self._bucket, RECORDS_PREFIX + record_id, document)

    def _write_chunk(self, name: str, document: bytes) -> None:
        """Only if it is not there: the bucket would keep the same bytes as one more version."""
        key = CHUNKS_PREFIX + name
        with store_errors(f"write s3://{self._bucket}/{key}"):
            try:
                self._client.put_object(Bucket=self._bucket, Key=key, Body=document, IfNoneMatch="*")
            except ClientError as error:
                if code_of(error) == _BEING_WRITTEN:  # by another function, which may fail
                    self._client.put_object(Bucket=self._bucket, Key=key, Body=document)
                elif code_of(error) != _IS_THERE:
                    raise

    def _read_chunk(self, name: str) -> bytes:
        document = find_document(self._client, self._bucket, CHUNKS_PREFIX + name)
        if document is None:
            gone = f"s3://{self._bucket}/{CHUNKS_PREFIX}{name} is gone, so a record that names it cannot be read"
            raise StoreError(f"{gone}; the bucket keeps deleted objects for seven days as earlier versions")
        return document


def _decode(document: bytes, key: str) -> Catalog:
    try:
        return _DECODER.decode(zlib.decompress(document))
    except (zlib.error, msgspec.DecodeError) as error:
        raise StoreError(f"{key} is not a catalogue: {error}") from error


def _read(client: S3Client, bucket: str, key: str) -> bytes:
    document = find_document(client, bucket, key)
    if document is None:
        raise StoreError(f"s3://{bucket}/{key} does not exist yet")
    return document


def find_document(client: S3Client, bucket: str, key: str) -> bytes | None:
    """Return the body of an object; None if there is none. Raises StoreError."""
    with store_errors(f"read s3://{bucket}/{key}"):
        try:
            return client.get_object(Bucket=bucket, Key=key)["Body"].read()
        except ClientError as error:
            if code_of(error) != "NoSuchKey":
                raise
            return None


def write_document(client: S3Client, bucket: str, key: str, document: bytes) -> None:
    """Write an object. Raises StoreError."""
    with store_errors(f"write s3://{bucket}/{key}"):
        client.put_object(Bucket=bucket, Key=key, Body=document)

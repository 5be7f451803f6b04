"""The contracts of CatalogStore and FlightRecorder, held by the in-memory fakes and by the S3 adapters."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from botocore.exceptions import ClientError

from shiplap import __version__
from shiplap.aws.bucket import CHUNKS_PREFIX, BucketCatalog, BucketRecorder
from shiplap.disruption.commands import Blocked, Decision
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.errors import InvalidInput, StoreError
from shiplap.instances.catalog.ec2_catalog import (
    Catalog,
    Ec2InstanceType,
    MemoryInfo,
    NetworkCard,
    NetworkInfo,
    TypePrices,
    VCpuInfo,
    ZonePrice,
)
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes.objects import (
    Affinity,
    Container,
    Event,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
    Taint,
    Toleration,
)
from shiplap.kubernetes.requirements import Requirement
from shiplap.manifests.custom_resources import (
    EC2NodeClass,
    EC2NodeClassSpec,
    Manifests,
    NodeClaimTemplateSpec,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    NodePoolTemplate,
    RequirementSpec,
)
from shiplap.manifests.nodeclaim import PodReference
from shiplap.ports import CatalogStore
from shiplap.records import disruption_record as disruptions
from shiplap.records import scheduling_record as records
from shiplap.records.disruption_record import DisruptionRecord
from shiplap.records.scheduling_record import SchedulingRecord
from shiplap.scheduling.model.scheduling_plan import (
    LaunchChoice,
    NearestMiss,
    Placement,
    Plan,
    PlannedClaim,
    PlanStats,
    Unschedulable,
)
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, Snapshot
from shiplap_lab.fakes.stores import FakeCatalog, FakeRecorder
from tests.builders.claims import node_claim
from tests.builders.recorded import large_snapshot, sold_types

NOW = 1_700_000_000.5

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client


def instance_type(name: str, memory_mib: int) -> Ec2InstanceType:
    return Ec2InstanceType(
        name,
        VCpuInfo(2),
        MemoryInfo(memory_mib),
        NetworkInfo(10, 3, network_cards=(NetworkCard(3, 0.75, 12.5),)),
        supported_usage_classes=("on-demand", "spot"),
    )


CATALOG = Catalog(
    region="eu-west-1",
    types=(instance_type("c7i-flex.large", 4096), instance_type("m5.large", 8192)),
    zones={"m5.large": ("eu-west-1a", "eu-west-1b")},
    zone_ids={"eu-west-1a": "euw1-az1"},
    prices={"m5.large": TypePrices(0.107, (ZonePrice("eu-west-1a", 0.0412),)), "c7i-flex.large": TypePrices()},
    refreshed_at=NOW,
)

POD = Pod(
    metadata=ObjectMeta(name="a", namespace="default", uid="uid-a", labels={"app": "a"}),
    spec=PodSpec(
        node_selector={"zone": "a"},
        affinity=Affinity(
            node_affinity=NodeAffinity(
                NodeSelector((NodeSelectorTerm((NodeSelectorRequirement("arch", "In", ("arm64",)),)),))
            )
        ),
        tolerations=(Toleration("dedicated", "Exists"),),
        containers=(Container("main", ResourceRequirements({"cpu": "500m", "memory": 1024, "example.com/f": 0.5})),),
        priority=-10,
    ),
)

SNAPSHOT = Snapshot(
    cluster="blue",
    now=NOW,
    view=ClusterView((POD,), (Node(metadata=ObjectMeta(name="node-1")),), (), (Event(reason="TriggeredScaleUp"),), "7"),
    claims=(
        node_claim(
            cluster="blue",
            name="flight-1",
            node_pool="default",
            node_class="default",
            taints=(Taint("a", "NoSchedule"),),
            pods=(PodReference("default", "b"),),
        ),
    ),
    manifests=Manifests(
        (
            NodePool(
                ObjectMeta(name="default"),
                NodePoolSpec(
                    NodePoolTemplate(
                        NodeClaimTemplateSpec(
                            NodeClassReference("default"), (RequirementSpec("arch", "In", ("arm64",), 1),)
                        )
                    ),
                    limits={"cpu": 1000, "memory": "1Ti"},
                ),
            ),
        ),
        (EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec(kubelet={"maxPods": 110})),),
    ),
    catalogs=(
        NodeClassCatalog(
            "default",
            (
                InstanceType(
                    "m5.large",
                    (Requirement("zone", False, frozenset({"b", "a", "c"})), Requirement("cpu", True, at_least=3)),
                    {"cpu": 2000},
                    {"cpu": 70},
                    (Offering("a", "spot", 0.04),),
                    verified=False,
                ),
            ),
        ),
        NodeClassCatalog("broken", not_ready="AMINotFound"),
    ),
    missed_pods=frozenset({"uid-b", "uid-a"}),
    piloted=frozenset({"ami-1/m5.large#k1"}),
    epoch=41,
)

PLAN = Plan(
    node_claims=(
        PlannedClaim(
            name="blue-1",
            node_pool="default",
            node_class="default",
            tier=0,
            requirements=(RequirementSpec("zone", "In", ("a",)),),
            taints=(Taint("a", "NoSchedule", "b"),),
            labels={"a": "b"},
            instance_types=("m5.large",),
            launch=LaunchChoice("m5.large", "a", "spot", 0.04),
            requests={"cpu": 500, "memory": 1 << 40},
            pods=(PodReference("default", "a", "uid-a"),),
        ),
    ),
    existing_nodes=(Placement("node-1", (PodReference("default", "c"),)),),
    unschedulable=(
        Unschedulable(PodReference("default", "d"), "too big", NearestMiss("m5.large", "default", "memory", 7)),
        Unschedulable(PodReference("default", "e"), "no pool"),
    ),
    hourly=0.04,
    stats=PlanStats(4, 4),
)


@pytest.fixture(params=["fake", "s3"])
def catalog_store(request: pytest.FixtureRequest) -> CatalogStore:
    if request.param == "fake":
        return FakeCatalog()
    return BucketCatalog(request.getfixturevalue("s3"), "bucket", "eu-west-1")


@pytest.fixture(params=["fake", "s3"])
def recorder(request: pytest.FixtureRequest) -> FakeRecorder | BucketRecorder:
    return FakeRecorder() if request.param == "fake" else BucketRecorder(request.getfixturevalue("s3"), "bucket")


def test_without_a_catalogue_loading_says_so(catalog_store: CatalogStore) -> None:
    with pytest.raises(StoreError, match="yet"):
        catalog_store.load()


def test_a_catalogue_is_read_back_exactly(catalog_store: CatalogStore) -> None:
    catalog_store.save(CATALOG)
    assert catalog_store.load() == CATALOG


def test_the_newest_catalogue_is_loaded(catalog_store: CatalogStore) -> None:
    newer = msgspec.structs.replace(CATALOG, refreshed_at=NOW + 3600)
    catalog_store.save(CATALOG)
    assert catalog_store.load() == CATALOG
    catalog_store.save(newer)
    assert catalog_store.load() == newer


def test_a_decision_is_replayed_exactly(recorder: FakeRecorder | BucketRecorder) -> None:
    record_id = recorder.record(SNAPSHOT, PLAN)
    assert record_id.startswith("blue/2023-11-14/221320-41-")
    assert records.decode(recorder.document(record_id)) == SchedulingRecord(SNAPSHOT, PLAN)


def test_one_decision_is_one_record_and_others_are_others(recorder: FakeRecorder | BucketRecorder) -> None:
    again = recorder.record(msgspec.structs.replace(SNAPSHOT, missed_pods=frozenset({"uid-a", "uid-b"})), PLAN)
    other = recorder.record(msgspec.structs.replace(SNAPSHOT, missed_pods=frozenset()), PLAN)
    assert recorder.record(SNAPSHOT, PLAN) == again != other
    assert records.decode(recorder.document(other)).snapshot.missed_pods == frozenset()


def test_a_decision_to_disrupt_is_recorded_beside_the_others(recorder: FakeRecorder | BucketRecorder) -> None:
    looked_at, decision = DisruptionSnapshot(scheduling=SNAPSHOT), Decision(blocked=(Blocked("node-1", "it is new"),))
    name = recorder.record_disruption(looked_at, decision)
    assert name.startswith("blue/2023-11-14/221320-41-disrupt-")
    assert recorder.record_disruption(looked_at, decision) == name
    found = disruptions.read(recorder.document(name), name)
    assert found.record == DisruptionRecord(looked_at, decision)
    assert (found.outline.kind, found.outline.cluster, found.version) == ("disrupt", "blue", __version__)


def test_records_are_found_by_their_time(recorder: FakeRecorder | BucketRecorder) -> None:
    def at(moment: float, cluster: str = "blue") -> str:
        return recorder.record(msgspec.structs.replace(SNAPSHOT, now=moment, cluster=cluster), PLAN)

    day = 24 * 3600
    first, second, third = at(NOW - day), at(NOW), at(NOW + day)
    at(NOW, "blue-2")
    of_disruption = recorder.record_disruption(DisruptionSnapshot(scheduling=SNAPSHOT), Decision())
    assert recorder.ids("blue", NOW - day, NOW + day) == (first, *sorted((second, of_disruption)), third)
    assert recorder.ids("blue", NOW - day + 1, NOW) == tuple(sorted((second, of_disruption)))
    assert recorder.ids("blue", NOW, int(NOW)) == tuple(sorted((second, of_disruption)))
    assert recorder.ids("blue", NOW - day, NOW - 1) == (first,)
    assert recorder.ids("green", NOW - day, NOW + day) == ()
    assert records.written_at(first) == int(NOW - day)


def test_records_are_found_by_the_end_of_their_ids(s3: S3Client) -> None:
    recorder = BucketRecorder(s3, "bucket")
    name = recorder.record(SNAPSHOT, PLAN)
    recorder.record(msgspec.structs.replace(SNAPSHOT, now=NOW + 1), PLAN)
    assert recorder.named(name.rpartition("/")[2]) == (name,)
    assert recorder.named(name.rpartition("/")[2][:-1]) == ()


def test_looking_for_the_newest_records_reads_the_names_of_no_older_ones(s3: S3Client) -> None:
    recorder = BucketRecorder(s3, "bucket")
    recorder.record(SNAPSHOT, PLAN)
    newest = recorder.record(msgspec.structs.replace(SNAPSHOT, now=NOW + 60), PLAN)
    listed: list[str] = []
    s3.meta.events.register(
        "after-call.s3.ListObjectsV2", lambda parsed, **_: listed.extend(item["Key"] for item in parsed["Contents"])
    )
    assert recorder.ids("blue", NOW + 30, NOW + 90) == (newest,)
    assert listed == [f"records/{newest}"]


def test_a_large_decision_is_replayed_exactly_and_its_chunks_are_stored_once(
    recorder: FakeRecorder | BucketRecorder,
) -> None:
    types = sold_types()
    for at in (NOW, NOW + 60):
        snapshot = large_snapshot(now=at, types=types)
        record_id = recorder.record(snapshot, PLAN)
        assert records.decode(recorder.document(record_id)) == SchedulingRecord(snapshot, PLAN)
        assert len(recorder.stored(record_id)) < len(recorder.document(record_id)) / 3
    assert disruptions.headline(recorder.stored(record_id), record_id).text.startswith("1 pod → 1 node")


def test_a_large_decision_to_disrupt_is_replayed_exactly(recorder: FakeRecorder | BucketRecorder) -> None:
    claims = tuple(node_claim(cluster="blue", name=f"flight-{number}") for number in range(400))
    snapshot = msgspec.structs.replace(large_snapshot(now=NOW, types=sold_types()), claims=claims)
    looked_at, decision = DisruptionSnapshot(scheduling=snapshot), Decision(blocked=(Blocked("node-1", "it is new"),))
    name = recorder.record_disruption(looked_at, decision)
    stored = disruptions.read(recorder.stored(name), name)
    assert (stored.record, stored.chunked) == (None, True)
    assert disruptions.read(recorder.document(name), name).record == DisruptionRecord(looked_at, decision)


def _stored_keys(s3: S3Client) -> list[str]:
    """The key of each version of each object."""
    return sorted(item["Key"] for item in s3.list_object_versions(Bucket="bucket")["Versions"])


def test_functions_that_know_nothing_of_each_other_store_a_chunk_once(s3: S3Client) -> None:
    s3.put_bucket_versioning(Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
    for number, cluster in enumerate(("blue", "green")):
        BucketRecorder(s3, "bucket").record(large_snapshot(cluster=cluster, now=NOW + number, types=sold_types()), PLAN)
    chunks = [key for key in _stored_keys(s3) if key.startswith(CHUNKS_PREFIX)]
    assert len(chunks) == len(set(chunks)) == 2


def test_chunks_are_named_by_the_day_of_their_record(s3: S3Client) -> None:
    """The bucket deletes them a day after the records of that day: none outlives what it names."""
    recorder, types = BucketRecorder(s3, "bucket"), sold_types()
    for at in (NOW, NOW + 24 * 3600):
        snapshot = large_snapshot(now=at, types=types)
        name = recorder.record(snapshot, PLAN)
        day = name.split("/")[1]
        others = [key for key in _stored_keys(s3) if key.startswith(CHUNKS_PREFIX) and f"/{day}/" not in key]
        for key in others:
            s3.delete_object(Bucket="bucket", Key=key)
        assert records.decode(BucketRecorder(s3, "bucket").document(name)).snapshot == snapshot


def test_a_chunk_is_stored_before_the_record_that_names_it_and_not_taken_for_stored_if_that_fails(
    recorder: FakeRecorder | BucketRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = large_snapshot(now=NOW, types=sold_types())
    with monkeypatch.context() as patch:
        patch.setattr(recorder, "_write_chunk", _refuse)
        with pytest.raises(StoreError, match="no room"):
            recorder.record(snapshot, PLAN)
    assert recorder.ids("blue", NOW - 1, NOW + 1) == ()
    name = recorder.record(snapshot, PLAN)
    assert records.decode(recorder.document(name)).snapshot == snapshot


def _refuse(*_: object) -> None:
    raise StoreError("no room")


def test_a_record_whose_chunk_is_gone_is_a_store_error_that_names_it(
    recorder: FakeRecorder | BucketRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_write_chunk", lambda *_: None)
    name = recorder.record(large_snapshot(now=NOW, types=sold_types()), PLAN)
    with pytest.raises(StoreError, match=r"2023-11-14/[0-9a-f]{32} is gone"):
        recorder.document(name)


def test_a_chunk_that_another_function_writes_at_the_moment_is_written_all_the_same(s3: S3Client) -> None:
    """The other one may fail."""

    def conflict(params: dict[str, Any], **_: object) -> None:
        if params["headers"].get("If-None-Match"):
            raise ClientError({"Error": {"Code": "ConditionalRequestConflict", "Message": "busy"}}, "PutObject")

    s3.meta.events.register("before-call.s3.PutObject", conflict)
    recorder = BucketRecorder(s3, "bucket")
    snapshot = large_snapshot(now=NOW, types=sold_types())
    name = recorder.record(snapshot, PLAN)
    assert records.decode(recorder.document(name)).snapshot == snapshot


def test_an_unknown_record_is_a_store_error(recorder: FakeRecorder | BucketRecorder) -> None:
    with pytest.raises(StoreError, match="blue/none"):
        recorder.document("blue/none")


def test_a_record_survives_json_too() -> None:
    document = msgspec.json.encode(SchedulingRecord(SNAPSHOT, PLAN))
    assert msgspec.json.decode(document, type=SchedulingRecord) == SchedulingRecord(SNAPSHOT, PLAN)


def test_what_is_no_record_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="somewhere: not a recorded decision"):
        records.decode(b"not compressed", "somewhere")


def test_the_pointer_names_the_catalogue_and_is_written_last(s3: object) -> None:
    store = BucketCatalog(s3, "bucket", "eu-west-1")
    store.save(CATALOG)
    keys = [item["Key"] for item in s3.list_objects_v2(Bucket="bucket")["Contents"]]
    digest = s3.get_object(Bucket="bucket", Key="catalog/eu-west-1/latest")["Body"].read().decode()
    assert sorted(keys) == sorted([f"catalog/eu-west-1/{digest}", "catalog/eu-west-1/latest"])
    store.save(CATALOG)
    assert s3.list_objects_v2(Bucket="bucket")["KeyCount"] == 2


@pytest.mark.parametrize("body", [b"rubbish", zlib.compress(b"rubbish")], ids=["not compressed", "not a catalogue"])
def test_a_broken_catalogue_is_a_store_error(s3: object, body: bytes) -> None:
    s3.put_object(Bucket="bucket", Key="catalog/eu-west-1/latest", Body=b"digest")
    s3.put_object(Bucket="bucket", Key="catalog/eu-west-1/digest", Body=body)
    with pytest.raises(StoreError, match="catalog/eu-west-1/digest is not a catalogue"):
        BucketCatalog(s3, "bucket", "eu-west-1").load()


def test_a_bucket_that_does_not_exist_is_a_store_error(s3: object) -> None:
    with pytest.raises(StoreError, match="NoSuchBucket"):
        BucketCatalog(s3, "elsewhere", "eu-west-1").load()
    with pytest.raises(StoreError, match="NoSuchBucket"):
        BucketRecorder(s3, "elsewhere").record(SNAPSHOT, PLAN)
    with pytest.raises(StoreError, match=r"could not write s3://elsewhere/chunks/.*NoSuchBucket"):
        BucketRecorder(s3, "elsewhere").record(large_snapshot(now=NOW, types=sold_types()), PLAN)

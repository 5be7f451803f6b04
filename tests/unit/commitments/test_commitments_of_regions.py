"""For which Regions the catalog function describes commitments, and into whose store."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from shiplap.errors import AwsError, StoreError
from shiplap.flows.catalog import entry
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.policies.commitments.account_commitments import AccountCommitments
from shiplap.policies.commitments.commitment_settings import CommitmentSettings, WrittenPlan
from shiplap.policies.policy_settings import chosen
from shiplap.settings import ClusterSettings, Settings
from shiplap_lab.fakes.identities import FakeKeptIdentities, FakeNodeIdentities
from shiplap_lab.fakes.signals import FakeClock, FakeMeter
from shiplap_lab.fakes.stores import FakeCatalog
from shiplap_lab.policies.commitments_fakes import FakeCommitments

SHARED = CommitmentSettings(counted_by="eu-west-1/shiplap", share="80%")
WRITTEN = CommitmentSettings(
    counted_by="eu-west-1/shiplap", written=(WrittenPlan(dollars_per_hour=1.0, discount="28%", end="2028-01-01"),)
)
EU, US = "eu-west-1", "us-east-1"


class _Install:
    """An install whose clusters have a store each, except those `without`; AWS shows the name of the Region."""

    def __init__(self, clusters: tuple[ClusterSettings, ...], without: tuple[str, ...]) -> None:
        self.settings, self.meter, self.status = Settings(clusters), FakeMeter(), self
        self.stores = {item.name: FakeCommitments() for item in clusters if item.name not in without}
        self.asked: list[str] = []
        self.others_alone: list[bool] = []
        self.fetched: list[str] = []
        self.swept: list[str] = []
        self.clock, self.optional = FakeClock(0.0), None
        self.refused: set[str] = set()
        self.inspected: list[list[str]] = []
        self._catalogs: dict[str, FakeCatalog] = {}

    def context(self, cluster: ClusterSettings) -> Any:
        store = self.stores.get(cluster.name)

        def describe(*, others_alone: bool) -> AccountCommitments:
            self.asked.append(cluster.region)
            self.others_alone.append(others_alone)
            return AccountCommitments(cluster.region, 5.0)

        source = SimpleNamespace(describe=describe)
        return SimpleNamespace(policy_port=lambda key, limit_s=None: store if limit_s is None else source)

    def catalog_store(self, region: str) -> FakeCatalog:
        return self._catalogs.setdefault(region, FakeCatalog(Catalog(region=region, types=(), zones={}, prices={})))

    def catalog_source(self, region: str) -> Any:
        self.fetched.append(region)

        def fetch(before: Catalog | None) -> Catalog | None:
            if region in self.refused:
                raise AwsError(f"no catalogue of {region}")
            return before

        return SimpleNamespace(fetch=fetch)

    def node_identities(self, region: str) -> FakeNodeIdentities:
        self.swept.append(region)
        return FakeNodeIdentities()

    def kept_identities(self, _: str) -> FakeKeptIdentities:
        return FakeKeptIdentities()

    def reporting(self, _: str) -> AbstractContextManager[None]:
        return nullcontext()

    def stored(self) -> dict[str, str]:
        known = {name: store.load() for name, store in self.stores.items()}
        return {name: found.region for name, found in known.items() if found is not None}


def install(*clusters: tuple[str, str, CommitmentSettings | None], without: tuple[str, ...] = ()) -> _Install:
    made = tuple(
        ClusterSettings(name=name, region=region, policies=() if wanted is None else chosen(wanted))
        for name, region, wanted in clusters
    )
    return _Install(made, without)


@pytest.fixture(autouse=True)
def _no_inspection(monkeypatch: pytest.MonkeyPatch) -> None:
    def inspect_all(clusters: Any, known: dict[str, Catalog], status: Any, **__: Any) -> None:
        status.inspected.append(sorted(known))
        assert {settings.region for settings, context in clusters if hasattr(context, "policy_port")} >= known.keys()

    monkeypatch.setattr(entry, "inspect_all", inspect_all)
    monkeypatch.setattr(entry, "stored_settings", lambda cluster, _: cluster)


def handle(of: Any, **event: str) -> dict[str, int]:
    context: Any = SimpleNamespace(aws_request_id="1", get_remaining_time_in_millis=lambda: 300_000)
    return entry.handle(event, context, of)


@pytest.mark.parametrize(
    ("clusters", "without", "stored"),
    [
        pytest.param([("a", EU, SHARED)], (), {"a": EU}, id="one"),
        pytest.param([("a", EU, None)], (), {}, id="none counts"),
        pytest.param([("a", EU, WRITTEN)], (), {"a": EU}, id="only what is written counts"),
        pytest.param([("a", EU, None), ("b", EU, None), ("c", EU, SHARED)], (), {"c": EU}, id="the third"),
        pytest.param([("a", EU, SHARED), ("b", EU, SHARED)], (), {"a": EU}, id="once for a Region"),
        pytest.param([("a", EU, SHARED), ("b", EU, SHARED)], ("a",), {"b": EU}, id="the first that has a store"),
        pytest.param([("a", EU, SHARED)], ("a",), {}, id="no store"),
        pytest.param([("a", US, SHARED), ("b", EU, SHARED)], (), {"a": US, "b": EU}, id="each Region"),
        pytest.param([("a", US, None), ("b", EU, SHARED)], (), {"b": EU}, id="the Region that counts"),
    ],
)
def test_commitments_are_described_once_for_each_region_that_counts_on_them(
    clusters: list[tuple[str, str, CommitmentSettings | None]], without: tuple[str, ...], stored: dict[str, str]
) -> None:
    known = install(*clusters, without=without)
    assert handle(known) == {region: 0 for _, region, _ in clusters}
    assert known.stored() == stored
    assert known.asked == sorted(stored.values())
    assert known.fetched == sorted({region for _, region, _ in clusters})


@pytest.mark.parametrize(("wanted", "others_alone"), [(SHARED, False), (WRITTEN, True)])
def test_where_only_what_is_written_counts_aws_is_asked_for_other_instances_alone(
    wanted: CommitmentSettings, others_alone: bool
) -> None:
    known = install(("a", EU, wanted))
    handle(known)
    assert known.others_alone == [others_alone]


def test_an_inspection_alone_asks_for_no_commitments() -> None:
    known = install(("a", EU, SHARED))
    assert handle(known, kind="inspect") == {EU: 0}
    assert known.asked == known.fetched == []


def test_commitments_that_cannot_be_stored_end_the_invocation_once_each_region_was_tried() -> None:
    known = install(("a", EU, SHARED), ("b", US, SHARED))
    known.stores["a"].faults.on("before", "commitments.save", StoreError("not now"))
    with pytest.raises(StoreError, match="not now"):
        handle(known)
    assert known.stored() == {"b": US}
    assert known.fetched == [EU, US]
    assert known.inspected == [[EU, US]]


def test_a_region_whose_catalogue_cannot_be_fetched_keeps_no_other_from_being_refreshed() -> None:
    known = install(("a", EU, SHARED), ("b", US, SHARED))
    known.refused.add(EU)
    with pytest.raises(AwsError, match="no catalogue of eu-west-1"):
        handle(known)
    assert known.stored() == {"a": EU, "b": US}
    assert known.fetched == [EU, US]
    assert known.inspected == [[EU, US]], "with the catalogue that is stored"

"""A catalogue is compiled once, and what one decision charges or asks is not the next one's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import Requirements, requirement
from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.model.pod_volumes import ATTACHED
from shiplap.scheduling.model.resources import Axis
from shiplap.scheduling.model.snapshot import SchedulingSettings, Snapshot
from shiplap.scheduling.supply.instance_arrays import TypeTable
from shiplap.scheduling.supply.limits import HOURLY, SPOT_VCPUS
from shiplap.scheduling.supply.pool_catalogs import catalogues_of
from tests.builders.pools import pool
from tests.conformance.catalogues import fake_type
from tests.conformance.given import snapshot_of

DRIVER = "ebs.csi.aws.com"


@pytest.fixture
def types() -> tuple[InstanceType, ...]:
    """A tuple that no other test has."""
    return fake_type("small", cpu="2"), fake_type("large", cpu="8")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[InstanceType]]:
    """Record the instance types that each TypeTable compiles."""
    found: list[Sequence[InstanceType]] = []
    compile_table = TypeTable.__init__

    def noted(table: TypeTable, instance_types: Sequence[InstanceType], axis: Axis, **asked: object) -> None:
        found.append(instance_types)
        compile_table(table, instance_types, axis, **asked)  # type: ignore[arg-type]

    monkeypatch.setattr(TypeTable, "__init__", noted)
    return found


def table_of(snapshot: Snapshot, *resources: str, only: NodePool | None = None) -> TypeTable:
    return catalogues_of(snapshot, [only or pool()], Axis(resources))["default"].table


def test_the_same_types_are_compiled_once(
    types: tuple[InstanceType, ...], compiled: list[Sequence[InstanceType]]
) -> None:
    snapshot = snapshot_of([], types=types)
    first, second = table_of(snapshot), table_of(replace(snapshot, now=snapshot.now + 60))
    assert len(compiled) == 1
    assert first is not second
    assert first.names == second.names == ("large", "small")


def test_types_that_are_only_equal_or_asked_of_otherwise_are_compiled_again(
    types: tuple[InstanceType, ...], compiled: list[Sequence[InstanceType]]
) -> None:
    snapshot = snapshot_of([], types=types)
    table_of(snapshot)
    table_of(snapshot_of([], types=(types[0], types[1])))
    table_of(snapshot, "example.com/fuse")
    table_of(replace(snapshot, settings=SchedulingSettings(explore=not snapshot.settings.explore)))
    table_of(replace(snapshot, piloted=frozenset({"ami-1/small#"})))
    assert len(compiled) == 5


def test_what_a_decision_charges_is_its_own(types: tuple[InstanceType, ...]) -> None:
    snapshot = snapshot_of([], types=types)
    resources = HOURLY, SPOT_VCPUS, ATTACHED + DRIVER
    table = table_of(snapshot, *resources)
    capacity, allocatable = table.capacity.copy(), table.allocatable.copy()
    table.charge_prices(Requirements())
    table.charge_spot()
    table.bound_attachments({"small": {DRIVER: 3}})
    charged = [table.axis.names.index(name) for name in resources]
    assert (table.capacity[:, charged[:2]] != capacity[:, charged[:2]]).all()
    assert (table.allocatable[:, charged[2]] != allocatable[:, charged[2]]).all()
    again = table_of(snapshot, *resources)
    assert np.array_equal(again.capacity, capacity)
    assert np.array_equal(again.allocatable, allocatable)


def test_what_a_decision_asks_is_forgotten_with_it(types: tuple[InstanceType, ...]) -> None:
    """With a thousand types each answer takes nine kilobytes, and a decision may ask thousands of questions."""
    snapshot, wanted = snapshot_of([], types=types), Requirements([requirement(labels.ARCH, "In", ("amd64",))])
    first, second = table_of(snapshot), table_of(snapshot)
    kept = first.offered(wanted)
    assert first.offered(wanted) is kept
    assert second.offered(wanted) is not kept
    assert table_of(snapshot).offered(wanted) is not kept
    assert np.array_equal(second.offered(wanted).price, kept.price)

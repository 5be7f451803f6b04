"""Snapshots of an account with Savings Plans."""

from __future__ import annotations

from typing import Any

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import SavingsPlan
from shiplap.policies.commitments.commitment_input import CommitmentInput
from shiplap.policies.commitments.commitment_ledger import CommitmentRoom
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, SchedulingSettings, Snapshot
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.conformance.given import NOW

BOTH = (("on-demand", Z1), ("on-demand", Z2), ("spot", Z1), ("spot", Z2))


def typed(name: str, price: float, cpu: str = "4", **fields: Any) -> InstanceType:
    """A type at an on-demand price."""
    return fake_type(name, price=price, cpu=cpu, memory="16Gi", **{"offerings": BOTH, **fields})


TYPES = (typed("m.large", 1.0), typed("m.xlarge", 2.0, "8"), typed("c.large", 0.9), typed("c.xlarge", 1.8, "8"))


def savings(dollars: float, family: str = "", discount: float = 0.3) -> CommitmentRoom:
    ppm = round((1 - discount) * MICROS)
    return CommitmentRoom(savings_plans=(SavingsPlan("sp", round(dollars * MICROS), NOW * 2, family, rate_ppm=ppm),))


def snapshot_of(
    *waiting: Any, room: CommitmentRoom | None, pools: tuple[NodePool, ...] = (), types: Any = TYPES, **fields: Any
) -> Snapshot:
    return Snapshot(
        cluster="blue",
        now=NOW,
        view=ClusterView(pods=tuple(waiting)),
        manifests=Manifests(node_pools=pools or (pool(limits={}),)),
        catalogs=(NodeClassCatalog("default", tuple(types)),),
        settings=SchedulingSettings(),
        policies=() if room is None else (CommitmentInput(room),),
        **fields,
    )

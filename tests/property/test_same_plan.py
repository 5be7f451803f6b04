"""Same snapshot, same plan, byte for byte: whatever the order of lists, sets and dicts, and the hash seed.

The golden digests are of a fixed snapshot. A change that means to plan it differently renews them:
`python -m tests.property.test_same_plan` prints the new ones.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiplap.records.scheduling_record import SchedulingRecord, decode, encode
from shiplap.scheduling.model.pod_classes import group
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from shiplap_cli.money import Money
from shiplap_cli.render.decision_documents import plan_document as document
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.property.drawn_topologies import clusters
from tests.property.drawn_worlds import worlds
from tests.thoroughness import draws, sampled

ZONE, TYPE = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"
GOLDEN_SNAPSHOT = "dc0e41a6b5b1b83b"
GOLDEN_PLAN = "4520d6aa7bb9c044"
SETTINGS = settings(
    derandomize=True,
    deadline=None,
    max_examples=draws(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
_UNORDERED = frozenset(
    (
        "pods",
        "nodes",
        "daemon_sets",
        "persistent_volume_claims",
        "persistent_volumes",
        "storage_classes",
        "csi_nodes",
        "csi_drivers",
        "claims",
        "node_pools",
        "node_classes",
        "catalogs",
        "instance_types",
        "missed_pods",
        "piloted",
        "matchExpressions",
    )
)
"""Lists whose order says nothing; that of node-affinity terms, for example, does."""


def stirred(value: Any, shuffle: random.Random, field: str = "") -> Any:
    """The same data with the entries of every dict in another order, and of lists whose order means nothing."""
    if isinstance(value, dict):
        keys = shuffle.sample(list(value), len(value))
        return {key: stirred(value[key], shuffle, key) for key in keys}
    if isinstance(value, list):
        entries = [stirred(entry, shuffle, field) for entry in value]
        return shuffle.sample(entries, len(entries)) if field in _UNORDERED else entries
    return value


def written(snapshot: Snapshot) -> bytes:
    """A plan in its fixed format, and everything else in it too."""
    return msgspec.json.encode(plan(snapshot))


def other_order(snapshot: Snapshot, seed: int) -> Snapshot:
    shuffle = random.Random(seed)  # noqa: S311 - a shuffle for a test
    return msgspec.convert(stirred(msgspec.to_builtins(snapshot), shuffle), Snapshot)


@SETTINGS
@given(worlds(), st.integers(0, 1000))
def test_no_order_matters(snapshot: Snapshot, seed: int) -> None:
    assert written(other_order(snapshot, seed)) == written(snapshot)


@SETTINGS
@given(clusters(), st.integers(0, 1000))
def test_no_order_matters_to_topology(snapshot: Snapshot, seed: int) -> None:
    assert written(other_order(snapshot, seed)) == written(snapshot)


def test_topology_terms_have_the_same_numbers_in_any_order() -> None:
    """The numbers of topology terms break ties between nodes where many rules bind nodes."""
    spread = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchLabels": {"app": "web"}}
    web = {"labels": {"app": "web"}}
    pods = [
        pod(f"{name}-{namespace}", cpu=cpu, metadata={**web, "namespace": namespace}, spec=spec)
        for namespace in ("a", "b", "c")
        for name, cpu, spec in (("plain", "1", {}), ("spread", "2", {"topologySpreadConstraints": [spread]}))
    ]
    known = [(item.constraints, item.selected) for item in group(pods, missed={pods[3].metadata.uid})]
    for seed in range(10):
        shuffled = random.Random(seed).sample(pods, len(pods))  # noqa: S311 - a shuffle for a test
        grouped = group(shuffled, missed={pods[3].metadata.uid})
        assert [(item.constraints, item.selected) for item in grouped] == known


@SETTINGS
@given(worlds())
def test_a_record_is_the_same_whatever_the_order_of_its_sets_and_dicts(snapshot: Snapshot) -> None:
    decided = plan(snapshot)
    recorded = encode(SchedulingRecord(snapshot, decided))
    assert decode(recorded) == SchedulingRecord(snapshot, decided)
    assert encode(decode(recorded)) == recorded
    assert written(decode(recorded).snapshot) == msgspec.json.encode(decided)


def fixed_snapshot() -> Snapshot:
    """A snapshot that no chance had a part in, with a little of everything."""
    web = {"labels": {"app": "web"}}
    spread = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    spread |= {"labelSelector": {"matchLabels": {"app": "web"}}}
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    types = [fake_type(f"t{cpu}", cpu=str(cpu), memory=f"{2 * cpu}Gi", pods="20") for cpu in (2, 4, 8)]
    return case.given(
        *pods(3, "web", cpu="1500m", metadata=web, spec={"topologySpreadConstraints": [spread]}),
        pod("tolerant", cpu="3", tolerations=[{"operator": "Exists"}], selector={"team": "red"}),
        pod("volume", cpu="1", spec=case.claim_volumes("data")),
        pod("either", cpu="500m", requires=[[rule(ZONE, "In", Z3)], [rule("team", "Exists")]]),
        pod("bound", cpu="1", node="here"),
        pod("joins", cpu="300m", selector={"kubernetes.io/os": "linux", ZONE: Z1}),
        pod("huge", cpu="50"),
        pod("lost", selector={ZONE: "nowhere", "team": "blue"}),
        pools=[
            pool("red", labels={"team": "red"}, taints=[taint], weight=3),
            pool("plain", rule(TYPE, "Exists", min_values=2), limits={"cpu": "100", "nodes": "20"}),
        ],
        types=types,
        nodes=[node("here", labels={ZONE: Z1, "kubernetes.io/os": "linux"}, cpu="2")],
        storage=[case.pvc("data", volume="v"), case.pv("v", [rule(ZONE, "In", Z2)])],
        daemon_sets=[case.daemon_set("agent", cpu="100m", tolerations=[{"operator": "Exists"}])],
    ).snapshot


def digests() -> tuple[str, str]:
    """Of the fixed snapshot as records write its pods and types, and of its plan as `shiplap plan -o json` prints it.

    Manifests are left out of the first: they are written with all their fields, so each new one would change it.
    """
    snapshot = fixed_snapshot()
    recorded = msgspec.msgpack.encode((snapshot.view, snapshot.catalogs), order="deterministic")
    made = document(plan(snapshot), 0.0, Money(snapshot))
    decided = msgspec.json.encode(msgspec.to_builtins(made), order="deterministic")
    return hashlib.sha256(recorded).hexdigest()[:16], hashlib.sha256(decided).hexdigest()[:16]


def test_the_fixed_snapshot_is_recorded_and_planned_as_ever() -> None:
    assert digests() == (GOLDEN_SNAPSHOT, GOLDEN_PLAN)


@pytest.mark.parametrize("seed", sampled(["0", "1", "4242"], 2))
def test_the_hash_seed_does_not_matter(seed: str) -> None:
    """Sets of strings come in another order in every process; neither records nor plans show it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.property.test_same_plan"],
        env={**os.environ, "PYTHONHASHSEED": seed},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == list(digests())


if __name__ == "__main__":
    sys.stdout.write(" ".join(digests()) + "\n")

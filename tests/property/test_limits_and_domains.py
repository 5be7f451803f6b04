"""Laws of limits and domains: a limit decides whether a pod gets a node, never where its siblings go.

Every case is planned without limits, with limits that have just enough room, and with limits that may be too tight.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.nodes import node
from tests.builders.pods import pods
from tests.builders.pools import pool, rule
from tests.checker import violations
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.strategies import sampled_from
from tests.thoroughness import draws

ZONE, KIND, RACK = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type", "example.com/rack"
SETTINGS = settings(
    derandomize=True,
    deadline=None,
    max_examples=draws(120),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
GPU = "nvidia.com/gpu"
EVERYWHERE = [(kind, zone) for kind in ("spot", "on-demand") for zone in (Z1, Z2, Z3)]
TYPES = [
    *(
        fake_type(f"size-{cpu}", cpu=str(cpu), memory=f"{4 * cpu}Gi", pods=str(5 * cpu), offerings=EVERYWHERE)
        for cpu in (2, 4, 8, 16)
    ),
    fake_type("gpu-4", cpu="4", memory="16Gi", pods="20", extra={GPU: "1"}, offerings=EVERYWHERE),
]
DOMAINS = {ZONE: (Z1, Z2, Z3), KIND: ("spot", "on-demand"), RACK: ("r1", "r2")}


@st.composite
def spreads(draw: st.DrawFn) -> tuple[Snapshot, str, int]:
    """A cluster whose waiting pods are one app's, the label over which they are spread, and the skew."""
    key, skew = draw(sampled_from([ZONE, ZONE, KIND, RACK])), draw(st.integers(1, 2))
    constraint: dict[str, Any] = {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    if draw(st.booleans()):
        constraint["minDomains"] = draw(st.integers(1, len(DOMAINS[key])))
    fields: dict[str, Any] = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"topologySpreadConstraints": [constraint]},
        "requests": {GPU: "1"} if draw(st.integers(0, 5)) == 0 else {},
        # A preference leaves the pods to the packer, one step at a time.
        "prefers": draw(sampled_from([[], [], [[rule(RACK, "In", "r2")]]])),
    }
    waiting = pods(draw(st.integers(2, 12)), "web", cpu=draw(sampled_from(["300m", "1", "3"])), **fields)
    waiting += pods(draw(st.integers(0, 4)), "free", cpu="700m")
    nodes, bound = [], []
    for place in range(draw(st.integers(0, 2))):
        labels = {name: draw(sampled_from(values)) for name, values in DOMAINS.items()}
        nodes.append(node(f"n{place}", cpu="2", labels=labels))
        bound += pods(draw(st.integers(0, 2)), f"old{place}", node=f"n{place}", metadata={"labels": {"app": "web"}})
    pools = [
        pool(
            f"pool-{place}",
            rule(RACK, "In", "r1", "r2"),
            weight=draw(sampled_from([0, 0, 5])),
            limits={},
        )
        for place in range(draw(st.integers(1, 2)))
    ]
    return case.snapshot_of((*waiting, *bound), nodes, pools=pools, types=TYPES), key, skew


def limited(snapshot: Snapshot, limits: dict[str, dict[str, str]]) -> Snapshot:
    def with_limits(pool: NodePool) -> NodePool:
        spec = msgspec.structs.replace(pool.spec, limits=limits.get(pool.metadata.name, {}))
        return msgspec.structs.replace(pool, spec=spec)

    manifests = snapshot.manifests
    pools = tuple(map(with_limits, manifests.node_pools))
    return msgspec.structs.replace(snapshot, manifests=msgspec.structs.replace(manifests, node_pools=pools))


def listed(snapshot: Snapshot, made: Plan) -> dict[str, dict[str, str]]:
    """Per pool what its claims may become at most, and their number."""
    types = {item.name: item for item in snapshot.catalogs[0].instance_types}
    most: dict[str, Counter[str]] = {}
    for claim in made.node_claims:
        total = most.setdefault(claim.node_pool, Counter())
        total["nodes"] += 1
        for resource in ("cpu", "memory", GPU):
            total[resource] += max(types[name].capacity.get(resource, 0) for name in claim.instance_types)
    return {
        pool: {name: f"{number}m" if name == "cpu" else str(number) for name, number in total.items()}
        for pool, total in most.items()
    }


def counts(snapshot: Snapshot, made: Plan, key: str) -> tuple[Counter[str], set[str]]:
    """The app's pods in each domain once the plan is carried out, and the domains that got a pod of the plan."""
    homes = {node.metadata.name: node.metadata.labels[key] for node in snapshot.view.nodes}
    found: Counter[str] = Counter()
    filled: set[str] = set()
    for pod in snapshot.view.pods:
        if pod.spec.node_name:
            found[homes[pod.spec.node_name]] += 1
    placed = [(homes[place.name], place.pods) for place in made.existing_nodes]
    placed += [(claim.labels.get(key, ""), claim.pods) for claim in made.node_claims]
    for domain, held in placed:
        number = sum(pod.name.startswith("web") for pod in held)
        if number:
            found[domain] += number
            filled.add(domain)
    return found, filled


@SETTINGS
@given(spreads())
def test_a_limit_with_room_to_spare_changes_nothing(drawn: tuple[Snapshot, str, int]) -> None:
    snapshot, _, _ = drawn
    free = plan(snapshot)
    assert msgspec.json.encode(plan(limited(snapshot, listed(snapshot, free)))) == msgspec.json.encode(free)


@SETTINGS
@given(
    spreads(),
    st.dictionaries(
        sampled_from(["pool-0", "pool-1"]),
        st.dictionaries(sampled_from(["cpu", "memory", "nodes", GPU]), st.integers(1, 40), min_size=1, max_size=2),
        min_size=1,
    ),
)
def test_a_tighter_limit_merges_no_domains(drawn: tuple[Snapshot, str, int], limits: dict[str, dict[str, int]]) -> None:
    snapshot, key, skew = drawn
    written = {
        pool: {
            name: f"{4 * n}Gi" if name == "memory" else str(n if name == "cpu" else max(n // 8, 1))
            for name, n in some.items()
        }
        for pool, some in limits.items()
    }
    tight = limited(snapshot, written)
    made = plan(tight)
    assert violations(tight, made) == []
    found, filled = counts(tight, made, key)
    lowest = min(found[domain] for domain in DOMAINS[key])
    assert all(found[domain] - lowest <= skew for domain in filled), (found, filled)

"""The costs of a month at the end of `shiplap plan`: figures that agree with the table above, and one paragraph."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.drawing.markup import monthly
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes.objects import Node, Pod
from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.model.snapshot import SchedulingSettings, Snapshot
from shiplap.scheduling.planner import plan as decide
from shiplap_cli.commands.plan import monthly_costs as module
from shiplap_cli.commands.plan.monthly_costs import MonthlyCosts, consolidation_of, monthly_costs
from shiplap_cli.inputs.cluster_files import ClusterState
from shiplap_cli.inputs.disruption_inputs import disruption_snapshot
from shiplap_cli.inputs.loaded_inputs import LoadedInputs
from shiplap_cli.money import Money
from shiplap_cli.render.totals import totals_of
from tests.builders.nodes import node, node_object
from tests.builders.pods import pod, pod_on
from tests.builders.pools import pool, rule
from tests.commands import Shiplap, listed
from tests.conformance import given as case
from tests.conformance.catalogues import fake_type
from tests.strategies import sampled_from
from tests.unit.cli.planned_files import CATALOG, POOL
from tests.unit.cli.planned_files import pod as waiting_pod

ON_DEMAND, SPOT, ZONE = "on-demand", "spot", "z1"
PRICES = {"small": 0.1, "large": 0.4}
CPUS = {"small": "2", "large": "8"}


def kind(name: str, *, estimated: bool = False) -> InstanceType:
    made = fake_type(name, offerings=((ON_DEMAND, ZONE), (SPOT, ZONE)), cpu=CPUS[name], memory="16Gi", pods="20")
    offerings = (
        Offering(ZONE, ON_DEMAND, PRICES[name], price_estimated=estimated),
        Offering(ZONE, SPOT, PRICES[name] / 2, price_estimated=True),
    )
    return replace(made, offerings=offerings)


SMALL, LARGE = kind("small"), kind("large")


def made(name: str, instance_type: str = "large", in_pool: str = "default", capacity_type: str = ON_DEMAND) -> Node:
    where = {"zone": ZONE, "capacity_type": capacity_type, "pool": in_pool}
    return node(name, CPUS.get(instance_type, "4"), "16Gi", "20", instance_type=instance_type, **where)


def bought(name: str = "default", **fields: Any) -> NodePool:
    """A NodePool that buys on demand alone."""
    return pool(name, rule("karpenter.sh/capacity-type", "In", ON_DEMAND), **fields)


def costs(snapshot: Snapshot) -> MonthlyCosts:
    inputs, money, decided = LoadedInputs(snapshot, ClusterState(snapshot.view)), Money(snapshot), decide(snapshot)
    consolidation = consolidation_of(disruption_snapshot(inputs))
    return monthly_costs(snapshot, decided, totals_of(snapshot, decided, money), money, consolidation)


def sold(*nodes: Node, pods: tuple[Pod, ...] = (), pools: tuple[NodePool, ...] = (), **fields: Any) -> Snapshot:
    types = fields.pop("types", (SMALL, LARGE))
    return case.snapshot_of(pods, nodes, pools=pools or (bought(),), types=types, **fields)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    nodes, pods = [], []
    for number in range(draw(st.integers(0, 5))):
        name = f"n{number}"
        instance_type, paid_as = draw(sampled_from(["small", "large", "huge"])), draw(sampled_from([ON_DEMAND, SPOT]))
        nodes.append(made(name, instance_type, draw(sampled_from(["", "default", "other"])), paid_as))
        pods += [pod_on(f"{name}-{place}", name, "300m") for place in range(draw(st.integers(0, 3)))]
    pods += [pod(f"waits-{place}", "1500m") for place in range(draw(st.integers(0, 4)))]
    types = kind("small", estimated=draw(st.booleans())), LARGE
    slow = [{"nodes": draw(sampled_from(["0", "1", "10%"]))}]
    pools = (bought(budgets=slow), bought("other"))
    return sold(*nodes, pods=tuple(pods), pools=pools, types=types, settings=SchedulingSettings(improve_s=0.0))


@given(clusters())
def test_figures_agree_with_the_totals_and_with_each_node(snapshot: Snapshot) -> None:
    decided, money, found = decide(snapshot), Money(snapshot), costs(snapshot)
    totals = totals_of(snapshot, decided, money)
    for cost, total in ((found.now, totals.now), (found.planned, totals.then)):
        assert cost.monthly == pytest.approx(730 * total.hourly, abs=0.005)
        assert (cost.nodes, cost.estimated) == (total.nodes, total.estimated)
    assert found.planned.monthly - found.now.monthly == pytest.approx(730 * decided.hourly, abs=0.02)
    assert sum(item.nodes for item in found.unpriced) == totals.unpriced
    assert {item.billed_as for item in found.unpriced} <= {"huge"}
    assert found.priced == totals.then.nodes - totals.unpriced
    assert (found.estimated > 0) is (found.now.estimated or found.planned.estimated)
    assert found.consolidated is not None
    gone = found.consolidated.empty + found.consolidated.underused
    assert found.consolidated.cost.nodes == found.planned.nodes - gone + found.consolidated.replacements
    assert found.consolidated.cost.monthly <= found.planned.monthly
    assert gone or found.consolidated.cost == found.planned
    assert not gone or found.unpriced or found.consolidated.cost.monthly < found.planned.monthly
    assert monthly(totals.now.hourly, estimated=totals.now.estimated) in found.text


def test_each_pool_is_consolidated_whatever_its_pace() -> None:
    nodes = [made(f"{name}-{number}", in_pool=name) for name in ("a", "b", "frozen", "") for number in range(3)]
    pools = (
        bought("a", budgets=[{"nodes": "1"}]),
        bought("b", budgets=[{"nodes": "0", "schedule": "@daily", "duration": "24h"}]),
        bought("frozen", budgets=[{"nodes": "0"}]),
    )
    pods = tuple(pod_on(f"p-{each}", f"b-{each}", "100m") for each in range(3))
    found = costs(sold(*nodes, pods=pods, pools=pools))
    assert found.consolidated is not None
    assert (found.now.nodes, found.now.monthly) == (12, 3504.0)
    assert found.consolidated.empty == 3
    assert found.consolidated.underused == 3
    assert found.consolidated.cost.monthly < 3504 - 1500
    assert "3 nodes of no NodePool" in found.text
    assert "budget" in found.text


def test_a_budget_of_no_nodes_for_one_reason_forbids_that_reason_alone() -> None:
    kept = bought(budgets=[{"nodes": "0%", "reasons": ["Underutilized"]}])
    found = costs(sold(made("empty"), made("used"), pods=(pod_on("p", "used"),), pools=(kept,)))
    assert found.consolidated is not None
    assert (found.consolidated.empty, found.consolidated.underused) == (1, 0)


def test_room_that_pods_which_wait_will_use_is_not_saved() -> None:
    found = costs(sold(made("empty"), pods=(pod("waits", "7"),)))
    assert found.consolidated is not None
    assert (found.launched, found.placed, found.consolidated.empty) == (0, 1, 0)
    assert found.consolidated.cost == found.planned == found.now
    assert "Consolidation finds nothing to save." in found.text


def test_the_paragraph_says_dollars_reasons_and_how_sure_it_is() -> None:
    nodes = [made("a"), made("b"), made("c", "huge"), made("d", capacity_type=SPOT, in_pool="")]
    full = pod_on("q", "c", "4"), pod_on("r", "d", "8")
    found = costs(sold(*nodes, pods=(*full, pod_on("p", "a"), pod("waits", "7500m"), pod("giant", "99"))))
    assert found.text == (
        "The cluster costs ~$730 a month now, for 4 nodes. "
        "With these manifests it costs ~$730 (the same): 0 nodes launched, 1 pod placed, 1 pod left out. "
        "With consolidation it costs ~$510 (-30%): 1 underused node would go, with 1 cheaper node for it. "
        "A month has 730 hours, and all of them have the pods of now. "
        "Disruption budgets make consolidation slower, not smaller; only a lasting budget of 0 nodes forbids it. "
        "Consolidation leaves 1 node of no NodePool alone. "
        "Prices are estimated (~) for 1 of 3 nodes, not for the others. "
        "Not counted, for their price is not known: 1 node (1 huge)."
    )


@pytest.mark.parametrize(
    ("types", "said"),
    [((SMALL,), "No price is estimated."), ((kind("small", estimated=True),), "All prices are estimated (~).")],
)
def test_a_cluster_without_nodes(types: tuple[InstanceType, ...], said: str) -> None:
    empty = costs(sold(types=types))
    assert (empty.now.monthly, empty.planned.monthly, empty.priced) == (0, 0, 0)
    assert "costs $0.00 a month now, for 0 nodes" in empty.text
    assert "estimated" not in empty.text
    first = costs(sold(pods=(pod("waits", "1"),), types=types))
    assert first.now.monthly == 0
    assert first.planned.monthly == 73.0
    assert re.search(r"it costs ~?\$73(\.00)? \(~?\$73(\.00)? more\): 1 node launched, 1 pod placed", first.text)
    assert first.text.endswith(said)


def test_a_large_cluster_says_that_consolidation_was_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NODES", 1)
    snapshot = sold(made("a"), made("b"))
    decided, money = decide(snapshot), Money(snapshot)
    found = monthly_costs(snapshot, decided, totals_of(snapshot, decided, money), money)
    assert found.consolidated is None
    assert "Consolidation was not tried" in found.text


@pytest.fixture
def files(tmp_path: Path) -> list[str | Path]:
    marks = {"karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "on-demand"}
    here = node_object("here", "7900m", "8Gi", "10", instance_type="large", zone="z1", labels=marks)
    (tmp_path / "pool.json").write_text(json.dumps(POOL))
    (tmp_path / "catalog.json").write_text(json.dumps(CATALOG))
    (tmp_path / "state.json").write_text(listed(here, waiting_pod("a", "7", node_name=""), waiting_pod("b", "1900m")))
    given_files: list[str | Path] = ["-f", tmp_path / "state.json", "--manifests", tmp_path / "pool.json"]
    return [*given_files, "--catalog", tmp_path / "catalog.json", "--now", "2026-01-31T12:00:00Z"]


def test_the_table_and_the_page_end_and_begin_with_the_paragraph(
    files: list[str | Path], tmp_path: Path, shiplap: Shiplap
) -> None:
    page = tmp_path / "page.html"
    answer = shiplap.json("plan", *files)["monthlyCosts"]
    text = shiplap.page("plan", *files, "--html", page)
    assert answer["now"] == {"nodes": 1, "monthly": 292.0, "estimated": False}
    assert answer["planned"]["monthly"] == pytest.approx(365.0)
    said = "The cluster costs $292 a month now, for 1 node. With these manifests it costs $365 (+25%)"
    assert said in text
    assert said in page.read_text()
    assert text.index(said) > text.index("Cluster:")


def test_from_scratch_there_is_nothing_to_consolidate(files: list[str | Path], shiplap: Shiplap) -> None:
    answer = shiplap.json("plan", *files, "--from-scratch")["monthlyCosts"]
    assert answer["consolidated"] is None
    text = shiplap.page("plan", *files, "--from-scratch")
    assert "1 node of NodePools gone" in text
    assert "onsolidation" not in text


@pytest.mark.parametrize(
    ("hourly", "exact", "estimate"),
    [
        (0.096, "$70.08", "~$70"),
        (1.6912, "$1,235", "~$1,200"),
        (0.006, "$4.38", "~$4.4"),
        (0.0, "$0.00", "~$0"),
        (1e-8, "$0.00", "~$0"),
        (136.6, "$99,718", "~$100,000"),
    ],
)
def test_dollars_of_a_month(hourly: float, exact: str, estimate: str) -> None:
    assert monthly(hourly) == exact
    assert monthly(hourly, estimated=True) == estimate

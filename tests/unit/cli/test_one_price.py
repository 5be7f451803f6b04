"""The cost of a cluster is the same on every table, page and picture, and each of them marks an estimate."""

from __future__ import annotations

import re
import time
from functools import partial
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.drawing.capture import picture_of_claims, picture_of_cluster
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.instances.offerings.node_prices import NodePrices, Price, offerings_by_type
from shiplap.instances.offerings.offerings import catalog_prices
from shiplap.kubernetes.objects import Node
from shiplap.manifests.nodeclaim import ClaimState
from shiplap_cli.commands.top.followed_cluster import FollowedCluster
from shiplap_cli.commands.top.top import region_prices
from shiplap_cli.inputs.cluster_events import ObjectsListed
from shiplap_cli.inputs.cluster_files import read_cluster_state
from shiplap_lab.catalogue import embedded
from tests.builders.claims import node_claim, with_fields
from tests.builders.nodes import node_object
from tests.commands import Shiplap, listed
from tests.unit.cli.files_of_regions import MANIFESTS, POD

REGION = "eu-west-1"
MANAGED = "eks.amazonaws.com/capacityType"
KARPENTER = {"karpenter.sh/nodepool": "default", "karpenter.sh/initialized": "true"}
OFFERED = {
    "m5.large": (
        Offering("z1", "on-demand", 0.1),
        Offering("z2", "on-demand", 0.1),
        Offering("z1", "spot", 0.03, price_estimated=True),
        Offering("z2", "spot", 0.04),
        Offering("z1", "reserved", 1e-8, reservation_id="cr-1"),
    ),
    "g6.xlarge": (Offering("z1", "on-demand", 0.8),),
}


node = partial(node_object, memory="7Gi", pods="", instance_type="m5.large", zone=f"{REGION}a", region=REGION)
CLUSTER = (
    node("managed", labels={MANAGED: "ON_DEMAND"}),
    node("managed-spot", instance_type="m5.xlarge", labels={MANAGED: "SPOT"}),
    node("managed-block", instance_type="p4d.24xlarge", labels={MANAGED: "CAPACITY_BLOCK"}),
    node("karpenter", instance_type="c5.large", labels={**KARPENTER, "karpenter.sh/capacity-type": "spot"}),
    node("karpenter-2", instance_type="c5.xlarge", labels={**KARPENTER, "karpenter.sh/capacity-type": "on-demand"}),
    node("self-managed", instance_type="r5.large"),
    node("old-label", instance_type="", labels={"beta.kubernetes.io/instance-type": "m5.2xlarge"}),
    node("in-a-zone-without-subnets", zone=f"{REGION}z", labels={MANAGED: "ON_DEMAND"}),
    node("fargate-ip-10-0-0-1", instance_type="", labels={"eks.amazonaws.com/compute-type": "fargate"}),
    node("hybrid", labels={"eks.amazonaws.com/compute-type": "hybrid"}),
    node("of-an-unknown-type", instance_type="zz9.huge"),
)
UNPRICED = {"fargate-ip-10-0-0-1", "hybrid", "of-an-unknown-type"}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    file = tmp_path / "state.json"
    file.write_text(listed(POD, *CLUSTER, *MANIFESTS))
    return file


def now(shiplap: Shiplap, state: Path) -> tuple[float, float]:
    """Return the cost of the cluster now and then, as `plan -o json` shows it."""
    totals = shiplap.json("plan", "-f", state, code=None)["totals"]
    assert totals["now"]["nodes"] == len(CLUSTER)
    assert totals["now"]["estimated"] is True
    assert totals["unpriced"] == len(UNPRICED)
    return totals["now"]["hourly"], totals["then"]["hourly"]


def fact(page: str, name: str) -> list[str]:
    """The dollars of one of the numbers above a map."""
    (found,) = re.findall(rf"<dt>{name}(?:, estimated)?</dt><dd>(.*?)</dd>", page)
    return re.findall(r"~?\$[\d.,]+", found)


def test_every_output_says_the_same_and_marks_it(state: Path, tmp_path: Path, shiplap: Shiplap) -> None:
    hourly, then = now(shiplap, state)
    page, pools = tmp_path / "page.html", tmp_path / "pools.json"
    pools.write_text(listed(*MANIFESTS))

    table = shiplap.page("plan", "-f", state, "--html", page, code=None)
    assert f"{len(CLUSTER)} nodes at ~${hourly:.4f}/h now" in table
    assert f"at ~${then:.4f}/h then" in table
    assert fact(page.read_text(), "per hour") == [f"~${then:.4f}", f"~${hourly:.4f}"]

    diff = shiplap.json("plan", "-f", state, "--diff", pools, pools, "--html", page, code=None)
    for side in ("old", "new"):
        assert diff[side]["totals"]["now"] == {"nodes": len(CLUSTER), "hourly": hourly, "estimated": True}
        assert diff[side]["totals"]["then"]["hourly"] == then
    assert fact(page.read_text(), "per hour") == [f"~${then:.4f}"]
    assert page.read_text().count(f"<td class=num>~${then:.4f}</td>") == 2
    assert f"~{then:.4f}" in shiplap("plan", "-f", state, "--diff", pools, pools, code=None)

    shiplap("disrupt", "-f", state, "--html", page, code=None)
    assert f"~${hourly:.4f}" in " ".join(fact(page.read_text(), "per hour"))

    dry_run = shiplap.json("migrate", "convert", pools, "--cluster-state", state, code=None)["dryRun"]
    assert dry_run["presentHourly"] == pytest.approx(hourly, abs=1e-6)
    assert (dry_run["presentEstimated"], dry_run["estimated"]) == (True, True)
    assert dry_run["unpricedNodes"] == len(UNPRICED)
    assert f"~{hourly:.4f} USD/h" in shiplap("migrate", "convert", pools, "--cluster-state", state, code=None)


def test_nodes_one_by_one_come_to_the_same(state: Path, shiplap: Shiplap) -> None:
    hourly, _ = now(shiplap, state)
    accounts = [shiplap.json("explain", "node", name, "-f", state, code=None) for name in NAMES]
    assert sum(account["hourly"] for account in accounts) == pytest.approx(hourly)
    assert {account["node"] for account in accounts if not account["hourly"]} == UNPRICED
    assert all(account["estimated"] for account in accounts if account["hourly"])
    pool = shiplap.json("explain", "pool", "default", "-f", state, code=None)
    ours = [account["hourly"] for account in accounts if account["nodePool"] == "default"]
    assert (pool["hourly"], pool["estimated"]) == (pytest.approx(sum(ours)), True)
    assert "~$" in shiplap("explain", "node", "managed", "-f", state, code=None)
    assert "its price is not known" in shiplap("explain", "node", "hybrid", "-f", state, code=None)


NAMES = [each["metadata"]["name"] for each in CLUSTER]


def test_the_live_view_says_the_same(state: Path, shiplap: Shiplap) -> None:
    hourly, _ = now(shiplap, state)
    following = FollowedCluster("prod", region_prices)
    following.apply(ObjectsListed("nodes", tuple(read_cluster_state([state]).view.nodes)))
    following.apply(ObjectsListed("pods", ()))
    picture = following.picture(time.time())
    assert picture.hourly == pytest.approx(hourly)
    assert picture.estimated
    assert picture.unpriced == len(UNPRICED)


def test_a_launch_is_marked_where_its_price_is_estimated(state: Path, shiplap: Shiplap) -> None:
    answer = shiplap.json("plan", "-f", state, code=None)
    (claim,) = answer["nodeClaims"]
    assert claim["launch"]["priceEstimated"] is True
    assert answer["cost"]["estimated"] is True
    price = f"~${claim['launch']['price']:.4f}"
    assert f"{price}/h" in shiplap("plan", "-f", state, "--details", code=None)
    table = shiplap("plan", "-f", state, code=None)
    assert f"  {price}  " in table
    assert f"{price} per hour" in table
    unmarked = re.findall(r"(?<!~)\$\d[\d.]*", table)
    assert unmarked == []
    for what, name in (("pod", "web/api"), ("claim", claim["name"])):
        assert re.findall(r"(?<!~)\$\d[\d.]*", shiplap("explain", what, name, "-f", state, code=None)) == []


def made(name: str, capacity_type: str, zone: str = "z1", kind: str = "m5.large") -> Node:
    marks = {"node.kubernetes.io/instance-type": kind, "topology.kubernetes.io/zone": zone}
    return msgspec.convert(
        {"metadata": {"name": name, "labels": marks | ({MANAGED: capacity_type} if capacity_type else {})}}, Node
    )


@pytest.mark.parametrize(
    ("given", "price"),
    [
        (made("of-a-group", "ON_DEMAND"), Price(0.1)),
        (made("spot-of-a-group", "SPOT", "z2"), Price(0.04)),
        (made("guessed", "SPOT"), Price(0.03, estimated=True)),
        (made("a-block", "CAPACITY_BLOCK"), Price(1e-8)),
        (made("a-block-of-another-zone", "CAPACITY_BLOCK", "z2"), Price(1e-8, estimated=True)),
        (made("a-block-without-a-known-reservation", "CAPACITY_BLOCK", kind="g6.xlarge"), Price(0.8e-7)),
        (made("says-nothing", ""), Price(0.1, estimated=True)),
        (made("says-something-new", "FLEXIBLE"), Price(0.1, estimated=True)),
        (made("elsewhere", "ON_DEMAND", "z9"), Price(0.1, estimated=True)),
        (made("spot-elsewhere", "SPOT", "z9"), Price(0.03, estimated=True)),
        (made("not-sold-as-spot", "SPOT", kind="g6.xlarge"), Price()),
        (made("unknown", "ON_DEMAND", kind="zz9.huge"), Price()),
    ],
    ids=lambda given: given.metadata.name if isinstance(given, Node) else "",
)
def test_the_price_of_a_node(given: Node, price: Price) -> None:
    found = NodePrices(others=OFFERED).of(given)
    assert (found.hourly, found.estimated) == (pytest.approx(price.hourly), price.estimated)


def test_a_node_of_a_pool_costs_what_its_pool_sees() -> None:
    ours = made("ours", "")
    ours = replace(
        ours, metadata=replace(ours.metadata, labels=ours.metadata.labels | {"karpenter.sh/nodepool": "web"})
    )
    prices = NodePrices({"web": {"m5.large": (Offering("z1", "on-demand", 0.07),)}}, OFFERED)
    assert prices.of(ours).hourly == 0.07
    assert prices.of(made("theirs", "")).hourly == 0.1


def test_the_first_catalogue_that_knows_an_offering_counts_and_others_add_theirs() -> None:
    def kind(*offered: Offering) -> InstanceType:
        return InstanceType("a", (), {}, {}, offered)

    first, second = kind(Offering("z", "spot", 1.0)), kind(Offering("z", "spot", 3.0), Offering("y", "spot", 2.0))
    assert [offering.price for offering in offerings_by_type([first], [second])["a"]] == [1.0, 2.0]


CLAIM = node_claim(
    name="c",
    cluster="c",
    node_pool="web",
    instance_type="m5.large",
    zone="z1",
    capacity_type="spot",
    state=ClaimState.INITIALIZED,
)


def test_what_a_claim_was_bought_for_is_what_its_node_costs_for_all_who_see_the_claim() -> None:
    """The widget knows claims and no prices: others must not say otherwise."""
    claims = [
        with_fields(CLAIM, name="a", node_name="n", hourly=0.033),
        with_fields(CLAIM, name="b", state=ClaimState.LAUNCHED, hourly=0.5),
    ]
    seen = picture_of_cluster("c", 1.0, [made("n", "")], [], claims, NodePrices(others=OFFERED))
    assert seen.hourly == picture_of_claims("c", 1.0, claims).hourly == pytest.approx(0.533)
    assert not seen.estimated


@pytest.mark.parametrize(("hourly", "estimated"), [(0.03, True), (0.031, False)])
def test_a_claim_that_was_bought_at_a_guess_is_marked(hourly: float, estimated: bool) -> None:
    assert NodePrices(others=OFFERED).of_claim(with_fields(CLAIM, name="a", hourly=hourly)) == Price(hourly, estimated)


def test_all_prices_of_the_embedded_catalogue_are_estimates() -> None:
    prices = catalog_prices(embedded.load(REGION))
    found = prices.of(msgspec.convert(node("n", labels={MANAGED: "ON_DEMAND"}), Node))
    assert found.known
    assert found.estimated
    assert prices.listed("m5.large") == found.hourly

"""`--html FILE` of the commands: one page that shows what the command says."""

from __future__ import annotations

import json
import re
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shiplap.disruption.commands import Blocked, Decision, DisruptionProposal, Method, Reason
from shiplap.disruption.current_prices import node_prices
from shiplap.kubernetes.quantity import CPU, MEMORY, PODS
from shiplap.manifests.nodeclaim import PodReference
from shiplap.scheduling.model.scheduling_plan import Placement, Plan
from shiplap.scheduling.model.snapshot import NodeClassCatalog, Snapshot
from shiplap.scheduling.planner import plan as decide
from shiplap_cli.inputs.loaded_inputs import load_inputs
from shiplap_cli.options import Sources
from shiplap_cli.render.html import PageNotes, after_commands, disrupt_report, limits_after, plan_report
from shiplap_lab.simulation.packing_bounds import Offers, hourly_bound, offers_of
from tests.builders.nodes import node_object
from tests.commands import Shiplap, listed
from tests.unit.cli.planned_files import CATALOG, POOL, pod

NOW = "2026-01-31T12:00:00Z"
OURS = {"capacity-type": "on-demand", "registered": "true", "initialized": "true"}
node = partial(
    node_object,
    cpu="1900m",
    pods="10",
    instance_type="small",
    zone="z1",
    pool="default",
    labels={f"karpenter.sh/{key}": value for key, value in OURS.items()},
    taints=[{"key": "dedicated", "effect": "NoSchedule"}],
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "pool.json").write_text(json.dumps(POOL))
    (tmp_path / "catalog.json").write_text(json.dumps(CATALOG))
    return tmp_path


def asked(command: str, files: Path, *objects: dict[str, Any], page: str = "page.html") -> list[str | Path]:
    (files / "state.json").write_text(listed(*objects))
    given = [command, "--cluster-state", files / "state.json", "--manifests", files / "pool.json"]
    return [*given, "--catalog", files / "catalog.json", "--now", NOW, "--html", files / page]


def words(page: str) -> str:
    return unescape(re.sub(r"<[^>]+>", " ", page[page.index("<main") : page.index("</main>")]))


def test_a_plan_as_a_page(files: Path, shiplap: Shiplap) -> None:
    waits = [pod(f"p{place}", "1500m") for place in range(3)]
    answer = shiplap.json(*asked("plan", files, node("old"), *waits, pod("giant", "64")), code=1)
    made = (files / "page.html").read_text()
    shown = words(made)
    assert f"{len(answer['nodeClaims'])} nodes to launch" in shown
    assert "1 without a place" in shown
    assert made.count('class="n planned"') == len(answer["nodeClaims"])
    for claim in answer["nodeClaims"]:
        assert claim["name"] in shown
    assert "web/giant" in shown
    assert answer["unschedulable"][0]["message"][:40] in shown
    assert "lower bound" in shown


def test_a_disruption_as_a_page(files: Path, shiplap: Shiplap) -> None:
    (command,) = shiplap.json(*asked("disrupt", files, node("idle"), node("foreign", pool="", labels={})))["commands"]
    assert command["nodes"] == ["idle"]
    before, after = (files / "page.html").read_text().split("<h2>After</h2>")
    assert 'class="n leaving"' in before
    assert 'aria-label="idle' not in after
    assert 'aria-label="foreign' in after
    assert "$0.10" in words(before + after) or "$0.100" in words(before + after)


def test_costs_limits_and_the_region_are_on_the_page_of_a_plan(files: Path, shiplap: Shiplap) -> None:
    limited = json.loads(json.dumps(POOL))
    limited["spec"]["limits"] = {"cpu": "100", "nodes": "7"}
    (files / "pool.json").write_text(json.dumps(limited))
    web = pod("api", "1500m")
    web["metadata"]["labels"] = {"team": "checkout"}
    given = asked("plan", files, web, node("idle"))
    launched = shiplap.json(*given, "--cost-label", "team", "--region", "eu-west-1")["nodeClaims"]

    shown = words((files / "page.html").read_text())
    assert "Cost by namespace" in shown
    assert "Cost by label team" in shown
    assert "checkout" in shown
    assert "requested by no pod" in shown
    assert f"nodes {len(launched) + 1} of 7" in shown


def test_limits_count_what_a_plan_adds(files: Path) -> None:
    limited = json.loads(json.dumps(POOL))
    limited["spec"]["limits"] = {"cpu": "100"}
    (files / "pool.json").write_text(json.dumps(limited))
    looked_at = snapshot(files, *(pod(f"p{place}", "1900m") for place in range(4)))
    decided = decide(looked_at)

    before, after = limits_after(looked_at, ()), limits_after(looked_at, decided.node_claims)

    assert list(before.values()) == ["cpu 0 of 100"]
    (used,) = after.values()
    assert 7.6 <= float(used.split()[1]) <= 100


def test_a_page_that_cannot_be_written_is_named(files: Path, shiplap: Shiplap) -> None:
    assert "nowhere/page.html" in shiplap.error(*asked("plan", files, page="nowhere/page.html"))


def test_what_could_not_be_seen_is_on_the_page(files: Path) -> None:
    looked_at = snapshot(files, node("a"))
    lines = ("list of poddisruptionbudgets is not permitted <here>",)
    for made in (
        plan_report(looked_at, Plan(), None, PageNotes(missing=lines)),
        disrupt_report(looked_at, Decision(), PageNotes(missing=lines)),
    ):
        assert "list of poddisruptionbudgets is not permitted &lt;here&gt;" in made


def test_two_sets_of_manifests_side_by_side(files: Path, shiplap: Shiplap) -> None:
    pool = json.loads(json.dumps(POOL))
    pool["metadata"]["name"], pool["spec"]["limits"] = "strict", {"cpu": "2"}
    (files / "new.json").write_text(json.dumps(pool))
    waits = [pod(f"p{place}", "1500m") for place in range(3)]
    items = [node("old"), *waits]
    (files / "state.json").write_text(listed(*items))
    both = ["--diff", files / "pool.json", files / "new.json", "--catalog", files / "catalog.json"]
    given = ["plan", "-f", files / "state.json", *both, "--now", NOW, "--html", files / "x.html"]
    answer = shiplap.json(*given, code=1)
    made = (files / "x.html").read_text()
    shown = words(made)
    assert f"−{answer['old']['nodes'] - answer['new']['nodes']} node" in shown  # noqa: RUF001 - a minus sign
    assert answer["newlyLeftOut"][0]["pod"] in shown
    assert answer["newlyLeftOut"][0]["message"][:40] in shown
    before, after = made[made.index("The nodes once") :].split("<h3>With ")[1:]
    assert before.count('class="n planned"') == answer["old"]["nodes"] > answer["new"]["nodes"]
    assert after.count('class="n planned"') == answer["new"]["nodes"]


def test_nothing_to_do_is_said(files: Path, shiplap: Shiplap) -> None:
    shiplap(*asked("plan", files))
    assert "No nodes." in words((files / "page.html").read_text())
    shiplap(*asked("disrupt", files), code=1)
    assert "Nothing would be removed" in words((files / "page.html").read_text())


def snapshot(files: Path, *objects: dict[str, Any]) -> Snapshot:
    (files / "state.json").write_text(listed(*objects))
    given = Sources(
        cluster_state=[files / "state.json"], manifests=[files / "pool.json"], catalog=files / "catalog.json", now=NOW
    )
    return load_inputs(given).snapshot


def test_commands_move_pods_and_keep_others(files: Path) -> None:
    stays, moves = pod("stays", "500m", nodeName="a"), pod("moves", "500m", nodeName="b")
    looked_at = snapshot(files, node("a"), node("b"), stays, moves)
    command = DisruptionProposal(
        Reason.UNDERUTILIZED,
        Method.CONSOLIDATION,
        ("b",),
        placements=(Placement("a", (PodReference("web", "moves"),)),),
        savings_hourly=0.1,
        moved=1,
        detail="its pods fit elsewhere",
    )
    decision = Decision((command,), (Blocked("a", "has the pods of b"),))
    (left,) = after_commands(looked_at, decision, node_prices(looked_at)).nodes
    assert {each.name: each.fresh for each in left.pods} == {"stays": False, "moves": True}
    assert "its pods fit elsewhere" in disrupt_report(looked_at, decision)


def test_pods_of_a_node_for_which_no_place_is_planned_are_shown_as_waiting(files: Path) -> None:
    """A node of a static pool goes, and one that is moved off as ever: only the first one's pods are homeless."""
    alone, moves = pod("alone", "500m", nodeName="b"), pod("moves", "500m", nodeName="c")
    looked_at = snapshot(files, node("a"), node("b"), node("c"), alone, moves)
    commands = (
        DisruptionProposal(Reason.DRIFTED, Method.STATIC_DRIFT, ("b",), moved=1),
        DisruptionProposal(
            Reason.UNDERUTILIZED,
            Method.CONSOLIDATION,
            ("c",),
            placements=(Placement("a", (PodReference("web", "moves"),)),),
            moved=1,
        ),
    )
    after = after_commands(looked_at, Decision(commands), node_prices(looked_at))
    assert [(item.name, item.reason) for item in after.pending] == [
        ("alone", "kube-scheduler finds its place once b goes")
    ]
    assert [item.name for each in after.nodes for item in each.pods] == ["moves"]


def test_the_bound_is_below_every_plan_and_met_by_a_full_node(files: Path) -> None:
    looked_at = snapshot(files, *(pod(f"p{place}", "1900m") for place in range(4)))
    decided = decide(looked_at)
    requested = {CPU: 7600, MEMORY: 0, PODS: 4}
    offers = offers_of(looked_at)
    assert offers is not None
    bound = hourly_bound(offers, requested)
    assert bound is not None
    assert bound <= decided.hourly + 1e-9
    assert bound == pytest.approx(7600 / 7900 * 0.4, rel=0.02)
    assert hourly_bound(offers, {}) == 0.0
    assert hourly_bound(offers, {PODS: 4}) is not None
    nothing = Offers(offers.net * 0, offers.price)
    assert hourly_bound(nothing, requested) is None
    assert offers_of(msgspec.structs.replace(looked_at, catalogs=(NodeClassCatalog("default"),))) is None
    assert "lower bound" in plan_report(looked_at, decided)
    assert "lower bound" not in plan_report(looked_at, Plan())

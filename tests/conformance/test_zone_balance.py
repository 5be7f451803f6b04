"""Zone balance: pods that are spread over zones return to one that had no capacity for them, at a stated price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.disruption_snapshot import NodeHistory
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.shiplap_annotations import ZONE_BALANCE, ZONE_BALANCE_MAX_HOURLY, node_pool_problem
from tests.builders.pods import pod
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.disruptions import Standing, Verdict, disrupted, pdb, small
from tests.conformance.given import NOW
from tests.conformance.zone_spreads import EVERYWHERE, SOLD_OUT, TYPE, balanced, on, spread

TWO_ZONES = (small("a1", zone=Z1), small("a2", zone=Z1), small("b1", zone=Z2), small("b2", zone=Z2))
FULL = [each for item in TWO_ZONES for each in on(item.node.metadata.name, 3)]


def verdict(
    *nodes: Standing, pods: Sequence[Pod] = FULL, pools: Sequence[NodePool] = (balanced(),), **fields: Any
) -> Verdict:
    return disrupted(*(nodes or TWO_ZONES), pods=pods, pools=pools, **{"types": [TYPE], **fields})


def test_a_node_goes_whose_pods_bring_the_zones_closer_and_the_numbers_are_told() -> None:
    found = verdict()
    command = found.command
    assert (command.reason, command.method, command.nodes) == (Reason.DRIFTED, Method.ZONE_BALANCE, ("a1",))
    assert command.moved == 3
    assert [claim.launch.zone for claim in command.replacements] == [Z3]
    assert command.detail == (
        "zone balance: pods in default per zone are test-zone-1 6, test-zone-2 6, test-zone-3 0, then test-zone-1 3, "
        "test-zone-2 6, test-zone-3 3; maxSkew is 1; 3 of at most 10 pods move, for 0 of at most 0 USD per hour"
    )


def test_it_is_off_unless_the_node_pool_says_otherwise() -> None:
    assert not verdict(pools=[pool()]).commands
    assert not verdict(pools=[pool(annotations={ZONE_BALANCE_MAX_HOURLY: "5"})]).commands
    for wrong in ("0", "-1", "many", "1000", ""):
        assert not verdict(pools=[balanced(wrong)]).commands


@pytest.mark.parametrize(
    ("key", "value", "valid"),
    [
        (ZONE_BALANCE, "1", True),
        (ZONE_BALANCE, "999", True),
        (ZONE_BALANCE, "1000", False),
        (ZONE_BALANCE, "0", False),
        (ZONE_BALANCE, "1.5", False),
        (ZONE_BALANCE, "", False),
        (ZONE_BALANCE_MAX_HOURLY, "0", True),
        (ZONE_BALANCE_MAX_HOURLY, "0.25", True),
        (ZONE_BALANCE_MAX_HOURLY, "-1", False),
        (ZONE_BALANCE_MAX_HOURLY, "$1", False),
    ],
)
def test_which_prices_of_balance_can_be_written(key: str, value: str, valid: bool) -> None:
    assert (node_pool_problem(key, value) is None) is valid
    if not valid:
        wrong = pool(annotations={ZONE_BALANCE: "10", key: value})
        assert not verdict(pools=[wrong]).commands


def test_only_nodes_of_a_pool_that_pays_for_it_go() -> None:
    nodes = (small("a1", zone=Z1), small("a2", zone=Z1, pool="other"), small("b1", zone=Z2, pool="other"))
    pods = [each for item in nodes for each in on(item.node.metadata.name, 3)]
    found = verdict(*nodes, pods=pods, pools=[pool(), balanced(name="other")])
    assert found.command.nodes == ("a2",)


def test_nothing_moves_while_the_zone_is_sold_out() -> None:
    found = verdict(types=[SOLD_OUT])
    assert not found.commands
    assert "zone" not in found.blocked("a1"), "no zone that sells is short of pods"


def test_nothing_moves_where_a_pod_would_have_no_place() -> None:
    nodes = (small("a1", zone=Z1, labels={"disk": "here"}), small("b1", zone=Z2))
    kept = pod("kept", "100m", node="a1", selector={"disk": "here"}, labels={"app": "lone"}, owner="lone")
    kept = replace(kept, metadata=replace(kept.metadata, owner_references=()))
    pods = [*on("a1", 3), *on("b1", 1), kept]
    found = verdict(*nodes, pods=pods)
    assert not found.commands
    assert found.blocked("a1").startswith("its zone has too many pods of a spread; pod default/kept: ")


def test_more_pods_than_allowed_do_not_move_and_the_numbers_say_so() -> None:
    found = verdict(pools=[balanced("2")])
    assert not found.commands
    words = "its zone has too many pods of a spread; zone balance may move 2 pods at a time, not its 3"
    assert [found.blocked(name) for name in ("a1", "a2", "b1", "b2")] == [words] * 4
    assert verdict(pools=[balanced("3")]).command.moved == 3


@pytest.mark.parametrize(("hourly", "goes"), [(None, False), ("0.49", False), ("0.5", True)])
def test_a_dearer_zone_has_to_be_paid_for(hourly: str | None, goes: bool) -> None:
    dear = fake_type("dear", cpu="4", memory="8Gi", pods="20", price=1.5, offerings=[("on-demand", Z3)])
    here = fake_type("small", cpu="4", memory="8Gi", pods="20", price=1.0, offerings=EVERYWHERE[:2])
    found = verdict(pools=[balanced(hourly=hourly)], types=[dear, here])
    assert bool(found.commands) is goes
    if goes:
        assert found.command.savings_hourly == -0.5
        assert "for 0.5 of at most 0.5 USD per hour" in found.command.detail
    else:
        assert f"zone balance would cost 0.5 USD per hour, of at most {hourly or 0}" in found.blocked("a1")


@pytest.mark.parametrize(
    "rules",
    [
        [spread(skew=6)],
        [spread(when="DoNotSchedule", skew=6)],
        [spread(topologyKey="kubernetes.io/hostname")],
        [spread("another")],
        [{key: value for key, value in spread().items() if key != "labelSelector"}],
    ],
    ids=["in-balance", "required", "other-key", "other-pods", "no-selector"],
)
def test_what_is_in_balance_stays(rules: list[dict[str, Any]]) -> None:
    pods = [each for item in TWO_ZONES for each in on(item.node.metadata.name, 3, "web", *rules)]
    assert not verdict(pods=pods).commands


def test_a_move_that_would_put_another_spread_out_of_balance_is_none() -> None:
    """All pods of `api` are in the zones that `web` should leave: beside each other they go together."""
    nodes = (small("a1", zone=Z1), small("b1", zone=Z2), small("c1", zone=Z3), small("a2", zone=Z1))
    pods = [*on("a1", 2), *on("a2", 2), *on("b1", 1), *on("c1", 1), *on("a1", 1, "api"), *on("b1", 1, "api")]
    pods += on("c1", 1, "api")
    found = verdict(*nodes, pods=pods)
    # `a1` has the only pod of `api` in its zone: only `a2` may go.
    assert found.command.nodes == ("a2",)


def test_label_keys_tell_revisions_apart() -> None:
    rule = spread(matchLabelKeys=["revision"])
    old = [each for name in ("a1", "a2") for each in on(name, 3, "web", rule, labels={"revision": "1"})]
    new = [each for name in ("b1", "b2") for each in on(name, 3, "web", rule, labels={"revision": "2"})]
    found = verdict(pods=[*old, *new], pools=[balanced(hourly="1")])
    assert "per zone are test-zone-1 6," in found.command.detail
    assert "test-zone-2 6" not in found.command.detail


def test_protected_pods_and_budgets_keep_nodes() -> None:
    assert not verdict(budgets=[pdb("web", 0, app="web")]).commands
    none = [balanced(budgets=[{"nodes": "0", "reasons": ["Drifted"]}])]
    found = verdict(pools=none)
    assert not found.commands
    assert "no allowed disruptions for Drifted" in found.blocked("a1")
    even = [each for name in ("a1", "b1") for each in on(name, 3)]
    assert "Drifted" not in verdict(*TWO_ZONES[::2], pods=even, pools=none, types=[SOLD_OUT]).blocked("a1")
    paid = balanced(budgets=[{"nodes": "0", "reasons": ["Underutilized"]}])
    assert verdict(pools=[paid]).command.method is Method.ZONE_BALANCE


def test_a_node_whose_last_command_was_given_up_rests() -> None:
    resting = [NodeHistory("a1", undone_at=NOW - 60, undone=1)]
    assert verdict(histories=resting).command.nodes == ("a2",)


def test_consolidation_comes_first() -> None:
    nodes = (*TWO_ZONES, small("spare", zone=Z1), small("other", zone=Z1))
    pods = [*FULL, *on("spare", 1, "lone", cpu="100m"), *on("other", 1, "single", cpu="100m")]
    assert {command.method for command in verdict(*nodes, pods=pods).commands} == {Method.CONSOLIDATION}


@pytest.mark.parametrize(
    "on_their_way",
    [
        {"pods": [*FULL, pod("web-new", "100m", labels={"app": "web"})]},
        {"pods": [*FULL[:-1], pod("web-old", "1200m", node="b2", labels={"app": "web"}, deleting=True)]},
        {"busy": ["b2"]},
    ],
    ids=["pending", "ending", "of-a-command"],
)
def test_pods_that_are_on_their_way_are_waited_for(on_their_way: dict[str, Any]) -> None:
    """Where they arrive is not known: their zone would be counted wrong, and too many would move."""
    assert not [each for each in verdict(**on_their_way).commands if each.method is Method.ZONE_BALANCE]


def test_a_pod_that_its_own_spread_does_not_count_moves_nothing() -> None:
    alone = on("a1", 1, "web", spread("nobody"))
    nothing_sold = fake_type("small", cpu="4", memory="8Gi", offerings=EVERYWHERE, unavailable=EVERYWHERE)
    assert not verdict(small("a1", zone=Z1), pods=alone, types=[nothing_sold]).commands


def test_other_pods_on_their_way_are_not_waited_for() -> None:
    found = verdict(pods=[*FULL, pod("lone", "100m", labels={"app": "lone"}), pod("web", "1m", namespace="other")])
    assert found.command.method is Method.ZONE_BALANCE

"""Costs by namespace or label: the sum is what the nodes cost, and nobody pays for what others leave empty."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.drawing.cost_shares import UNREQUESTED, CostShare, cost_table, share_costs
from shiplap.drawing.picture import Amounts, NodePicture, PodPicture
from tests.builders.pictures import GIB, drawn_node


def namespace(pod: PodPicture) -> str:
    return pod.namespace


def test_a_pod_pays_for_what_it_requests_and_the_rest_has_a_row_of_its_own() -> None:
    """A quarter of the processors and a half of the memory are three eighths of the node."""
    shares = share_costs([drawn_node(8000, 32, PodPicture("shop", "api", 2000, 16 * GIB), hourly=1.0)], namespace)

    assert shares == (CostShare(UNREQUESTED, 0, 0.625), CostShare("shop", 1, 0.375))


def test_accelerators_are_three_quarters_of_the_node_that_has_them() -> None:
    train, web = PodPicture("ml", "train", 0, 0, accelerators=4), PodPicture("shop", "web", 8000, 32 * GIB)

    shares = share_costs(
        [drawn_node(8000, 32, train, web, hourly=10.0, allocatable=Amounts(8000, 32 * GIB, 58, 4))], namespace
    )

    assert shares == (CostShare("ml", 1, 7.5), CostShare("shop", 1, 2.5))


def test_nodes_without_a_price_and_of_unknown_capacity_cost_nobody_anything() -> None:
    api = PodPicture("shop", "api", 2000, GIB)
    unknown = NodePicture(name="n", hourly=2.0, pods=(api,))

    assert share_costs([drawn_node(8000, 32, api, hourly=0.0)], namespace) == (CostShare("shop", 1, 0.0),)
    assert share_costs([unknown], namespace) == (CostShare(UNREQUESTED, 0, 2.0), CostShare("shop", 1, 0.0))


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", ""]), st.integers(0, 9000), st.integers(0, 40 * GIB), st.integers(0, 9)),
        max_size=12,
    ),
    st.integers(0, 8),
)
def test_the_shares_sum_up_to_the_price_even_on_an_overfull_node(
    drawn: list[tuple[str, int, int, int]], accelerators: int
) -> None:
    pods = [
        PodPicture(group, f"p{place}", cpu, memory, accelerators=devices)
        for place, (group, cpu, memory, devices) in enumerate(drawn)
    ]

    room = Amounts(8000, 32 * GIB, 58, accelerators)
    shares = share_costs([drawn_node(8000, 32, *pods, hourly=1.0, allocatable=room)], namespace)

    assert sum(share.hourly for share in shares) == pytest.approx(1.0)
    assert all(share.hourly >= 0 for share in shares)
    assert sum(share.pods for share in shares) == len(pods)


def test_the_table_names_what_has_no_value_and_sums_up_what_is_too_much() -> None:
    shares = [CostShare("", 1, 9.0), *(CostShare(f"g{place:02d}", 1, 0.1) for place in range(50))]

    made = cost_table("Cost by label team", "team", shares, estimated=True)

    assert "without a value" in made
    assert "11 more" in made
    assert "~$9.0000" in made
    assert made.count("<tr>") == 42
    assert cost_table("Cost by namespace", "namespace", [CostShare("a", 1, 0.0)], estimated=False) == ""

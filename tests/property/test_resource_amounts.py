"""Laws of quantities and of what pods request."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.kubernetes.objects import Container, Pod, PodSpec, ResourceRequirements
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import LARGEST, add_resources, format_amount, parse_amount, parse_quantity
from tests.thoroughness import draws

LAWS = settings(derandomize=True, deadline=None, max_examples=draws(300))

RESOURCES = st.sampled_from(["cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"])
AMOUNTS = st.integers(0, LARGEST) | st.integers(0, 4096).map(lambda number: number * 2**20)
SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e3", "E-2"]
AMOUNT_LISTS = st.dictionaries(RESOURCES.filter(lambda name: name != "pods"), st.integers(1, 10**6), max_size=3)


@LAWS
@given(RESOURCES, AMOUNTS)
def test_what_is_written_reads_back_exactly(resource: str, amount: int) -> None:
    assert parse_amount(resource, format_amount(resource, amount)) == amount


@LAWS
@given(st.decimals(0, 100, places=3), st.sampled_from(SUFFIXES))
def test_amounts_round_up_by_less_than_one_unit(number: Decimal, suffix: str) -> None:
    text = f"{number}{suffix}"
    exact = parse_quantity(text)
    assert 0 <= parse_amount("memory", text) - exact < 1
    assert 0 <= parse_amount("cpu", text) - exact * 1000 < 1


@LAWS
@given(RESOURCES, st.integers(LARGEST))
def test_what_no_node_can_have_is_all_the_same(resource: str, amount: int) -> None:
    assert parse_amount(resource, format_amount(resource, amount)) == LARGEST


def container(amounts: dict[str, int], *, sidecar: bool = False) -> Container:
    texts: dict[str, str | int | float] = {name: format_amount(name, amount) for name, amount in amounts.items()}
    return Container(resources=ResourceRequirements(requests=texts), restart_policy="Always" if sidecar else "")


@LAWS
@given(
    st.lists(AMOUNT_LISTS, max_size=3),
    st.lists(st.tuples(AMOUNT_LISTS, st.booleans()), max_size=4),
    AMOUNT_LISTS,
)
def test_a_pod_gets_what_each_moment_of_its_life_needs(
    running: list[dict[str, int]], steps: list[tuple[dict[str, int], bool]], overhead: dict[str, int]
) -> None:
    spec = PodSpec(
        containers=tuple(container(amounts) for amounts in running),
        init_containers=tuple(container(amounts, sidecar=sidecar) for amounts, sidecar in steps),
        overhead={name: format_amount(name, amount) for name, amount in overhead.items()},
    )
    sidecars = [amounts for amounts, sidecar in steps if sidecar]
    moments = [add_resources(*running, *sidecars)]
    for number, (amounts, _) in enumerate(steps):
        before = [earlier for earlier, sidecar in steps[:number] if sidecar]
        moments.append(add_resources(*before, amounts))
    names = {name for moment in moments for name in moment}
    needed = {name: max(moment.get(name, 0) for moment in moments) for name in names}
    assert pod_requests(Pod(spec=spec)) == {**add_resources(needed, overhead), "pods": 1}

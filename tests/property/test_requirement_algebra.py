"""Laws of the requirement algebra, on small sets of values where chance meets every case."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.kubernetes.requirements import Requirement, Requirements, requirement, requirement_lines
from tests.thoroughness import draws

LAWS = settings(derandomize=True, deadline=None, max_examples=draws(300))

KEYS = st.sampled_from(["a", "b", "c"])
VALUES = ["0", "1", "2", "3", "4", "-1", "x", "y", "", "1.5"]
LISTED = st.frozensets(st.sampled_from(VALUES), max_size=4)
NUMBERS = st.integers(-2, 5).map(str)
MIN_VALUES = st.none() | st.integers(1, 4)

PRIMITIVES = st.one_of(
    st.tuples(st.sampled_from(["In", "NotIn"]), LISTED.filter(bool).map(tuple)),
    st.tuples(st.sampled_from(["Exists", "DoesNotExist"]), st.just(())),
    st.tuples(st.sampled_from(["Gt", "Lt", "Gte", "Lte"]), st.tuples(NUMBERS)),
)


def of_key(key: str) -> st.SearchStrategy[Requirement]:
    one = st.builds(lambda part, least: requirement(key, part[0], part[1], least), PRIMITIVES, MIN_VALUES)
    return st.lists(one, min_size=1, max_size=3).map(lambda items: Requirements(items)[key])


ITEMS = of_key("a")
SETS = st.lists(KEYS.flatmap(of_key), max_size=4).map(Requirements)


@LAWS
@given(ITEMS, ITEMS)
def test_intersection_commutes(left: Requirement, right: Requirement) -> None:
    assert left.intersection(right) == right.intersection(left)
    assert left.intersects(right) == right.intersects(left)


@LAWS
@given(ITEMS, ITEMS, ITEMS)
def test_intersection_is_associative(first: Requirement, second: Requirement, third: Requirement) -> None:
    left = first.intersection(second).intersection(third)
    assert left == first.intersection(second.intersection(third))


@LAWS
@given(ITEMS)
def test_intersection_is_idempotent_and_exists_is_neutral(item: Requirement) -> None:
    assert item.intersection(item) == item
    assert item.intersection(requirement(item.key, "Exists")) == item


@LAWS
@given(ITEMS, ITEMS)
def test_an_intersection_has_what_both_have(left: Requirement, right: Requirement) -> None:
    both = left.intersection(right)
    for value in VALUES:
        assert both.has(value) == (left.has(value) and right.has(value))


@LAWS
@given(ITEMS, ITEMS)
def test_what_does_not_intersect_shares_no_value(left: Requirement, right: Requirement) -> None:
    if not left.intersects(right):
        assert not any(left.has(value) and right.has(value) for value in VALUES)
    elif not left.intersection(right).complement:
        assert any(left.has(value) and right.has(value) for value in left.values | right.values)


@LAWS
@given(ITEMS, ITEMS)
def test_what_intersects_leaves_something(left: Requirement, right: Requirement) -> None:
    both = left.intersection(right)
    assert left.intersects(right) == (both.complement or bool(both.values))
    for value in VALUES:
        assert left.intersects(Requirement.one_of("a", value)) == left.has(value)


@LAWS
@given(ITEMS)
def test_written_requirements_read_back(item: Requirement) -> None:
    lines = requirement_lines(item)
    assert len(lines) <= 3
    read = Requirements(requirement(*line, min_values=item.min_values) for line in lines)
    assert read == Requirements([item])


@LAWS
@given(SETS, SETS)
def test_conjunctions_commute(left: Requirements, right: Requirements) -> None:
    assert left.and_(right.values()) == right.and_(left.values())
    assert hash(left.and_(right.values())) == hash(right.and_(left.values()))


@LAWS
@given(SETS, SETS)
def test_compatible_says_what_conflict_says(node: Requirements, incoming: Requirements) -> None:
    assert node.compatible(incoming) == (node.conflict(incoming) is None)
    assert not node.compatible(incoming) or node.compatible(incoming, allow_undefined=("a", "b", "c"))


@LAWS
@given(st.dictionaries(KEYS, st.sampled_from(VALUES), max_size=3), SETS)
def test_a_nodes_labels_are_judged_as_kube_scheduler_judges_them(labels: dict[str, str], wanted: Requirements) -> None:
    expected = all(item.has(labels[key]) if key in labels else item.allows_undefined for key, item in wanted.items())
    assert Requirements.of_labels(labels).compatible(wanted) == expected


@LAWS
@given(ITEMS)
def test_what_a_bare_node_satisfies_has_no_bounds(item: Requirement) -> None:
    if item.allows_undefined:
        assert item.operator in ("NotIn", "DoesNotExist")
        assert (item.at_least, item.at_most) == (None, None)

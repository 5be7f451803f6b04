"""The requirement algebra case by case; its laws are in tests/property/test_requirement_algebra.py."""

from __future__ import annotations

import pytest

from shiplap.kubernetes.labels import ARCH, WELL_KNOWN, ZONE
from shiplap.kubernetes.objects import NodeSelectorRequirement
from shiplap.kubernetes.requirements import Requirement, Requirements, requirement, requirement_lines

KEY = "test-key"
LARGEST = str(2**63 - 1)


def needs(operator: str, *values: str, key: str = KEY) -> Requirement:
    return requirement(key, operator, values)


@pytest.mark.parametrize(
    ("item", "operator", "allowed", "refused"),
    [
        (needs("In", "a", "b"), "In", ["a", "b"], ["c", ""]),
        (needs("NotIn", "a"), "NotIn", ["b", ""], ["a"]),
        (needs("NotIn"), "Exists", ["a"], []),
        (needs("Exists"), "Exists", ["a", ""], []),
        (needs("DoesNotExist"), "DoesNotExist", [], ["a", ""]),
        (needs("Gt", "8"), "Exists", ["9", "+9", "009"], ["8", "7", "x", "", "9.5", str(2**63)]),
        (needs("Gte", "8"), "Exists", ["8"], ["7"]),
        (needs("Lt", "8"), "Exists", ["7", "-3"], ["8", "nine"]),
        (needs("Lte", "8"), "Exists", ["8"], ["9"]),
        (needs("Gt", LARGEST), "DoesNotExist", [], ["1", LARGEST]),
    ],
)
def test_what_each_operator_allows(item: Requirement, operator: str, allowed: list[str], refused: list[str]) -> None:
    assert item.operator == operator
    assert [value for value in allowed if not item.has(value)] == []
    assert [value for value in refused if item.has(value)] == []


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        ("In", ()),
        ("Exists", ("a",)),
        ("DoesNotExist", ("a",)),
        ("Gt", ()),
        ("Lt", ("1", "2")),
        ("Gte", ("a",)),
        ("is", ("a",)),
    ],
)
def test_what_is_no_requirement(operator: str, values: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"^{KEY}: "):
        requirement(KEY, operator, values)


@pytest.mark.parametrize(
    ("old", "stable"),
    [
        ("beta.kubernetes.io/arch", ARCH),
        ("failure-domain.beta.kubernetes.io/zone", ZONE),
        ("topology.ebs.csi.aws.com/zone", ZONE),
    ],
)
def test_older_keys_become_stable_ones(old: str, stable: str) -> None:
    assert requirement(old, "Exists").key == stable
    assert list(Requirements.of_labels({old: "x"})) == [stable]


@pytest.mark.parametrize(
    ("left", "right", "both"),
    [
        (needs("In", "a", "b"), needs("In", "b", "c"), needs("In", "b")),
        (needs("In", "a"), needs("In", "b"), needs("DoesNotExist")),
        (needs("In", "a", "b"), needs("NotIn", "a"), needs("In", "b")),
        (needs("NotIn", "a"), needs("NotIn", "b"), needs("NotIn", "a", "b")),
        (needs("Exists"), needs("In", "a"), needs("In", "a")),
        (needs("In", "1", "5", "x"), needs("Gt", "2"), needs("In", "5")),
        (needs("Gt", "5"), needs("Lt", "6"), needs("DoesNotExist")),
        (needs("Gte", "2"), needs("Lte", "4"), Requirement(KEY, True, at_least=2, at_most=4)),
        (needs("Gt", "1"), needs("NotIn", "5"), Requirement(KEY, True, frozenset({"5"}), at_least=2)),
    ],
)
def test_intersections(left: Requirement, right: Requirement, both: Requirement) -> None:
    assert left.intersection(right) == both
    assert right.intersection(left) == both
    assert left.intersects(right) == (both.operator != "DoesNotExist")


def test_the_larger_min_values_is_kept() -> None:
    left, right = requirement(KEY, "Exists", min_values=3), requirement(KEY, "In", ("a",), 5)
    assert left.intersection(right).min_values == 5
    assert left.intersection(needs("Exists")).min_values == 3


def test_both_bounds_are_written_as_two_lines() -> None:
    both = needs("Gte", "2").intersection(needs("Lte", "4"))
    assert requirement_lines(both) == [(KEY, "Gte", ("2",)), (KEY, "Lte", ("4",))]
    assert requirement_lines(needs("NotIn", "b", "a")) == [(KEY, "NotIn", ("a", "b"))]
    assert requirement_lines(needs("Gt", "1").intersection(needs("NotIn", "5"))) == [
        (KEY, "Gte", ("2",)),
        (KEY, "NotIn", ("5",)),
    ]
    assert requirement_lines(needs("Exists")) == [(KEY, "Exists", ())]


def test_requirements_on_one_key_are_intersected() -> None:
    both = Requirements.of(
        [NodeSelectorRequirement(ARCH, "In", ("amd64",)), NodeSelectorRequirement(ARCH, "In", ("arm64",))]
    )
    assert both[ARCH].operator == "DoesNotExist"
    assert Requirements([needs("In", "a")]).and_([needs("NotIn", "a")])[KEY].operator == "DoesNotExist"


@pytest.mark.parametrize(
    ("wanted", "met"),
    [
        (needs("In", "v"), True),
        (needs("NotIn", "v"), False),
        (needs("Exists"), True),
        (needs("DoesNotExist"), False),
        (needs("In", "other"), False),
        (needs("NotIn", "other"), True),
    ],
)
def test_a_label_the_node_has(wanted: Requirement, met: bool) -> None:
    assert Requirements.of_labels({KEY: "v"}).compatible(Requirements([wanted])) is met


@pytest.mark.parametrize(
    ("wanted", "met"),
    [
        (needs("In", "v"), False),
        (needs("NotIn", "v"), True),
        (needs("Exists"), False),
        (needs("DoesNotExist"), True),
        (needs("Gt", "1"), False),
        (needs("Gt", "1").intersection(needs("NotIn", "5")), False),
    ],
)
def test_a_label_the_node_lacks(wanted: Requirement, met: bool) -> None:
    assert Requirements().compatible(Requirements([wanted])) is met
    assert Requirements().compatible(Requirements([wanted]), allow_undefined={KEY})


def test_two_refusals_never_conflict() -> None:
    for mine in (needs("DoesNotExist"), needs("NotIn", "a")):
        for wanted in (needs("DoesNotExist"), needs("NotIn", "b")):
            assert Requirements([mine]).conflict(Requirements([wanted])) is None


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (KEY, f'label "{KEY}" does not have known values'),
        ("zone", f'label "zone" does not have known values (typo of "{ZONE}"?)'),
        ("wrong.io/zone", f'label "wrong.io/zone" does not have known values (typo of "{ZONE}"?)'),
        ("x/team", 'label "x/team" does not have known values (typo of "example.com/team"?)'),
    ],
)
def test_conflicts_of_undefined_labels_hint_at_typos(key: str, message: str) -> None:
    node = Requirements.of_labels({"example.com/team": "a"})
    assert node.conflict(Requirements([needs("In", "v", key=key)]), allow_undefined=WELL_KNOWN) == message


def test_other_conflicts_show_both_sides() -> None:
    node = Requirements([needs("NotIn", "b", "a")])
    assert node.conflict(Requirements([needs("In", "a")])) == f"{KEY} In [a] does not meet {KEY} NotIn [a, b]"
    bounded = Requirements([needs("Gt", "5")])
    assert bounded.conflict(Requirements([needs("Lt", "3")])) == f"{KEY} <=2 does not meet {KEY} >=6"


def test_requirements_compare_and_hash_by_content() -> None:
    left, right = (
        Requirements([needs("In", "a"), needs("Exists", key="b")]),
        Requirements([needs("Exists", key="b"), needs("In", "a")]),
    )
    assert left == right
    assert hash(left) == hash(right)
    assert left != Requirements()
    assert repr(left) == f"Requirements(b Exists, {KEY} In [a])"

"""Every field of the objects that scheduling depends on has a use that is written down, and is used that way."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.go_types import GoField
from tests.product_attributes import attributes_read
from tools.kubernetes_fields import FIELDS, PAGE, WITHOUT_EFFECT, text, types_read, upstream_structs

Structs = Mapping[str, tuple[GoField, ...]]


@pytest.fixture(scope="module")
def structs() -> Structs:
    return upstream_structs()


def listed(name: str) -> list[str]:
    return [field for entry in FIELDS[name] for field in entry.names]


def test_the_types_of_the_table_are_those_that_shiplap_reads(structs: Structs) -> None:
    assert types_read(structs).keys() == FIELDS.keys()


@pytest.mark.parametrize("name", FIELDS)
def test_the_table_has_the_fields_that_upstream_has(structs: Structs, name: str) -> None:
    there = {field.name for field in structs[name]}
    assert there - set(listed(name)) == set(), "new fields need a use"
    assert set(listed(name)) - there == set(), "upstream has them no more"
    assert len(listed(name)) == len(set(listed(name)))


@pytest.mark.parametrize("name", FIELDS)
def test_fields_are_used_as_the_table_says(structs: Structs, name: str) -> None:
    ours = types_read(structs)[name]
    for entry in FIELDS[name]:
        if entry.use == WITHOUT_EFFECT:
            assert ours.keys().isdisjoint(entry.names)
        else:
            assert ours.keys() >= set(entry.names)
            assert attributes_read() >= {ours[field] for field in entry.names}


def test_every_field_of_ours_is_upstreams(structs: Structs) -> None:
    for name, ours in types_read(structs).items():
        assert ours.keys() <= {field.name for field in structs[name]}, name


def test_the_page_says_what_the_table_says(structs: Structs) -> None:
    assert PAGE.read_text() == text(structs), "`make docs` writes it anew"


def test_go_types_are_read_with_their_inlined_structs(structs: Structs) -> None:
    volume = {field.name: field.kind for field in structs["Volume"]}
    assert volume["name"] == "string"
    assert volume["persistentVolumeClaim"] == "PersistentVolumeClaimVolumeSource"
    assert GoField("matchLabelExpressions", "TopologySelectorLabelRequirement") in structs["TopologySelectorTerm"]
    assert GoField("overhead", "ResourceList") in structs["PodSpec"]

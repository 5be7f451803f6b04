"""Hashes of specs in annotations: which version a claim has, what replaces it, and what stays drifted."""

from __future__ import annotations

import pytest

from shiplap.disruption.methods.drift import class_hashes_of, has_first_hash, pool_hashes_of, renewed_hashes
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec
from shiplap.manifests.template_hash import (
    FIRST_VERSION,
    HASH_VERSION,
    NODE_CLASS_HASH,
    NODE_CLASS_HASH_VERSION,
    POOL_HASH,
    POOL_HASH_VERSION,
)
from shiplap.scheduling.model.snapshot import NodeClassCatalog
from tests.builders.pools import pool


@pytest.mark.parametrize(
    ("annotations", "is_first"),
    [
        ({POOL_HASH_VERSION: FIRST_VERSION, NODE_CLASS_HASH_VERSION: FIRST_VERSION}, True),
        ({POOL_HASH_VERSION: FIRST_VERSION, NODE_CLASS_HASH_VERSION: HASH_VERSION}, True),
        ({POOL_HASH_VERSION: HASH_VERSION, NODE_CLASS_HASH_VERSION: FIRST_VERSION}, True),
        ({POOL_HASH_VERSION: HASH_VERSION, NODE_CLASS_HASH_VERSION: HASH_VERSION}, False),
        ({POOL_HASH: FIRST_VERSION}, False),
        ({}, False),
    ],
)
def test_one_hash_of_the_previous_version_is_enough_to_look(annotations: dict[str, str], is_first: bool) -> None:
    assert has_first_hash(annotations) is is_first


OF_POOL = {FIRST_VERSION: frozenset({"p1", "p2"}), HASH_VERSION: frozenset({"p"})}
OF_CLASS = {FIRST_VERSION: frozenset({"c1"}), HASH_VERSION: frozenset({"c"})}


def written(pool_hash: str, pool_version: str, class_hash: str, class_version: str) -> dict[str, str]:
    return {
        POOL_HASH: pool_hash,
        POOL_HASH_VERSION: pool_version,
        NODE_CLASS_HASH: class_hash,
        NODE_CLASS_HASH_VERSION: class_version,
        "other": "stays",
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("p2", FIRST_VERSION, "c1", FIRST_VERSION), ("p", HASH_VERSION, "c", HASH_VERSION)),
        (("p1", FIRST_VERSION, "gone", FIRST_VERSION), ("p", HASH_VERSION, "gone", FIRST_VERSION)),
        (("gone", FIRST_VERSION, "c1", FIRST_VERSION), ("gone", FIRST_VERSION, "c", HASH_VERSION)),
        (("p1", FIRST_VERSION, "old", HASH_VERSION), ("p", HASH_VERSION, "old", HASH_VERSION)),
        (("gone", FIRST_VERSION, "gone", FIRST_VERSION), None),
        (("p", HASH_VERSION, "c", HASH_VERSION), None),
        (("p1", HASH_VERSION, "c1", "v9"), None),
    ],
    ids=["both", "another class", "another pool", "a class of now", "drifted", "renewed before", "other versions"],
)
def test_a_hash_is_renewed_unless_the_claim_has_drifted_by_it(
    before: tuple[str, str, str, str], after: tuple[str, str, str, str] | None
) -> None:
    found = renewed_hashes(written(*before), OF_POOL, OF_CLASS)
    assert found == (None if after is None else written(*after))


def test_what_has_no_hash_of_now_is_not_renewed() -> None:
    first = written("p1", FIRST_VERSION, "c1", FIRST_VERSION)
    assert renewed_hashes(first, {FIRST_VERSION: frozenset({"p1"})}, {}) is None
    assert renewed_hashes(first, {HASH_VERSION: frozenset({"p"})}, {}) is None


def test_the_hash_that_karpenter_wrote_counts_by_its_version() -> None:
    own = pool_hashes_of(pool())
    assert own.keys() == {FIRST_VERSION, HASH_VERSION}
    marks = {POOL_HASH: "k", POOL_HASH_VERSION: "v7"}
    assert pool_hashes_of(pool(annotations=marks))["v7"] == {"k"}
    assert pool_hashes_of(pool(annotations={POOL_HASH_VERSION: "v7"})).keys() == own.keys()
    assert pool_hashes_of(pool(annotations={POOL_HASH: "k"}))[""] == {"k"}


@pytest.mark.parametrize(
    ("fields", "annotations", "expected"),
    [
        ({}, {}, {}),
        ({"spec_hash": "c"}, {}, {HASH_VERSION: {"c"}}),
        ({"spec_hash": "c", "first_hashes": ("x", "y")}, {}, {HASH_VERSION: {"c"}, FIRST_VERSION: {"x", "y"}}),
        ({}, {NODE_CLASS_HASH: "k", NODE_CLASS_HASH_VERSION: "v7"}, {"v7": {"k"}}),
        ({"spec_hash": "c"}, {NODE_CLASS_HASH: "k", NODE_CLASS_HASH_VERSION: HASH_VERSION}, {HASH_VERSION: {"c"}}),
    ],
)
def test_a_class_has_the_hashes_of_its_catalogue_and_of_karpenter(
    fields: dict[str, object], annotations: dict[str, str], expected: dict[str, set[str]]
) -> None:
    catalog = NodeClassCatalog("default", **fields)  # type: ignore[arg-type]
    written_class = EC2NodeClass(ObjectMeta(name="default", annotations=annotations), EC2NodeClassSpec())
    assert class_hashes_of(catalog, written_class) == expected
    if not annotations:
        assert class_hashes_of(catalog) == expected

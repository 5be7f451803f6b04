"""Globs and ordered preferences, compiled to tiers."""

from __future__ import annotations

from functools import partial

import pytest

from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.manifests.custom_resources import (
    RequirementSpec,
)
from shiplap.manifests.tiers import Tier, allows, expand, problem_of
from tests.builders.pools import pool as any_pool

FAMILY = "karpenter.k8s.aws/instance-family"
ZONE = "topology.kubernetes.io/zone"
GPU = "karpenter.k8s.aws/instance-gpu-name"
KNOWN = {
    FAMILY: ["m5", "c7i-flex", "c7i", "c7g", "m7i-flex"],
    ZONE: ["us-east-1b", "us-east-1a"],
    GPU: ["a100", "h100"],
}


pool = partial(any_pool, "default", capacity_types=())


def in_(key: str, *values: str, min_values: int | None = None) -> RequirementSpec:
    return RequirementSpec(key, "In", values, min_values)


def tiers_of(*requirements: RequirementSpec) -> tuple[Tier, ...]:
    return expand(pool(*requirements), lambda key: KNOWN.get(key, ()))


def values(tier: Tier, key: str) -> list[str] | None:
    return sorted(tier.requirements[key].values) if key in tier.requirements else None


def test_a_pool_without_globs_is_one_tier() -> None:
    (tier,) = tiers_of(in_(FAMILY, "c7i-flex", "c7i"), RequirementSpec(ZONE, "NotIn", ("us-east-1a",)))
    assert (tier.pool, tier.index, tier.text) == ("default", 0, "")
    assert tier.requirements == Requirements(
        [
            Requirement(FAMILY, values=frozenset({"c7i-flex", "c7i"})),
            Requirement(ZONE, complement=True, values=frozenset({"us-east-1a"})),
        ]
    )


def test_a_pool_without_requirements_is_one_tier() -> None:
    (tier,) = tiers_of()
    assert len(tier.requirements) == 0


def test_flex_first_anything_else_last() -> None:
    flex, rest = tiers_of(in_(FAMILY, "c7i-flex", "*"))
    assert (flex.index, values(flex, FAMILY), flex.text) == (0, ["c7i-flex"], f"{FAMILY} c7i-flex")
    assert (rest.index, values(rest, FAMILY), rest.text) == (1, None, f"{FAMILY} *")


def test_globs_before_the_catch_all_are_tiers_too() -> None:
    tiers = tiers_of(in_(FAMILY, "c7i-flex", "*-flex", "c7*", "*"))
    assert [values(tier, FAMILY) for tier in tiers] == [
        ["c7i-flex"],
        ["c7i-flex", "m7i-flex"],
        ["c7g", "c7i", "c7i-flex"],
        None,
    ]


def test_a_list_without_the_catch_all_is_one_tier() -> None:
    (tier,) = tiers_of(in_(FAMILY, "c7*", "m5"))
    assert values(tier, FAMILY) == ["c7g", "c7i", "c7i-flex", "m5"]
    assert tier.text == f"{FAMILY} c7*, m5"


def test_a_glob_that_matches_nothing_stays_and_says_so() -> None:
    first, rest = tiers_of(in_(FAMILY, "c9*", "*"))
    assert values(first, FAMILY) == ["c9*"]
    assert first.text == f"{FAMILY} c9* (matches nothing in the catalogue)"
    assert values(rest, FAMILY) is None


def test_only_the_star_is_special() -> None:
    (tier,) = tiers_of(in_(FAMILY, "c7.*"))
    assert values(tier, FAMILY) == ["c7.*"]


def test_a_plain_value_need_not_be_in_the_catalogue() -> None:
    first, _ = tiers_of(in_("example.com/pool", "green", "*"))
    assert (values(first, "example.com/pool"), first.text) == (["green"], "example.com/pool green")


def test_several_ordered_lists_multiply_with_the_first_changing_last() -> None:
    tiers = tiers_of(in_(FAMILY, "c7i", "*"), in_(ZONE, "us-east-1a", "*"))
    assert [(values(tier, FAMILY), values(tier, ZONE)) for tier in tiers] == [
        (["c7i"], ["us-east-1a"]),
        (["c7i"], None),
        (None, ["us-east-1a"]),
        (None, None),
    ]
    assert [tier.index for tier in tiers] == [0, 1, 2, 3]


def test_a_combination_that_contradicts_itself_is_left_out() -> None:
    tiers = tiers_of(in_(GPU, "a100", "h100", "*"), RequirementSpec(GPU, "NotIn", ("a100",)))
    assert [(tier.index, values(tier, GPU), tier.requirements[GPU].complement) for tier in tiers] == [
        (1, ["h100"], False),
        (2, ["a100"], True),
    ]
    assert tiers_of(in_(GPU, "a*"), RequirementSpec(GPU, "NotIn", ("a100",))) == ()


def test_older_spellings_of_labels() -> None:
    first, _ = tiers_of(in_("failure-domain.beta.kubernetes.io/zone", "*-1a", "*"))
    assert values(first, ZONE) == ["us-east-1a"]


@pytest.mark.parametrize(
    ("requirement", "kept"),
    [
        (in_(FAMILY, "c7i", "*", min_values=1), [1, 1]),
        (in_(FAMILY, "c7i", "c7*", "*", min_values=3), [None, 3, 3]),
        (in_(FAMILY, "c7*", "m5", min_values=9), [9]),
    ],
)
def test_min_values_stay_where_they_can_be_met(requirement: RequirementSpec, kept: list[int | None]) -> None:
    assert [tier.requirements[FAMILY].min_values for tier in tiers_of(requirement)] == kept


def test_min_values_of_the_last_tier_need_the_label() -> None:
    *_, rest = tiers_of(in_(FAMILY, "c7i", "*", min_values=2))
    assert rest.requirements[FAMILY] == Requirement(FAMILY, complement=True, min_values=2)


@pytest.mark.parametrize(
    ("requirement", "refused"),
    [
        (in_(FAMILY, "a", "b*", "*"), False),
        (in_(FAMILY, "*"), False),
        (in_(FAMILY, "plain"), False),
        (in_(FAMILY, "*", "a"), True),
        (in_(FAMILY, "*", "*"), True),
        (RequirementSpec(FAMILY, "NotIn", ("a*",)), True),
        (RequirementSpec(FAMILY, "Gt", ("*",)), True),
    ],
)
def test_where_globs_may_stand(requirement: RequirementSpec, refused: bool) -> None:
    assert (problem_of(requirement) is not None) == refused


@pytest.mark.parametrize("stars", ["*" * 20 + "q", "*a" * 30 + "b", "a*" * 30 + "*b*c", "*" * 62])
def test_a_glob_of_many_stars_is_matched_in_no_time(stars: str) -> None:
    """A pattern that goes back would try more ways to part the value than there is time for."""
    spec = in_(FAMILY, stars)
    assert allows(spec, "a" * 63) == (stars == "*" * 62)
    (tier,) = expand(pool(spec), lambda _: ["a" * 63, "m5"])
    assert (values(tier, FAMILY) == ["a" * 63, "m5"]) == (stars == "*" * 62)

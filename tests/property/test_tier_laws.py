"""Laws of tiers: they cover what their author wrote, in order, and hold no globs that could be resolved."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import (
    NodeClaimTemplateSpec,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    NodePoolTemplate,
    RequirementSpec,
)
from shiplap.manifests.tiers import allows, expand
from tests.thoroughness import draws

LAWS = settings(derandomize=True, deadline=None, max_examples=draws(200))
KNOWN = {"a": ["c7", "c7-flex", "m7", "m7-flex"], "b": ["x", "xy", "y"]}
WANTED = {"a": ["c7", "c*", "*-flex", "m7", "z*"], "b": ["x", "x*", "*y", "other"]}


@st.composite
def ordered(draw: st.DrawFn, key: str) -> RequirementSpec:
    values = draw(st.lists(st.sampled_from(WANTED[key]), max_size=3, unique=True))
    return RequirementSpec(key, "In", (*values, "*"))


def tiers_of(*requirements: RequirementSpec):  # type: ignore[no-untyped-def]
    claim = NodeClaimTemplateSpec(node_class_ref=NodeClassReference(name="n"), requirements=requirements)
    return expand(NodePool(ObjectMeta(name="p"), NodePoolSpec(NodePoolTemplate(claim))), KNOWN.__getitem__)


@LAWS
@given(ordered("a"), ordered("b"))
def test_ordered_lists_multiply(first: RequirementSpec, second: RequirementSpec) -> None:
    tiers = tiers_of(first, second)
    assert [tier.index for tier in tiers] == list(range(len(first.values) * len(second.values)))
    assert len(tiers[-1].requirements) == 0
    for tier in tiers:
        for spec, step in ((first, tier.index // len(second.values)), (second, tier.index % len(second.values))):
            value = spec.values[step]
            allowed = {known for known in KNOWN[spec.key] if fnmatchcase(known, value)}
            if value == "*":
                assert spec.key not in tier.requirements
            else:
                assert tier.requirements[spec.key].values == (allowed or {value})


@LAWS
@given(st.lists(st.sampled_from(WANTED["a"]), min_size=1, max_size=4))
def test_a_plain_list_is_one_tier_with_the_union(values: list[str]) -> None:
    (tier,) = tiers_of(RequirementSpec("a", "In", tuple(values)))
    for known in KNOWN["a"]:
        assert tier.requirements["a"].has(known) == any(fnmatchcase(known, value) for value in values)


@LAWS
@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", max_size=8))
def test_a_star_stands_for_any_text(glob: str, value: str) -> None:
    assert allows(RequirementSpec("a", "In", (glob,)), value) == fnmatchcase(value, glob)

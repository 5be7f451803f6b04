"""Items that grow with the clusters are spread over buckets; one item more or less changes only its own bucket."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from shiplap_cdk.constructs.spread import spread

NAMES = st.lists(st.text(min_size=1, max_size=12), unique=True, min_size=1, max_size=60)


@given(NAMES, st.integers(1, 8))
def test_every_item_is_in_exactly_one_bucket_and_buckets_are_neither_empty_nor_too_full(
    names: list[str], most: int
) -> None:
    buckets = spread(names, lambda items: len(items) <= most)

    assert sorted(name for bucket in buckets.values() for name in bucket) == sorted(names)
    assert all(1 <= len(bucket) <= most for bucket in buckets.values())


@given(NAMES, st.text(min_size=1, max_size=12), st.integers(1, 8))
def test_one_item_more_changes_only_the_bucket_it_belongs_to(names: list[str], more: str, most: int) -> None:
    before = spread(names, lambda items: len(items) <= most)
    after = spread([*names, more], lambda items: len(items) <= most)

    changed = [bucket for bucket, items in before.items() if after.get(bucket) != items]
    assert len(changed) <= 1
    for bucket in set(after) - set(before):
        assert any(bucket.startswith(old) for old in changed) or after[bucket] == (more,)


@given(NAMES, st.integers(1, 8), st.randoms(use_true_random=False))
def test_the_order_of_items_does_not_matter(names: list[str], most: int, random: Random) -> None:
    shuffled = list(names)
    random.shuffle(shuffled)

    assert spread(names, lambda items: len(items) <= most) == spread(shuffled, lambda items: len(items) <= most)


def test_few_items_share_the_bucket_without_a_name() -> None:
    assert spread(["b", "a"], lambda items: len(items) <= 2) == {"": ("a", "b")}


def test_an_item_that_fits_nowhere_has_a_bucket_of_its_own() -> None:
    assert {len(items) for items in spread(["a", "b"], lambda _: False).values()} == {1}

"""Parts have their share of each group and class; a group that can't have one in each is named, merged or left out."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawls.datasets.core.own.parts import OTHERS, of_fair_size, shares, splits
from rawls.datasets.core.own.roles import Named

SIZES = st.lists(st.lists(st.integers(0, 40), min_size=2, max_size=2), min_size=1, max_size=6)
SHARES = {"test": 0.2, "validation": 0.1}


@given(sizes=SIZES, test=st.floats(0.01, 0.5), validation=st.floats(0, 0.5))
def test_shares_are_within_a_row_of_what_they_should_be(sizes: list[list[int]], test: float, validation: float) -> None:
    given_ = np.array(sizes)
    tested, validated = shares(given_, test=test, validation=validation)
    assert tested.sum() == round(test * given_.sum())
    assert validated.sum() == round(validation * (given_ - tested).sum())
    assert (tested >= 0).all() and (validated >= 0).all() and (tested + validated <= given_).all()
    total = max(1, given_.sum())
    assert (abs(tested.sum(1) - round(test * given_.sum()) * given_.sum(1) / total) < 1).all(), "by group"
    within = tested.sum(1, keepdims=True) * given_ / np.maximum(given_.sum(1, keepdims=True), 1)
    assert (abs(tested - within) < 1).all(), "and by class within it"


def test_the_test_rows_are_the_same_with_every_seed_and_the_others_are_not() -> None:
    generator = np.random.default_rng(0)
    labels, groups = generator.integers(0, 3, 500), generator.integers(0, 4, 500)
    split = splits(labels, groups, **SHARES)
    first, again, other = split(5), split(5), split(6)
    assert all(np.array_equal(*parts) for parts in zip(first, again, strict=True))
    assert np.array_equal(first.test, other.test)
    assert not np.array_equal(first.valid, other.valid)
    for part in (first, other):
        rows = np.concatenate(part)
        assert np.array_equal(np.sort(rows), np.arange(500))
        assert [len(own) for own in part] == [360, 40, 100]
    for name in ("train", "valid", "test"):
        ours, theirs = (
            np.bincount(groups[getattr(part, name)] * 3 + labels[getattr(part, name)]) for part in (first, other)
        )
        assert np.array_equal(ours, theirs)


def test_nothing_need_be_held_out_for_validation() -> None:
    split = splits(np.arange(100) % 2, np.arange(100) % 3, test=0.25, validation=0)(0)
    assert [len(part) for part in split] == [75, 0, 25]


def sized(sizes: list[int], part: list[int] | None = None, instead: str | None = None) -> tuple[list[int], list[str]]:
    """Rows that are kept of each group, and what the groups are called."""
    groups = Named(codes=np.repeat(np.arange(len(sizes)), sizes), names=tuple("abcdefg"[: len(sizes)]))
    labels = np.arange(sum(sizes)) % 2
    found = of_fair_size(
        labels, groups, None if part is None else np.array(part), instead=instead, **SHARES  # type: ignore[arg-type]
    )  # fmt: skip
    return np.bincount(found.groups.codes).tolist(), list(found.groups.names)


def test_groups_with_a_row_in_every_part_are_left_as_they_are() -> None:
    assert sized([100, 20]) == ([100, 20], ["a", "b"])
    assert sized([2, 4], part=[0, 2, 0, 0, 1, 2][:2] + [0, 0, 1, 2], instead="drop") == ([4], ["b"])
    assert sized([3, 3], part=[0, 1, 2, 0, 1, 2]) == ([3, 3], ["a", "b"])
    assert sized([2, 2], part=[0, 2, 0, 2]) == ([2, 2], ["a", "b"]), "without a validation part nobody has rows in it"


def test_small_groups_are_merged_or_left_out() -> None:
    """And whoever is too small once they are."""
    sizes = [200, 1, 100, 4, 60, 4, 3]
    assert sized(sizes, instead="merge") == ([200, 100, 60, 12], ["a", "c", "e", OTHERS])
    assert sized(sizes, instead="drop") == ([200, 100, 60], ["a", "c", "e"])


@pytest.mark.parametrize(
    ("sizes", "part", "instead", "words"),
    [
        ([100, 1], None, None,
         "too small to have rows in every part: group 'b' (1 row); set dataset.small_groups=drop to leave such rows "
         "out, or dataset.small_groups=merge to have them as one group"),
        ([100, 1, 2], None, None, "too small to have rows in every part: group 'b' (1 row), 'c' (2 rows); set"),
        ([100, 1], None, "merge",
         "dataset.small_groups=merge leaves too few rows for every part, with group 'b' (1 row) too small: set it to"),
        ([1, 1], [0, 2], "drop",
         "dataset.small_groups=drop leaves too few rows for every part, with group 'a' (1 row), 'b' (1 row) too"),
        ([2, 2], [0, 2, 0, 0], None, "too small to have rows in every part: group 'b' (2 rows); set"),
    ],
)  # fmt: skip
def test_what_is_too_small_is_named(sizes: list[int], part: list[int] | None, instead: str | None, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(words)}"):
        sized(sizes, part, instead)

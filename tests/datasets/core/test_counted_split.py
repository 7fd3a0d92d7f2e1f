"""Counts of parts add up and follow the groups; rows are drawn by the seed and within them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rawls.datasets.core.counted_split import counted_split, counts_of_parts
from rawls.datasets.core.splits import addressed


@given(st.lists(st.integers(2, 80), min_size=2, max_size=6), st.data())
def test_counts_add_up_in_proportion_and_what_is_known_stands(sizes: list[int], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, sizes[0]))
    train = data.draw(st.integers(first, first + sum(sizes[1:])))
    valid = data.draw(st.integers(0, sum(sizes) - train))
    for known in ({}, {0: first}):
        in_train, in_valid = counts_of_parts(sizes, train=train, valid=valid, known=known)
        assert (in_train.sum(), in_valid.sum()) == (train, valid)
        assert all(in_train[group] == count for group, count in known.items())
        rest = sum(size for group, size in enumerate(sizes) if group not in known)
        of_rest = train - sum(known.values())
        for group in range(len(sizes)):
            if group not in known:
                assert abs(in_train[group] - of_rest * sizes[group] / rest) < 1
        left = np.array(sizes) - in_train
        if (left >= 0).all() and left.sum():
            assert (abs(in_valid - valid * left / left.sum()) < 1).all()


def test_a_split_has_the_counts_and_takes_every_row_equally_often() -> None:
    """Seeds 0 to 1,999, 3 of 6 rows: counts are 1,000 +- 22; accept within 100, which rejects 2 of 6."""
    groups = np.array([1, 0, 0, 0, 0, 0, 0, 1, 1])
    counts = np.zeros(9)
    for seed in range(2000):
        split = counted_split(groups, np.array([3, 1]), np.array([2, 0]), addressed(seed, "test"))
        assert sorted(np.concatenate(split)) == list(range(9))
        assert [np.bincount(groups[part], minlength=2).tolist() for part in split] == [[3, 1], [2, 0], [1, 2]]
        assert all((np.diff(part) > 0).all() for part in split)
        counts[split.train] += 1
    assert (abs(counts[1:7] - 1000) < 100).all()
    assert abs(2000 * 2 / 6 - 1000) > 100

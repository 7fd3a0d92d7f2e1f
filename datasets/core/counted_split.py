"""Parts that have so many rows of each group, whatever the seed: splits differ in rows, and not in epsilon.

WYSIWYG shuffles all rows and cuts them without a look at the groups, so that the size of its smallest group, on which
its epsilon hangs, is one of chance.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from rawls.datasets.core.splits import Rows, Split, apportion, draw


def counts_of_parts(
    sizes: Sequence[int], *, train: int, valid: int, known: Mapping[int, int] | None = None
) -> tuple[Rows, Rows]:
    """Training and validation rows of each group, so many in all, in proportion to its size.

    Args:
        known: training rows of the groups of which they are printed, or follow from what is.
    """
    counts = np.zeros(len(sizes), dtype=np.int64)
    for group, count in (known or {}).items():
        counts[group] = count
    others = [group for group in range(len(sizes)) if group not in (known or {})]
    counts[others] = apportion(train - int(counts.sum()), [sizes[group] for group in others])
    return counts, apportion(valid, np.asarray(sizes) - counts)


def counted_split(groups: Rows, train: Rows, valid: Rows, generator: np.random.Generator) -> Split:
    """So many training and validation rows of each group, at random; all others are test rows."""
    train_rows, rest = draw(np.arange(len(groups)), groups, train, generator)
    valid_rows, test_rows = draw(rest, groups, valid, generator)
    return Split(train_rows, valid_rows, test_rows)

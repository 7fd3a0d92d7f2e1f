"""Batch size and epochs that follow from the number of training rows, where a configuration gives none.

For tables of one's own, whose size nobody knew when conf was written. At a rate of 2 % and 1,000 steps the noise of an
epsilon near 1 has a multiplier of about 3: large enough that larger batches would hardly buy more, small enough that
smaller ones would not. Few rows take larger rates, for batches below 16 hold hardly a row of a small group; many take
smaller ones, for time: at 4,096 rows a step a million rows are five epochs.
"""

import math

RATE, LEAST, MOST, STEPS = 0.02, 16, 4096, 1000


def batch_size(rows: int) -> int:
    """Rows of a step."""
    return min(rows, max(LEAST, min(MOST, round(RATE * rows))))


def epochs(rows: int, batch: int) -> int:
    """As many as make STEPS steps."""
    return math.ceil(STEPS / math.ceil(rows / batch))

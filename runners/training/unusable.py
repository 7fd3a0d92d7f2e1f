"""What of the data no method can use, found before training: inputs that are not finite, and labels that are no class.

A row whose inputs are not finite adds nothing to a gradient and is counted as wrong where it is evaluated, so that one
such row spoils no run; but whoever trains has to know how many there are.
"""

from functools import lru_cache

import torch

from rawls.datasets.core.base import Data, InMemory, rows_at_once
from rawls.datasets.core.picked import Picked
from rawls.models.objectives import OBJECTIVES


@lru_cache(maxsize=4)
def unusable(data: Data) -> str:
    """A sentence for the rows whose inputs are not finite; '' if there are none.

    Raises:
        ValueError: labels that number no class.
    """
    labels, most = data.labels, OBJECTIVES[data.loss].num_labels(data.num_classes)
    wrong = torch.zeros(0) if labels.is_floating_point() else labels[(labels < 0) | (labels >= most)]
    if labels.is_floating_point():
        count = int((~labels.isfinite()).sum())
        raise ValueError(f"labels are {labels.dtype}, {count} of {len(labels)} not finite: number the classes from 0")
    if len(wrong):
        raise ValueError(
            f"{len(wrong)} of {len(labels)} labels are no class, the first is {int(wrong[0])}: number the "
            f"{data.num_classes} classes from 0"
        )
    held = data.inputs.inputs if isinstance(data.inputs, Picked) else data.inputs
    if not isinstance(held, InMemory) or not held.tensor.is_floating_point():
        return ""  # bytes and tokens are finite, and what is decoded row by row is made of bytes
    parts = (data.inputs.gather(rows).flatten(1) for rows in torch.arange(len(labels)).split(rows_at_once(held)))
    bad = sum(int((~part.isfinite()).any(1).sum()) for part in parts)
    if not bad:
        return ""
    return (
        f"{bad} of {len(labels)} rows have inputs that are not finite (NaN or infinite): they add nothing to any "
        "gradient and count as wrong; fill or drop them"
    )

"""What is known of a synthetic problem: the risk of every group at any parameters, and the least worst one.

A problem is over linear models of two classes, whose parameters lie in a ball. Its loss is a function of the margin:
label sign x (difference of the two classes' parameters) . (inputs, 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rawls.datasets.core.splits import Rows

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Risks:
    """The risk of every group: the mean loss over a finite distribution of label sign x (inputs, 1).

    Args:
        vectors: [atom, input + 1]; of a linear loss their mean by group is enough.
        chances: [group, atom].
        shifted: [group], whether the loss is raised by its offset.
    """

    vectors: Array
    chances: Array
    shifted: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownRisk:
    """A problem whose answer is known.

    Args:
        radius: of the ball of all parameters.
        population: what rows are drawn from.
        optimum: the least worst risk there, in closed form; None where it must be solved for.
        sample: the risks on given rows.
    """

    radius: float
    population: Risks
    optimum: float | None
    sample: Callable[[Rows], Risks]

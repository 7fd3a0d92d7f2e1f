"""The ranges that fields of methods and configurations share, as types: what lies outside is refused by its sentence.

Upper limits are far above what any paper uses and far below what overflows in single precision.
"""

from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt

Positive = Annotated[float, Ge(1e-9), Le(1e6)]
"""Norms, bounds, rates, ratios: what a number is multiplied or divided by."""

NotNegative = Annotated[float, Ge(0), Le(1e6)]

Share = Annotated[float, Gt(0), Lt(1)]
"""A part of a whole; neither nothing nor all of it."""

Count = Annotated[int, Ge(1), Le(10**9)]

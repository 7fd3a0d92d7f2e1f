"""CelebA as in FDPG's Table 3: predict blond hair; groups are gender x blond; the official split.

As in Esipova et al.'s code the whole image is resized, so that faces come out broader, and nothing is standardised.
FDPG does not say which group is which: weighting its accuracies by the test counts in this order gives its totals.
The images and their extract are those of celeba.py.
"""

from dataclasses import dataclass
from typing import ClassVar

from rawls.datasets.celeba import CelebA


@dataclass(frozen=True, kw_only=True)
class CelebaBlond(CelebA):
    """CelebA with target Blond_Hair."""

    name: ClassVar[str] = "celeba_blond"
    group_names: ClassVar[tuple[str, ...]] = ("non-blond male", "non-blond female", "blond female", "blond male")
    minority_groups: ClassVar[tuple[int, ...]] = (3,)
    label_of_kind: ClassVar[tuple[int, ...]] = (0, 0, 1, 1)
    group_of_kind: ClassVar[tuple[int, ...]] = (1, 0, 2, 3)
    square: ClassVar[bool] = False

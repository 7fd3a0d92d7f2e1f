"""What a model that may begin with weights of a file asks of whoever builds it: where files lie."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from torch import nn


class Pretrained(ABC):
    """A model specification whose weights may come from a file; the others need shapes alone."""

    @abstractmethod
    def build(self, input_shape: tuple[int, ...], num_classes: int, root: Path | None = None) -> nn.Module:
        """The module; its weights are looked for under `root` (a run's data.root) before anywhere else."""

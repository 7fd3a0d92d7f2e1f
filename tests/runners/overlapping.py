"""A dataset whose evaluated groups overlap: rows mention any of three things, or none, and some all three."""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from rawls.datasets.core.base import Data, Dataset, InMemory, Provenance
from rawls.datasets.core.overlapping import Overlapping
from rawls.datasets.core.splits import Split

TARGET = f"{__name__}.Mentions"
THINGS = ("sun", "moon", "star")
EVALUATED = tuple(f"{thing}, {label}" for thing, label in product(THINGS, ("cold", "warm")))
ROWS, TRAIN, VALID = 600, 300, 100


@dataclass(frozen=True, kw_only=True)
class Mentions(Dataset):
    """Four groups are drawn and charged by: a thing is mentioned or none, and the label."""

    name: ClassVar[str] = "overlapping"
    group_names: ClassVar[tuple[str, ...]] = ("none, cold", "some, cold", "none, warm", "some, warm")
    minority_groups: ClassVar[tuple[int, ...]] = (3,)
    apart: ClassVar[bool] = False  # evaluated by the partition, as any other dataset

    @property
    def paper_group_sizes(self) -> tuple[int, ...]:
        return tuple(np.bincount(self.simulate().groups.numpy()[:TRAIN]).tolist())

    def read(self, root: Path, provenance: Provenance) -> Data:
        raise ValueError("there is no file")

    def simulate(self) -> Data:
        generator = np.random.default_rng(0)
        labels = (generator.random(ROWS) < 0.4).astype(np.int64)
        mentions = generator.random((ROWS, 3)) < (0.3, 0.2, 0.1)
        mentions[:4] = [[True] * 3, [False] * 3, [True, True, False], [False, False, True]]
        inputs = generator.standard_normal((ROWS, 5)) + 0.7 * labels[:, None] + mentions.sum(1)[:, None]
        members = np.stack([mentions[:, thing] & (labels == label) for thing, label in product(range(3), (0, 1))], 1)
        rows = np.arange(ROWS)
        return Data(
            inputs=InMemory(torch.from_numpy(inputs.astype(np.float32))),
            labels=torch.from_numpy(labels),
            groups=torch.from_numpy(2 * labels + mentions.any(1)),
            num_classes=2,
            provenance="simulated",
            sources={},
            splits=lambda seed: Split(rows[:TRAIN], rows[TRAIN : TRAIN + VALID], rows[TRAIN + VALID :]),
            overlapping=None if self.apart else Overlapping(names=EVALUATED, members=members),
        )

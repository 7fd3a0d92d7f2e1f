"""Cardiotocography (Campos and Bernardes 2000, UCI; INO-SGD's CA): is a fetus well, by what was heard of it?

2,126 recordings; the inputs are the 21 features that the file's sheet of data numbers itself, with its counts per
second; labels and groups are what experts agreed on: normal, suspect, pathologic (NSP 1 to 3).

The paper says "the default train/validation split" and there is none, nor does it say how inputs are scaled. Ours: a
fifth of each group is test, by the seed; inputs are standardised by the mean and deviation (ddof 1) of all recordings,
as Adult's are. The paper holds nothing out beside that: `validation` takes a share of what is trained on.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import xlrd
from numpy.typing import NDArray

from rawls.datasets.core.base import Data, Dataset, HeldOut, Provenance
from rawls.datasets.core.simulate import simulated_table
from rawls.datasets.core.sources import Source, opened, verified
from rawls.datasets.core.splits import Rows, addressed, seeded_split, shares_of_parts
from rawls.datasets.core.tables import standardised

NUM_INPUTS = 21
COUNTS = (1_655, 295, 176)
TEST_RATE = 0.2
SHEET, HEADER = "Data", 1  # the row above it numbers the features

SOURCE = Source(
    filename="CTG.xls",
    sha256="2fdb760211b125f07e7b1d3d993116c9e289a40480368432b4917d0ff9e4d22b",
    folders=("cardiotocography", "."),
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/00193/CTG.xls",
    page="https://archive.ics.uci.edu/dataset/193/cardiotocography",
)


@dataclass(frozen=True, kw_only=True)
class Cardiotocography(Dataset):
    """Recordings of fetuses by how they are.

    Fields:
        validation: share of the training rows that is held out for validation; the paper holds out none.
    """

    name: ClassVar[str] = "cardiotocography"
    group_names: ClassVar[tuple[str, ...]] = ("normal", "suspect", "pathologic")
    minority_groups: ClassVar[tuple[int, ...]] = (2,)
    assumptions: ClassVar[tuple[str, ...]] = (
        "mean and standard deviation of all inputs are public (they scale the inputs outside the accounting)",
    )
    sources: ClassVar[tuple[Source, ...]] = (SOURCE,)
    validation: HeldOut = 0.0

    @property
    def paper_group_sizes(self) -> tuple[int, ...]:
        """By our split."""
        train, _, _ = shares_of_parts(COUNTS, test=TEST_RATE, validation=self.validation)
        return tuple(train.tolist())

    def read(self, root: Path, provenance: Provenance) -> Data:
        (source,) = self.sources
        with opened(verified(source, root, self.name)) as stream:
            features, labels = read_sheet(stream.read())
        inputs = np.stack([standardised(pd.Series(column)) for column in features.T], axis=1)
        return self._data(inputs, labels, "real", {source.filename: source.sha256})

    def simulate(self) -> Data:
        labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(COUNTS)), COUNTS))
        inputs = simulated_table(labels, labels, numbers=NUM_INPUTS, categories=(), seed=1)
        return self._data(inputs, labels, "simulated", {})

    def _data(self, inputs: NDArray[np.float32], labels: Rows, provenance: Provenance, sources: dict[str, str]) -> Data:
        rows, rates = np.arange(len(labels)), {"test": TEST_RATE, "validation": self.validation}
        return Data.in_memory(
            inputs,
            labels,
            labels,
            num_classes=len(self.group_names),
            provenance=provenance,
            sources=sources,
            splits=lambda seed: seeded_split(rows, labels, addressed(seed, "split"), **rates),
        )


def read_sheet(content: bytes) -> tuple[NDArray[np.float64], Rows]:
    """Features [row, NUM_INPUTS] in the order of their numbers, and labels; rows that are no recordings have none."""
    sheet = xlrd.open_workbook(file_contents=content).sheet_by_name(SHEET)
    numbers = sheet.row_values(HEADER - 1)
    columns = [numbers.index(number) for number in range(1, NUM_INPUTS + 1)]
    of_label = sheet.row_values(HEADER).index("NSP")
    rows = [sheet.row_values(row) for row in range(HEADER + 1, sheet.nrows)]
    rows = [row for row in rows if row[of_label] != ""]
    features = np.array([[row[column] for column in columns] for row in rows], dtype=np.float64)
    return features, np.array([row[of_label] for row in rows], dtype=np.int64) - 1

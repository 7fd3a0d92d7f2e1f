"""Columns of a table as model inputs."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def standardised(column: pd.Series) -> NDArray[np.float32]:
    """The numbers less their mean, in units of their standard deviation (ddof 1); zeros where all are equal."""
    return ((column - column.mean()) / (column.std() or 1.0)).to_numpy(dtype=np.float32)


def one_hot(column: pd.Series) -> NDArray[np.float32]:
    """A bit for each value that occurs [rows, values], in sorted order; a missing one has none."""
    values = np.unique(column.dropna().to_numpy())
    codes = pd.Index(values).get_indexer(column)
    return (codes[:, None] == np.arange(len(values))).astype(np.float32)

"""A few rows of each of Adult's files, which pass for the whole."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from rawls.datasets.core.base import Dataset

TRAIN = b"""\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, Peru, <=50K
52, Private, 209642, HS-grad, 9, Divorced, Sales, Not-in-family, White, Male, 0, 0, 45, Peru, >50K
28, ?, 338409, Bachelors, 13, Divorced, ?, Wife, Black, Female, 0, 0, 40, Cuba, <=50K
37, Private, 284582, Masters, 14, Divorced, Sales, Wife, Black, Female, 0, 0, 40, Cuba, <=50K

"""
TEST = b"""\
|1x3 Cross validator
25, Private, 226802, HS-grad, 9, Never-married, Sales, Own-child, White, Female, 0, 0, 40, Peru, >50K.
44, Private, 160323, HS-grad, 9, Divorced, Sales, Husband, Black, Male, 7688, 0, 40, ?, >50K.
18, Private, 103497, HS-grad, 9, Never-married, Sales, Own-child, White, Male, 0, 0, 30, Cuba, <=50K.

"""


def few_rows(root: Path, dataset: type[Dataset], monkeypatch: pytest.MonkeyPatch) -> None:
    """Put them under root, and have the dataset take them for its own."""
    sources = []
    for source, content in zip(dataset.sources, (TRAIN, TEST), strict=True):
        (root / source.filename).write_bytes(content)
        sources.append(replace(source, sha256=hashlib.sha256(content).hexdigest()))
    monkeypatch.setattr(dataset, "sources", tuple(sources))

"""Adult: rows and encoding by hand, and the real files where they can be had."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch

from rawls.datasets import adult
from rawls.datasets.adult import CATEGORIES, COUNTS, KEPT, NUM_INPUTS, NUMBERS, SEX, Adult, encode
from rawls.datasets.core.adult_rows import read_rows
from rawls.datasets.core.base import Data, InMemory
from tests.datasets.adult_files import TRAIN, few_rows
from tests.tree import ROOT


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Data:
    """Five rows that pass for the whole, three men and two women, of whom one each is a test row."""
    few_rows(tmp_path, Adult, monkeypatch)
    monkeypatch.setattr(adult, "KEPT", 2)
    monkeypatch.setattr(adult, "TEST_RATE", 0.5)
    return Adult().load(tmp_path)


def test_rows_without_a_value_are_dropped_and_the_others_encoded(small: Data) -> None:
    """Row by row, with standard deviations by hand."""
    assert small.provenance == "real"
    assert small.labels.tolist() == [0, 1, 0, 1, 0]
    assert small.groups.tolist() == [0, 0, 1, 1, 0]
    assert isinstance(small.inputs, InMemory)
    inputs = small.inputs.tensor.numpy()
    ages = [39, 52, 37, 25, 18]
    mean = sum(ages) / 5
    spread = (sum((age - mean) ** 2 for age in ages) / 4) ** 0.5
    assert np.allclose(inputs[:, 0], [(age - mean) / spread for age in ages], atol=1e-6)
    assert (inputs[:, NUMBERS.index("capital_loss")] == 0).all()  # all are equal
    assert inputs[:, SEX].tolist() == [0, 0, 1, 1, 0]
    assert inputs[:, SEX + 1].tolist() == [0, 0, 1, 0, 0]  # not white
    workclass = inputs[:, SEX + 2 : SEX + 4]
    assert workclass.tolist() == [[0, 1], [1, 0], [1, 0], [1, 0], [1, 0]]  # Private, State-gov
    assert inputs.shape == (5, 5 + 2 + 2 + 3 + 2 + 2 + 3 + 2)
    assert (inputs[:, SEX + 2 :].sum(1) == len(CATEGORIES)).all()


def test_weights_say_nothing() -> None:
    frame = read_rows(BytesIO(TRAIN)).dropna()
    assert np.array_equal(encode(frame), encode(frame.assign(fnlwgt=0)))


def test_men_are_dropped_until_they_are_as_many_as_the_women(small: Data) -> None:
    kept = set()
    for seed in range(20):
        split = small.splits(seed)
        rows = np.concatenate(split)
        assert len(split.valid) == 0
        assert [sorted(small.groups[part].tolist()) for part in (split.train, split.test)] == [[0, 1], [0, 1]]
        kept.add(tuple(sorted(rows)))
    assert kept == {(0, 1, 2, 3), (0, 2, 3, 4), (1, 2, 3, 4)}


def test_validation_is_a_share_of_what_the_paper_trains_on() -> None:
    assert Adult().paper_group_sizes == (11_756, 11_756)
    assert Adult(validation=0.1).paper_group_sizes == (10_580, 10_581)
    data = Adult(provenance="simulated").load(ROOT), Adult(provenance="simulated", validation=0.1).load(ROOT)
    whole, cut = (each.splits(3) for each in data)
    assert [len(part) for part in cut] == [21_161, 2_351, 5_878]
    assert np.array_equal(cut.test, whole.test)
    assert np.array_equal(np.sort(np.concatenate([cut.train, cut.valid])), whole.train)


def test_the_twin_has_the_sexes_and_their_incomes() -> None:
    data = Adult(provenance="simulated").load(ROOT)
    assert data.inputs.shape == (NUM_INPUTS,) == (98,)
    found = [[int(((data.groups == sex) & (data.labels == label)).sum()) for label in (0, 1)] for sex in (0, 1)]
    assert found == [list(counts) for counts in COUNTS]
    assert torch.equal(data.inputs.gather(torch.arange(100))[:, SEX], data.groups[:100].float())


@pytest.fixture(scope="module")
def real(adult_root: Path) -> Data:
    return Adult(provenance="real").load(adult_root)


def test_the_real_files(real: Data) -> None:
    """Counts of FDPG and of Esipova et al.'s code; 92 steps of 256 rows are what FDPG's epsilon is of."""
    labels, groups = real.labels.numpy(), real.groups.numpy()
    assert np.bincount(2 * groups + labels).reshape(2, 2).tolist() == [list(counts) for counts in COUNTS]
    assert len(groups) == 45_222
    assert np.bincount(groups).tolist() == [30_527, KEPT] == [30_527, 14_695]
    assert isinstance(real.inputs, InMemory)
    inputs = real.inputs.tensor.numpy().astype(np.float64)
    assert inputs.shape[1] == NUM_INPUTS == 98
    assert np.allclose(inputs[:, : len(NUMBERS)].mean(0), 0, atol=1e-5)
    assert np.allclose(inputs[:, : len(NUMBERS)].std(0, ddof=1), 1, atol=1e-5)
    assert (inputs[:, SEX + 2 :].sum(1) == len(CATEGORIES)).all()
    for seed in (0, 1, 7):
        split = real.splits(seed)
        assert np.bincount(groups[split.train]).tolist() == [11_756, 11_756]
        assert np.bincount(groups[split.test]).tolist() == [2_939, 2_939]
        assert -(-len(split.train) // 256) == 92


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    for source in Adult.sources:
        (tmp_path / source.filename).write_bytes(TRAIN)
    with pytest.raises(ValueError, match=r"adult\.data is altered or truncated"):
        Adult().load(tmp_path)

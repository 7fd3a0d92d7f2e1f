"""Adult, all rows: 86 inputs by hand, and those of the real files where they can be had."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rawls.accounting.claims import gdp_clt
from rawls.datasets.adult_census import COUNTS, MAN, NUM_INPUTS, NUMBERS, AdultCensus, encode
from rawls.datasets.core.adult_rows import SOURCES, read_files
from rawls.datasets.core.base import Data, InMemory
from tests.datasets.adult_files import TRAIN, few_rows
from tests.tree import ROOT


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Data:
    """Seven rows that pass for the whole."""
    few_rows(tmp_path, AdultCensus, monkeypatch)
    return AdultCensus().load(tmp_path)


def test_rows_with_unknown_values_stay_and_lack_a_bit(small: Data) -> None:
    """Columns by hand: four numbers, two work-classes, marital states and jobs, four relations, two races, man, and
    two countries."""
    assert small.provenance == "real" and isinstance(small.inputs, InMemory)
    inputs = small.inputs.tensor.numpy()
    assert inputs.shape == (7, 4 + 2 + 2 + 2 + 4 + 2 + 1 + 2)
    assert small.labels.tolist() == [0, 1, 0, 0, 1, 1, 0]
    assert small.groups.tolist() == [0, 1, 2, 2, 3, 1, 0]
    hours = np.array([40, 45, 40, 40, 40, 40, 30])
    assert np.allclose(inputs[:, 0], (hours - hours.mean()) / hours.std(ddof=1), atol=1e-6)
    assert (inputs[:, NUMBERS.index("capital_loss")] == 0).all()  # all are equal
    assert inputs[:, 4:6].tolist() == [[0, 1], [1, 0], [0, 0], [1, 0], [1, 0], [1, 0], [1, 0]]  # Private, State-gov
    assert inputs[:, 8:10].tolist() == [[1, 0], [0, 1], [0, 0], [0, 1], [0, 1], [0, 1], [0, 1]]  # clerical, sales
    assert inputs[:, 16].tolist() == [1, 1, 0, 0, 0, 1, 1]  # men
    assert inputs[:, 17:].tolist() == [[0, 1], [0, 1], [1, 0], [1, 0], [0, 1], [0, 0], [1, 0]]  # Cuba, Peru


def test_age_education_and_weights_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few_rows(tmp_path, AdultCensus, monkeypatch)
    frame = read_files(AdultCensus.sources, tmp_path, "adult_census")
    assert np.array_equal(encode(frame), encode(frame.assign(age=0, education="HS-grad", fnlwgt=0)))
    assert not np.array_equal(encode(frame), encode(frame.assign(education_num=range(7))))


def test_the_twin_has_sexes_incomes_and_the_parts_sizes() -> None:
    data = AdultCensus(provenance="simulated").load(ROOT)
    assert data.inputs.shape == (NUM_INPUTS,) == (86,)
    assert np.bincount(data.groups.numpy()).tolist() == list(COUNTS)
    assert torch.equal(data.groups % 2, data.labels)
    assert torch.equal(data.inputs.gather(torch.arange(100))[:, MAN], 1 - data.groups[:100].float() // 2)
    for seed in (0, 1):
        assert [len(part) for part in data.splits(seed)] == [40_000, 3_000, 5_842]


def test_the_rate_and_the_factor_of_the_paper() -> None:
    """Two printed noises cost about 1.60 and 1.71 by the paper's rule."""
    sizes = AdultCensus().paper_group_sizes
    factor = sum(sizes) / (len(sizes) * min(sizes))
    assert (min(sizes), round(factor, 2)) == (1_449, 6.9)
    for rate, noise, epsilon in ((0.005, 1, 1.60), (0.005 * factor, 5, 1.71)):
        claim = gdp_clt(rate=rate, noise_multiplier=noise, steps=4_000, delta=1 / 80_000)
        assert claim.epsilon == pytest.approx(epsilon, abs=0.006)


@pytest.fixture(scope="module")
def real(adult_root: Path) -> Data:
    return AdultCensus(provenance="real").load(adult_root)


def test_the_real_files(real: Data) -> None:
    assert np.bincount(real.groups.numpy()).tolist() == list(COUNTS)
    assert isinstance(real.inputs, InMemory)
    inputs = real.inputs.tensor.numpy().astype(np.float64)
    assert inputs.shape == (48_842, 86)
    assert np.allclose(inputs[:, :4].mean(0), 0, atol=1e-5) and np.allclose(inputs[:, :4].std(0), 1, atol=1e-4)
    bits = inputs[:, 4:]
    assert set(np.unique(bits)) == {0, 1}
    men = real.groups.numpy() < 2
    assert bits.sum() == 6 * 48_842 - (2_799 + 2_809 + 857) + men.sum()  # less the unknown
    assert np.array_equal(inputs[:, MAN], men)
    for seed in (0, 1, 7):
        split = real.splits(seed)
        assert [len(part) for part in split] == [40_000, 3_000, 5_842]
        assert np.bincount(real.groups.numpy()[split.train]).tolist() == list(AdultCensus().paper_group_sizes)


def test_only_rows_that_stay_without_a_bit_have_86_inputs(adult_root: Path) -> None:
    frame = read_files(SOURCES, adult_root, "adult_census")
    assert encode(frame).shape[1] == 86
    assert encode(frame.dropna()).shape[1] == 85
    assert encode(frame.fillna("?")).shape[1] == 89


def test_scaling_by_all_rows_is_nearly_that_by_the_training_rows(real: Data) -> None:
    """Seeds 0 to 4: means within .01 and deviations within 3 % of 0 and 1, by which the paper's inputs differ."""
    assert isinstance(real.inputs, InMemory)
    for seed in range(5):
        train = real.inputs.tensor.numpy()[real.splits(seed).train, :4].astype(np.float64)
        assert (abs(train.mean(0)) < 0.01).all() and (abs(train.std(0, ddof=1) - 1) < 0.03).all()


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    for source in AdultCensus.sources:
        (tmp_path / source.filename).write_bytes(TRAIN)
    with pytest.raises(ValueError, match=r"adult\.data is altered or truncated"):
        AdultCensus().load(tmp_path)

"""The Dutch census: rows and encoding by hand, and the real file where it is at hand."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rawls.datasets import dutch
from rawls.datasets.core.base import InMemory
from rawls.datasets.dutch import COUNTS, NUM_INPUTS, Dutch
from tests.tree import ROOT

FILE = b"""\
@relation dutch_census_data

@attribute sex {2,1}
@attribute occupation {5_4_9,2_1}

@data

1,6,1131,112,1,1,1,5,111,135,1,2_1
2,10,1122,113,2,1,1,2,111,122,2,5_4_9
1,12,1122,113,1,1,1,2,111,122,2,5_4_9
2,10,1122,113,1,1,3,0,111,122,2,2_1
"""


def test_a_small_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dutch_census_2001.arff").write_bytes(FILE)
    monkeypatch.setattr(dutch, "SOURCE", replace(dutch.SOURCE, sha256=hashlib.sha256(FILE).hexdigest()))
    data = Dutch(provenance="real").load(tmp_path)
    assert isinstance(data.inputs, InMemory)
    assert data.labels.tolist() == [1, 0, 0, 1]
    assert [Dutch.group_names[group] for group in data.groups.tolist()] == ["male", "female", "male", "female"]
    bits, age = data.inputs.tensor[:, :2], data.inputs.tensor[:, 2:5]
    assert bits.tolist() == [[0, 0], [1, 1], [0, 0], [1, 0]]
    assert age.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0], [1, 0, 0]]  # classes 10, 12 and 6, as texts
    assert data.inputs.shape == (2 + 3 + 2 + 2 + 1 + 2 + 3 + 1 + 2 + 2,)
    assert dict(data.sources) == {"dutch_census_2001.arff": dutch.SOURCE.sha256}


def test_the_counts_are_those_the_paper_implies() -> None:
    """189 steps of 256 rows are what its epsilon is of."""
    sizes = Dutch().paper_group_sizes
    assert sizes == (24_118, 24_218)
    assert -(-sum(sizes) // 256) == 189
    assert Dutch(validation=0.1).paper_group_sizes == (21_706, 21_796)


def test_the_twin_has_the_sexes_and_their_occupations() -> None:
    data = Dutch(provenance="simulated", validation=0.1).load(ROOT)
    found = [[int(((data.groups == sex) & (data.labels == label)).sum()) for label in (0, 1)] for sex in (0, 1)]
    assert found == [list(counts) for counts in COUNTS]
    assert torch.equal(data.inputs.gather(torch.arange(100))[:, 0], data.groups[:100].float())
    assert [len(part) for part in data.splits(0)] == [43_502, 4_834, 12_084]


def test_groups_by_sex_and_label_leave_the_rows_of_each_part_where_they_are() -> None:
    by_sex, by_both = (Dutch(provenance="simulated", group_by=by).load(ROOT) for by in (None, "sex_and_label"))
    assert Dutch(group_by="sex_and_label").group_names == (
        "male, not prestigious", "male, prestigious", "female, not prestigious", "female, prestigious",
    )  # fmt: skip
    assert torch.bincount(by_both.groups).tolist() == [count for counts in COUNTS for count in counts]
    assert torch.equal(by_both.groups // 2, by_sex.groups)
    assert torch.equal(by_both.groups % 2, by_sex.labels)
    for part, same in zip(by_sex.splits(3), by_both.splits(3), strict=True):
        assert np.array_equal(part, same)


def test_the_real_file(shared_data: Path) -> None:
    spec = Dutch()
    if spec.found(shared_data) != "real":
        pytest.skip(f"no Dutch census under {shared_data}")
    data = spec.load(shared_data)
    labels, groups = data.labels.numpy(), data.groups.numpy()
    assert np.bincount(groups).tolist() == [30_147, 30_273]
    assert np.bincount(2 * groups + labels).reshape(2, 2).tolist() == [list(counts) for counts in COUNTS]
    assert isinstance(data.inputs, InMemory)
    assert data.inputs.shape == (NUM_INPUTS,) == (59,)
    assert (data.inputs.tensor[:, 2:].sum(1) == 9).all()
    assert data.inputs.tensor[:, :2].sum(0).tolist() == [30_273, 1_477]
    for seed in (0, 4):
        split = data.splits(seed)
        assert [len(part) for part in split] == [48_336, 0, 12_084]
        assert np.bincount(groups[split.train]).tolist() == [24_118, 24_218]
    assert not np.array_equal(data.splits(0).test, data.splits(4).test)


def test_an_altered_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dutch_census_2001.arff").write_bytes(FILE)
    with pytest.raises(ValueError, match=r"dutch_census_2001\.arff is altered or truncated"):
        Dutch().load(tmp_path)

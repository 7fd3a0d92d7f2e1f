"""Surnames: names as bytes between their marks, and the real files where they are at hand."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rawls.datasets.core.base import InMemory
from rawls.datasets.surnames import COUNTRIES, COUNTS, LENGTH, Surnames, encode


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with ten names a country, which pass for the real ones."""
    made = []
    for source in Surnames.sources:
        path = tmp_path / source.home
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.filename.encode() + b" \n" + "É\n".encode() * 8 + b"\nlast")
        made.append(replace(source, sha256=hashlib.sha256(path.read_bytes()).hexdigest()))
    monkeypatch.setattr(Surnames, "sources", tuple(made))
    return tmp_path


def test_a_name_is_its_bytes_between_start_and_end() -> None:
    tokens = encode([b"Ana", "É".encode(), b"x" * 20])
    assert tokens.shape == (3, LENGTH) and tokens.dtype == np.int64
    assert tokens[0].tolist() == [256, 65, 110, 97, 257] + [258] * 17
    assert tokens[1, :5].tolist() == [256, 0xC3, 0x89, 257, 258]
    assert tokens[2].tolist() == [256, *[120] * 20, 257]


def test_small_files(small: Path) -> None:
    data = Surnames().load(small)
    assert data.provenance == "real" and isinstance(data.inputs, InMemory)
    assert np.bincount(data.labels.numpy()).tolist() == [10] * 18
    assert data.inputs.tensor[10, 1:13].tolist() == [*b"Chinese.txt", 257]
    assert [len(part) for part in data.splits(0)] == [144, 0, 36]


def test_a_damaged_or_missing_file_is_refused(small: Path) -> None:
    path = small / Surnames.sources[7].home
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"Greek\.txt is altered or truncated"):
        Surnames().load(small)
    path.unlink()
    with pytest.raises(ValueError, match=r"Greek\.txt .* is not under .*: run `rawls data surnames`, or put it"):
        Surnames(provenance="real").load(small)


def test_the_counts_are_inos() -> None:
    assert sum(COUNTS) == 20_074 and max(COUNTS) == COUNTRIES["Russian"][0] == 9_408
    assert sum(Surnames().paper_group_sizes) == 16_059
    assert Surnames().paper_group_sizes[list(COUNTRIES).index("Russian")] == 7_526


def test_the_twin_has_names_of_letters() -> None:
    tokens = Surnames(provenance="simulated").load(Path("nowhere")).inputs.gather(torch.arange(500))
    assert (tokens[:, 0] == 256).all() and ((tokens == 257).sum(1) == 1).all()
    inner = (tokens != 256) & (tokens != 257) & (tokens != 258)
    assert int(tokens[inner].min()) >= 97 and int(tokens[inner].max()) <= 122
    ends = tokens.argmax(1).where((tokens == 258).any(1), torch.tensor(LENGTH))  # where the filling begins
    assert all((row[end:] == 258).all() and row[end - 1] == 257 for row, end in zip(tokens, ends.tolist(), strict=True))


def test_the_real_files(shared_data: Path) -> None:
    if Surnames().found(shared_data) != "real":
        pytest.skip(f"no surnames under {shared_data}")
    data = Surnames().load(shared_data)
    assert isinstance(data.inputs, InMemory)
    tokens, labels = data.inputs.tensor, data.labels.numpy()
    assert tokens.shape == (20_074, LENGTH) and np.bincount(labels).tolist() == list(COUNTS)
    assert (tokens[:, 0] == 256).all() and ((tokens == 257).sum(1) == 1).all()
    assert int((tokens[:, -1] != 258).sum()) == 1  # the longest name
    for seed in (0, 1):
        split = data.splits(seed)
        assert [len(part) for part in split] == [16_059, 0, 4_015]
        assert np.bincount(labels[split.train]).tolist() == list(Surnames().paper_group_sizes)

"""Chest X-rays: the paper's folder, what stands in for it, and that results say which it was."""

import hashlib
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rawls.datasets import pneumonia
from rawls.datasets.core.base import InMemory
from rawls.datasets.pneumonia import PER_CLASS, STAND_IN, TEST_COUNTS, TRAIN_COUNTS, Pneumonia
from rawls.models.architectures.papernot_cnn import PapernotCnn
from rawls.runners.store.stored import mark_of
from rawls.runners.training.features import provenance_of

GENERATOR = np.random.default_rng(0)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of each class are trained on."""
    monkeypatch.setattr(pneumonia, "PER_CLASS", 2)


@pytest.fixture
def folder(tmp_path: Path, few: None) -> Path:
    """A root with the real folder: of each class three images to train on and one to test on, grey by label."""
    for part, count in (("train", 3), ("test", 1)):
        for label, name in enumerate(
            ("NORMAL/IM-{}.jpeg", "PNEUMONIA/p{}_bacteria_1.jpeg", "PNEUMONIA/p{}_virus_1.jpeg")
        ):
            inside = tmp_path / "pneumonia" / "chest_xray" / part
            (inside / name).parent.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                stream = BytesIO()
                Image.new("L", (40, 30), 50 * label + 20).save(stream, "jpeg")
                (inside / name.format(number)).write_bytes(stream.getvalue())
    return tmp_path


@pytest.fixture
def stand_in(tmp_path: Path, few: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with a small PneumoniaMNIST that passes for the one that is known."""
    path = tmp_path / STAND_IN.home
    path.parent.mkdir()
    labels = {"train": [0, 1, 1, 1], "val": [1, 0, 0, 1], "test": [1, 0, 1]}
    arrays = {f"{part}_labels": np.array(of, dtype=np.uint8)[:, None] for part, of in labels.items()}
    arrays |= {f"{part}_images": GENERATOR.integers(256, size=(len(of), 28, 28)).astype(np.uint8)
               for part, of in labels.items()}  # fmt: skip
    stream = BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    path.write_bytes(stream.getvalue())
    made = hashlib.sha256(stream.getvalue()).hexdigest()
    monkeypatch.setattr(pneumonia, "STAND_IN", replace(STAND_IN, sha256=made))
    return tmp_path


def test_the_papers_folder_has_three_classes_and_two_groups(folder: Path) -> None:
    data = Pneumonia(image_size=10).load(folder)
    assert data.provenance == "real" and data.num_classes == 3 and data.inputs.shape == (1, 10, 10)
    assert data.labels.tolist() == [0] * 3 + [1, 2] * 3 + [0, 1, 2]
    assert data.groups.tolist() == [0] * 3 + [1] * 6 + [0, 1, 1]
    grey = data.inputs.gather(torch.tensor([0, 3, 8])).mean((1, 2, 3)) * 255
    assert torch.allclose(grey, torch.tensor([20.0, 70.0, 120.0]), atol=1.5)
    for seed in (0, 1):
        split = data.splits(seed)
        assert np.bincount(data.labels.numpy()[split.train]).tolist() == [2, 2, 2]
        assert len(split.valid) == 0 and split.test.tolist() == [9, 10, 11]
    assert len({tuple(data.splits(seed).train) for seed in range(9)}) > 1
    assert Pneumonia().fetch(folder) == [folder / "pneumonia" / "chest_xray"]


def test_another_image_is_another_dataset(folder: Path) -> None:
    before = Pneumonia().digest(folder)
    path = folder / "pneumonia" / "chest_xray" / "train" / "NORMAL" / "IM-1.jpeg"
    path.write_bytes(path.read_bytes() + b" ")
    assert before is not None and Pneumonia().digest(folder) not in (before, None)
    assert Pneumonia(provenance="simulated").digest(folder) is None


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [
        (["test/NORMAL/IM-0.jpeg"], r"test holds \[0, 1, 1\] normal, bacterial and viral X-rays, and 1 of each are"),
        (
            ["train/PNEUMONIA/p0_virus_1.jpeg", "train/PNEUMONIA/p2_virus_1.jpeg"],
            r"train holds \[3, 3, 1\] .* and 2 of each are needed: extract the archive",
        ),
    ],
)
def test_a_folder_that_lacks_images_is_refused(folder: Path, lost: list[str], sentence: str) -> None:
    for name in lost:
        (folder / "pneumonia" / "chest_xray" / name).unlink()
    with pytest.raises(ValueError, match=sentence):
        Pneumonia().load(folder)


def test_a_damaged_or_strange_image_is_named(folder: Path) -> None:
    path = folder / "pneumonia" / "chest_xray" / "train" / "NORMAL" / "IM-0.jpeg"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"train/NORMAL/IM-0\.jpeg of pneumonia is missing or altered"):
        Pneumonia().load(folder).inputs.gather(torch.tensor([0]))
    (folder / "pneumonia" / "chest_xray" / "test" / "PNEUMONIA" / "person9.jpeg").write_bytes(b"")
    with pytest.raises(ValueError, match=r"person9\.jpeg of pneumonia says neither bacteria nor virus"):
        Pneumonia().load(folder)


def test_what_stands_in_knows_two_classes_and_says_what_it_is(stand_in: Path) -> None:
    data = Pneumonia().load(stand_in)
    assert data.provenance == "stand-in" and data.num_classes == 2 and set(data.sources) == {STAND_IN.filename}
    assert isinstance(data.inputs, InMemory) and data.inputs.shape == (1, 28, 28)
    assert data.labels.tolist() == data.groups.tolist() == [0, 1, 1, 1, 1, 0, 0, 1, 1, 0, 1]
    split = data.splits(0)
    assert np.bincount(data.labels.numpy()[split.train]).tolist() == [2, 4]
    assert split.train.max() < 8 and split.test.tolist() == [8, 9, 10]
    said = provenance_of(data, PapernotCnn())
    assert (said, mark_of(said)) == ("stand-in data", "STAND-IN DATA")
    assert Pneumonia(max_examples=1000).load(stand_in).provenance == "stand-in"


def test_what_stands_in_is_of_one_size_and_never_passes_for_real(stand_in: Path) -> None:
    with pytest.raises(ValueError, match=r"image_size=64 was asked for, but what stands in .* has 28 pixels: set"):
        Pneumonia(image_size=64).load(stand_in)
    with pytest.raises(ValueError, match="the X-rays are not under"):
        Pneumonia(provenance="real").load(stand_in)
    path = stand_in / STAND_IN.home
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{STAND_IN.filename} is altered or truncated"):
        Pneumonia().load(stand_in)


def test_the_counts_are_the_papers() -> None:
    assert sum(Pneumonia().paper_group_sizes) == 3 * PER_CLASS == 4_023
    assert sum(TEST_COUNTS) == 624 and min(TRAIN_COUNTS) >= PER_CLASS


def test_the_real_stand_in(shared_data: Path) -> None:
    if Pneumonia().found(shared_data) != "stand-in":
        pytest.skip(f"no PneumoniaMNIST under {shared_data}")
    data = Pneumonia().load(shared_data)
    labels, split = data.labels.numpy(), data.splits(0)
    assert np.bincount(labels[:-624]).tolist() == [TRAIN_COUNTS[0], sum(TRAIN_COUNTS[1:])]
    assert np.bincount(labels[split.test]).tolist() == [TEST_COUNTS[0], sum(TEST_COUNTS[1:])]
    assert np.bincount(labels[split.train]).tolist() == [1_341, 2_682]

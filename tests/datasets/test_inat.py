"""iNaturalist 2017: a small folder as the archive has it, and counts that are the competition's and the paper's."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rawls.datasets import inat
from rawls.datasets.inat import COUNTS, KINDS, TRAIN, VALID, Inat


def photograph(shade: int) -> bytes:
    stream = BytesIO()
    Image.new("RGB", (40, 25), (shade, 255 - shade, 128)).save(stream, "jpeg")
    return stream.getvalue()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of each kind two species with three images in all; two of each kind are trained on."""
    monkeypatch.setattr(inat, "COUNTS", dict.fromkeys(KINDS, 3))
    monkeypatch.setattr(inat, "TRAIN", np.full(13, 2))
    monkeypatch.setattr(inat, "VALID", np.full(13, 0))
    for place, kind in enumerate(KINDS):
        for number in range(3):
            species = tmp_path / "inat" / "train_val_images" / kind / f"species {number // 2}"
            species.mkdir(parents=True, exist_ok=True)
            (species / f"{number}.jpg").write_bytes(photograph(18 * place))
    return tmp_path


def test_a_folder_says_what_is_on_an_image(root: Path) -> None:
    data = Inat(image_size=8).load(root)
    assert data.provenance == "real" and data.num_classes == 13 and data.inputs.shape == (3, 8, 8)
    assert torch.equal(data.labels, data.groups)
    assert data.labels.tolist() == [place for place, _ in sorted(enumerate(KINDS), key=lambda of: of[1]) for _ in "123"]
    red = data.inputs.gather(torch.arange(39))[:, 0].mean((1, 2)) * 255
    assert torch.allclose(red, 18.0 * data.labels, atol=2)
    split = data.splits(0)
    assert [np.bincount(data.labels.numpy()[part], minlength=13).tolist() for part in split] == [
        [2] * 13,
        [0] * 13,
        [1] * 13,
    ]
    assert len({tuple(data.splits(seed).train) for seed in range(5)}) == 5
    assert Inat().fetch(root) == [root / "inat" / "train_val_images"]


@pytest.mark.parametrize("lost", ["species 1/2.jpg", "species 0/0.jpg"])
def test_a_folder_that_lacks_an_image_is_refused(root: Path, lost: str) -> None:
    (root / "inat" / "train_val_images" / "Aves" / lost).unlink()
    with pytest.raises(
        ValueError, match=r"train_val_images/Aves holds 2 images, and there are 3: extract https://\S+\.gz"
    ):
        Inat().load(root)


def test_without_images_a_sentence_says_what_to_extract_where(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"extract \S+\.tar\.gz \(186 GB, MD5 7c784e\w+\), and put it.*inat/train"):
        Inat().fetch(tmp_path)


def test_another_image_is_another_dataset_and_a_damaged_one_is_named(root: Path) -> None:
    before = Inat().digest(root)
    path = root / "inat" / "train_val_images" / "Fungi" / "species 1" / "2.jpg"
    assert before is not None and Inat().digest(root) == before and Inat(provenance="simulated").digest(root) is None
    path.write_bytes(path.read_bytes()[:300])
    inat._digest.cache_clear()  # a process looks once
    assert Inat().digest(root) not in (before, None)
    with pytest.raises(ValueError, match=r"image Fungi/species 1/2\.jpg of inat is missing or altered"):
        Inat().load(root).inputs.gather(torch.arange(39))


def test_the_counts_are_the_competitions_and_the_papers() -> None:
    assert sum(COUNTS.values()) == 579_184 + 95_986 == 675_170
    assert (TRAIN.sum(), VALID.sum()) == (550_000, 50_000)
    assert min(Inat().paper_group_sizes) == 309 == TRAIN[KINDS.index("Protozoa")]
    factor = 550_000 / (13 * 309)
    assert factor == pytest.approx(136.918, abs=1e-3)
    exact = 550_000 / 675_170 * np.array(list(COUNTS.values()))
    assert (abs(TRAIN - exact) < 2).all()

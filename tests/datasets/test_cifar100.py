"""CIFAR-100: how records become images and labels."""

import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rawls.datasets.cifar100 import ARCHIVE, Cifar100, read_archive
from rawls.datasets.core.base import InMemory


def archive(path: Path, parts: dict[str, list[tuple[int, int, np.ndarray]]]) -> str:
    """Write (coarse class, fine class, image) of each part; the archive's checksum."""
    with tarfile.open(path, "w:gz") as made:
        for part, records in parts.items():
            content = b"".join(bytes([coarse, fine]) + image.tobytes() for coarse, fine, image in records)
            entry = tarfile.TarInfo(f"cifar-100-binary/{part}.bin")
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


IMAGES = np.random.default_rng(0).integers(256, size=(3, 3, 32, 32), dtype=np.uint8)
PARTS = {"test": [(3, 0, IMAGES[2])], "train": [(7, 1, IMAGES[0]), (7, 0, IMAGES[1])]}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with an archive of two images to train on and one to test on, which passes for the real one."""
    made = archive(tmp_path / ARCHIVE.filename, PARTS)
    monkeypatch.setattr(Cifar100, "sources", (replace(ARCHIVE, sha256=made),))
    monkeypatch.setattr(Cifar100, "train_counts", (1, 1))
    monkeypatch.setattr(Cifar100, "test_counts", (1, 0))
    monkeypatch.setattr(Cifar100, "group_names", ("apple", "aquarium fish"))
    return tmp_path


def test_a_record_is_coarse_class_fine_class_and_colours(small: Path) -> None:
    images, labels, num_train = read_archive(small / ARCHIVE.filename)
    assert np.array_equal(images, IMAGES) and labels.tolist() == [1, 0, 0] and num_train == 2
    data = Cifar100().load(small)
    assert data.provenance == "real" and isinstance(data.inputs, InMemory)
    assert np.array_equal(data.inputs.tensor.numpy(), IMAGES)
    assert [part.tolist() for part in data.splits(0)] == [[0, 1], [], [2]]


def test_a_damaged_archive_is_refused(small: Path) -> None:
    path = small / ARCHIVE.filename
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{ARCHIVE.filename} is altered or truncated"):
        Cifar100().load(small)


def test_there_are_100_classes_of_500() -> None:
    spec = Cifar100()
    assert len(set(spec.group_names)) == 100 and spec.paper_group_sizes == (500,) * 100
    assert [spec.group_names[number] for number in (1, 67, 91, 8, 58)] == [
        "aquarium fish",
        "ray",
        "trout",
        "bicycle",
        "pickup truck",
    ]


def test_the_real_archive(shared_data: Path) -> None:
    if Cifar100().found(shared_data) != "real":
        pytest.skip(f"no CIFAR-100 under {shared_data}")
    labels = Cifar100().load(shared_data).labels.numpy()
    assert np.bincount(labels[:50_000]).tolist() == [500] * 100
    assert np.bincount(labels[50_000:]).tolist() == [100] * 100

"""CIFAR-100-FV: the ten classes and their order, from either file, and labels that training is told wrong."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rawls.datasets import cifar100_fv
from rawls.datasets.cifar100 import ARCHIVE
from rawls.datasets.cifar100_fv import EXTRACT, FINE, Cifar100Fv
from rawls.datasets.core.base import InMemory
from rawls.runners.config.compose import compose, resolve
from rawls.runners.training import setup
from tests.datasets.test_cifar100 import archive

NAMES = "shark flatfish ray trout aquarium_fish bicycle pickup_truck train bus motorcycle"
GENERATOR = np.random.default_rng(0)
# Of each of the ten classes and of a strange one, two images to train on and one to test on.
CLASSES = [*FINE, 2]
TRAIN = [(fine, image) for fine in CLASSES for image in GENERATOR.integers(256, size=(2, 3, 32, 32), dtype=np.uint8)]
TEST = [(fine, image) for fine in CLASSES for image in GENERATOR.integers(256, size=(1, 3, 32, 32), dtype=np.uint8)]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with an archive and an extract of the same images in other orders, which pass for the real ones."""
    archived = tmp_path / "archived" / ARCHIVE.filename
    archived.parent.mkdir()
    train = [TRAIN[row] for row in GENERATOR.permutation(len(TRAIN))]
    parts = {"train": [(0, *record) for record in train], "test": [(0, *record) for record in TEST]}
    whole = replace(ARCHIVE, sha256=archive(archived, parts), folders=("archived",))
    extracted = tmp_path / EXTRACT.folders[0] / EXTRACT.filename
    extracted.parent.mkdir()
    own = {part: [record for record in rows if record[0] in FINE] for part, rows in (("tr", TRAIN), ("te", TEST))}
    images = [np.stack([image for _, image in rows]).transpose(0, 2, 3, 1) for rows in own.values()]
    fine = [np.array([of for of, _ in rows]) for rows in own.values()]
    np.savez(extracted, xtr=images[0], xte=images[1], ytr=fine[0], yte=fine[1])
    some = replace(EXTRACT, sha256=hashlib.sha256(extracted.read_bytes()).hexdigest())
    monkeypatch.setattr(cifar100_fv, "ARCHIVE", whole)
    monkeypatch.setattr(cifar100_fv, "EXTRACT", some)
    monkeypatch.setattr(Cifar100Fv, "sources", (whole,))
    monkeypatch.setattr(Cifar100Fv, "train_counts", (2,) * 10)
    monkeypatch.setattr(Cifar100Fv, "test_counts", (1,) * 10)
    return tmp_path


def test_classes_are_named_in_the_papers_order() -> None:
    assert Cifar100Fv().group_names == tuple(NAMES.replace(" ", ",").replace("_", " ").split(","))
    assert Cifar100Fv().paper_group_sizes == (500,) * 10


def test_both_files_give_the_same_rows(small: Path) -> None:
    whole = Cifar100Fv().load(small)
    assert set(whole.sources) == {ARCHIVE.filename} and whole.provenance == "real"
    (small / "archived" / ARCHIVE.filename).unlink()
    some = Cifar100Fv().load(small)
    assert set(some.sources) == {EXTRACT.filename} and some.provenance == "real"
    assert Cifar100Fv().fetch(small) == [small / EXTRACT.folders[0] / EXTRACT.filename]
    assert isinstance(whole.inputs, InMemory) and isinstance(some.inputs, InMemory)
    assert torch.equal(whole.inputs.tensor, some.inputs.tensor) and torch.equal(whole.labels, some.labels)
    assert some.labels.tolist() == [label for label in range(10) for _ in range(2)] + list(range(10))
    found = {
        (FINE[label], image.tobytes()) for label, image in zip(some.labels, some.inputs.tensor.numpy(), strict=True)
    }
    assert found == {(fine, image.tobytes()) for fine, image in TRAIN + TEST if fine in FINE}


@pytest.mark.parametrize("damaged", [f"archived/{ARCHIVE.filename}", f"{EXTRACT.folders[0]}/{EXTRACT.filename}"])
def test_a_damaged_file_is_refused(small: Path, damaged: str) -> None:
    if damaged.startswith(EXTRACT.folders[0]):
        (small / "archived" / ARCHIVE.filename).unlink()
    path = small / damaged
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{path.name} is altered or truncated"):
        Cifar100Fv().load(small)


def test_training_is_told_a_tenth_of_its_labels_wrong_and_evaluations_none() -> None:
    """Down to the rows that a step draws from; halves of one split are told alike, whatever the run's seed."""
    data = Cifar100Fv(provenance="simulated", label_noise=0.1).load(Path("nowhere"))
    wrong = data.told(0) != data.labels
    assert torch.bincount(data.labels[wrong], minlength=10).tolist() == [50] * 10 and not wrong[5_000:].any()
    split, device = data.splits(0), torch.device("cpu")
    rows = setup.training_rows(data, split, 0, device, data.inputs.gather)
    assert torch.equal(rows.labels, data.told(0)[rows.rows])
    assert int((rows.labels != data.labels[rows.rows]).sum()) == 500
    halves = Cifar100Fv(provenance="simulated", label_noise=0.1, half_of=5).load(Path("nowhere"))
    assert torch.equal(halves.told(1), data.told(5)) and torch.equal(halves.told(2), data.told(5))


def test_label_noise_is_another_run_and_a_share() -> None:
    assert resolve(compose(["dataset=cifar100_fv", "dataset.label_noise=0.1"]))["dataset"]["label_noise"] == 0.1
    with pytest.raises(ValueError, match=r"^dataset\.label_noise=2 must be at least 0 and at most 1"):
        compose(["dataset=cifar100_fv", "dataset.label_noise=2"])


def test_the_real_file(shared_data: Path) -> None:
    if Cifar100Fv().found(shared_data) != "real":
        pytest.skip(f"no CIFAR-100-FV under {shared_data}")
    data = Cifar100Fv().load(shared_data)
    train, valid, test = (np.bincount(data.labels.numpy()[part], minlength=10) for part in data.splits(0))
    assert train.tolist() == [500] * 10 and valid.sum() == 0 and test.tolist() == [100] * 10
    if EXTRACT.filename in data.sources:
        with np.load(shared_data / EXTRACT.folders[0] / EXTRACT.filename) as arrays:
            names = dict(zip(arrays["class_ids"].tolist(), arrays["class_names"].tolist(), strict=True))
        assert [names[fine] for fine in FINE] == NAMES.split()

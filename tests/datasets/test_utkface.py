"""UTKFace: what names say, both forms of made-up faces, and the real ones at 64x64 where they are at hand."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from PIL import Image

from rawls.datasets import utkface
from rawls.datasets.utkface import COUNTS, STAND_IN, TRAIN, VALID, UtkFace
from rawls.models.architectures.logistic import Logistic
from rawls.runners.training.features import provenance_of

MALFORMED = ("39_1_20170116174525125.jpg.chip.jpg", "61_1_20170109142408075.jpg.chip.jpg", "readme.txt")
STRANGE = ("24_0_1_20170116220224657 .jpg.chip.jpg", "55_0_0_20170116232725357jpg.chip.jpg")  # and yet they say all


def names() -> Iterator[str]:
    """Three faces or more of each race and gender, and all kinds of strange names."""
    for race in range(5):
        for gender in range(2):
            for number in range(3):
                yield f"{20 + number}_{gender}_{race}_2017011617452512{number}.jpg.chip.jpg"
    yield from STRANGE
    yield from MALFORMED


def face(name: str) -> bytes:
    """Wider than high, and as dark as its name says."""
    shade = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 256
    stream = BytesIO()
    Image.new("RGB", (30, 20), (shade, shade, shade)).save(stream, "jpeg")
    return stream.getvalue()


@pytest.fixture(params=["folder", "archive"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A few faces in the paper's folder, or as what stands in; two of each group are trained on."""
    counts = np.full(10, 3) + np.eye(10, dtype=int)[0] + np.eye(10, dtype=int)[2]
    for constant, value in (("COUNTS", tuple(counts)), ("TRAIN", np.full(10, 2)), ("VALID", np.full(10, 0))):
        monkeypatch.setattr(utkface, constant, value)
    if request.param == "folder":
        folder = tmp_path / "utkface" / "UTKFace"
        folder.mkdir(parents=True)
        for name in names():
            (folder / name).write_bytes(face(name))
        return tmp_path
    path = tmp_path / STAND_IN.home
    path.parent.mkdir()
    with ZipFile(path, "w") as archive:
        for name in names():
            archive.writestr(name, face(name))
    made = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(utkface, "STAND_IN", replace(STAND_IN, sha256=made))
    return tmp_path


def test_names_say_race_and_gender_and_those_that_do_not_are_left_out(root: Path) -> None:
    data = UtkFace(image_size=16).load(root)
    kept = sorted(set(names()) - set(MALFORMED))
    assert len(data.labels) == len(kept) == 32
    for row, name in enumerate(kept):
        _, gender, race, _ = name.split("_")
        assert data.labels[row] == int(gender)
        race_name = ("White", "Black", "Asian", "Indian", "other")[int(race)]
        assert UtkFace.group_names[int(data.groups[row])] == f"{race_name} {('male', 'female')[int(gender)]}"
    rows = torch.arange(32)
    with_pil = [
        np.asarray(Image.open(BytesIO(face(name))).resize((16, 16), Image.Resampling.BILINEAR)) for name in kept
    ]
    expected = torch.from_numpy(np.stack(with_pil)).permute(0, 3, 1, 2) / 255
    assert torch.allclose(data.inputs.gather(rows), expected, atol=1e-6)
    split = data.splits(0)
    assert np.bincount(data.groups.numpy()[split.train]).tolist() == [2] * 10
    assert np.bincount(data.groups.numpy()[split.test]).tolist() == [2, 1, 2, *[1] * 7]


def test_only_the_papers_folder_passes_for_real(root: Path) -> None:
    data = UtkFace().load(root)
    if (root / "utkface").is_dir():
        assert data.provenance == "real" and not data.sources
        assert UtkFace().fetch(root) == [root / "utkface" / "UTKFace"]
        return
    assert data.provenance == "stand-in" and set(data.sources) == {"utkface_64.zip"}
    assert provenance_of(data, Logistic()) == "stand-in data"
    for asked in (lambda: UtkFace(provenance="real").load(root), lambda: UtkFace().fetch(root)):
        with pytest.raises(
            ValueError, match=r"not under .* `rawls data utkface` knows no checksum .*put it, the folder"
        ):
            asked()


@pytest.mark.parametrize("root", ["folder"], indirect=True)
def test_a_folder_that_lacks_a_face_is_refused(root: Path) -> None:
    (root / "utkface" / "UTKFace" / "20_1_3_20170116174525120.jpg.chip.jpg").unlink()
    with pytest.raises(ValueError, match=r"UTKFace holds 2 faces of group 'Indian female', and there are 3: extract"):
        UtkFace().load(root)


@pytest.mark.parametrize("root", ["folder"], indirect=True)
def test_another_face_is_another_dataset_and_a_damaged_one_is_named(root: Path) -> None:
    before = UtkFace().digest(root)
    path = root / "utkface" / "UTKFace" / "20_1_3_20170116174525120.jpg.chip.jpg"
    path.write_bytes(path.read_bytes()[:300])
    assert before is not None and UtkFace().digest(root) not in (before, None)
    assert UtkFace(provenance="simulated").digest(root) is None
    data = UtkFace().load(root)
    with pytest.raises(ValueError, match=r"20_1_3_\S+\.jpg of utkface is missing or altered"):
        data.inputs.gather(torch.arange(32))


@pytest.mark.parametrize("root", ["archive"], indirect=True)
def test_a_damaged_archive_is_refused(root: Path) -> None:
    path = root / STAND_IN.home
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"utkface_64\.zip is altered or truncated"):
        UtkFace().load(root)


def test_the_counts_are_what_the_papers_epsilons_are_of() -> None:
    """The factor by which the smallest group's rate exceeds the mean one; and there are 4,708 test rows in print."""
    assert (TRAIN.sum(), VALID.sum()) == (17_000, 2_000)
    assert min(UtkFace().paper_group_sizes) == 547
    factor = 17_000 / (10 * 547)
    assert factor == pytest.approx(3.10786, abs=1e-5)
    assert sum(COUNTS) + 3 + 1 == 17_000 + 2_000 + 4_708  # three names are malformed, one face is not among ours


def test_the_faces_at_64_pixels(shared_data: Path) -> None:
    if UtkFace().found(shared_data) != "stand-in":
        pytest.skip(f"no faces at 64x64 under {shared_data}")
    data = UtkFace().load(shared_data)
    assert data.provenance == "stand-in"
    assert np.bincount(data.groups.numpy()).tolist() == list(COUNTS)
    assert np.bincount(data.labels.numpy()).tolist() == [12_390, 11_314]
    for seed in (0, 1):
        split = data.splits(seed)
        assert [len(part) for part in split] == [17_000, 2_000, 4_704]
        assert np.bincount(data.groups.numpy()[split.train]).tolist() == list(UtkFace().paper_group_sizes)
    assert not np.array_equal(data.splits(0).train, data.splits(1).train)
    batch = data.inputs.gather(torch.from_numpy(data.splits(0).train[:64]))
    assert batch.shape == (64, 3, 64, 64) and 0 <= batch.min() < 0.1 < 0.9 < batch.max() <= 1

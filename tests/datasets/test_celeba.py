"""CelebA: both layouts of made-up images, decoding against PIL, and the extract where it is at hand."""

import hashlib
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from PIL import Image

from rawls.datasets import celeba
from rawls.datasets.celeba import GROUP_NAMES, CelebA
from rawls.datasets.celeba_blond import CelebaBlond
from rawls.datasets.celeba_eyeglasses import CelebaEyeglasses
from rawls.datasets.celeba_hair import CelebaHair
from rawls.datasets.core import decoded

NUM_IMAGES = 24


def jpeg(number: int) -> bytes:
    """A made-up photograph of the aligned size."""
    pixels = np.random.default_rng(number).integers(256, size=(7, 6, 3), dtype=np.uint8)
    stream = BytesIO()
    Image.fromarray(pixels).resize((178, 218)).save(stream, "jpeg", quality=95)
    return stream.getvalue()


IMAGES = {f"{number:06d}.jpg": jpeg(number) for number in range(1, NUM_IMAGES + 1)}


def attributes(number: int) -> tuple[int, int]:
    """(blond, male) of an image, -1 or 1, all four pairs."""
    return (1 if number % 4 >= 2 else -1, 1 if number % 2 else -1)


def glasses(number: int) -> int:
    """Eyeglasses of an image, -1 or 1, with and without the others."""
    return 1 if number % 3 == 0 else -1


@pytest.fixture(params=["folder", "archive"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small CelebA as torchvision lays it out; its checksums stand in for the real ones."""
    folder = tmp_path / "celeba"
    folder.mkdir()
    lines = [str(NUM_IMAGES), "Bald Blond_Hair Eyeglasses Male "]
    parts = []
    for number, name in enumerate(IMAGES, start=1):
        blond, male = attributes(number)
        lines.append(f"{name} -1 {blond:2d} {glasses(number):2d} {male:2d}")
        parts.append(f"{name} {min(2, (number - 1) // 8)}")
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    (folder / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    if request.param == "folder":
        (folder / "img_align_celeba").mkdir()
        for name, content in IMAGES.items():
            (folder / "img_align_celeba" / name).write_bytes(content)
    else:
        with ZipFile(folder / "img_align_celeba.zip", "w") as archive:
            for name, content in IMAGES.items():
                archive.writestr(f"img_align_celeba/{name}", content)
    for constant in ("ATTRIBUTES", "PARTITION", "IMAGES"):
        source = getattr(celeba, constant)
        path = folder / source.filename
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            monkeypatch.setattr(celeba, constant, replace(source, sha256=digest, url=None))
    return tmp_path


def naive(name: str, size: int, *, square: bool = True) -> np.ndarray:
    """Crop by hand, resize, divide."""
    with Image.open(BytesIO(IMAGES[name])) as image:
        top = (image.height - image.width) // 2
        part = image.crop((0, top, image.width, top + image.width)) if square else image
        pixels = np.asarray(part.resize((size, size), Image.Resampling.BILINEAR), dtype=np.float64) / 255
    return pixels.transpose(2, 0, 1)


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_the_official_parts_groups_and_images(root: Path, monkeypatch: pytest.MonkeyPatch, cache_bytes: int) -> None:
    monkeypatch.setattr(decoded, "DECODE_CACHE_BYTES", cache_bytes)
    data = CelebA(image_size=16).load(root)
    assert data.provenance == "real"
    assert data.splits(0).train.tolist() == data.splits(7).train.tolist() == list(range(8))
    assert [len(part) for part in data.splits(0)] == [8, 8, 8]
    for row in range(NUM_IMAGES):
        blond, male = attributes(row + 1)
        expected = f"{'blond' if blond == 1 else 'non-blond'} {'male' if male == 1 else 'female'}"
        assert GROUP_NAMES[int(data.groups[row])] == expected
        assert data.labels[row] == (male == 1)
    assert GROUP_NAMES[CelebA.minority_groups[0]] == "blond male"
    rows = torch.tensor([5, 2, 5, 23])
    for _ in range(2):
        batch = data.inputs.gather(rows)
        assert batch.dtype == torch.float32
        assert batch.shape == (4, 3, 16, 16)
        for image, row in zip(batch, rows.tolist(), strict=True):
            assert np.allclose(image.numpy(), naive(f"{row + 1:06d}.jpg", 16), atol=1e-5)
    assert data.inputs.gather(rows[:0]).shape == (0, 3, 16, 16)


@pytest.mark.parametrize("root", ["folder"], indirect=True)
@pytest.mark.parametrize("spec", [CelebaEyeglasses(image_size=16), CelebaBlond(image_size=16)], ids=lambda s: s.name)
def test_the_tasks_of_fdpg_take_the_whole_image(root: Path, spec: CelebA) -> None:
    data = spec.load(root)
    assert [part.tolist() for part in data.splits(0)] == [part.tolist() for part in CelebA().load(root).splits(0)]
    for row in range(NUM_IMAGES):
        (blond, male), worn = attributes(row + 1), glasses(row + 1)
        sex = "male" if male == 1 else "female"
        label, name = worn == 1, sex
        if spec.name == "celeba_blond":
            label, name = blond == 1, f"{'blond' if blond == 1 else 'non-blond'} {sex}"
        assert data.labels[row] == label
        assert spec.group_names[int(data.groups[row])] == name
    image = data.inputs.gather(torch.tensor([5]))[0].numpy()
    assert np.allclose(image, naive("000006.jpg", 16, square=False), atol=1e-5)
    assert not np.allclose(image, naive("000006.jpg", 16), atol=0.05)


@pytest.mark.parametrize("root", ["folder"], indirect=True)
def test_the_task_of_wysiwyg_is_hair_of_faces_that_are_not_squeezed(root: Path) -> None:
    data, other = CelebaHair(image_size=16).load(root), CelebA(image_size=16).load(root)
    assert torch.equal(data.groups, other.groups) and CelebaHair().paper_group_sizes == CelebA().paper_group_sizes
    assert data.labels.tolist() == [attributes(row + 1)[0] == 1 for row in range(NUM_IMAGES)]
    rows = torch.arange(NUM_IMAGES)
    assert torch.equal(data.inputs.gather(rows), other.inputs.gather(rows))
    assert [part.tolist() for part in data.splits(2)] == [part.tolist() for part in other.splits(0)]


@pytest.mark.parametrize("root", ["folder"], indirect=True)
def test_a_split_by_the_seed_has_the_official_counts(root: Path) -> None:
    official, data = CelebaHair(image_size=16).load(root), CelebaHair(image_size=16, split="seeded").load(root)
    kinds = data.groups.numpy()
    for seed in (1, 2):
        split = data.splits(seed)
        assert np.array_equal(np.sort(np.concatenate(split)), np.arange(NUM_IMAGES))
        for part, given in zip(split, official.splits(seed), strict=True):
            assert np.bincount(kinds[part]).tolist() == np.bincount(kinds[given]).tolist()
            assert not np.array_equal(part, given)
    assert not np.array_equal(data.splits(1).train, data.splits(2).train)
    twin = CelebaHair(provenance="simulated", split="seeded").load(root)
    train = twin.splits(1).train
    assert tuple(np.bincount(twin.groups.numpy()[train])) == CelebaHair().paper_group_sizes
    assert train.max() > 162_770


@pytest.mark.parametrize("root", ["folder"], indirect=True)  # an archive is verified as a whole
def test_a_damaged_image_is_named(root: Path) -> None:
    path = root / "celeba" / "img_align_celeba" / "000003.jpg"
    path.write_bytes(IMAGES["000003.jpg"][:700])
    with pytest.raises(ValueError, match=r"000003\.jpg of celeba is missing or altered"):
        CelebA().load(root).inputs.gather(torch.tensor([2]))


@pytest.mark.parametrize("root", ["folder"], indirect=True)
def test_a_folder_that_lacks_an_image_is_refused_before_any_is_read(root: Path) -> None:
    (root / "celeba" / "img_align_celeba" / "000017.jpg").unlink()
    with pytest.raises(ValueError, match=r"lacks 1 of the 24 images.* \(000017\.jpg for one\): extract .*\.zip again"):
        CelebA().load(root)


@pytest.mark.parametrize("root", ["archive"], indirect=True)
def test_a_partial_folder_gives_way_to_a_whole_archive(root: Path) -> None:
    folder = root / "celeba" / "img_align_celeba"
    folder.mkdir()
    (folder / "000001.jpg").write_bytes(IMAGES["000001.jpg"])
    data = CelebA(image_size=16).load(root)
    assert "img_align_celeba.zip" in data.sources
    assert np.allclose(data.inputs.gather(torch.tensor([5]))[0].numpy(), naive("000006.jpg", 16), atol=1e-5)
    assert CelebA().fetch(root)[2].name == "img_align_celeba.zip"


@pytest.mark.parametrize("root", ["folder"], indirect=True)
def test_a_partial_folder_does_not_count_as_fetched(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "celeba" / "img_align_celeba" / "000017.jpg").unlink()
    monkeypatch.setattr(celeba, "IMAGES", replace(celeba.IMAGES, url=None))
    with pytest.raises(ValueError, match=r"img_align_celeba\.zip .* could not be obtained"):
        CelebA().fetch(root)


def test_an_altered_list_is_refused(root: Path) -> None:
    path = root / "celeba" / "list_attr_celeba.txt"
    path.write_text(path.read_text().replace("-1  1", " 1  1"))
    with pytest.raises(ValueError, match=r"list_attr_celeba\.txt is altered or truncated"):
        CelebA().load(root)


def test_files_at_hand_need_no_fetching(root: Path) -> None:
    paths = [path.relative_to(root / "celeba").as_posix() for path in CelebA().fetch(root)]
    assert paths[:2] == ["list_attr_celeba.txt", "list_eval_partition.txt"]
    assert paths[2].startswith("img_align_celeba")


@pytest.mark.parametrize("root", ["folder"], indirect=True)
def test_extracted_images_are_told_apart_by_names_and_sizes(root: Path) -> None:
    folder = root / "celeba" / "img_align_celeba"
    first = CelebA().digest(root)
    assert first is not None and CelebA().digest(root) == first and CelebA(provenance="simulated").digest(root) is None
    (folder / "000003.jpg").write_bytes(IMAGES["000003.jpg"] + b" ")
    celeba._images_digest.cache_clear()  # a process looks once
    assert CelebA().digest(root) not in (first, None)


@pytest.mark.parametrize("root", ["archive"], indirect=True)
def test_an_archive_is_pinned(root: Path) -> None:
    assert CelebA().digest(root) is None
    (root / "celeba" / "img_align_celeba").mkdir()  # a partial folder gives way to it
    assert CelebA().digest(root) is None


def test_the_counts_of_the_official_parts() -> None:
    parts = (celeba.TRAIN_GROUP_SIZES, celeba.VALID_GROUP_SIZES, celeba.TEST_GROUP_SIZES)
    assert [sum(part) for part in parts] == [sum(part) for part in CelebaEyeglasses.kind_sizes]
    assert [sum(part) for part in parts] == [162_770, 19_867, 19_962]
    assert CelebaBlond().paper_group_sizes == (66_874, 71_629, 22_880, 1_387)
    assert CelebaEyeglasses().paper_group_sizes == (68_261, 94_509)
    men, women = zip(*((part[1] + part[3], part[0] + part[2]) for part in CelebaEyeglasses.kind_sizes), strict=True)
    assert (sum(men), sum(women)) == (84_434, 118_165)  # as FDPG prints them


def test_the_extract_of_real_images(shared_data: Path) -> None:
    spec = CelebA()
    if not spec.found(shared_data):
        pytest.skip(f"no CelebA files under {shared_data}")
    data = spec.load(shared_data)
    assert data.provenance == "subset"
    assert np.bincount(data.groups.numpy()).tolist() == [4_412, 4_136, 1_371, 81]
    first, other = data.splits(0), data.splits(1)
    assert [len(part) for part in first] == [7_000, 1_500, 1_500]
    assert np.bincount(data.groups.numpy()[first.train]).tolist() == [3_088, 2_896, 959, 57]
    assert not np.array_equal(first.train, other.train)
    assert np.array_equal(np.sort(np.concatenate(first)), np.arange(10_000))
    batch = data.inputs.gather(torch.from_numpy(first.train[:64]))
    assert batch.shape == (64, 3, 64, 64)
    assert 0 <= batch.min() < 0.1 < 0.9 < batch.max() <= 1


def test_the_task_of_wysiwyg_on_the_extract(shared_data: Path) -> None:
    if CelebA().found(shared_data) != "subset":
        pytest.skip(f"no extract of CelebA under {shared_data}")
    data = CelebaHair().load(shared_data)
    assert data.provenance == "subset" and data.labels.sum() == 1_371 + 81
    assert np.bincount(2 * data.groups.numpy() + data.labels.numpy()).tolist() == [4_412, 0, 4_136, 0, 0, 1_371, 0, 81]
    parts = {split: CelebaHair(split=split).load(shared_data).splits(1) for split in (None, "seeded")}
    assert all(np.array_equal(*both) for both in zip(*parts.values(), strict=True))


def test_the_tasks_of_fdpg_on_the_extract(shared_data: Path) -> None:
    if CelebA().found(shared_data) != "subset":
        pytest.skip(f"no extract of CelebA under {shared_data}")
    blond, worn = CelebaBlond().load(shared_data), CelebaEyeglasses().load(shared_data)
    assert blond.provenance == worn.provenance == "subset"
    assert np.bincount(blond.groups.numpy()).tolist() == [4_136, 4_412, 1_371, 81]
    assert blond.labels.sum() == 1_371 + 81
    assert np.bincount(2 * worn.groups.numpy() + worn.labels.numpy()).tolist() == [3_693, 524, 5_633, 150]
    for data in (blond, worn):
        assert [len(part) for part in data.splits(0)] == [7_000, 1_500, 1_500]
    assert np.bincount(blond.groups.numpy()[blond.splits(0).test]).tolist() == [620, 662, 206, 12]
    assert np.bincount(worn.groups.numpy()[worn.splits(0).test]).tolist() == [633, 867]
    assert worn.inputs.shape == (3, 64, 64)

"""A folder of images of one's own, and the table that says what they are."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from rawls.datasets import image_folder
from rawls.datasets.image_folder import ImageFolder
from tests.datasets.own.made import faces, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return faces(tmp_path / "faces")


def images(folder: Path, **fields: Any) -> ImageFolder:
    given: dict[str, Any] = {"path": str(folder), "label": "bright", "group": "place", "image_size": 12}
    return ImageFolder(**given | fields)


def rewritten(folder: Path, **columns: list[str]) -> Path:
    """With another table of the same images."""
    table = [line.split(",") for line in (folder / "metadata.csv").read_text().splitlines()]
    told = {name: [row[at] for row in table[1:]] for at, name in enumerate(table[0])}
    write(folder / "metadata.csv", told | columns)
    return folder


def test_images_are_what_the_table_says_of_them(folder: Path) -> None:
    spec = images(folder)
    data = spec.load(Path("nowhere"))
    assert spec.group_names == ("a", "b") and data.num_classes == 2 and data.provenance == "real"
    assert spec.assumptions == () and data.labels.tolist() == [number % 2 for number in range(60)]
    batch = data.inputs.gather(torch.tensor([0, 1, 0]))
    assert batch.shape == (3, 3, 12, 12) and batch.dtype == torch.float32
    assert torch.equal(batch[0], batch[2]) and batch[1].mean() > batch[0].mean() + 0.3
    with Image.open(folder / "images" / "1.png") as image:
        middle = image.crop((2, 0, 22, 20)).resize((12, 12), Image.Resampling.BILINEAR)
    assert np.allclose(batch[1].permute(1, 2, 0), np.asarray(middle) / 255)


def test_rows_that_are_left_out_take_their_images_along(folder: Path) -> None:
    whole = images(folder).load(Path())
    bright = ["" if number == 0 else ["no", "yes"][number % 2] for number in range(60)]
    fewer = images(rewritten(folder, bright=bright)).load(Path())
    assert len(fewer.labels) == 59
    assert torch.equal(fewer.inputs.gather(torch.tensor([0])), whole.inputs.gather(torch.tensor([1])))


def test_a_run_is_told_by_the_table_and_every_image(folder: Path, tmp_path: Path) -> None:
    digest = images(folder).digest(Path())
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(folder, elsewhere)
    assert images(elsewhere).digest(Path()) == digest
    for path in (elsewhere / "images" / "59.png", elsewhere / "metadata.csv"):
        image_folder._digest.cache_clear()  # a new process
        before = path.read_bytes()
        path.write_bytes(before + b"\n")
        assert images(elsewhere).digest(Path()) != digest
        path.write_bytes(before)
    image_folder._digest.cache_clear()
    assert images(elsewhere).digest(Path()) == digest


def test_what_was_found_is_told(folder: Path) -> None:
    found = images(
        rewritten(folder, filename=["images/0.png", *(f"images/{n}.png" for n in [0, *range(2, 60)])])
    ).findings
    assert found.splitlines()[0] == f"{folder}/metadata.csv: 60 rows of 3 columns by commas, in UTF-8"
    for line in (
        "2 classes of bright: no (30), yes (30)",
        "- images of 12 x 12 in three colours, the middle of each in filename",
        "- 1 row with an image that another row has too",
        "nothing private is read outside the accounting",
    ):
        assert line in found.splitlines()


def test_what_is_wrong_is_one_sentence_with_the_way_out(folder: Path) -> None:
    def sentence(**fields: Any) -> str:
        image_folder._listed.cache_clear()
        with pytest.raises(ValueError) as caught:
            assert images(folder, **fields).findings
        assert "\n" not in str(caught.value)
        return str(caught.value)

    table = re.escape(f"{folder}/metadata.csv")
    assert re.search(rf"/metdata.csv is not there: did you mean {table}\?$", sentence(metadata="metdata.csv"))
    assert sentence(file="file_name").startswith(
        "dataset.file names the column 'file_name', which is not there: did you"
    )
    (folder / "images" / "3.png").write_bytes(b"no image")
    assert sentence() == (
        f"{folder}/images/3.png is no image that can be read (UnidentifiedImageError): replace it, or leave its row "
        "out of metadata.csv"
    )
    (folder / "images" / "3.png").unlink()
    (folder / "images" / "7.png").unlink()
    assert sentence() == (
        f"row 4 of {folder}/metadata.csv names 'images/3.png', which is not in {folder}; so 2 rows of 60: put the "
        "images there, or leave these rows out"
    )
    rewritten(folder, filename=["", *(f"images/{number}.png" for number in range(1, 60))])
    assert sentence().startswith(f"row 1 of {folder}/metadata.csv has no filename; so 3 rows of 60: ")


def test_an_image_that_is_damaged_later_names_itself(folder: Path) -> None:
    data = images(folder).load(Path())
    path = folder / "images" / "5.png"
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(ValueError, match=r"image images/5.png of .* replace it, or leave its row out of metadata.csv$"):
        data.inputs.gather(torch.tensor([5]))

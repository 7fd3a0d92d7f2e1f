"""Files of one's own, made small: a table of persons, images of two shades, and the commands that train on them."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

Columns = Mapping[str, Sequence[object]]
OWN = ("image_folder", "table")  # datasets of conf/dataset that are nothing without a path


def persons(num_rows: int = 240, seed: int = 0) -> dict[str, list[object]]:
    """Whether one is paid well, by age, job and luck; of three clinics, two sexes, with missing cells."""
    generator = np.random.default_rng(seed)
    age = generator.integers(18, 80, num_rows)
    job = generator.choice(["clerk", "cook", "nurse"], num_rows)
    paid = age + 20 * (job == "nurse") + generator.normal(0, 10, num_rows) > 55
    height = [f"{number:.1f}" for number in generator.normal(170, 9, num_rows)]
    return {
        "age": age.tolist(),
        "job": ["" if row % 17 == 3 else name for row, name in enumerate(job)],
        "height": ["NA" if row % 29 == 5 else text for row, text in enumerate(height)],
        "sex": generator.choice(["f", "m"], num_rows, p=[0.3, 0.7]).tolist(),
        "clinic": generator.choice(["north", "east", "south"], num_rows).tolist(),
        "paid": np.where(paid, "well", "badly").tolist(),
    }


def write(path: Path, columns: Columns, *, delimiter: str = ",", encoding: str = "utf-8") -> Path:
    """The columns as a CSV file."""
    with path.open("w", newline="", encoding=encoding) as file:
        rows = csv.writer(file, delimiter=delimiter)
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    return path


def faces(folder: Path, num_images: int = 60) -> Path:
    """Bright and dark images, of two groups, in a folder with their table."""
    generator = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    bright = np.arange(num_images) % 2
    for number in range(num_images):
        pixels = generator.integers(0, 100, (20, 24, 3)) + 120 * bright[number]
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "images" / f"{number}.png")
    table = {
        "filename": [f"images/{number}.png" for number in range(num_images)],
        "bright": np.where(bright, "yes", "no").tolist(),
        "place": generator.choice(["a", "b"], num_images).tolist(),
    }
    write(folder / "metadata.csv", table)
    return folder


def overrides(name: str, folder: Path) -> list[str]:
    """What a dataset must be told, with files in the folder; nothing for those that papers know."""
    if name == "table":
        path, fields = write(folder / "persons.csv", persons()), ("label=paid", "group=sex")
    elif name == "image_folder":
        path, fields = faces(folder / "faces"), ("label=bright", "group=place")
    else:
        return []
    return [f"dataset.path={path}", *(f"dataset.{field}" for field in fields)]

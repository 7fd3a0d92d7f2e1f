"""Small runs that were trained to their end, for tests of what becomes of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rawls.runners.config.compose import composer, run_id
from rawls.runners.store.results_store import Store
from rawls.runners.training.fleet import train_fleet
from tests.datasets.own.made import faces, persons, write

SMALLEST = ["scale=smoke", "schedule.max_steps=3", "schedule.evaluations=1", "tracking=off"]
BOUNDS = "dataset.bounds={age:[18,80]}"


def trained(root: Path, *overrides: str, model: dict[str, Any] | None = None) -> Path:
    """The folder of one run; of a model that no YAML describes, if one is given."""
    config = composer()([*SMALLEST, *overrides, f"results.root={root}"])
    config = config if model is None else config | {"model": model}
    store = Store(root)
    folder = store.claim(run_id(config), config)
    assert folder is not None
    train_fleet([config], [folder], lambda message: None)
    return store.folder(run_id(config))


def table(folder: Path) -> list[str]:
    """What trains on a table of persons in this folder, with missing cells, texts, and bounds for one column."""
    path = write(folder / "persons.csv", persons(400))
    return ["dataset=table", f"dataset.path={path}", "dataset.label=paid", "dataset.group=[sex,clinic]", BOUNDS]


def images(folder: Path) -> list[str]:
    return [
        "dataset=image_folder", f"dataset.path={faces(folder / 'faces')}", "dataset.label=bright",
        "dataset.group=place", "dataset.image_size=16",
    ]  # fmt: skip


def columns_of(path: Path) -> dict[str, Sequence[str]]:
    """The cells of a CSV file, as they stand there."""
    import csv

    with path.open(newline="", encoding="utf-8") as file:
        names, *rows = csv.reader(file)
    return dict(zip(names, zip(*rows, strict=True), strict=True))

"""`rawls predict`: the answers of a model to the rows of a file, a part at a time, and how right they are by group.

The label and group columns of the training may be left out; where they are there, each group's accuracy is counted.
"""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from rawls.datasets.core.own.columns import Column, counted, gathered
from rawls.datasets.core.own.known_names import places
from rawls.datasets.core.own.readers import TableFile, open_table
from rawls.datasets.core.splits import Rows
from rawls.runners.config.errors import ConfigError
from rawls.runners.release.model import Model
from rawls.runners.release.table_rows import TableRows
from rawls.runners.store.files import TEMPORARY

IMAGES_AT_ONCE = 256
ROWS_AT_ONCE = 1 << 14  # of arrays
SECONDS_BETWEEN_LINES = 10.0
UNKNOWN = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Some rows of a file.

    Args:
        names: what the answer calls each row: its number, or its file.
        labels, groups: their places among the model's, -1 where the file says none that it knows; None without any.
    """

    names: Sequence[str]
    inputs: torch.Tensor
    labels: Rows | None = None
    groups: Rows | None = None


@dataclass(kw_only=True)
class Answered:
    """What came of a file.

    Args:
        rows: how many were answered.
        correct, known: of each group, right answers and rows whose class is known; the last is of rows of no group.
        notes: what was done about what training had not seen.
        left_out: rows whose class, or whose group, is none that the model knows.
    """

    rows: int = 0
    correct: NDArray[np.int64] | None = None
    known: NDArray[np.int64] | None = None
    notes: list[str] = field(default_factory=list)

    def add(self, part: Part, predicted: Rows, num_groups: int) -> None:
        self.rows += len(predicted)
        if part.labels is None:
            return
        groups = np.full(len(predicted), UNKNOWN) if part.groups is None else part.groups
        told = part.labels != UNKNOWN
        places = np.where(groups == UNKNOWN, num_groups, groups)[told]
        right = (part.labels == predicted)[told]
        known = np.bincount(places, minlength=num_groups + 1)
        correct = np.bincount(places, weights=right, minlength=num_groups + 1).astype(np.int64)
        self.known = known if self.known is None else self.known + known
        self.correct = correct if self.correct is None else self.correct + correct

    def accuracies(self, groups: Sequence[str]) -> list[str]:
        """A line for each group that has rows, and for all; nothing where the file does not say the classes."""
        if self.known is None or self.correct is None or not self.known.sum():
            return []
        names = [*groups, "(no group that the model knows)"]
        shares = {
            name: (right / rows, rows)
            for name, right, rows in zip(names, self.correct.tolist(), self.known.tolist(), strict=True)
            if rows
        }
        of_groups = [share for name, (share, _) in shares.items() if name in groups]
        lines = [f"{name}: {100 * share:.1f} % of {counted(rows, 'row')}" for name, (share, rows) in shares.items()]
        if of_groups:
            lines.append(f"WGA {100 * min(of_groups):.1f} %, AVG {100 * sum(of_groups) / len(of_groups):.1f} %")
        total = int(self.known.sum())
        lines.append(f"all: {100 * self.correct.sum() / total:.1f} % of {counted(total, 'row')}")
        if without := self.rows - total:
            lines.append(f"{counted(without, 'row')} without a class that the model knows")
        return lines


def predict_file(model: Model, path: Path, out: Path) -> Answered:
    """Write the class and its probability for each row of a file.

    Args:
        path: a table; for images a folder of them, or one with its table; else an array (.npy), or arrays (.npz)
            called inputs, and labels and groups, which may be left out.
        out: a CSV file; written whole or not at all.

    Raises:
        ConfigError: the file is not what the model takes.
    """
    if out.suffix.lower() != ".csv":
        raise ConfigError(f"out={out} must end with .csv: that is what is written")
    answered, said = Answered(), time.monotonic()
    table = TableRows(model.described.get("columns", ()))
    parts = {"table": _of_table, "images": _of_images, "arrays": _of_arrays}[model.kind](model, path, table)
    temporary = out.with_name(out.name + TEMPORARY)
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(temporary, "w", newline="", encoding="utf-8") as file:
            file.write(f"{'file' if model.kind == 'images' else 'row'},prediction,probability\n")
            for part in parts:
                found = model.probabilities(part.inputs)
                predicted = found.argmax(1)
                file.write(_lines(part.names, [model.classes[one] for one in predicted], found.max(1)))
                answered.add(part, predicted, len(model.groups))
                if time.monotonic() - said > SECONDS_BETWEEN_LINES:
                    said = time.monotonic()
                    print(f"{counted(answered.rows, 'row')} answered", file=sys.stderr, flush=True)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
    answered.notes = table.notes()
    return answered


def _lines(names: Sequence[str], predicted: Sequence[str], probabilities: NDArray[np.float32]) -> str:
    text = io.StringIO()
    told = (f"{value:.4f}" for value in probabilities.tolist())
    csv.writer(text, lineterminator="\n").writerows(zip(names, predicted, told, strict=True))
    return text.getvalue()


def _of_table(model: Model, path: Path, table: TableRows) -> Iterator[Part]:
    file = _opened(path)
    table.check(file.names, str(path))
    roles = _roles(model.described, file.names)
    wanted = list(dict.fromkeys([*table.names, *roles]))
    row = 0
    for batch in file.batches(wanted):
        inputs = table.inputs(batch)
        names = list(map(str, range(row + 1, row + 1 + len(inputs))))
        row += len(inputs)
        yield Part(names=names, inputs=inputs, **_told(model, gathered([batch], roles)))


def _opened(path: Path) -> TableFile:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}: give a table of rows")
    try:
        return open_table(path)
    except ValueError as error:  # it speaks of the file as the configuration of a run does
        raise ConfigError(str(error).replace("dataset.path=", "")) from error


def _roles(described: Mapping[str, Any], there: Sequence[str]) -> list[str]:
    """The columns that say the class and the group of a row, as far as they are there."""
    groups = described["group"] if set(described["group"]) <= set(there) else []
    return [name for name in dict.fromkeys([described["label"], *groups]) if name in there]


def _told(model: Model, columns: Mapping[str, Column]) -> dict[str, Rows | None]:
    """What columns say of rows, by the model's names."""
    described = model.described
    label = [columns[name] for name in [described["label"]] if name in columns]
    group = [columns[name] for name in described["group"] if name in columns]
    return {
        "labels": places(label, model.classes, described["thresholds"]) if label else None,
        "groups": places(group, model.groups, described["thresholds"])
        if len(group) == len(described["group"])
        else None,
    }


def _of_images(model: Model, folder: Path, table: TableRows) -> Iterator[Part]:
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder: give one of images")
    described, columns = model.described, dict[str, Column]()
    metadata = folder / described["metadata"]
    if metadata.is_file():
        file = _opened(metadata)
        if described["file"] not in file.names:
            raise ConfigError(f"{metadata} has no column {described['file']!r} that names the images: add it")
        roles = _roles(described, file.names)
        batches = list(file.batches([described["file"], *roles]))
        names = [str(name or "") for batch in batches for name in batch[described["file"]].to_pylist()]
        columns = gathered(batches, roles)
    else:
        known = set(Image.registered_extensions())
        found = (path for path in folder.rglob("*") if path.suffix.lower() in known)
        names = sorted(path.relative_to(folder).as_posix() for path in found)
    if not names:
        raise ConfigError(f"{folder} holds no image that can be read: give a folder of images")
    told = _told(model, columns)
    for start in range(0, len(names), IMAGES_AT_ONCE):
        part = slice(start, start + IMAGES_AT_ONCE)
        of_part = {key: None if codes is None else codes[part] for key, codes in told.items()}
        yield Part(names=names[part], inputs=model.images(names[part], folder), **of_part)


def _of_arrays(model: Model, path: Path, table: TableRows) -> Iterator[Part]:
    if path.suffix.lower() not in (".npy", ".npz") or not path.is_file():
        raise ConfigError(f"{path} is no file of arrays: save the inputs by numpy as .npy, or .npz with one more")
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ConfigError(f"{path} cannot be read ({error}): save it again by numpy") from error
    arrays = {"inputs": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    if "inputs" not in arrays:
        raise ConfigError(f"{path} has no array 'inputs' (it has {', '.join(arrays) or 'none'}): save them so")
    inputs = arrays["inputs"]
    told = {
        "labels": _by_name(arrays.get("labels"), model.classes, len(inputs), "labels"),
        "groups": _by_name(arrays.get("groups"), model.groups, len(inputs), "groups"),
    }
    for start in range(0, len(inputs), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        rows = model.arrays(np.array(inputs[part]))
        of_part = {key: None if codes is None else codes[part] for key, codes in told.items()}
        yield Part(names=list(map(str, range(start + 1, start + 1 + len(rows)))), inputs=rows, **of_part)


def _by_name(array: Any, names: Sequence[str], rows: int, what: str) -> Rows | None:
    """Names, or numbers in their order, as places among the names."""
    if array is None:
        return None
    if array.shape != (rows,):
        raise ConfigError(f"{what} are of shape {list(array.shape)}, and there are {rows} inputs: give one a row")
    place = {name: at for at, name in enumerate(names)}
    found = [place.get(str(value), UNKNOWN) for value in array.tolist()]
    if array.dtype.kind in "iu" and not any(code != UNKNOWN for code in found):
        return np.where((array >= 0) & (array < len(names)), array, UNKNOWN).astype(np.int64)
    return np.array(found, dtype=np.int64)

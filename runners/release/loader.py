"""Loads the model that lies beside this file, with nothing but torch and safetensors: rawls is not needed.

    from load import load

    model = load()
    model.predict(rows)        # the class of each row
    model.predict_proba(rows)  # [row, class], in the order of model.classes

For a table, rows are a list of dicts (csv.DictReader makes such) or a mapping from columns to their cells, as they
stood in the file that it was trained on; for images, paths of files (Pillow decodes them); else a tensor of inputs.
`python load.py rows.csv` prints the class and its probability for each row. MODEL_CARD.md says what this model is.
"""

import csv
import hashlib
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

# What says that a cell holds nothing, in small letters.
MISSING = frozenset({"", "?", "na", "n/a", "#n/a", "<na>", "nan", "null"})
AT_ONCE = 512  # rows that go through the network together

Table = Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any]]


class Model:
    """A trained classifier.

    Args:
        described: what inputs.json says: what makes a row its inputs, and what its answers are called.
        module: from inputs to logits.
    """

    def __init__(self, described: Mapping[str, Any], module: Any) -> None:
        self.described, self.module = described, module
        self.classes: list[str] = list(described["classes"])

    def predict(self, rows: Any) -> list[str]:
        """The most probable class of each row."""
        return [self.classes[place] for place in self.predict_proba(rows).argmax(1).tolist()]

    def predict_proba(self, rows: Any) -> torch.Tensor:
        """The probability of each class, [row, class]."""
        inputs = self.inputs(rows)
        with torch.no_grad():
            parts = [self.module(part).softmax(1) for part in inputs.split(AT_ONCE) if len(part)]
        return torch.cat(parts) if parts else torch.zeros(0, len(self.classes))

    def inputs(self, rows: Any) -> torch.Tensor:
        """What the network takes, [row, ...]."""
        if self.described["kind"] == "table":
            return _of_table(rows, self.described["columns"])
        if self.described["kind"] == "images" and not isinstance(rows, torch.Tensor):
            size = self.described["image_size"]
            return torch.stack([_image(path, size) for path in rows])
        inputs = torch.as_tensor(rows)
        if list(inputs.shape[1:]) != self.described["shape"]:
            raise ValueError(f"inputs are of shape {list(inputs.shape)}, not [rows, *{self.described['shape']}]")
        if self.described["dtype"] == "int64":
            return inputs.long()
        return inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs.float()


def load(folder: str | Path = Path(__file__).parent, module: Any = None) -> Model:
    """The model of a folder that `rawls export` wrote.

    Args:
        module: an empty network to put the weights into, where the folder has no program of it (model.pt2).
    """
    folder = Path(folder)
    check(folder)
    described = json.loads((folder / "inputs.json").read_text(encoding="utf-8"))
    if module is None and (folder / "model.pt2").is_file():
        return Model(described, torch.export.load(folder / "model.pt2").module())
    if module is None:
        try:
            from rawls.runners.release.model import load_model
        except ImportError as error:
            raise ValueError(
                f"{folder} has weights and no program of the network: install rawls, or give the network, load(module=)"
            ) from error
        return Model(described, load_model(folder).module)
    from safetensors.torch import load_file

    module.load_state_dict(load_file(folder / "weights.safetensors"), strict=False)
    return Model(described, module.eval())


def check(folder: Path) -> None:
    """Raise a ValueError if one of the files that make the model was altered; others may have been taken out."""
    expected = json.loads((folder / "checksums.json").read_text(encoding="utf-8"))
    for name in {"inputs.json", "weights.safetensors", "model.pt2"} & expected.keys():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != expected[name]:
            raise ValueError(f"{path} is not what was exported (its SHA-256 differs): get it again")


def _of_table(rows: Table, columns: Sequence[Mapping[str, Any]]) -> torch.Tensor:
    names = [column["name"] for column in columns]
    cells = rows if isinstance(rows, Mapping) else {name: [row[name] for row in rows] for name in names}
    parts = [_of_column([_cell(cell) for cell in cells[column["name"]]], column) for column in columns]
    return torch.tensor([sum(row, []) for row in zip(*parts, strict=True)], dtype=torch.float64).float()


def _cell(cell: Any) -> str | None:
    """Its text, or None if it holds nothing."""
    text = "" if cell is None else str(cell).strip()
    return None if text.lower() in MISSING else text


def _of_column(cells: Iterable[str | None], column: Mapping[str, Any]) -> list[list[float]]:
    """The inputs that each cell becomes."""
    if column["kind"] == "category":
        bits = [*column["values"], *([None] if column["indicated"] else [])]
        return [[float(cell == bit) for bit in bits] for cell in cells]
    found = []
    for cell in cells:
        low, high = column["bounds"] or (-math.inf, math.inf)
        middle = (low + high) / 2 if column["bounds"] else column["centre"]
        number = middle if cell is None else min(max(_number(cell, column["name"]), low), high)
        said = [float(cell is None)] if column["indicated"] else []
        found.append([(number - column["centre"]) / column["scale"], *said])
    return found


def _number(cell: str, column: str) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"column {column!r} holds numbers, and {cell!r} is none")
    return number


def _image(path: str | Path, size: int) -> torch.Tensor:
    """The middle square of an image, in three colours between 0 and 1."""
    from PIL import Image

    with Image.open(path) as image:
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        square = image.convert("RGB").crop((left, top, left + side, top + side))
        resized = square.resize((size, size), Image.Resampling.BILINEAR)
    pixels = torch.frombuffer(bytearray(resized.tobytes()), dtype=torch.uint8)
    return pixels.view(size, size, 3).permute(2, 0, 1).float() / 255


def main() -> None:
    """Print the class and its probability for each row of a CSV file, for each image, or for each row of a tensor."""
    if len(sys.argv) < 2:
        raise SystemExit("usage: python load.py rows.csv, or the files of images, or a tensor saved by torch (.pt)")
    model = load()
    if model.described["kind"] == "table":
        with open(sys.argv[1], newline="", encoding="utf-8-sig") as file:
            rows: Any = list(csv.DictReader(file))
    elif model.described["kind"] == "images":
        rows = sys.argv[1:]
    else:
        rows = torch.load(sys.argv[1], weights_only=True)
    for probability, place in zip(*model.predict_proba(rows).max(1), strict=True):
        print(f"{model.classes[int(place)]},{float(probability):.4f}")


if __name__ == "__main__":
    main()

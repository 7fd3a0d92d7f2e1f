"""`rawls.load_model`: a trained model that answers rows as its training data came: a frame, images, arrays."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rawls.datasets.core.decoded import DecodedImages, in_folder
from rawls.models.objectives import predict
from rawls.runners.config.errors import ConfigError
from rawls.runners.release import loader
from rawls.runners.release.finished import folder_of_run, module_of, read_run, read_weights
from rawls.runners.release.table_rows import TableRows
from rawls.runners.store.stored import INPUTS

PROGRAM, LOADER = "model.pt2", "load.py"
AT_ONCE = 512


class Model:
    """A trained classifier.

    Args:
        module: from inputs to logits.
        described: what makes a row its inputs, and what its answers are called (runners/training/inputs.py).
    """

    def __init__(self, module: nn.Module, described: Mapping[str, Any]) -> None:
        self.module, self.described = module, described
        self.classes: tuple[str, ...] = tuple(described["classes"])
        self.groups: tuple[str, ...] = tuple(described["groups"])

    @property
    def kind(self) -> str:
        """What it takes: a table, images, or arrays."""
        return str(self.described["kind"])

    def predict(self, rows: Any) -> NDArray[np.str_]:
        """The name of the most probable class of each row.

        Args:
            rows: of a table: a pandas frame, or a mapping from columns to cells, with the columns of the training
                data (label and groups may be left out, unless they are inputs). Images: paths of files. Else, and of
                images too: inputs [row, ...] as training took them.

        Raises:
            ConfigError: they are not what the model takes. What training had not seen is a warning.
        """
        return np.array(self.classes)[self.predict_proba(rows).argmax(1)]

    def predict_proba(self, rows: Any) -> NDArray[np.float32]:
        """The probability of each class, [row, class], in the order of `classes`; rows as for `predict`."""
        return self.probabilities(self.inputs(rows))

    def probabilities(self, inputs: Tensor) -> NDArray[np.float32]:
        """The same of what the network takes."""
        with torch.no_grad():
            return predict(self.module, inputs, AT_ONCE).softmax(1).numpy()

    def inputs(self, rows: Any) -> Tensor:
        """What the network takes of these rows."""
        if self.kind == "table":
            table = TableRows(self.described["columns"])
            inputs = table.inputs(table.batch(rows))
            for note in table.notes():
                warnings.warn(note, stacklevel=3)
            return inputs
        if self.kind == "images" and not isinstance(rows, Tensor | np.ndarray):
            return self.images(rows)
        return self.arrays(rows)

    def images(self, paths: Iterable[str | Path], folder: Path = Path()) -> Tensor:
        """Images of files, as the folder of training had them."""
        names = [str(path) for path in paths]
        images = DecodedImages(
            names, in_folder(folder), self.described["image_size"], dataset=str(folder), way_out="leave it out"
        )
        return images.gather(torch.arange(len(names)))

    def arrays(self, rows: Any) -> Tensor:
        """Inputs [row, ...]; bytes are units of 1/255."""
        inputs = rows if isinstance(rows, Tensor) else torch.from_numpy(np.array(rows))
        if list(inputs.shape[1:]) != self.described["shape"]:
            raise ConfigError(
                f"the inputs are of shape {list(inputs.shape)}, and the model takes rows of "
                f"{': '.join(filter(None, [str(self.described['shape']), self.described['meaning']]))}"
            )
        tokens = self.described["dtype"] == "int64"
        if tokens != (not inputs.is_floating_point() and inputs.dtype != torch.uint8):
            raise ConfigError(f"the inputs are {inputs.dtype}, and the model takes {self.described['dtype']}")
        if tokens:
            return inputs.long()
        inputs = inputs.float().mul_(1 / 255) if inputs.dtype == torch.uint8 else inputs.float()
        if bad := int((~inputs.flatten(1).isfinite()).any(1).sum()):
            raise ConfigError(f"{bad} of {len(inputs)} rows have inputs that are not finite: fill or drop them")
        return inputs


def load_model(model: str | Path, results: str | Path = "results") -> Model:
    """The model of an exported folder, or of a finished run.

    Args:
        model: a folder that `rawls export` wrote; or a run: its folder, its id, or the beginning of that.
        results: where runs lie.

    Raises:
        ConfigError: there is none, or it is damaged, or left no weights.
    """
    folder = Path(model).expanduser()
    if not (folder / LOADER).is_file():
        run = read_run(folder_of_run(model, Path(results)))
        return Model(module_of(run), run.inputs)
    try:
        loader.check(folder)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if not (folder / PROGRAM).is_file():
        left = read_weights(folder)
        return Model(module_of(left), left.inputs)
    program = torch.export.load(folder / PROGRAM).module()
    return Model(program, json.loads((folder / INPUTS).read_text(encoding="utf-8")))

"""`rawls.export`: a trained model as a folder that needs no rawls: weights, program, loader, card, ledger."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from safetensors.torch import save
from torch import nn

from rawls.runners.config.errors import ConfigError
from rawls.runners.release import loader
from rawls.runners.release.card import card, warnings_of
from rawls.runners.release.finished import FinishedRun, folder_of_run, module_of, read_run
from rawls.runners.release.model import LOADER, PROGRAM
from rawls.runners.release.program import program
from rawls.runners.store.checksums import CHECKSUMS, digest
from rawls.runners.store.files import to_json
from rawls.runners.store.stored import CONFIG, ENVIRONMENT, INPUTS, LEDGER, SUMMARY, WEIGHTS

CARD = "MODEL_CARD.md"
_SHORT_ID = 8
_WHAT = {
    PROGRAM: "the network as a program of torch",
    WEIGHTS: "its weights by name",
    LOADER: "loads it, and turns rows into its inputs",
    INPUTS: "what makes a row its inputs, and what its answers are called",
    LEDGER: "every noisy answer that was computed from the training rows, and what is taken for granted",
    SUMMARY: "accuracies and budgets as numbers",
    CONFIG: "how it was trained",
    ENVIRONMENT: "with which versions",
}


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A model that left.

    Args:
        folder: where it lies.
        files: in it.
        warnings: what whoever takes it must know first.
    """

    folder: Path
    files: tuple[str, ...]
    warnings: tuple[str, ...]


def export(run: str | Path, to: str | Path | None = None, *, results: str | Path = "results") -> Exported:
    """Write a trained model, and all that says what it is, to a folder of its own.

    Args:
        run: its id, the beginning of that, or its folder.
        to: the folder, which must not be there; None names it after method, dataset and run.
        results: where runs lie.

    Raises:
        ConfigError: the run is not finished, is damaged or left no weights, or the folder is there already.
    """
    found = folder_of_run(run, Path(results))
    if (found / LOADER).is_file():
        raise ConfigError(f"{found} was exported already: copy the folder, or export the run again")
    finished = read_run(found)
    return export_run(finished, module_of(finished), to)


def export_run(run: FinishedRun, module: nn.Module, to: str | Path | None = None) -> Exported:
    """The same of a run in memory, and its network from the original inputs to logits."""
    summary = run.summary
    folder = Path(f"{summary['algorithm']}-{summary['dataset']}-{run.run_id[:_SHORT_ID]}" if to is None else to)
    if folder.exists():
        raise ConfigError(f"to={folder} is there already: name another folder, or remove it")
    content, reason = program(module, run.inputs["shape"], run.inputs["dtype"])
    warnings = warnings_of(run)
    if content is None:
        warnings.append(
            f"There is no program of its network, for torch cannot write one ({reason}): whoever loads it needs rawls, "
            "or the code of the network."
        )
    what = {name: text for name, text in _WHAT.items() if name != PROGRAM or content is not None}
    files = {
        CARD: card(run, what, sum(values.numel() for values in run.weights.values())).encode(),
        WEIGHTS: save(run.weights, {"format": "pt"}),
        LOADER: Path(loader.__file__).read_bytes(),
        INPUTS: _as_file(run.inputs),
        LEDGER: _as_file(run.ledger),
        SUMMARY: _as_file(run.summary),
        CONFIG: yaml.safe_dump(_without_places(run.config), sort_keys=False, allow_unicode=True).encode(),
        ENVIRONMENT: _as_file(run.environment),
    }
    if content is not None:
        files[PROGRAM] = content
    _write(folder, files | {CHECKSUMS: _as_file({name: digest(text) for name, text in files.items()})})
    return Exported(folder=folder, files=tuple(files), warnings=tuple(warnings))


def _without_places(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration without folders of one machine, and whose account its curves went to."""
    kept = {key: value for key, value in config.items() if key not in ("tracking", "experiment")}
    dataset = dict(config["dataset"])
    if "path" in dataset:
        dataset["path"] = Path(dataset["path"]).name
    return kept | {"dataset": dataset, "data": {"root": "data"}, "results": config["results"] | {"root": "results"}}


def _as_file(values: Any) -> bytes:
    return (to_json(values, indent=2) + "\n").encode()


def _write(folder: Path, files: dict[str, bytes]) -> None:
    """All of them or none, by one rename."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".rawls-export-", dir=folder.parent) as place:
        whole = Path(place) / "whole"
        whole.mkdir()
        for name, content in files.items():
            (whole / name).write_bytes(content)
        whole.rename(folder)

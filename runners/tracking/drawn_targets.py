"""Mirrors a drawn target to Weights & Biases: a small run of its own, with the target's files as one artifact.

The run's id is made of target and variant alone, so drawing again replaces what was mirrored before. While its folder
is not whole it is leased like a run in training: `rawls wandb sync` leaves it for later.
"""

import csv
import hashlib
import json
import math
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rawls.runners.store.checksums import read_sealed
from rawls.runners.store.leases import Leases
from rawls.runners.store.stored import MANIFEST, RUNS
from rawls.runners.tracking.run_names import tag_list
from rawls.runners.tracking.tracker import begin, guarded, is_on, offline_folders

JOB_TYPE = "target"
# What W&B shows as tables of its own, by the file it is read from.
_TABLES = {"table.csv": "table", "comparison.csv": "comparison", "figure.csv": "figure_values"}
_FIGURE = "figure.png"
# Where a run's files lie is nobody else's business.
_PLACES = ("results.root=", "data.root=", "tracking")


def mirror(config: Mapping[str, Any], manifest: Path, files: Sequence[Path], verdict: str) -> None:
    """Mirror what was drawn for a manifest, as the configuration of its runs says; losing W&B loses nothing else."""
    if is_on(config):
        guarded(lambda: _mirror(config, manifest, files, verdict))


def target_id(target: str, variant: str) -> str:
    """The W&B id of a target's drawing."""
    return f"target-{hashlib.sha256(f'{target}/{variant}'.encode()).hexdigest()[:16]}"


def _mirror(config: Mapping[str, Any], manifest: Path, files: Sequence[Path], verdict: str) -> None:
    root = Path(config["results"]["root"]).absolute()
    about = _portable(read_sealed(manifest))
    run_id = target_id(about["target"], about["variant"])
    (root / RUNS).mkdir(parents=True, exist_ok=True)
    lease = Leases(root).take(run_id)
    if lease is None:  # another process draws the same
        return
    try:
        earlier = offline_folders(root, run_id)
        what = "figure" if any(path.name == _FIGURE for path in files) else "table"
        run = begin(
            config,
            run_id,
            name=f"{about['target']} [{about['variant']}]: {what}",
            group=about["target"],
            tags=_tags(about, manifest.parent),
            job_type=JOB_TYPE,
            content={key: about[key] for key in ("target", "title", "variant", "changed", "command")},
        )
        run.summary.update({"verdict": verdict})
        _log(run, about, files)
        run.finish(exit_code=0)
        for folder in earlier:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        lease.release()


def _log(run: Any, about: Mapping[str, Any], files: Sequence[Path]) -> None:
    import wandb

    shown: dict[str, Any] = {_TABLES[path.name]: _table(path) for path in files if path.name in _TABLES}
    if figure := next((path for path in files if path.name == _FIGURE), None):
        shown["figure"] = wandb.Image(str(figure))
    # Copied, for the next drawing overwrites them, perhaps before these are sent; they go with the run's folder.
    folder = Path(run.dir).parent / "target"
    folder.mkdir()
    if shown:
        with _staging_in(folder.parent):
            run.log(shown)
    for path in files:
        shutil.copyfile(path, folder / path.name)
    (folder / MANIFEST).write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    # W&B takes few characters in a name, and a variant has others.
    name = f"{re.sub('[^A-Za-z0-9_.-]', '-', about['target'])}-{run.id.removeprefix('target-')}"
    text = f"{about['title']} [{about['variant']}]: the table or figure, its values, and the runs behind them."
    artifact = wandb.Artifact(name, type="target", description=text)
    for path in sorted(folder.iterdir()):
        artifact.add_file(str(path), policy="immutable", skip_cache=True)
    run.log_artifact(artifact)


@contextmanager
def _staging_in(folder: Path) -> Iterator[None]:
    """Where W&B puts the copies of tables that wait to be sent; it asks each time."""
    before = os.environ["WANDB_DATA_DIR"]
    os.environ["WANDB_DATA_DIR"] = str(folder)
    try:
        yield
    finally:
        os.environ["WANDB_DATA_DIR"] = before


def _portable(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest whose command does not name the places of one machine."""
    words = [word for word in shlex.split(manifest["command"]) if not word.startswith(_PLACES)]
    return {**manifest, "command": shlex.join(words)}


def _tags(about: Mapping[str, Any], folder: Path) -> list[str]:
    """Paper and target, then the datasets, scales and kinds of data of its runs."""
    runs: list[Mapping[str, Any]] = about["runs"]
    with open(folder / "runs.csv", newline="", encoding="utf-8") as file:
        provenances = [row["provenance"] for row in csv.DictReader(file)]
    names = [run[key] for key in ("dataset", "scale") for run in runs]
    return tag_list([about["target"].partition("/")[0], about["target"], *names, *provenances])


def _table(path: Path) -> Any:
    import wandb

    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    header: list[str | int] = [*rows.pop(0)]
    columns = [_values(column) for column in zip(*rows, strict=True)]
    return wandb.Table(columns=header, data=[list(row) for row in zip(*columns, strict=True)])


def _values(column: Sequence[str]) -> Sequence[float | str | None]:
    """A column as numbers, if it holds nothing else: W&B takes one type in a column, and no infinities."""
    try:
        numbers = [float(text) if text else None for text in column]
    except ValueError:
        return column
    return column if any(number is not None and not math.isfinite(number) for number in numbers) else numbers

"""From a manifest to files: read the runs, draw them by kind, put every file in place at once.

Files go to temporary names first and are renamed when all are written, so a reader never sees half a table.
What an earlier drawing left and this one does not make (a comparison, when nothing can be compared any more)
is removed.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import pandas as pd

from rawls.analysis.draw.drawing import Drawing, put, text_file
from rawls.analysis.draw.kinds import (
    accuracy,
    arena,
    argument_stability,
    budget,
    calibration,
    claims,
    crossover,
    curves,
    group_curve,
    group_figure,
    groups,
    membership_figure,
    normalisation_error,
    owner_change,
    owner_curve,
    owner_pareto,
    owner_plans,
    owner_sweep,
    ranking,
    rates,
    robust_figure,
    selection,
    stability_bounds,
    time_figure,
    train_test,
)
from rawls.analysis.draw.tables import csv_text
from rawls.analysis.metrics.choose_epoch import LAST
from rawls.analysis.read.load import MADE_BY, Store, load
from rawls.analysis.read.manifest import Manifest, results_root, without_folders

KINDS: dict[str, Callable[[Manifest, Store], Drawing]] = {
    "accuracy_table": accuracy.draw,
    "budget_figure": budget.budget_figure,
    "training_curve": curves.training_curve,
    "sampling_variance": curves.sampling_variance,
    "calibration_table": calibration.draw,
    "claims_table": claims.draw,
    "group_table": groups.draw,
    "selection_table": selection.draw,
    "ranking": ranking.draw,
    "arena": arena.draw,
    "group_figure": group_figure.group_figure,
    "group_curve": group_curve.group_curve,
    "time_figure": time_figure.time_figure,
    "normalisation_error": normalisation_error.normalisation_error,
    "stability_bounds": stability_bounds.stability_bounds,
    "train_test_figure": train_test.train_test_figure,
    "owner_curve": owner_curve.owner_curve,
    "owner_change": owner_change.owner_change,
    "owner_sweep": owner_sweep.owner_sweep,
    "owner_pareto": owner_pareto.owner_pareto,
    "owner_plans": owner_plans.owner_plans,
    "robust_figure": robust_figure.robust_figure,
    "membership_figure": membership_figure.membership_figure,
    "rates_figure": rates.rates_figure,
    "crossover_map": crossover.crossover_map,
    "argument_stability": argument_stability.argument_stability,
}
COMPUTED = ("normalisation_error", "owner_plans", "stability_bounds", "argument_stability")  # kinds that need no run
OURS = [f"{name}.{form}" for name in ("table", "comparison") for form in ("md", "tex", "csv")]
OURS += ["figure.png", "figure.pdf", "figure.csv", "runs.csv"]


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """`text` for the terminal, the files written, and the verdict in one phrase."""

    text: str
    files: list[Path]
    verdict: str


def render(manifest_path: Path) -> Rendered:
    """Draw one target from what the store holds now; a half-finished sweep gives a table with gaps."""
    manifest = Manifest.read(manifest_path)
    root = results_root(manifest_path)
    store = load(root, manifest.run_ids)
    result = draw(manifest, store)
    runs = text_file(csv_text(_provenance(manifest.join(store))))
    files = _write(manifest_path.parent, {**result.files, "runs.csv": runs})
    return Rendered(text=result.text, files=files, verdict=result.verdict)


def draw(manifest: Manifest, store: Store) -> Drawing:
    kind = manifest.draw["kind"]
    if kind not in KINDS:
        near = get_close_matches(str(kind), KINDS, n=1, cutoff=0.0)[0]
        known = f"the nearest is {near!r} (all: {', '.join(KINDS)})"
        raise ValueError(f"{manifest.target}: unknown draw.kind {kind!r}, {known}")
    if not manifest.runs and kind not in COMPUTED:
        text = f"{manifest.title}\n\nNothing to draw: `{manifest.command}` asks for no run; give every key a value."
        return Drawing(text=text, verdict="missing (no run is asked for)")
    return KINDS[kind](manifest, store.at_epoch(str(manifest.draw.get("epoch", LAST))))


def _write(folder: Path, files: dict[str, Callable[[Path], None]]) -> list[Path]:
    written = put(folder, files)
    for name in set(OURS) - set(files):
        (folder / name).unlink(missing_ok=True)
    return written


def _provenance(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per run: what it was, how it ended, and which code and versions made it."""
    columns = [
        "run_id",
        "method",
        "dataset",
        "algorithm",
        "seed",
        "coordinates",
        "status",
        "provenance",
        "scale",
        "seconds",
    ]
    runs = runs[[*columns, "test_wga", "test_avg", "epsilon_max", "error", *MADE_BY]]
    as_json = {
        name: runs[name].map(lambda value: json.dumps(value, sort_keys=True) if isinstance(value, dict) else "")
        for name in ("coordinates", "versions")
    }
    return runs.assign(**as_json, error=runs["error"].map(without_folders, na_action="ignore"))

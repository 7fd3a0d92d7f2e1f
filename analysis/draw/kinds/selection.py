"""Kind `selection_table`: the configurations of each method, and which of them its validation WGA chooses.

ASC App. E.2 chooses hyper-parameters so, from the grids of App. E.4, and does not print what it chose. A row is a
configuration: its method, and every coordinate in which the target's runs differ (blank where a method leaves one
as it is configured). Only finished runs count. The choice sees the validation columns alone.
"""

import json
from typing import Any

import pandas as pd

from rawls.analysis.draw.drawing import Drawing, table_files
from rawls.analysis.draw.kinds.curves import of_one_dataset
from rawls.analysis.draw.stamps import headline, notices, progress, reasons, stamp, target_verdict
from rawls.analysis.draw.tables import Cell, Table, count_text, csv_text, spread_text
from rawls.analysis.draw.titles import dataset_title
from rawls.analysis.metrics.choose_epoch import RULES, uncovered
from rawls.analysis.metrics.statistics import spread
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest, coordinate, differing, in_words, value_text

SCORES = ["valid_wga", "valid_avg", "test_wga", "test_avg"]
BY = SCORES[:2]  # what is chosen by: the first, and among equals the second
CHOSEN, SO_FAR = "chosen", "best so far"
RULE = (
    "Rule: highest validation WGA of the {} (among equals, highest validation AVG); not private, not accounted; test "
    "columns are shown, never used"
)


def choose(configurations: pd.DataFrame) -> "pd.Series[str]":
    """Mark one row of each method: 'chosen', or 'best so far' while any seed of any of its rows is missing.

    Args:
        configurations: method; valid_wga, valid_avg (means over seeds); n of the needed seeds that have them.

    Returns:
        The marks, '' for all other rows. Rows equal in both columns: the first.
    """
    marks = pd.Series("", index=configurations.index)
    for _, rows in configurations.groupby("method", sort=False):
        finished = bool((rows["n"] == rows["needed"]).all())
        ranked = rows[rows["n"] > 0].sort_values(BY, ascending=False, kind="stable")
        marks[ranked.index[:1]] = CHOSEN if finished else SO_FAR
    return marks


def chosen_runs(manifest: Manifest, runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Of each method on each dataset, the runs of the configuration that `choose` takes, and which that is, in words.

    While none of its runs is done, those of its first configuration.
    """
    kept, told = [], []
    for (method, dataset), own in runs.groupby(["method", "dataset"], sort=False):
        rows, words, among = chosen_of(manifest, own)
        kept.append(rows)
        if words:
            told.append(f"{method} on {dataset_title(str(dataset))}: {words} ({among})")
    return pd.concat(kept).sort_index(), told


def chosen_of(manifest: Manifest, own: pd.DataFrame) -> tuple[pd.DataFrame, str, str]:
    """The same for one method on one dataset, and among how many; no words where there was no choice or is no run."""
    rows = _configurations(manifest, own)
    choices = choose(rows)
    marked = rows[choices != ""]
    taken = (marked if len(marked) else rows).iloc[0]
    kept = own[own["coordinates"].map(lambda point: point == taken["coordinates"])]
    if len(rows) == 1 or not len(marked):
        return kept, "", ""
    what = in_words(taken["coordinates"], differing(list(rows["coordinates"]))) or "as configured"
    so_far = f", {SO_FAR}" if choices[taken.name] == SO_FAR else ""
    return kept, what, f"of {len(rows)}{so_far}"


def draw(manifest: Manifest, store: Store) -> Drawing:
    runs = _at_one_budget(manifest, of_one_dataset(manifest, store))
    names = differing(list(runs["coordinates"]))
    rows = _configurations(manifest, runs)
    rows = rows.assign(choice=choose(rows))
    rows = rows.sort_values(["place", *BY], ascending=[True, False, False], kind="stable")
    table = Table(
        caption=_caption(manifest, runs, store.epoch),
        spans=[("", 1 + len(names)), ("Validation", 2), ("Test", 2), ("", 2)],
        header=["Method", *names, *["WGA", "AVG"] * 2, "n", "Choice"],
        rows=[_cells(row, names) for row in rows.to_dict("records")],
        num_labels=1 + len(names),
    )
    why = reasons(runs)
    summary = _summary(rows, runs, names)
    return Drawing(
        text=f"{table.markdown()}\n{summary}",
        verdict=target_verdict(runs, f"not comparable ({', '.join(why)})" if why else ""),
        files=table_files("table", table, csv_text(_flat(rows, names).assign(data=stamp(runs)))),
        tables=(table,),
        summary=summary,
    )


def _at_one_budget(manifest: Manifest, runs: pd.DataFrame) -> pd.DataFrame:
    """`runs`, unless they have several budgets: the largest would be chosen."""
    budgets = sorted(coordinate(runs, "epsilon").dropna().unique())
    if len(budgets) > 1:
        found = ", ".join(f"{budget:g}" for budget in budgets)
        raise ValueError(f"{manifest.target} chooses at one budget, its manifest has ε = {found}: choose one of them")
    return runs


def _configurations(manifest: Manifest, runs: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration in the manifest's order: means and stds in percent, n of the needed seeds."""
    runs = runs.assign(key=[json.dumps(point, sort_keys=True) for point in runs["coordinates"]])
    manifest.check_one_run_per(runs, "method", "key", "seed")
    found = []
    for (method, _), rows in runs.groupby(["method", "key"], sort=False):
        scores = {name: spread(rows[name]).scaled(100) for name in SCORES}
        found.append({
            "place": manifest.methods.index(method), "dataset": rows["dataset"].iloc[0], "method": method,
            "coordinates": rows["coordinates"].iloc[0], "scores": scores,
            **{name: scores[name].mean for name in BY}, "n": scores[BY[0]].n, "needed": len(rows),
        })  # fmt: skip
    return pd.DataFrame(found)


def _cells(row: dict[str, Any], names: list[str]) -> list[Cell]:
    texts = [
        row["method"],
        *[value_text(row["coordinates"].get(name)) for name in names],
        *[spread_text(score, needed=score.n) for score in row["scores"].values()],
        count_text(row["n"], row["needed"]),
        row["choice"],
    ]
    return [Cell(text=text, bold=row["choice"] == CHOSEN and text != "") for text in texts]


def _caption(manifest: Manifest, runs: pd.DataFrame, epoch: str) -> str:
    what = f"Accuracy in percent, {RULES[epoch]}, mean ± standard deviation over n seeds"
    told = [f"Bold: {CHOSEN}", *uncovered(epoch, runs), *notices(runs)]
    return ". ".join([headline(manifest.title, runs), what, RULE.format(RULES[epoch]), *told]) + "."


def _summary(rows: pd.DataFrame, runs: pd.DataFrame, names: list[str]) -> str:
    """What is chosen for each method; and of the methods that are not finished, that nothing is."""
    lines = [
        f"Chosen for {row['method']}: {in_words(row['coordinates'], names)}"
        for row in rows[rows["choice"] == CHOSEN].to_dict("records")
    ]
    finished = rows["n"] == rows["needed"]
    for method in rows.loc[~finished, "method"].unique():
        of_method = runs[runs["method"] == method]
        lines.append(f"Nothing is chosen for {method} before all its runs are there: {progress(of_method)}")
    return "\n".join(lines)


def _flat(rows: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """One row per configuration for programs, in the table's order."""
    flat = [
        {"dataset": row["dataset"], "method": row["method"]}
        | {name: row["coordinates"].get(name) for name in names}
        | {name: score.mean for name, score in row["scores"].items()}
        | {f"{name}_std": score.std for name, score in row["scores"].items()}
        | {name: row[name] for name in ("n", "needed", "choice")}
        for row in rows.to_dict("records")
    ]
    return pd.DataFrame(flat)

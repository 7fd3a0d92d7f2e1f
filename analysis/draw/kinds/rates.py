"""Kind `rates_figure`: excess worst-group risk against the size of a problem, and how steep that is on logarithms.

Zhou and Bassily's theorems (they print no experiment): a panel for each section, in it a curve for each method, over
the hardest of the signals that the runs have (analysis/metrics/rates.py), and dashed the slope that its theorem has.
Runs are on synthetic problems whose optimum is known (dataset=worst_group). table.md has the slopes, figure.csv the
points drawn.

Options of `draw`, besides those of every kind:
    sections   {part of the labels: title}, a panel each
    over       {part: coordinate}, what varies in it
    measured   {method: empirical}; default population: where its excess risk is taken
    terms      {part: sampling}; default privacy: which term of Theorem 2 the part shows
What a theorem says of a method and part stands in analysis/reported under `method` and the part as its column.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Panel, Sheet
from rawls.analysis.draw.group_scores import head, section_of, sections
from rawls.analysis.draw.kinds.curves import NOTHING, drawing, plain_table, with_table
from rawls.analysis.draw.stamps import target_verdict
from rawls.analysis.draw.tables import Table
from rawls.analysis.draw.titles import DASH
from rawls.analysis.metrics.rates import Slope, fitted, hardest, slope
from rawls.analysis.metrics.theorems import whole_bound
from rawls.analysis.read import settings
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest, coordinate
from rawls.analysis.read.papers_numbers import reported

AXES = {"rows": "Rows of all groups, K", "groups": "Groups, p", "dimension": "Dimension, d", "epsilon": "Budget, ε"}


def rates_figure(manifest: Manifest, store: Store) -> Drawing:
    runs = manifest.join(store)
    over: dict[str, str] = manifest.draw["over"]
    parts = [section_of(manifest, method) for method in runs["method"]]
    x = [_number(point[over[part]]) for point, part in zip(runs["coordinates"], parts, strict=True)]
    runs = runs.assign(
        part=parts, x=x, named=[head(manifest, name) for name in runs["method"]], signal=coordinate(runs, "signal")
    )
    manifest.check_one_run_per(runs, "method", "x", "signal", "seed")
    done = runs[runs["status"] == "done"]
    measured: dict[str, str] = manifest.draw.get("measured", {})
    taken = [row[f"excess_{measured.get(row['named'], 'population')}"] for row in done.to_dict("records")]
    done = done.assign(excess=np.array(taken, dtype=float))
    done = done.assign(bound=_bounds(done, store, manifest.draw.get("terms", {})))
    points, slopes = _points(done)
    stated = {(row.method, row.column): row for row in reported(manifest.paper, manifest.table).itertuples()}
    panels = [_panel(manifest, points, part, over[part], stated) for part in sections(manifest)]
    sheet = Sheet(panels=panels, methods=list(manifest.draw["methods"].values()), across=2)
    body = [_row(manifest, points, key, found, stated) for key, found in slopes.items()]
    found = with_table(drawing(manifest, runs, points, _table(body), sheet))
    judged = [line[-1] for line in body if line[-1] != DASH]
    verdict = f"{judged.count('yes')} of {len(judged)} slopes have the theorem's in their 95 % interval"
    return replace(found, verdict=target_verdict(runs, verdict if judged else ""))


def _bounds(done: pd.DataFrame, store: Store, terms: dict[str, str]) -> list[float]:
    """What the theorem of each run bounds its excess by."""
    known = settings.load(store.root, done["run_id"])
    return [
        whole_bound(row, known[row["run_id"]], terms.get(row["part"], "privacy")) for row in done.to_dict("records")
    ]


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _points(done: pd.DataFrame) -> tuple[pd.DataFrame, dict[tuple[str, str], Slope]]:
    """The hardest mean of each method, part and x, over the seeds that all of a curve's runs have; and its slope."""
    rows, slopes = [], {}
    for (part, named), own in done.groupby(["part", "named"], sort=False):
        cells = own.pivot_table(index=["x", "signal"], columns="seed", values="excess").dropna(axis=1)
        xs = sorted(own["x"].unique())
        if cells.shape[1] == 0 or len(xs) < 2:
            continue
        excess = [cells.loc[x].to_numpy(dtype=float) for x in xs]
        slopes[str(part), str(named)] = slope(xs, excess)
        for x, of_x in zip(xs, excess, strict=True):
            place = hardest(of_x)
            signal, mean = cells.loc[x].index[place], of_x[place].mean()
            std = of_x[place].std(ddof=1) if of_x.shape[1] > 1 else 0.0
            there = own[(own["x"] == x) & (own["signal"] == signal)]
            nothing, bound = there["excess_at_zero"].mean(), there["bound"].mean()
            rows.append(
                {"part": part, "method": named, "x": x, "signal": signal, "mean": mean, "std": std, "at_zero": nothing}
                | {"bound": bound, "n": of_x.shape[1], "low": max(mean - std, of_x[place].min()), "high": mean + std}
            )
    columns = ["part", "method", "x", "signal", "mean", "std", "at_zero", "bound", "n", "low", "high"]
    return pd.DataFrame(rows, columns=columns), slopes


def _panel(manifest: Manifest, points: pd.DataFrame, part: str, over: str, stated: dict[tuple[str, str], Any]) -> Panel:
    own = points[points["part"] == part]
    lines = []
    for method, curve in own.groupby("method", sort=False):
        if (row := stated.get((str(method), part))) is not None:
            middle = np.exp(np.log(curve[["x", "mean"]]).mean())
            y = middle["mean"] * (curve["x"] / middle["x"]) ** row.mean
            lines.append(pd.DataFrame({"method": method, "label": f"{method}, theorem", "x": curve["x"], "y": y}))
    return Panel(
        data=own,
        title=sections(manifest)[part],
        xlabel=AXES.get(over, over),
        ylabel="Excess worst-group risk",
        bars=True,
        round_ticks=over == "rows",
        log=True,
        log_x=True,
        limits=pd.concat(lines) if lines else None,
        note=NOTHING if own.empty else "",
    )


def _row(
    manifest: Manifest, points: pd.DataFrame, key: tuple[str, str], found: Slope, stated: dict[tuple[str, str], Any]
) -> list[str]:
    part, method = key
    own = points[(points["part"] == part) & (points["method"] == method)].sort_values("x")
    row = stated.get((method, part))
    inside = DASH if row is None else "yes" if found.low <= row.mean <= found.high else "no"
    of_nothing = (own["mean"] / own["at_zero"]).tolist()
    return [
        sections(manifest)[part],
        method,
        f"{own['x'].iloc[0]:g} to {own['x'].iloc[-1]:g}",
        f"{found.value:.2f}",
        DASH if np.isnan(found.low) else f"[{found.low:.2f}, {found.high:.2f}]",
        ", ".join(f"{value:.2f}" for value in found.local),
        f"{own['mean'].iloc[0]:.4f}, {own['mean'].iloc[-1]:.4f}",
        f"{of_nothing[0]:.2f}, {of_nothing[-1]:.2f}",
        DASH if row is None or own["bound"].isna().any() else f"{fitted(own['x'], own['bound']):.2f}",
        DASH if row is None else row.printed,
        inside,
    ]


def _table(body: list[list[str]]) -> Table:
    caption = (
        "Slope of the logarithm of the excess worst-group risk (mean over seeds, at the hardest signal) on that of "
        "what varies, with the jackknife's 95 % interval; the local slopes between neighbouring points; the excess at "
        "both ends; and that over the excess of parameters of 0, which know nothing: near 1 little is learnt yet. "
        "Theorem: the exponent of the term that the panel shows; whole bound: the slope, over the same points, of that "
        "term with its logarithms, of Algorithms 2, 3 and 5 of all terms at the steps and noise of the runs."
    )
    header = ["Panel", "Method", "Range", "Slope", "95 %", "Local slopes", "Excess", "Of knowing nothing"]
    if all(line[-1] == DASH for line in body):  # no theorem is drawn beside
        return plain_table(caption.partition(" Theorem:")[0], header, [line[:-3] for line in body], num_labels=3)
    return plain_table(caption, [*header, "Whole bound", "Theorem", "Inside"], body, num_labels=3)

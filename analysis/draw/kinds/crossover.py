"""Kind `crossover_map`: which of two algorithms has the smaller excess risk, over rows and groups; a panel a dimension.

Zhou and Bassily predict from their rates where Algorithm 2 beats Algorithm 1 (after Corollary 8): above the dashed
line, where both rates, without constants and logarithms, are equal. Points are measured, at the hardest signal of each
algorithm (analysis/metrics/rates.py). Where neither comes 5 % below what parameters of 0 come to, neither is said to
lead.
table.* has the table, figure.csv holds the points, `mean` being the groups.

Options of `draw`, besides those of every kind:
    methods   the first is the one of Theorem 2, the second that of Corollary 8
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Panel, Sheet
from rawls.analysis.draw.kinds.curves import NOTHING, drawing, plain_table, with_table
from rawls.analysis.draw.stamps import target_verdict
from rawls.analysis.draw.tables import Table
from rawls.analysis.metrics.rates import (
    dp_oco_rate,
    groups_from_which_dp_oco_leads,
    hardest,
    phased_erm_rate,
)
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest, coordinate

PLACE = ["dimension", "rows", "groups"]
NEITHER, LEARNT = "neither beats knowing nothing", 0.95


def crossover_map(manifest: Manifest, store: Store) -> Drawing:
    runs = manifest.join(store)
    names = [*PLACE, "signal", "epsilon"]
    runs = runs.assign(**{name: pd.to_numeric(coordinate(runs, name)).astype(float) for name in names})
    manifest.check_one_run_per(runs, "method", *PLACE, "signal", "seed")
    points = _points(manifest, runs[runs["status"] == "done"])
    leaders = [*(f"{method} smaller" for method in manifest.methods), NEITHER]
    panels = [_panel(runs, points, dimension) for dimension in sorted(runs["dimension"].unique())]
    sheet = Sheet(panels=panels, methods=leaders, across=2)
    found = with_table(drawing(manifest, runs, points, _table(manifest, points), sheet))
    told = points[points["method"] != NEITHER]
    right = int((told["method"] == told["predicted"]).sum())
    verdict = f"{right} of {len(told)} places where one leads are as predicted" if len(points) else ""
    return replace(found, verdict=target_verdict(runs, verdict))


def _points(manifest: Manifest, done: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for place, own in done.groupby(PLACE, sort=True):
        measured = [_measured(own[own["method"] == method]) for method in manifest.methods]
        if any(part is None for part in measured):
            continue
        (first, of_first), (second, of_second) = (part for part in measured if part is not None)
        dimension, size, groups = (float(value) for value in place)
        epsilon = float(own["epsilon"].iloc[0])
        rates = [rate(size, groups, dimension, epsilon) for rate in (phased_erm_rate, dp_oco_rate)]
        leads = NEITHER if min(of_first, of_second) > LEARNT else _leader(manifest, [first, second])
        rows.append(
            {"dimension": dimension, "x": size, "mean": groups, "low": groups, "high": groups, "method": leads}
            | {"predicted": _leader(manifest, rates), "first": first, "second": second}
            | {"first_of_nothing": of_first, "second_of_nothing": of_second}
        )
    columns = ["dimension", "x", "mean", "low", "high", "method", "predicted", "first", "second"]
    return pd.DataFrame(rows, columns=[*columns, "first_of_nothing", "second_of_nothing"])


def _leader(manifest: Manifest, values: list[float]) -> str:
    return f"{manifest.methods[int(np.argmin(values))]} smaller"


def _measured(own: pd.DataFrame) -> tuple[float, float] | None:
    """The mean excess at the hardest signal, and over that of parameters of 0; None where no seed has all signals."""
    if own.empty:
        return None
    cells = own.pivot_table(index="signal", columns="seed", values="excess_population").dropna(axis=1)
    if cells.shape[1] == 0:
        return None
    place = hardest(cells.to_numpy(dtype=float))
    mean = float(cells.iloc[place].mean())
    return mean, mean / float(own.loc[own["signal"] == cells.index[place], "excess_at_zero"].mean())


def _panel(runs: pd.DataFrame, points: pd.DataFrame, dimension: float) -> Panel:
    own, asked = points[points["dimension"] == dimension], runs[runs["dimension"] == dimension]
    epsilon, most = float(asked["epsilon"].iloc[0]), float(asked["groups"].max())
    along = np.geomspace(asked["rows"].min(), asked["rows"].max(), 100)
    line = pd.DataFrame({"x": along, "y": [groups_from_which_dp_oco_leads(x, dimension, epsilon) for x in along]})
    return Panel(
        data=own,
        title=f"d = {dimension:g}",
        xlabel="Rows of all groups, K",
        ylabel="Groups, p",
        scattered=True,
        log=True,
        log_x=True,
        round_ticks=True,
        limits=line[line["y"] <= 2 * most].assign(method="", label="the rates are equal"),
        note=NOTHING if own.empty else "",
    )


def _table(manifest: Manifest, points: pd.DataFrame) -> Table:
    first, second = manifest.methods[:2]
    body = [_row(point) for point in points.to_dict("records")]
    caption = (
        "Mean excess worst-group risk at the hardest signal, in brackets over that of parameters of 0; which is "
        "smaller, and which the rates without constants and logarithms say."
    )
    return plain_table(caption, ["d", "K", "p", first, second, "Measured", "Predicted"], body, num_labels=3)


def _row(point: dict[str, Any]) -> list[str]:
    cells = [f"{point[name]:.4f} ({point[f'{name}_of_nothing']:.2f})" for name in ("first", "second")]
    return [f"{point[name]:g}" for name in ("dimension", "x", "mean")] + [*cells, point["method"], point["predicted"]]

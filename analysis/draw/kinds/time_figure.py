"""Kind `time_figure`: how long each method trains, evaluations included, mean ± std over seeds.

FDPG Fig. 6: methods along the x axis, datasets side by side. In the table, times over those of the first method with
privacy of a part: DP-SGD, and AUTO-S where all normalise. figure.csv holds the points drawn.

Options of `draw`, besides those of every kind:
    sections   see analysis/draw/group_scores.py
Runs that shared their steps with others have no time of their own: they are not shown, and it is said. With `alone` a
run shares with none; workers side by side (hydra.launcher.workers) still share the machine.
"""

import pandas as pd

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Panel, Sheet
from rawls.analysis.draw.group_scores import head, section_of, sections
from rawls.analysis.draw.kinds.curves import NOTHING, drawing, over_seeds, plain_table, point_spread
from rawls.analysis.draw.tables import Table, magnitude_text
from rawls.analysis.draw.titles import DASH, dataset_title
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest

UNITS = {"hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
SHARED = "shared"  # the status of a run whose time is not its own


def time_figure(manifest: Manifest, store: Store) -> Drawing:
    runs = manifest.join(store)
    manifest.check_one_run_per(runs, "method", "dataset", "seed")
    alone = (runs["status"] != "done") | (runs["fleet"] == 1)
    runs = runs.assign(
        status=runs["status"].where(alone, SHARED), part=[section_of(manifest, method) for method in runs["method"]]
    )
    done = runs[runs["status"] == "done"]
    unit = next((name for name, seconds in UNITS.items() if done["seconds"].max() >= seconds), "seconds")
    points = over_seeds(done, by=["dataset", "part", "method"], value="seconds", scale=1 / UNITS[unit])
    points = points.assign(unit=unit)
    panels = []
    for part, title in sections(manifest).items():
        methods = _methods(manifest, runs, part)
        own = points[points["part"] == part]
        if methods:
            panels.append(
                Panel(
                    data=own.assign(
                        x=own["method"].map(methods.index), method=[dataset_title(name) for name in own["dataset"]]
                    ),
                    title=title, ylabel=f"Training time ({unit})", ticks=[head(manifest, name) for name in methods],
                    from_zero=True, note=NOTHING if own.empty else "",
                )
            )  # fmt: skip
    datasets = [dataset_title(name) for name in runs["dataset"].unique()]
    sheet = Sheet(panels=panels, methods=datasets)
    return drawing(manifest, runs, points, _summary(manifest, runs, points, unit), sheet)


def _methods(manifest: Manifest, runs: pd.DataFrame, part: str) -> list[str]:
    return [method for method in manifest.methods if ((runs["method"] == method) & (runs["part"] == part)).any()]


def _summary(manifest: Manifest, runs: pd.DataFrame, points: pd.DataFrame, unit: str) -> Table:
    cells = {(row["dataset"], row["method"]): row for row in points.to_dict("records")}
    body = []
    for dataset in runs["dataset"].unique():
        for part in sections(manifest):
            of_part = runs[(runs["dataset"] == dataset) & (runs["part"] == part)]
            methods = _methods(manifest, of_part, part)
            private = of_part.loc[of_part["private"].eq(True), "method"]
            first = next((method for method in methods if (private == method).any()), None)
            for method in methods:
                own = of_part[of_part["method"] == method]
                found, base = cells.get((dataset, method)), cells.get((dataset, first))
                time = magnitude_text(point_spread(found), needed=len(own))
                times = DASH if found is None or base is None else f"{found['mean'] / base['mean']:.2f}× {first}"
                steps = own.loc[own["status"] == "done", "steps"].mean()
                body.append([dataset_title(dataset), method, DASH if pd.isna(steps) else f"{steps:,.0f}", time, times])
    devices = sorted(runs.loc[runs["status"] == "done", "device"].dropna().unique())
    told = [f"Training time in {unit}" + (f" on {', '.join(devices)}" if devices else "") + ", mean ± std over seeds."]
    if shared := runs.loc[runs["status"] == SHARED, "method"].unique().tolist():
        told.append(
            f"Not shown, for they shared their steps with other runs or do not say: {', '.join(shared)}; the command "
            "with retrain=true trains each by itself."
        )
    header = ["Dataset", "Method", "Steps", f"Time ({unit})", "Over the first's"]
    return plain_table(" ".join(told), header, body, num_labels=2)

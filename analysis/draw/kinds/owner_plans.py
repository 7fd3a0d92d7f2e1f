"""Kind `owner_plans`: the sampling rates and thresholds that budgets buy at a given noise; no run is trained.

INO-SGD Fig. 10 and its App. C.1.1, by RDP. On the left rates at several noise multipliers (SAMPLE), on the right
thresholds at several rates (SCALE). `rawls reproduce` computes them; figure.csv holds the points drawn.

Options of `draw`, besides those of every kind:
    steps, delta        of all
    noise_multipliers   of the rates
    rates, noise_std    of the thresholds
Beside the numbers that the paper prints stand ours, and, where they differ, the curve that has the printed one.
"""

from io import BytesIO

import pandas as pd

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Panel, Sheet
from rawls.analysis.draw.kinds.curves import drawing, not_computed, plain_table
from rawls.analysis.draw.tables import Table
from rawls.analysis.draw.titles import DASH
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest
from rawls.analysis.read.papers_numbers import agreement, reported
from rawls.runners.store.checksums import content_of
from rawls.runners.store.stored import PLANS, target_folder

# What a larger budget buys, what is given, and how a panel calls both.
QUANTITIES = {"SAMPLE": ("rate", "σ", "Sampling rate q"), "SCALE": ("threshold", "q", "Threshold C")}


def owner_plans(manifest: Manifest, store: Store) -> Drawing:
    folder = target_folder(store.root, manifest.target, manifest.variant)
    if not (folder / PLANS).is_file():
        return not_computed(manifest)
    plans = pd.read_csv(BytesIO(content_of(folder, PLANS)))
    given = zip(plans["spends"], plans["fixed"], strict=True)
    points = plans.rename(columns={"epsilon": "x", "value": "mean"}).assign(method=[_called(*pair) for pair in given])
    points = points.dropna(subset=["mean"]).assign(low=lambda own: own["mean"], high=lambda own: own["mean"])
    panels = [
        Panel(data=points[points["spends"] == spends], title=spends, xlabel="Budget ε", ylabel=title, from_zero=True)
        for spends, (_, _, title) in QUANTITIES.items()
    ]
    sheet = Sheet(panels=panels, methods=list(points["method"].unique()))
    return drawing(manifest, manifest.join(store), points, _table(manifest, plans), sheet)


def _called(spends: str, fixed: float) -> str:
    return f"{QUANTITIES[spends][1]} = {fixed:g}"


def _table(manifest: Manifest, plans: pd.DataFrame) -> Table:
    """What the paper prints beside ours; a column of its file is the given noise or rate, the budget, the quantity."""
    body = []
    for row in reported(manifest.paper, manifest.table).itertuples():
        fixed, budget, quantity = row.column.split("/")
        alike = plans[(plans["spends"] == row.method) & (plans["epsilon"] == float(budget))]
        ours = alike.loc[alike["fixed"] == float(fixed), "value"]
        if ours.empty:
            continue
        same = agreement(float(ours.iloc[0]), row.printed)
        others = [
            _called(row.method, other.fixed)
            for other in alike.itertuples()
            if same == "differs" and agreement(other.value, row.printed) == "equal"
        ]
        told = [row.method, _called(row.method, float(fixed)), f"ε = {budget}", quantity]
        body.append([*told, row.printed, f"{ours.iloc[0]:.4f}", same, ", ".join(others) or DASH])
    header = ["Variant", "Given", "Budget", "Quantity", "Paper", "Ours", "Same", "Printed is that of"]
    steps, delta = (manifest.draw.get(name, DASH) for name in ("steps", "delta"))
    return plain_table(f"After {steps} steps at δ = {delta}, by RDP; no budget is passed.", header, body, num_labels=4)

"""Kind `stability_bounds`: how far training and test may lie apart by what is proven of privacy; no run is trained.

WYSIWYG Fig. 2 draws its Proposition 2.6 for (ε, 0)-DP beside what was known; what of that it draws only the picture
says: here Eq. (2), and what follows from Steinke and Zakynthinou (2020), whom its text names. A bound of 1 says
nothing. figure.csv holds the curves.

Options of `draw`, besides those of every kind:
    delta   default 0, as in the paper. Theirs is of ε-DP and is left out for any other
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Panel, Sheet
from rawls.analysis.draw.kinds.curves import drawing, plain_table
from rawls.analysis.metrics.generalisation import by_mutual_information, easy_stability, stability
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest

EPSILONS = np.linspace(0, 5, 501)
SAMPLED = [0.1, 0.5, 1, 2, 4, 8]  # in the table
Bound = tuple[str, Callable[[float], float], float]
"""In words, by ε, and from which ε on it says nothing."""


def stability_bounds(manifest: Manifest, store: Store) -> Drawing:
    delta = _delta(manifest)
    bounds = _bounds(delta)
    curves = [
        pd.DataFrame({"method": name, "x": EPSILONS, "mean": [min(1.0, bound(at)) for at in EPSILONS.tolist()]})
        for name, (_, bound, _) in bounds.items()
    ]
    points = pd.concat(curves, ignore_index=True)
    points = points.assign(low=points["mean"], high=points["mean"])
    panel = Panel(data=points, xlabel="ε", ylabel="Bound of the gap (1 says nothing)", from_zero=True)
    body = [
        [
            name,
            formula,
            *(f"{min(1.0, bound(at)):.4g}" for at in SAMPLED),
            "never" if math.isinf(last) else f"ε = {last:.4g}",
        ]
        for name, (formula, bound, last) in bounds.items()
    ]
    of = f"(ε, {delta:g})-DP"
    caption = (
        f"The most that the mean of a function in [0, 1] may differ between training and fresh examples under {of}."
    )
    header = ["Bound", "is", *(f"ε = {at:g}" for at in SAMPLED), "Says nothing from"]
    sheet = Sheet(panels=[panel], methods=list(bounds))
    summary = plain_table(caption, header, body, num_labels=2)
    return drawing(manifest, manifest.join(store), points, summary, sheet)


def _bounds(delta: float) -> dict[str, Bound]:
    found: dict[str, Bound] = {
        "Prop. 2.6": ("(e^ε − 1 + 2δ) / (e^ε + 1)", partial(stability, delta=delta), math.inf),
        "Eq. 2": ("e^ε − 1 + δ", partial(easy_stability, delta=delta), math.log(2 - delta)),
    }
    if delta == 0:
        found["Mutual information"] = ("ε", by_mutual_information, 1.0)
    return found


def _delta(manifest: Manifest) -> float:
    delta = float(manifest.draw.get("delta", 0))
    if not 0 <= delta < 1:
        raise ValueError(f"draw.delta is {delta:g}, but a δ is at least 0 and below 1")
    return delta

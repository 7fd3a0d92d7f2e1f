"""Kind `normalisation_error`: what normalising takes from a gradient or adds to it, by its norm; no run is trained.

FDPG Fig. 5 draws Eq. (4) with R = 1: a gradient of norm a comes out with norm a / (a + γ), an error of
F(a) = |(1 − γ) a − a²| / (a + γ). Up to a = 1 − γ, where it is 0, it is at most 1 + γ − 2 √γ (dashed), reached at
a = √γ − γ; from there on it grows with the norm, so that groups with larger gradients lose more.

Options of `draw`, besides those of every kind:
    stability   the γ, each between 0 and 1; default [0.01, 0.1, 0.5, 1]
"""

import math

import numpy as np
import pandas as pd

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Panel, Sheet
from rawls.analysis.draw.kinds.curves import drawing, plain_table
from rawls.analysis.metrics.statistics import Numbers
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest

DEFAULT = [0.01, 0.1, 0.5, 1]
NORMS = np.linspace(0, 2, 401)
SAMPLED = [0.1, 0.5, 1, 2]  # norms in the table
CAPTION = "The error of a gradient of norm a. Its largest up to a = 1 − γ is 1 + γ − 2 √γ, at a = √γ − γ."


def normalisation_error(manifest: Manifest, store: Store) -> Drawing:
    gammas = _gammas(manifest)
    names = {gamma: f"γ = {gamma:g}" for gamma in gammas}
    curves = [
        pd.DataFrame({"method": names[gamma], "stability": gamma, "x": NORMS, "mean": error(NORMS, gamma)})
        for gamma in gammas
    ]
    points = pd.concat(curves, ignore_index=True)
    points = points.assign(low=points["mean"], high=points["mean"])
    bounds = [
        {"method": names[gamma], "label": "bound", "x": x, "y": bound(gamma)}
        for gamma in gammas
        for x in (0.0, 1 - gamma)
    ]
    panel = Panel(
        data=points, title="Dashed: the largest up to a = 1 − γ", xlabel="Gradient norm a",
        ylabel="Normalisation error F(a)", from_zero=True, limits=pd.DataFrame(bounds),
    )  # fmt: skip
    body = [
        [
            names[gamma],
            f"{bound(gamma):.4g}",
            f"{math.sqrt(gamma) - gamma:.4g}",
            f"{1 - gamma:.4g}",
            *(f"{float(error(np.array(norm), gamma)):.4g}" for norm in SAMPLED),
        ]
        for gamma in gammas
    ]
    header = ["Stability", "Largest up to 1 − γ", "at a", "1 − γ", *(f"F({norm:g})" for norm in SAMPLED)]
    sheet = Sheet(panels=[panel], methods=list(names.values()))
    return drawing(manifest, manifest.join(store), points, plain_table(CAPTION, header, body), sheet)


def error(norms: Numbers, gamma: float) -> Numbers:
    """F(a) of FDPG's Eq. (4)."""
    return np.abs((1 - gamma) * norms - norms**2) / (norms + gamma)


def bound(gamma: float) -> float:
    """The largest error of norms up to 1 − γ."""
    return 1 + gamma - 2 * math.sqrt(gamma)


def _gammas(manifest: Manifest) -> list[float]:
    asked = [float(gamma) for gamma in manifest.draw.get("stability", DEFAULT)]
    for gamma in asked:
        if not 0 < gamma <= 1:
            raise ValueError(f"draw.stability has {gamma:g}, but γ lies above 0 and is at most 1")
    return asked

"""Kind `argument_stability`: how far solutions of neighbouring problems lie apart, under two bounds of it; no run.

Zhou and Bassily's Lemma 3, from which Algorithm 1's noise follows, and the sharper one that algorithms/
minimax_phased_erm.py proves and calibrates by. `rawls reproduce` solves the pairs; on the left the share of random
pairs that come no closer to a bound than x, on the right every pair beside its bound. figure.csv holds the points.

Options of `draw`, besides those of every kind:
    pairs   random ones; a tenth as many are constructed
"""

import numpy as np
import pandas as pd

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Panel, Sheet
from rawls.analysis.draw.kinds.curves import drawing, not_computed, plain_table, with_table
from rawls.analysis.draw.tables import Table
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest
from rawls.runners.store.stored import STABILITY, target_folder

BOUNDS = {"lemma_3": "Lemma 3", "sharper": "Sharper"}


def argument_stability(manifest: Manifest, store: Store) -> Drawing:
    path = target_folder(store.root, manifest.target, manifest.variant) / STABILITY
    if not path.is_file():
        return not_computed(manifest)
    pairs = pd.read_csv(path)
    shares, places = _shares(pairs), _places(pairs)
    ends = [places["x"].min(), places["x"].max()]
    panels = [
        Panel(
            data=shares, xlabel="Moved, over the bound", ylabel="Share of random pairs", log_x=True, round_ticks=True
        ),
        Panel(
            data=places,
            xlabel="Bound",
            ylabel="Moved by",
            scattered=True,
            log=True,
            log_x=True,
            round_ticks=True,
            limits=pd.DataFrame({"method": "", "label": "the bound itself", "x": ends, "y": ends}),
        ),
    ]
    points = pd.concat([shares.assign(panel="shares"), places.assign(panel="pairs")], ignore_index=True)
    sheet = Sheet(panels=panels, methods=manifest.methods)
    return with_table(drawing(manifest, manifest.join(store), points, _table(pairs), sheet))


def _shares(pairs: pd.DataFrame) -> pd.DataFrame:
    """Of the random pairs, how many come no closer to each bound than x; those that did not move have no place."""
    random = pairs[pairs["kind"] == "random"]
    curves = []
    for bound, title in BOUNDS.items():
        ratios = np.sort(random["moved"] / random[bound])
        share = np.arange(1, len(ratios) + 1) / len(ratios)
        curves.append(pd.DataFrame({"method": title, "x": ratios, "mean": share, "low": share, "high": share}))
    found = pd.concat(curves, ignore_index=True)
    return found[found["x"] > 0]


def _places(pairs: pd.DataFrame) -> pd.DataFrame:
    moved = pairs[pairs["moved"] > 0]
    each = [moved.assign(method=title, x=moved[bound], mean=moved["moved"]) for bound, title in BOUNDS.items()]
    found = pd.concat(each, ignore_index=True)[["method", "kind", "loss", "x", "mean"]]
    return found.assign(low=found["mean"], high=found["mean"])


def _table(pairs: pd.DataFrame) -> Table:
    body = []
    for (kind, loss), own in pairs.groupby(["kind", "loss"], sort=False):
        ratios = [own["moved"] / own[bound] for bound in BOUNDS]
        largest = [f"{ratio.max():.3f}" for ratio in ratios]
        beyond = [str(int((ratio > 1).sum())) for ratio in ratios]
        saved = own["lemma_3"] / own["sharper"]
        body.append([kind, loss, str(len(own)), *largest, *beyond, f"{saved.min():.2f} to {saved.max():.2f}"])
    caption = "The largest share of a bound that a pair came to, how many passed it, and how many times smaller one is."
    header = ["Pairs", "Loss", "n", *(f"{title}, largest" for title in BOUNDS.values())]
    header += [*(f"{title}, passed" for title in BOUNDS.values()), "Lemma 3 / Sharper"]
    return plain_table(caption, header, body, num_labels=2)

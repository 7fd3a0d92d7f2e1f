"""What finished runs come to on the whole of their training and test parts, as `probe.gap_noise` wrote it.

Scores are those of the last evaluation, or, for early stopping, of the one with the highest validation WGA
(analysis/metrics/choose_epoch.py). Beside them stands the running accuracy of `probe.running`, where it was asked for:
what WYSIWYG's code reports as that of training.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rawls.analysis.metrics.choose_epoch import BEST_VALID_WGA, best_steps
from rawls.analysis.read.load import Store

SPLITS = ("train", "test")
OF_A_RUN = [f"{split}_{name}" for split in SPLITS for name in ("wga", "calibration_error", "corrupted_wga")]
OF_GROUPS = [f"{split}_accuracy" for split in SPLITS]
RUNNING = "running_wga"


def gap_scores(store: Store, runs: pd.DataFrame, *, early: bool = False) -> pd.DataFrame:
    """The finished runs that measured it, with OF_A_RUN, OF_GROUPS (a list each) and RUNNING (NaN if it was not asked).

    Args:
        early: at the best validation WGA instead of at the end.
    """
    done, history = runs[runs["status"] == "done"], store.history
    lines = history[history["run_id"].isin(done["run_id"])]
    at = (
        best_steps(lines[lines["kind"] == "evaluation"], BEST_VALID_WGA)
        if early
        else lines.groupby("run_id")["step"].max()
    )
    there = lines[lines["step"] == lines["run_id"].map(at)]
    of_gaps = _of_kind(there, "gaps", [*OF_A_RUN, *OF_GROUPS])
    found = done.drop(columns=OF_A_RUN, errors="ignore").merge(of_gaps, on="run_id")
    return found.merge(_of_kind(there, "running", [RUNNING]), on="run_id", how="left")


def _of_kind(lines: pd.DataFrame, kind: str, names: Sequence[str]) -> pd.DataFrame:
    """One row a run; a column that no run logged is NaN."""
    own = lines[lines["kind"] == kind].drop_duplicates("run_id", keep="last")
    return own.reindex(columns=["run_id", *names])


def group_gaps(scored: pd.DataFrame) -> np.ndarray:
    """Training less test accuracy, [run, group]; NaN where a group is empty."""
    train, test = (np.array([list(values) for values in scored[name]], dtype=np.float64) for name in OF_GROUPS)
    return train - test

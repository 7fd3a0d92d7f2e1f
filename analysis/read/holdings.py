"""Whose training rows are of which group, as the ledgers of finished runs say: the cells in which rows were charged.

Owners may change with the seed, so each run is asked. What has one owner alone, or none, has no rows here.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from rawls.runners.store.checksums import content_of
from rawls.runners.store.stored import LEDGER, folder_of

COLUMNS = ["run_id", "owner", "group", "rows"]


def holdings(results_root: Path, run_ids: Iterable[str]) -> pd.DataFrame:
    """One row per run, owner and group: how many of the group's training rows are the owner's, if any are."""
    parts = [_of_run(results_root, run_id) for run_id in run_ids]
    filled = [part for part in parts if len(part)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=COLUMNS)


def _of_run(results_root: Path, run_id: str) -> pd.DataFrame:
    """Nothing, if the ledger is missing, damaged or of a run whose rows are one owner's."""
    try:
        cells = json.loads(content_of(folder_of(results_root, run_id), LEDGER))["cells"]
        frame = pd.DataFrame({name: cells[name] for name in ("owners", "groups", "sizes")}, dtype=np.int64)
    except (OSError, KeyError, TypeError, ValueError):
        return pd.DataFrame(columns=COLUMNS)
    frame = frame.rename(columns={"owners": "owner", "groups": "group", "sizes": "rows"})
    return frame.groupby(["owner", "group"], as_index=False)["rows"].sum().assign(run_id=run_id)[COLUMNS]

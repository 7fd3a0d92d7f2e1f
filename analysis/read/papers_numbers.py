"""The numbers the papers print, one CSV per paper under analysis/reported.

Columns: paper, table (the target's name: table1, calibration, ...), method, column (what the number is, from
the general to the particular: `dataset/metric` or `dataset/batch size/quantity`), mean, std, n (values behind
the std) and source. `printed` is added on reading: the mean as text, for some numbers are judged by their
printed digits. Accuracies are in percent.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parents[1] / "reported"


def reported(paper: str, table: str) -> pd.DataFrame:
    """Rows of one table; empty when the paper prints no such numbers (a figure)."""
    path = FOLDER / f"{paper}.csv"
    if not path.is_file():
        return pd.DataFrame(columns=["method", "column", "printed", "mean", "std", "n", "source"])
    text = pd.read_csv(path, dtype=str, keep_default_na=False)
    text = text[text["table"] == table].drop(columns=["paper", "table"]).reset_index(drop=True)
    numbers = {name: pd.to_numeric(text[name]) for name in ("mean", "std", "n")}
    return text.rename(columns={"mean": "printed"}).assign(**numbers)


def agreement(value: float, printed: str) -> str:
    """'equal' to the digits of `printed`, 'last digit' (one unit off), or 'differs'.

    A tie may be rounded either way. One unit off happens where a number was computed a little differently.
    """
    unit = 10.0 ** -len(printed.partition(".")[2])
    distance = abs(value - float(printed)) / unit
    return "equal" if distance <= 0.5 + 1e-6 else "last digit" if distance <= 1.5 + 1e-6 else "differs"


def digits_told(checked: Sequence[str | None]) -> str | None:
    """The verdict on printed numbers by their `agreement`, if none differs by more than one unit in its last digit."""
    near = checked.count("last digit")
    if not checked or checked.count("equal") + near < len(checked):
        return None
    return (
        f"reproduced but for one unit in the last digit of {near} of {len(checked)} numbers" if near else "reproduced"
    )

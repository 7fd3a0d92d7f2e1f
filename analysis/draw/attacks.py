"""Attacks by name (`rawls audit attack=lira|one_run`): what they left in their folders, as tables and a figure.

An attack leaves long tables that a program should read: `table.csv`, and `curves.csv` of membership inference. For
people there is table.md; and figure.png and figure.pdf, the ROC of each part of the rows. Its axes are logarithmic:
what counts is how many rows are found at few false alarms. A dashed line is the most that the proven epsilon allows.
"""

from io import BytesIO
from pathlib import Path

import pandas as pd

from rawls.analysis.draw.drawing import Write, put, text_file
from rawls.analysis.draw.figures import Panel, Sheet
from rawls.analysis.draw.stamps import short
from rawls.analysis.draw.tables import Cell, Table
from rawls.analysis.draw.titles import DASH
from rawls.runners.store.checksums import content_of

DRAWN = "online, logit"  # of INO-SGD's and IDP-SGD's AUROCs
LOWEST = 1e-3  # true positive rate that is shown
ALLOWED, GUESSING = "the most that ε allows", "guessing"
RATES = {"0.001": "0.1 %", "0.01": "1 %"}


def draw_attack(folder: Path) -> tuple[str, list[Path]]:
    """Draw what an attack left in a folder; the table as text, and the files written."""
    table = pd.read_csv(BytesIO(content_of(folder, "table.csv")))
    files: dict[str, Write] = {}
    if (folder / "curves.csv").exists():
        curves = pd.read_csv(BytesIO(content_of(folder, "curves.csv")))
        files = roc_sheet(curves[curves["attack"] == DRAWN], table).files()
        text = membership_table(table).markdown()
    else:
        text = _one_run(table).markdown()
    files["table.md"] = text_file(text)
    return text, put(folder, files)


def roc_sheet(curves: pd.DataFrame, table: pd.DataFrame) -> Sheet:
    """A panel for each part of the rows, in it a curve for each method."""
    panels = [
        Panel(
            data=rows.assign(**{name: rows[name].clip(lower=LOWEST / 2) for name in ("mean", "low", "high")}),
            limits=_limits(rows),
            title=str(name),
            xlabel="False positive rate",
            ylabel="True positive rate",
            log=True,
            log_x=True,
            lowest=LOWEST,
        )
        for (_, name), rows in curves.rename(columns={"fpr": "x", "tpr": "mean"}).groupby(["part", "name"], sort=False)
    ]
    methods = [*table["method"].unique(), ALLOWED, GUESSING]
    return Sheet(panels=panels, methods=methods, stamp=_stamp(table), share_y=True)


def _stamp(table: pd.DataFrame) -> str:
    """Of a twin's data; that shadows train on halves of the real ones, the caption says."""
    return short(["simulated data"]) if (table["provenance"] == "simulated").any() else ""


def _stamped(caption: str, table: pd.DataFrame) -> str:
    return f"{caption} [{stamp}]" if (stamp := _stamp(table)) else caption


def _limits(rows: pd.DataFrame) -> pd.DataFrame:
    known = rows.dropna(subset=["bound"])
    allowed = known[["method", "x"]].assign(label=ALLOWED, y=known["bound"])
    widest = rows[["x"]].drop_duplicates().sort_values("x")
    return pd.concat([widest.assign(method="", label=GUESSING, y=widest["x"]), allowed])


def membership_table(table: pd.DataFrame) -> Table:
    """The drawn attack on every part, and the others on all rows."""
    shown = table[(table["attack"] == DRAWN) | (table["part"] == "all")]
    header = ["Method", "Rows", "Attack", "AUROC", "allowed"]
    for rate in RATES.values():
        header += [f"TPR at {rate} FPR", "allowed"]
    body = [[Cell(text=text) for text in _cells(row)] for _, row in shown.iterrows()]
    runs = ", ".join(map(str, sorted(table["runs"].unique())))
    return Table(
        caption=_stamped(
            f"Membership inference by LiRA, {runs} shadow runs on random halves; each in turn is the target.", table
        ),
        header=[*header, "ε"],
        rows=body,
        num_labels=3,
        notes=[
            "In percent, but for AUROC and ε. Intervals: Clopper and Pearson at 95 %, as if memberships were "
            "independent, which the rows of one run are not quite. Allowed: the most that (ε, δ) leaves to any attack. "
            f"{DASH}: no privacy, or fewer rows than show such a rate."
        ],
    )


def _cells(row: "pd.Series[float]") -> list[str]:
    texts = [str(row["method"]), str(row["name"]), str(row["attack"])]
    texts += [_number(row["auroc"], 3), _number(row["auroc_bound"], 4)]
    for rate in RATES:
        value, low, high = (row[f"{name}_at_{rate}"] for name in ("tpr", "low", "high"))
        interval = DASH if pd.isna(value) else f"{100 * value:.2f} ({100 * low:.2f} – {100 * high:.2f})"
        texts += [interval, _number(100 * row[f"bound_at_{rate}"], 2)]
    return [*texts, _number(row["epsilon"], 3)]


def _one_run(table: pd.DataFrame) -> Table:
    body = [
        [
            str(row["method"]),
            str(row["record"]),
            str(row["attack"]),
            f"{row['right']} of {row['guesses']} ({row['canaries']})",
            _number(row["lower_bound"], 3),
            _number(row["proven"], 3),
            _number(row["claim"], 3),
        ]
        for _, row in table.iterrows()
    ]
    runs, confidence = (", ".join(f"{value:g}" for value in table[name].unique()) for name in ("runs", "confidence"))
    return Table(
        caption=_stamped(
            f"Lower bounds on ε by guessing which canaries were in; runs with coins of their own: {runs}.", table
        ),
        header=["Method", "Canaries", "Attack", "Right of guessed (of all)", "Lower bound", "Proven", "Claimed"],
        rows=[[Cell(text=text) for text in row] for row in body],
        num_labels=3,
        notes=[f"Each bound alone holds with confidence {confidence}; canaries that are out contribute nothing."],
    )


def _number(value: float, digits: int) -> str:
    return DASH if pd.isna(value) else f"{value:.{digits}f}"

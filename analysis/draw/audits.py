"""What `rawls audit` found, drawn: a row for each method, every bound and twin, and bounds under claims and proofs.

The records are those of runners/audit/records.py; a method that was audited in several configurations has a row for
each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from rawls.analysis.draw import figures
from rawls.analysis.draw.drawing import put, text_file
from rawls.analysis.draw.figures import COLOURS, PAGE
from rawls.analysis.draw.tables import Cell, Table, csv_text
from rawls.analysis.draw.titles import DASH, dataset_title
from rawls.runners.store.stored import mark_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record = Mapping[str, Any]
MARKS = {
    "holds": "good",
    "claim refuted by attack": "apart",
    "claim refuted by the ledger": "apart",
    "twin not caught": "bad",
    "proof refuted by attack": "bad",
}
WITHIN = 1e-6  # relative: a claim that is the proven number, computed twice
LOWER, CLAIM, PROVEN = "shown by attack", "claimed", "proven"
COLUMNS = (
    "method", "dataset", "claim", "rule", "proven", "lower_bound", "attack", "setting", "record", "confidence", "runs",
    "seconds", "twins", "twins_caught", "verdict",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Audits:
    """All records of a results folder as frames: a row for each method, for each bound, for each twin."""

    methods: pd.DataFrame
    bounds: pd.DataFrame
    twins: pd.DataFrame

    @classmethod
    def of(cls, records: Sequence[Record]) -> "Audits":
        several = len({record["dataset"] for record in records}) > 1
        methods, bounds, twins = [], [], []
        for record in records:
            name = f"{record['method']} on {dataset_title(record['dataset'])}" if several else record["method"]
            most = _telling(record)
            caught = [bool(twin["caught_by"]) for twin in record["twins"]]
            told = {"name": name, **{key: record[key] for key in ("method", "dataset", "provenance", "model")}}
            methods.append(
                {
                    **told,
                    **{key: most[key] for key in ("claim", "rule", "proven", "lower_bound")},
                    **{key: most[key] for key in ("attack", "setting", "record")},
                    "confidence": record["confidence"],
                    "runs": sum({(one["setting"], one["record"]): one["runs"] for one in record["findings"]}.values()),
                    "seconds": record["seconds"],
                    "twins": len(caught),
                    "twins_caught": sum(caught),
                    "verdict": record["verdict"],
                }
            )
            bounds += [{**told, **found} for found in record["findings"]]
            twins += [{**told, **twin} for twin in record["twins"]]
        return cls(methods=pd.DataFrame(methods), bounds=pd.DataFrame(bounds), twins=pd.DataFrame(twins))

    def table(self) -> Table:
        """Methods and verdicts."""
        header = ["Method", "Verdict", "Claim by rule", "Attack", "Claimed ε", "Proven ε", "ε is at least", "Runs",
                  "Time", "Twins caught"]  # fmt: skip
        rows = [
            [
                row["name"],
                Cell(text=row["verdict"], mark=MARKS.get(row["verdict"], "")),
                row["rule"],
                f"{row['attack']}, {row['setting']}",
                _claim(row),
                f"{row['proven']:.3g}",
                f"{row['lower_bound']:.3g}",
                str(row["runs"]),
                f"{row['seconds']:.0f} s",
                f"{row['twins_caught']} of {row['twins']}",
            ]
            for row in self.methods.to_dict("records")
        ]
        return _table(self.caption(), header, rows, labels=4, notes=self.notes())

    def every_bound(self) -> Table:
        header = ["Method", "Attack", "Setting", "Record", "Claimed ε", "Proven ε", "ε is at least", "Bound", "Runs"]
        rows = [
            [
                *(row[key] for key in ("name", "attack", "setting", "record")),
                _claim(row),
                f"{row['proven']:.3g}",
                f"{row['lower_bound']:.3g}",
                row["bound"],
                str(row["runs"]),
            ]
            for row in self.bounds.to_dict("records")
        ]
        about = "Every bound. A bound of kind gaussian is exact for the runs it is of; one of kind any holds for every "
        return _table(f"{about}mechanism, and a few hundred runs show little by it.", header, rows, labels=4)

    def every_twin(self) -> Table:
        """Who caught the broken twins."""
        rows = [
            [row["name"], row["twin"], row["caught_by"] or "NOBODY", row["says"]]
            for row in self.twins.to_dict("records")
        ]
        about = "Broken twins: each method with a small dishonest change, and who caught it."
        return _table(about, ["Method", "Twin", "Caught by", "Which says"], rows, labels=4)

    def caption(self) -> str:
        data = ", ".join(
            dataset_title(name) + (f" ({mark})" if (mark := mark_of(kind)) else "")
            for name, kind in self.methods[["dataset", "provenance"]].drop_duplicates().itertuples(index=False)
        )
        return f"Audit on {data}: what is claimed, proven, and shown by the attack that tells most."

    def notes(self) -> list[str]:
        wrong = float((1 - self.methods["confidence"]).sum())
        least = 100 * float(self.methods["confidence"].min())
        together = f", those of all {len(self.methods)} with {max(0.0, 100 * (1 - wrong)):.4g} %"
        return [
            f"The bounds on a method hold together with a confidence of {least:.4g} %"
            f"{together if len(self.methods) > 1 else ''}. A claim is refuted by the ledger where it is below what is "
            "proven and its rule is known to count too little."
        ]

    def figure(self) -> "Figure":
        """A line for each method: how far attacks get, and where claim and proof lie."""
        from matplotlib.figure import Figure

        rows = self.methods.iloc[::-1].reset_index(drop=True)
        figure = Figure(figsize=(PAGE, 0.9 + 0.19 * len(rows)), layout="constrained")
        axis = figure.subplots()
        axis.hlines(rows.index, 0, rows["lower_bound"], color=COLOURS[0], linewidth=3.2, alpha=0.55)
        axis.plot(rows["lower_bound"], rows.index, "o", color=COLOURS[0], markersize=4.2, label=LOWER)
        axis.plot(rows["claim"], rows.index, "D", color=COLOURS[1], mfc="none", mew=1.2, markersize=5.2, label=CLAIM)
        axis.plot(rows["proven"], rows.index, "|", color=COLOURS[6], markersize=9, mew=1.6, label=PROVEN)
        axis.set_yticks(rows.index, rows["name"])
        axis.set(xlabel="ε", ylim=(-0.7, len(rows) - 0.3))
        axis.set_xlim(0, None)
        axis.grid(axis="y", visible=False)
        figure.legend(loc="outside upper center", ncols=3)
        return figure

    def svg(self) -> str:
        return figures.svg(self.figure)

    def write(self, folder: Path) -> list[Path]:
        """The tables to read and to compute with, and the figure."""
        parts = [table.markdown() for table in (self.table(), self.every_bound(), self.every_twin())]
        texts = {
            "audit.md": "\n".join(parts),
            "audit.csv": csv_text(self.methods[list(COLUMNS)]),
            "attacks.csv": csv_text(self.bounds.drop(columns="name")),
            "twins.csv": csv_text(self.twins.drop(columns="name")),
        }
        picture = partial(figures.write, self.figure, form="png")
        return put(folder, {**{name: text_file(text) for name, text in texts.items()}, "audit.png": picture})


def _telling(record: Record) -> Mapping[str, Any]:
    """The highest of the bounds on which the verdict rests."""
    refuted = {
        "proof refuted by attack": lambda one: one["lower_bound"] > one["proven"],
        "claim refuted by attack": lambda one: one["claim"] is not None and one["lower_bound"] > one["claim"],
        "claim refuted by the ledger": lambda one: (
            one["claim"] is not None and one["claim"] < one["proven"] * (1 - WITHIN)
        ),
    }
    rests_on = refuted.get(record["verdict"], lambda _: True)
    found = [one for one in record["findings"] if rests_on(one)]
    return max(found or record["findings"], key=lambda one: one["lower_bound"])


def _claim(row: Mapping[str, Any]) -> str:
    if row["rule"] == "accounted":
        return DASH
    return "none finite" if pd.isna(row["claim"]) else f"{row['claim']:.3g}"


def _table(
    caption: str, header: list[str], rows: Sequence[Sequence[str | Cell]], *, labels: int, notes: Sequence[str] = ()
) -> Table:
    cells = [[cell if isinstance(cell, Cell) else Cell(text=cell) for cell in row] for row in rows]
    return Table(caption=caption, header=header, rows=cells, num_labels=labels, notes=list(notes))

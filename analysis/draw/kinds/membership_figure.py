"""Kind `membership_figure`: how well an attack by shadow runs tells which rows were trained on, owner by owner.

INO-SGD Fig. 22: the ROC of LiRA for each owner, IDP-SGD and INO-SGD in one panel, on logarithmic axes, under the most
that the owner's epsilon allows; a row of panels for each setting. The table has AUROC, and true positive rates at few
false alarms. The runs train on halves (dataset.half_of) and keep their scores; `rawls reproduce` attacks each with the
others (runners/audit/lira.py). It measures, and bounds nothing. figure.csv holds the points drawn.

Options of `draw`, besides those of every kind:
    sections   see analysis/draw/group_scores.py
"""

from dataclasses import replace
from io import BytesIO

import pandas as pd

from rawls.analysis.draw.attacks import DRAWN, membership_table, roc_sheet
from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.figures import Sheet
from rawls.analysis.draw.group_scores import head, section_of, sections
from rawls.analysis.draw.kinds.curves import drawing, plain_table
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest
from rawls.analysis.read.papers_numbers import reported
from rawls.runners.store.checksums import content_of
from rawls.runners.store.stored import MEMBERSHIP, ROC, target_folder

_NOTHING = pd.DataFrame(columns=["method", "x", "mean"])


def membership_figure(manifest: Manifest, store: Store) -> Drawing:
    runs = manifest.join(store)
    manifest.check_one_run_per(runs, "method", "seed")
    folder = target_folder(store.root, manifest.target, manifest.variant)
    if not (folder / MEMBERSHIP).is_file():
        return drawing(manifest, runs, _NOTHING, plain_table("", [], []), Sheet(panels=[], methods=manifest.methods))
    table, curves = (pd.read_csv(BytesIO(content_of(folder, name))) for name in (MEMBERSHIP, ROC))
    names = _names(manifest, table)
    table, curves = (_of_owners(manifest, frame, names) for frame in (table, curves))
    sheet = roc_sheet(curves, table)
    points = curves.rename(columns={"fpr": "x", "tpr": "mean"})
    beside = membership_table(table)
    beside = replace(beside, notes=[*beside.notes, *_printed(manifest)])
    return drawing(manifest, runs, points, beside, replace(sheet, across=2))


def _printed(manifest: Manifest) -> list[str]:
    """What the paper prints, which does not say of which setting each of its pictures is."""
    theirs = reported(manifest.paper, manifest.table)
    told = [f"{row.column.removesuffix('/auroc').replace('/', ', ')}: {row.printed}" for row in theirs.itertuples()]
    return [f"AUROC in the paper, by its picture and owner: {'; '.join(told)}."] if told else []


def _names(manifest: Manifest, table: pd.DataFrame) -> dict[tuple[str, str], str]:
    """(method, owner) -> what a panel calls the owner: its setting, and its number from the most private on."""
    owners = table[(table["part"] == "owner") & (table["attack"] == DRAWN)].sort_values("epsilon", kind="stable")
    place = owners.groupby("method").cumcount() + 1
    found = {}
    for row, number in zip(owners.to_dict("records"), place, strict=True):
        setting = sections(manifest)[section_of(manifest, row["method"])]
        owner = f"owner {number} (ε = {row['epsilon']:.2g})"
        found[row["method"], row["name"]] = ", ".join(text for text in (setting, owner) if text)
    return found


def _of_owners(manifest: Manifest, frame: pd.DataFrame, names: dict[tuple[str, str], str]) -> pd.DataFrame:
    """The rows of the attack that is drawn, of owners, as the panels call them and their methods."""
    own = frame[(frame["part"] == "owner") & (frame["attack"] == DRAWN)]
    called = [names[pair] for pair in zip(own["method"], own["name"], strict=True)]
    return own.assign(name=called, method=[head(manifest, method) for method in own["method"]])

"""Every table and figure at a glance: how many of its runs are done, on which data, and what came of it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from rawls.analysis.draw.drawing import Drawing
from rawls.analysis.draw.render import draw
from rawls.analysis.draw.stamps import target_verdict
from rawls.analysis.draw.titles import DASH
from rawls.analysis.read.load import Store, load
from rawls.analysis.read.manifest import Manifest

COLUMNS = ["target", "variant", "title", "done", "needed", "failed", "running", "data", "verdict"]


def status(results_root: str | Path, manifests: Iterable[Mapping[str, Any] | Path]) -> pd.DataFrame:
    """One row per manifest, in the order given; no file is drawn.

    Args:
        results_root: the folder that holds `runs`.
        manifests: paths of manifest.json, or the same content as a mapping for a target that never ran.

    Returns:
        target, variant, title; done, needed, failed, running (numbers of runs); data ('real', 'subset', 'simulated',
        'stand-in data', 'stand-in' (of weights), 'plan only', or several joined by '+'; a dash when nothing is done);
        verdict ('missing (…)', 'partial (…); …', 'reproduced', 'reproduced but …', 'k of n …', 'not comparable (…)',
        'complete' for a figure, 'cannot be read (…)' or 'cannot be drawn (…)').
    """
    read = [_read(item) for item in manifests]
    ids = [run_id for manifest in read if isinstance(manifest, Manifest) for run_id in manifest.run_ids]
    store = load(results_root, ids)
    known = set(store.runs["run_id"])
    rows = [_row(item, store, known) if isinstance(item, Manifest) else item for item in read]
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(manifest: Manifest, store: Store, known: set[str]) -> dict[str, Any]:
    if manifest.runs and known.isdisjoint(manifest.run_ids):  # most targets, and drawing nothing takes time too
        missing = pd.DataFrame({"status": "missing", "provenance": None}, index=range(len(manifest.runs)))
        return row_of(manifest, missing, target_verdict(missing, ""))
    runs, drawing = drawn(manifest, store)
    return row_of(manifest, runs, drawing.verdict)


def drawn(manifest: Manifest, store: Store) -> tuple[pd.DataFrame, Drawing]:
    """What the manifest joined, and its drawing: a verdict alone, if no run is there or it cannot be drawn."""
    runs = manifest.join(store)
    if len(runs) and (runs["status"] == "missing").all():  # most of the papers is so in most stores
        return runs, Drawing(text="", verdict=target_verdict(runs, ""))
    try:
        return runs, draw(manifest, store)
    except ValueError as problem:
        return runs, Drawing(text="", verdict=f"cannot be drawn ({problem})")


def row_of(manifest: Manifest, runs: pd.DataFrame, verdict: str) -> dict[str, Any]:
    """The row of a target: `runs` are what the manifest joined, the verdict is its drawing's."""
    counts = runs["status"].value_counts()
    data = {kind for kinds in runs.loc[runs["status"] == "done", "provenance"].dropna() for kind in kinds.split("+")}
    return {
        "target": manifest.target,
        "variant": manifest.variant,
        "title": manifest.title,
        "needed": len(runs),
        **{name: int(counts.get(name, 0)) for name in ("done", "failed", "running")},
        "data": "+".join(sorted(data)) or DASH,
        "verdict": verdict,
    }


def state(row: Mapping[str, Any]) -> str:
    """A row in a word or two.

    Returns:
        'reproduced'; 'last digit' (where some numbers are one unit off); 'complete' (there is no number to compare);
        'differs' (in some cell); 'not comparable' (another scale, a subset); 'missing'; 'failed'; 'broken'; 'partial';
        'simulated'; 'partial, simulated'.
    """
    if str(row["verdict"]).startswith("cannot be"):
        return "broken"
    if row["verdict"] == "complete" and not row["needed"]:  # computed, without a run
        return "complete"
    if not row["done"]:
        return "failed" if row["failed"] else "missing"
    found = ["partial"] if row["done"] < row["needed"] else []
    found += ["simulated"] if "simulated" in str(row["data"]).split("+") else []
    if found:
        return ", ".join(found)
    verdict = str(row["verdict"])
    if verdict in ("reproduced", "complete") or verdict.startswith("no "):
        return "reproduced" if verdict == "reproduced" else "complete"
    if verdict.startswith("reproduced but"):
        return "last digit"
    return "not comparable" if verdict.startswith("not comparable") else "differs"


def unreadable(item: Mapping[str, Any] | Path, problem: ValueError) -> dict[str, Any]:
    """The row that says why there is no manifest."""
    name = str(item.parent) if isinstance(item, Path) else str(item.get("target"))
    counts = dict.fromkeys(["done", "needed", "failed", "running"], 0)
    return {"target": name, **counts, "data": DASH, "verdict": f"cannot be read ({problem})"}


def _read(item: Mapping[str, Any] | Path) -> Manifest | dict[str, Any]:
    """The manifest, or the row that says why there is none: one bad file must not hide the other targets."""
    try:
        return Manifest.read(item) if isinstance(item, Path) else Manifest.of(item)
    except ValueError as problem:
        return unreadable(item, problem)

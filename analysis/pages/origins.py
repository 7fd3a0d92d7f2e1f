"""Where runs come from and what became of them: their data, the code and machines that made them, their failures."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from rawls.analysis.draw.stamps import PROVENANCES, SHORT
from rawls.analysis.draw.tables import Cell, Table
from rawls.analysis.draw.titles import DASH, dataset_title
from rawls.analysis.read.manifest import without_folders
from rawls.runners.store.stored import ENVIRONMENT, ERROR, FAILED, folder_of

_MOST_IDS = 3
_NOBODYS = "no table or figure asks for it"
_TEXTS = {"real": "real data", "plan only": "computed, not trained"} | {
    key: f"{SHORT[text]}" for key, text in PROVENANCES.items()
}


def material(runs: pd.DataFrame) -> Table:
    """Runs by dataset, kind of data, scale, and how far they are."""
    unfinished = runs["status"] != "done"
    said = [_said(provenance) for provenance in runs["provenance"]]
    kind = ["not known before it is done" if open else text for open, text in zip(unfinished, said, strict=True)]
    frame = runs.assign(kind=kind, scale=[scale if isinstance(scale, str) else DASH for scale in runs["scale"]])
    rows = [
        [dataset_title(str(dataset)), str(kind), str(scale), str(status), str(len(some))]
        for (dataset, kind, scale, status), some in frame.groupby(["dataset", "kind", "scale", "status"], sort=False)
    ]
    return Table(
        caption="The data and scale of the runs.",
        header=["Dataset", "Data", "Scale", "Status", "Runs"],
        rows=[[Cell(text=text) for text in row] for row in rows],
        num_labels=4,
    )


def _said(provenance: object) -> str:
    """Of data, and of weights that stand in for the paper's."""
    return " · ".join(_TEXTS.get(part, DASH) for part in str(provenance).split("+"))


def made_by(root: Path, done: pd.DataFrame) -> Table:
    """Finished runs by the code, versions and machine that made them."""
    counts: Counter[tuple[str, ...]] = Counter()
    days: dict[tuple[str, ...], set[str]] = {}
    for run_id in done["run_id"]:
        environment = _environment(folder_of(root, run_id))
        key = (_code(environment), _machine(environment), _versions(environment.get("versions") or {}))
        counts[key] += 1
        days.setdefault(key, set()).add(str(environment.get("finished") or DASH)[:10])
    rows = [[*key, _ends(days[key]), str(count)] for key, count in counts.most_common()]
    return Table(
        caption="The code, packages and machines that made the finished runs.",
        header=["Code (git)", "Machine", "Versions", "Finished", "Runs"],
        rows=[[Cell(text=text) for text in row] for row in rows],
        num_labels=3,
    )


def failures(root: Path, runs: pd.DataFrame, places: Mapping[str, str]) -> Table | None:
    """Runs that failed or are damaged, those that ended alike together; None if there are none.

    Args:
        places: run id -> the target and method that need it.
    """
    bad = runs[runs["status"].isin(["failed", "damaged"])]
    if bad.empty:
        return None
    alike: dict[tuple[str, str], list[str]] = {}
    for run in bad.itertuples():
        trace = _trace(folder_of(root, str(run.run_id), FAILED)) if run.status == "failed" else ""
        known = f"{run.algorithm} on {run.dataset}" if isinstance(run.algorithm, str) else _NOBODYS
        last = trace or (run.error if isinstance(run.error, str) else "nothing was written about it")
        alike.setdefault((places.get(run.run_id, known), last), []).append(run.run_id)
    alike = {(place, without_folders(last)): run_ids for (place, last), run_ids in alike.items()}
    rows = [[_ids(run_ids), place, f"`{last}`", str(len(run_ids))] for (place, last), run_ids in alike.items()]
    return Table(
        caption="Runs that failed, with the last line of their trace; error.txt in their folder has all of it.",
        header=["Run", "Of", "Last line of the trace", "Runs"],
        rows=[[Cell(text=text) for text in row] for row in rows],
        num_labels=3,
    )


def _trace(folder: Path) -> str:
    """The last line that says anything."""
    try:
        lines = (folder / ERROR).read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _ids(run_ids: list[str]) -> str:
    more = len(run_ids) - _MOST_IDS
    return ", ".join(run_ids[:_MOST_IDS]) + (f" and {more} more" if more > 0 else "")


def _environment(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / ENVIRONMENT).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _code(environment: Mapping[str, Any]) -> str:
    sha = environment.get("git_sha")
    return DASH if not sha else f"{sha[:10]}" + (" + uncommitted changes" if environment.get("git_dirty") else "")


def _machine(environment: Mapping[str, Any]) -> str:
    names = [environment.get(name) for name in ("device_name", "device", "system", "machine")]
    threads = environment.get("num_threads")
    texts = list(dict.fromkeys(str(name) for name in names if name))
    return ", ".join([*texts, *([f"{threads} thread{'' if threads == 1 else 's'}"] if threads else [])]) or DASH


def _versions(versions: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items()) or DASH


def _ends(days: Iterable[str]) -> str:
    ordered = sorted(days)
    return " – ".join(dict.fromkeys((ordered[0], ordered[-1])))

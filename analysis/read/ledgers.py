"""The ledgers of finished runs as one frame: what was released, under which law, with how much noise, how often.

Read only when asked for. A running run's releases lie in its checkpoint and are not shown. Of a large store, what
was read once is kept under `cache` (analysis/read/cache.py).
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from rawls.analysis.read.cache import Rows, cached, in_order
from rawls.analysis.read.columns import COLUMNS
from rawls.runners.store.checksums import content_of
from rawls.runners.store.stored import CACHE, LEDGER, folder_of

_PER_CELL = pa.list_(pa.float64())
_TYPES = {name: pa.string() for name in ("run_id", "name", "law", "noise", "charged_as")}
_TYPES |= {name: pa.int64() for name in ("line", "first_step", "count")}
_TYPES |= {"noise_multiplier": _PER_CELL, "sampling_rate": _PER_CELL, "answers": pa.list_(pa.string())}
_SCHEMA = pa.schema({name: _TYPES.get(name, pa.float64()) for name in COLUMNS["ledger"]})


def load(results_root: Path, run_ids: Iterable[str]) -> pd.DataFrame:
    """One row per line of these finished runs' ledger.json, in their order; none for a ledger that is not there."""
    folders = {run_id: str(folder_of(results_root, run_id)) for run_id in run_ids}
    rows = cached(
        results_root / CACHE / "ledger.arrow",
        folders,
        (LEDGER,),
        lambda ids: _read(ids, folders),
        code=(Path(__file__),),
    )
    table = in_order(rows, folders)
    return table.to_pandas() if table.num_rows else _SCHEMA.empty_table().to_pandas()


def _read(run_ids: Sequence[str], folders: Mapping[str, str]) -> Rows:
    rows: list[dict[str, Any]] = []
    where = {}
    for run_id in run_ids:
        lines = _lines(run_id, Path(folders[run_id]))
        where[run_id] = (len(rows), len(lines))
        rows += lines
    return Rows(table=pa.Table.from_pylist(rows, schema=_SCHEMA), where=where)


def _lines(run_id: str, folder: Path) -> list[dict[str, Any]]:
    """Nothing, if the file is missing, damaged, or of releases that we do not know."""
    try:
        ledger = json.loads(content_of(folder, LEDGER))
        cells = ledger.get("cells", {})
        rows = [
            {"run_id": run_id, "line": place, **_line(line, cells)} for place, line in enumerate(ledger["releases"])
        ]
        pa.Table.from_pylist(rows, schema=_SCHEMA)
    except (OSError, AttributeError, KeyError, TypeError, ValueError, pa.ArrowException):
        return []
    return rows


def _line(line: Mapping[str, Any], cells: Mapping[str, Any]) -> dict[str, Any]:
    charged = line.get("charged_as")
    if "events" in line:  # of an older version
        events = [event or {} for event in line["events"]]
        multipliers = [event.get("noise_multiplier") for event in events]
        rates = [_rate(event.get("sampling") or {}) for event in events]
    else:
        rates = _rates(line["law"], cells)
        answers = [line, *line.get("look", []), *line.get("beside", [])]
        multipliers = [None if rate is None else _joint(answers, cell) for cell, rate in enumerate(rates)]
        if "tree" in line:  # noise_std is that of a node, and a row lies in several
            nodes = line["tree"]["nodes"]
            multipliers = [one and one / math.sqrt(nodes) for one in multipliers]
        if charged is not None:
            rates = [rate and _rate(charged["sampling"]) for rate in rates]
            multipliers = [rate and charged["noise_multiplier"] for rate in rates]
    return {
        "name": line["name"],
        "law": line["law"]["law"],
        "first_step": line["first_step"],
        "count": line["count"],
        "noise_std": line["noise_std"],
        "noise_multiplier": multipliers,
        "sampling_rate": rates,
        "noise": line.get("noise", "gaussian"),
        "answers": [answer["name"] for kind in ("look", "beside") for answer in line.get(kind, [])],
        "charged_as": None if charged is None else _charge(charged),
    }


def _charge(event: Mapping[str, Any]) -> str:
    """'gaussian 1.5, poisson at 0.05'."""
    sampling = event.get("sampling") or {}
    noise, rate = event.get("noise_multiplier"), _rate(sampling)
    told = [str(event["kind"]) + ("" if noise is None else f" {noise:.4g}")]
    if sampling:
        told.append(str(sampling["law"]).replace("_", " ") + ("" if rate in (None, 1.0) else f" at {rate:.3g}"))
    return ", ".join(told)


def _rates(law: Mapping[str, Any], cells: Mapping[str, Any]) -> list[float | None]:
    """How often a row of each cell is drawn, at most; None where it is not."""
    sizes = cells["sizes"]
    match law["law"]:
        case "uniform_poisson":
            rates = [law["rate"]] * len(sizes)
        case "cell_poisson":
            rates = law["rates"]
        case "uniform_without_replacement":
            rates = [law["batch"] / law["population"]] * len(sizes)
        case "stratified_without_replacement" | "one_group":
            rates = [batch / size for batch, size in zip(law["batches"], sizes, strict=True)]
        case "whole_fold":
            rates = [float(fold == law["fold"]) for fold in cells.get("folds", [0] * len(sizes))]
        case _:
            rates = [1.0] * len(sizes)
    return [float(rate) or None for rate in rates]


def _joint(answers: Sequence[Mapping[str, Any]], cell: int) -> float | None:
    """Noise over bound of a release's answers, together; None for a cell that none of them touches."""
    scale = math.sqrt(0.5) if answers[0].get("noise") == "laplace" else 1.0
    exposures = [answer["bounds"][cell] / (scale * answer["noise_std"]) for answer in answers if answer["noise_std"]]
    if len(exposures) < len(answers):
        return 0.0
    exposure = math.hypot(*exposures)
    return 1 / exposure if exposure else None


def _rate(sampling: Mapping[str, Any]) -> float | None:
    if sampling.get("law") == "everyone":
        return 1.0
    if "batch" in sampling:
        return float(sampling["batch"] / sampling["population"])
    return sampling.get("rate")

"""How runs were configured: of each config.yaml the part that makes a run what it is, flat.

    {"dataset": "digits", "algorithm": "asc", "algorithm.clip_norm": 1.0, "optimizer.lr": 0.01, …, "seed": 0}

Keys are those of the command line; a `_target_` is told by its file's name. Where and how a run is trained is left
out, as from its id. Of a large store, what was read once is kept under `cache` (analysis/read/cache.py).
"""

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from rawls.analysis.read.cache import Rows, cached
from rawls.runners.store.checksums import content_of
from rawls.runners.store.stored import CACHE, CONFIG, folder_of, from_yaml, identifies

Settings = dict[str, Any]

_SCHEMA = pa.schema({"run_id": pa.string(), "settings": pa.string()})


def load(results_root: str | Path, run_ids: Iterable[str]) -> dict[str, Settings]:
    """The settings of these finished runs; {} for one whose config.yaml is missing or damaged."""
    root = Path(results_root)
    folders = {run_id: str(folder_of(root, run_id)) for run_id in dict.fromkeys(run_ids)}
    rows = cached(
        root / CACHE / "settings.arrow",
        folders,
        (CONFIG,),
        lambda ids: _read(ids, folders),
        code=(Path(__file__),),
    )
    texts = rows.table["settings"].to_pylist() if folders else []
    return {run_id: json.loads(texts[rows.where[run_id][0]]) for run_id in folders}


def _read(run_ids: Sequence[str], folders: Mapping[str, str]) -> Rows:
    found = [json.dumps(_of(Path(folders[run_id]) / CONFIG)) for run_id in run_ids]
    table = pa.Table.from_pydict({"run_id": list(run_ids), "settings": found}, schema=_SCHEMA)
    return Rows(table=table, where={run_id: (place, 1) for place, run_id in enumerate(run_ids)})


def _of(path: Path) -> Settings:
    try:
        text = content_of(path.parent, path.name).decode()
        blocks = [text] if _JOINED.search(text) else _TOP.split(text)
        return {key: value for block in blocks if block for key, value in _identifying(block).items()}
    except (OSError, ValueError, yaml.YAMLError, AttributeError, TypeError):
        return {}


# What may tie one key of a file to another: anchors, aliases, tags, documents, braces and quotes over several lines.
_JOINED = re.compile(r"[&*!%{]|^[^\"\n]*\"[^\"\n]*$|^[^'\n]*'[^'\n]*$|^---|^\.\.\.", re.MULTILINE)
_TOP = re.compile(r"^(?=[A-Za-z_])", re.MULTILINE)


@functools.lru_cache(maxsize=4096)
def _identifying(block: str) -> Settings:
    """Of a key and all below it, which most runs of a sweep have in common."""
    return {key: value for key, value in flat(from_yaml(block) or {}).items() if identifies(key)}


def flat(config: Mapping[str, Any]) -> Settings:
    """Nested mappings as one, with keys joined by dots; a `_target_` is told by its file's name."""
    return dict(_items(config, ""))


def _items(config: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    for name, value in config.items():
        if name == "_target_":
            yield prefix[:-1], str(value).split(".")[-2:][0]
        elif isinstance(value, Mapping):
            yield from _items(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value

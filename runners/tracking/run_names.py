"""What W&B is told of a run beside its numbers: its name, group and tags; and what the store has of its history.

A run does not know which tables and figures need it; the manifests under results.root/targets do.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from rawls.runners.config.specifications import name_of
from rawls.runners.store.checksums import read_sealed
from rawls.runners.store.identity import hashed_part
from rawls.runners.store.results_store import to_json
from rawls.runners.store.stored import HISTORY, RUNNING, folder_of, manifests
from rawls.runners.sweeps.labels import budget_of

LONGEST_TAG = 64  # W&B takes no longer one
_IN_THE_NAME = ("epsilon", "dataset", "algorithm")


@dataclass(frozen=True, kw_only=True)
class Known:
    """Name, group and tags of a run, and the evaluations that an earlier attempt left.

    `method` is its label in the target; runs of one `setting` differ in the seed alone.
    """

    name: str
    method: str
    setting: str
    group: str
    tags: list[str]
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A run in a target: its label there, and the values that tell it from the label's other runs."""

    target: str
    label: str
    values: dict[str, Any]


def known(config: Mapping[str, Any], root: Path, run_id: str) -> Known:
    """What is known of a run before it is trained."""
    dataset, algorithm = name_of(config["dataset"]), name_of(config["algorithm"])
    places = list(_places(root, run_id))
    label = places[0].label if places else algorithm
    budget = budget_of(config)
    values = [f"{name}={_text(value)}" for name, value in (places[0].values if places else {}).items()]
    tags = [place.target.partition("/")[0] for place in places] + [place.target for place in places]
    tags += [dataset, algorithm, config["scale"]["name"], config["dataset"].get("provenance"), budget]
    point = ", ".join([f"{label} on {dataset}", budget, *values])
    return Known(
        name=f"{point}, seed {config['seed']}",
        method=label,
        setting=f"{point} ({_fingerprint(config)})",
        group=places[0].target if places else f"{dataset}/{algorithm}",
        tags=tag_list(tags),
        history=list(_history(root, run_id)),
    )


def _fingerprint(config: Mapping[str, Any]) -> str:
    """Of all that identifies a run but the seed: a target's variants, and runs of no target, are alike in words."""
    rest = {key: value for key, value in hashed_part(config).items() if key != "seed"}
    return hashlib.sha256(to_json(rest, sort_keys=True).encode()).hexdigest()[:4]


def tag_list(tags: Iterable[str | None]) -> list[str]:
    """Tags as W&B takes them, each once."""
    return list(dict.fromkeys(tag[:LONGEST_TAG] for tag in tags if tag))


def _places(root: Path, run_id: str) -> Iterator[_Place]:
    """The targets that need a run, the one asked for last first."""
    found = {path: path.stat().st_mtime_ns for path in manifests(root).values()}
    seen = set()
    for path in sorted(found, key=lambda path: (-found[path], path)):
        place = _of_manifest(path, found[path]).get(run_id)
        if place is not None and place.target not in seen:
            seen.add(place.target)
            yield place


@lru_cache(maxsize=64)
def _of_manifest(path: Path, changed: int) -> dict[str, _Place]:
    """Each run of a manifest; none if it cannot be read, for a mirror needs no target."""
    try:
        manifest = read_sealed(path)
        target, runs = manifest["target"], manifest["runs"]
        seen: dict[tuple[str, str, str], set[str]] = {}
        for run in runs:
            for name, value in run["coordinates"].items():
                seen.setdefault((run["label"], run["dataset"], name), set()).add(json.dumps(value))
        return {
            run["run_id"]: _Place(
                target=target,
                label=run["label"],
                values={
                    name: value
                    for name, value in run["coordinates"].items()
                    if name not in _IN_THE_NAME and len(seen[run["label"], run["dataset"], name]) > 1
                },
            )
            for run in runs
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _history(root: Path, run_id: str) -> Iterator[dict[str, Any]]:
    """The evaluations in the folder of a run in training; its last line may be torn."""
    try:
        lines = (folder_of(root, run_id, RUNNING) / HISTORY).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            return
        if "split" in row:
            yield row


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

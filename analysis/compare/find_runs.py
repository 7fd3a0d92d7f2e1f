"""What a name on the command line means: a sweep, a method or a run of the store; and which of its runs are chosen.

asc/table1, asc/table1/VARIANT, FOLDER/manifest.json    all runs of a target, methods told apart
ASC, asc                                                the runs of a label, or of an algorithm
4ff39f                                                  the run whose id begins so
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from rawls.analysis.compare.match_settings import Side
from rawls.analysis.read.load import Store
from rawls.analysis.read.manifest import Manifest, value_text
from rawls.analysis.read.settings import Settings
from rawls.runners.store.stored import MANIFEST, manifests

SHORTEST_ID = 4
MAX_SHOWN = 12
# Every method has its own: choosing a value of one leaves a side alone that has none to choose.
OWN = ("algorithm.", "optimizer.")
_OF_RUNS = ("dataset", "scale", "seed")  # known of runs that are not finished too
_NAMED = ["run_id", "algorithm", "method", "label"]
_NONE = object()


class Names:
    """The names that a store knows.

    Args:
        store: its runs.
        within: the target whose runs alone are meant; '' means the whole store.
    """

    def __init__(self, store: Store, within: str = "") -> None:
        self._store = store
        self._targets = manifests(store.root)
        self._within: Manifest | None = None
        self._within = self.target(within) if within else None
        readable = [self._within] if self._within else list(_readable(self._targets.values()))
        named = [_labelled(manifest, store) for manifest in readable if manifest.runs]
        # Objects: a column that is empty in one target and not in another has no type in common.
        self._named = pd.concat([frame.astype(object) for frame in named]) if named else pd.DataFrame(columns=_NAMED)
        if not self._within:  # what a command changed is said of a target, not of a label that several use
            self._named["changed"] = ""
        self._runs = self._named if self._within else store.runs.assign(changed="", coordinates=None)

    def side(self, name: str) -> Side:
        """The runs that a name means.

        Raises:
            ValueError: it means none, or several things.
        """
        if name.endswith(MANIFEST):
            return self._sweep(name)
        for frame, column in ((self._runs, "algorithm"), (self._named, "method"), (self._named, "label")):
            rows = frame[frame[column] == name].drop_duplicates("run_id")
            if len(rows):
                what = f"{'algorithm' if column == 'algorithm' else 'method'} {name}{self._where}"
                return Side(name=name, what=what, runs=rows.assign(method=name))
        if "/" in name:
            return self._sweep(name)
        ids = sorted({run for run in self._runs["run_id"] if run.startswith(name[: len(run)])})
        if len(name) < SHORTEST_ID or not ids:
            raise ValueError(self._unknown(name))
        if len(ids) > 1:
            raise ValueError(f"{len(ids)} runs begin with {name} ({_list(ids)}): give more of the one you mean")
        rows = self._runs[self._runs["run_id"] == ids[0]].drop_duplicates("run_id")
        row = rows.iloc[0]
        seed = "" if pd.isna(row["seed"]) else f", seed {row['seed']:g}"
        what = f"run {ids[0]}, {row['algorithm']} on {row['dataset']}{seed}"
        return Side(name=name, what=what, runs=rows.assign(method=name))

    def _sweep(self, name: str) -> Side:
        manifest = self.target(name)
        what = f"{manifest.target} {manifest.variant}".strip()
        return Side(name=name, what=what, runs=manifest.join(self._store), sweep=True)

    @property
    def _where(self) -> str:
        return f" of {self._within.target} {self._within.variant}".rstrip() if self._within else ""

    def target(self, name: str) -> Manifest:
        """The manifest of a target, of one variant of it, or at a path."""
        if name.endswith(MANIFEST):
            return Manifest.read(Path(name))
        variants = {key: path for key, path in self._targets.items() if key == name or key.startswith(f"{name}/")}
        if len(variants) > 1:
            raise ValueError(f"{name} was made in {len(variants)} variants: choose one of {_list(list(variants))}")
        if not variants:
            raise ValueError(self._unknown(name, targets=True))
        return Manifest.read(next(iter(variants.values())))

    def _unknown(self, name: str, *, targets: bool = False) -> str:
        words = [key.rpartition("/")[0] for key in self._targets]
        if not targets:
            words = [*self._named["method"], *self._named["label"], *self._runs["algorithm"].dropna(), *words]
        known = list(dict.fromkeys(words))
        if not known:
            return f"unknown name '{name}': {self._store.root} holds no runs; say where they are, results.root=FOLDER"
        every = [*known, *self._targets]
        near = get_close_matches(name, every, n=1) or get_close_matches(name.lower(), every, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        ids = "" if targets else ", or the beginning of a run's id"
        return f"unknown name '{name}'{self._where}: {hint}(choose from {_list(known)}{ids})"


def narrowed(sides: Sequence[Side], key: str, text: str, settings: Mapping[str, Settings]) -> list[Side]:
    """The sides' runs with one of these values (commas between them) of a setting, or of `scale`.

    Raises:
        ValueError: no run has the key, or the value.
    """
    values = [_values(side, key, settings) for side in sides]
    wanted = [text] if text.startswith("[") else text.split(",")
    chosen = [[any(_same(value, one) for one in wanted) for value in found] for found in values]
    if not any(map(any, chosen)):
        known = sorted({_shown(value) for found in values for value in found if value is not _NONE})
        raise ValueError(f"neither side has a run with {key}={text}: choose from {_list(known)}")
    left = []
    for side, found, marks in zip(sides, values, chosen, strict=True):
        known = sorted({_shown(value) for value in found if value is not _NONE})
        if key.startswith(OWN):
            kept = _without_choice(side, found)
            marks = [mark or method in kept for mark, method in zip(marks, side.runs["method"], strict=True)]
        if not any(marks):
            there = f"choose from {_list(known)}" if known else f"its runs do not have {key}"
            raise ValueError(f"{side.name} has no run with {key}={text}: {there}")
        left.append(replace(side, runs=side.runs[marks]))
    return left


def _without_choice(side: Side, values: Sequence[Any]) -> set[str]:
    """The methods that have no two values."""
    found: dict[str, set[str]] = {}
    for method, value in zip(side.runs["method"], values, strict=True):
        found.setdefault(method, set()).add("" if value is _NONE else _shown(value))
    return {method for method, texts in found.items() if len(texts) == 1}


def _values(side: Side, key: str, settings: Mapping[str, Settings]) -> list[Any]:
    """Of each run; _NONE where it has no such setting."""
    if key in _OF_RUNS:
        return list(side.runs[key])
    return [settings.get(run_id, {}).get(key, _NONE) for run_id in side.runs["run_id"]]


def check_keys(keys: Iterable[str], settings: Mapping[str, Settings]) -> None:
    """Raise a ValueError for a key that no run has."""
    known = sorted({key for own in settings.values() for key in own} | {*_OF_RUNS, "target"})
    for key in keys:
        if key not in known:
            ends = [other for other in known if other.rpartition(".")[2] == key]
            near = ends or get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
            raise ValueError(f"unknown key '{key}': {hint}")


def _readable(paths: Iterable[Path]) -> Iterable[Manifest]:
    """A damaged manifest hides its own labels, not the store."""
    for path in paths:
        try:
            yield Manifest.read(path)
        except ValueError:
            continue


def _labelled(manifest: Manifest, store: Store) -> pd.DataFrame:
    return manifest.join(store).assign(label=[str(run.get("label") or run["algorithm"]) for run in manifest.runs])


def _same(value: Any, text: str) -> bool:
    if value is _NONE:
        return False
    try:
        given = yaml.safe_load(text)
    except yaml.YAMLError:
        given = text
    return bool(value == given) or _shown(value) == text


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else value_text(value)


def _list(words: Sequence[str]) -> str:
    return ", ".join(words[:MAX_SHOWN]) + (", …" if len(words) > MAX_SHOWN else "")

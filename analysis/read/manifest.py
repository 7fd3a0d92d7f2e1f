"""A target's manifest (written by the runners): which runs a table or figure needs, and how it is drawn.

Options of `draw` that every kind understands (the kinds' own are in their modules):
    kind      which drawing, see analysis/draw/render.py
    paper     file under analysis/reported; default: the first part of the target's name
    table     rows of that file; default: the last part of the target's name
    methods   {label of a run: name to print}, in the paper's order; default: the labels as they come. The
              place in this list fixes a method's colour and marker, so list every method of the paper in each
              of its targets. A label that is not listed comes after them under its own name; 'label (part)' under
              the label's name with that part, in the order of the list.
    epoch     at which evaluation scores are read, a rule of analysis/metrics/choose_epoch.py; default: last.
              On the command line +experiment.draw.epoch=best_valid_wga
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from rawls.analysis.draw.titles import DASH, dataset_title
from rawls.analysis.read.load import Store
from rawls.runners.store.checksums import Damaged, unsealed
from rawls.runners.store.stored import TARGETS

_FIELDS = {
    "target": (str, "a text"), "title": (str, "a text"), "variant": (str, "a text"), "command": (str, "a text"),
    "draw": (Mapping, "a mapping"), "runs": (list, "a list"), "changed": (list, "a list"),
}  # fmt: skip
# Where one machine keeps its files, and to whom it reports, is nobody else's business.
_FOLDERS = re.compile(r"(?<![\w.:/…])/(?:[^\s/'\":,;()]+/)+")
_PLACES = ("results.root=", "data.root=", "tracking")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    target: str
    title: str
    draw: dict[str, Any]
    variant: str
    command: str
    changed: list[str]  # overrides that are not what the experiment itself says: empty for the paper's own setting
    runs: list[dict[str, Any]]

    @classmethod
    def of(cls, fields: Any) -> "Manifest":
        anew = "run `rawls reproduce TARGET` to write it anew"
        for name, (kind, called) in _FIELDS.items():
            value = fields.get(name) if isinstance(fields, Mapping) else None
            if value is None and name in ("target", "draw", "runs"):
                raise ValueError(f"a manifest needs {name!r}: {anew}")
            if value is not None and not isinstance(value, kind):
                raise ValueError(f"{name!r} of a manifest is {called}, not {json.dumps(value)[:60]}: {anew}")
        for run in fields["runs"]:
            if not (isinstance(run, Mapping) and _is_entry(run)):
                raise ValueError(f"a manifest does not list {json.dumps(run)[:60]} among its runs: {anew}")
        if "kind" not in fields["draw"]:
            file = f"conf/experiment/{fields['target']}.yaml"
            raise ValueError(f"{fields['target']}: `draw` names no `kind`: set it in {file}")
        return cls(
            target=fields["target"],
            title=fields.get("title") or fields["target"],
            draw=dict(fields["draw"]),
            variant=fields.get("variant") or "",
            command=fields.get("command") or f"rawls reproduce {fields['target']}",
            changed=list(fields.get("changed") or []),
            runs=list(fields["runs"]),
        )

    @classmethod
    def read(cls, path: Path) -> "Manifest":
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            return cls.of(unsealed(fields) if isinstance(fields, Mapping) else fields)
        except FileNotFoundError:
            raise ValueError(f"{path} does not exist: run `rawls reproduce TARGET` first") from None
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise ValueError(f"{path} is not valid JSON ({problem}): run `rawls reproduce TARGET` again") from None
        except Damaged as damage:
            raise ValueError(f"{path} {damage}: run `rawls reproduce TARGET` again") from None

    @property
    def paper(self) -> str:
        return str(self.draw.get("paper") or self.target.partition("/")[0])

    @property
    def table(self) -> str:
        return str(self.draw.get("table") or self.target.rpartition("/")[2])

    @property
    def run_ids(self) -> list[str]:
        return [run["run_id"] for run in self.runs]

    @cached_property
    def methods(self) -> list[str]:
        """Names to print, in order: those of `draw.methods`, then the labels it does not list."""
        named: dict[str, str] = self.draw.get("methods") or {}
        there = dict.fromkeys(self._method(run) for run in self.runs)
        parts = dict.fromkeys(part for _, part in map(_head_and_part, there) if part)
        in_parts = [name for part in parts for head in named.values() if (name := f"{head} {part}") in there]
        return list(dict.fromkeys([*named.values(), *in_parts, *there]))

    def _method(self, run: dict[str, Any]) -> str:
        named: dict[str, str] = self.draw.get("methods") or {}
        label = str(run.get("label") or run["algorithm"])
        head, part = _head_and_part(label)
        return str(named[label] if label in named else f"{named[head]} {part}" if head in named else label)

    def join(self, store: Store) -> pd.DataFrame:
        """One row per run of the manifest: method, coordinates (a dict), changed, and what the store says of it.

        A run that the store does not know has status 'missing'. Dataset, algorithm and seed are the
        manifest's, and so is the scale if it names one: a run that two scales share is stored under the
        name of the first that asked for it.
        """
        known = store.runs.set_index("run_id").reindex(self.run_ids).reset_index()
        return known.assign(
            method=[self._method(run) for run in self.runs],
            dataset=[run["dataset"] for run in self.runs],
            algorithm=[run["algorithm"] for run in self.runs],
            seed=[run.get("seed") for run in self.runs],
            coordinates=[run.get("coordinates") or {} for run in self.runs],
            scale=[run.get("scale", scale) for run, scale in zip(self.runs, known["scale"], strict=True)],
            status=known["status"].fillna("missing"),
            changed=", ".join(self.changed),
        )

    def check_one_run_per(self, runs: pd.DataFrame, *columns: str) -> None:
        """Raise a ValueError if two runs are alike in `columns`: they would be drawn as if they were one setting."""
        doubles = runs[runs.duplicated([*columns], keep=False)]
        for _, alike in doubles.groupby([*columns], sort=False, dropna=False):
            self._refuse(alike)

    def _refuse(self, alike: pd.DataFrame) -> None:
        first = alike.iloc[0]
        points = [
            {"seed": seed, "scale": scale, **coordinates}
            for seed, scale, coordinates in zip(alike["seed"], alike["scale"], alike["coordinates"], strict=True)
        ]
        differ = differing(points)
        shared = in_words(points[0], [name for name in points[0] if name not in differ])
        values = {name: dict.fromkeys(value_text(point.get(name)) or DASH for point in points) for name in differ}
        how = ", ".join(f"{name} ({', '.join(texts)})" for name, texts in values.items())
        raise ValueError(
            f"{self.target}: {len(alike)} runs for {first['method']} on {dataset_title(first['dataset'])} ({shared}) "
            f"differ in {how or 'nothing that a manifest names'}: choose one of them on the command line, or give "
            f"them labels of their own in conf/experiment/{self.target}.yaml"
        )


def _is_entry(run: Mapping[str, Any]) -> bool:
    """Whether it says of a run what every drawing asks: of what kind each value is, not which."""
    texts = [run.get(name) for name in ("run_id", "dataset", "algorithm")]
    coordinates = run.get("coordinates")
    return (
        all(isinstance(text, str) for text in texts)
        and isinstance(run.get("label"), str | None)
        and isinstance(coordinates, Mapping | None)
    )


def _head_and_part(label: str) -> tuple[str, str]:
    """'asc' and '(equal ε)' of 'asc (equal ε)'; no part where there is none."""
    found = re.fullmatch(r"(.+) (\(.+\))", label)
    return (found[1], found[2]) if found else (label, "")


def without_places(command: str) -> str:
    """A command as another machine would give it."""
    return shlex.join(word for word in shlex.split(command) if not word.startswith(_PLACES))


def without_folders(text: str) -> str:
    """A text without the folders of the machine that it was written on: of a path its last name is left."""
    return _FOLDERS.sub("…/", text)


def results_root(manifest_path: Path) -> Path:
    """The results folder a manifest lies in: the parent of `targets`."""
    for folder in manifest_path.absolute().parents:
        if folder.name == TARGETS:
            return folder.parent
    layout = "results/targets/PAPER/TARGET/VARIANT/manifest.json"
    raise ValueError(f"{manifest_path} does not lie in a results folder: expected {layout}")


def coordinate(runs: pd.DataFrame, name: str) -> pd.Series:
    """One coordinate of every run, None where a run has none of that name."""
    return runs["coordinates"].map(lambda coordinates: coordinates.get(name))


def differing(points: Sequence[dict[str, Any]]) -> list[str]:
    """The coordinates in which points differ."""
    names = dict.fromkeys(name for point in points for name in point)
    return [name for name in names if len({json.dumps(point.get(name)) for point in points}) > 1]


def in_words(point: dict[str, Any], names: Iterable[str]) -> str:
    """'lr 0.01, weights continuous'."""
    return ", ".join(f"{name} {value_text(point[name])}" for name in names if name in point)


def value_text(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}"
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)

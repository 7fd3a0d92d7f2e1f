"""Saved results for the pages, read once for each state of the results folder.

What the functions return is shared by everybody who looks: nobody changes it in place.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st
import yaml

from rawls.analysis.draw import target_states
from rawls.analysis.draw.audits import Audits
from rawls.analysis.read.audit_records import audits as all_audits
from rawls.analysis.read.cache import FEW
from rawls.analysis.read.load import Store, load
from rawls.analysis.read.manifest import Manifest
from rawls.analysis.read.settings import Settings, flat
from rawls.analysis.read.settings import load as load_settings
from rawls.runners.store.stored import AUDITS, CONFIG, ERROR, FAILED, RUNS, UNFINISHED, folder_of, from_yaml
from rawls.runners.store.stored import manifests as all_manifests

_READING = "Reading the histories"
EXPERIMENTS, CHOICE = "experiment", "choose"  # the folder of all, and the one that has a command of its own


@dataclass(frozen=True, kw_only=True)
class Here:
    """The results folder, and the YAML files of the targets there are."""

    root: Path
    experiments: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is known of a target that never ran here."""

    target: str
    title: str
    paper: str
    table: str
    command: str


def state(root: Path) -> str:
    """Another text whenever a run begins, ends, fails, is taken over or is removed; not when it only takes a step.

    Each of these makes or renames a file or a folder, and so does a run that takes the place of one of its id; of two
    such changes the time may be the same, the names are not.
    """
    folder = root / RUNS
    try:
        names = [name for name in os.listdir(folder) if name.partition(".")[2] in ("", *UNFINISHED)]
    except (FileNotFoundError, NotADirectoryError):
        names = []
    return key_of([str(time_of(folder)), *sorted(names)])


def key_of(texts: Iterable[str]) -> str:
    """One text for many: Streamlit takes long to tell thousands from those that it has seen."""
    return sha256("\n".join(texts).encode()).hexdigest()


def runs(here: Here) -> Store:
    """Every run and its groups; no histories."""
    return _runs(str(here.root), state(here.root))


@st.cache_resource(max_entries=2, show_spinner="Reading the runs")
def _runs(root: str, state: str) -> Store:
    return load(root)


def histories(here: Here, run_ids: Sequence[str]) -> pd.DataFrame:
    """The histories of these runs, and of more where these are many: all are read as quickly then."""
    if len(run_ids) > FEW:
        with st.spinner(_READING):
            return runs(here).history
    return _histories(str(here.root), state(here.root), key_of(run_ids), run_ids)


@st.cache_resource(max_entries=4, show_spinner=_READING)
def _histories(root: str, state: str, key: str, _run_ids: Sequence[str]) -> pd.DataFrame:
    return load(root, _run_ids).history


def manifests(here: Here) -> dict[str, Path]:
    """'asc/table1 · digits-smoke' -> the manifest's path, for every target that was asked for here."""
    return {" · ".join(name.rsplit("/", 1)): path for name, path in all_manifests(here.root).items()}


def manifest(path: Path) -> Manifest:
    """Raises a ValueError that says what is wrong with the file."""
    return _manifest(path, time_of(path))


@st.cache_resource(max_entries=500, show_spinner=False)
def _manifest(path: Path, time: int) -> Manifest:
    return Manifest.read(path)


def readable(here: Here) -> dict[str, Manifest]:
    """Those manifests that can be read."""
    found = {}
    for name, path in manifests(here).items():
        with suppress(ValueError):
            found[name] = manifest(path)
    return found


def time_of(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def status(here: Here) -> pd.DataFrame:
    """One row per manifest, see rawls.analysis.draw.target_states.status; `name` is the manifest's in `manifests`."""
    found = manifests(here)
    table = _status(str(here.root), state(here.root), tuple((path, time_of(path)) for path in found.values()))
    return table.assign(name=list(found))


@st.cache_resource(max_entries=2, show_spinner="Judging the targets")
def _status(root: str, state: str, files: tuple[tuple[Path, int], ...]) -> pd.DataFrame:
    return target_states.status(root, [path for path, _ in files])


@st.cache_resource(show_spinner=False)
def experiments(files: tuple[Path, ...]) -> dict[str, Experiment]:
    """The targets there are, by name."""
    found = {}
    for path in files:
        try:
            content = from_yaml(path.read_text(encoding="utf-8"))
            paper, draw = path.parent.name, content.get("draw") or {}
            name = path.stem if paper == EXPERIMENTS else f"{paper}/{path.stem}"
            found[name] = Experiment(
                target=name,
                title=str(content.get("title") or name),
                paper=str(draw.get("paper") or paper),
                table=str(draw.get("table") or path.stem),
                command=f"rawls {name}" if name == CHOICE else f"rawls reproduce {name}",
            )
        except (OSError, yaml.YAMLError, AttributeError):
            continue  # `rawls targets` says what is wrong with it; the others are shown
    return found


def audits(here: Here) -> Audits | None:
    """What `rawls audit` found here; None if it was never called."""
    return _audits(here.root, time_of(here.root / AUDITS))


@st.cache_resource(max_entries=2, show_spinner=False)
def _audits(root: Path, time: int) -> Audits | None:
    records = all_audits(root)
    return Audits.of(records) if records else None


def settings(here: Here) -> Mapping[str, Settings]:
    """Run id -> what its configuration says, flat ('optimizer.lr': 0.5); of finished runs."""
    return _settings(str(here.root), state(here.root))


@st.cache_resource(max_entries=2, show_spinner="Reading the configurations")
def _settings(root: str, state: str) -> Mapping[str, Settings]:
    runs = _runs(root, state).runs
    return load_settings(root, runs.loc[runs["status"] == "done", "run_id"])


def config(here: Here, run_id: str, status: str) -> dict[str, Any]:
    """The whole configuration of one run, flat; empty if there is none."""
    return flat(_yaml(_text(here, run_id, status, CONFIG)))


def error(here: Here, run_id: str) -> str:
    """What a failed run left: its error and trace."""
    return _text(here, run_id, FAILED, ERROR)


def _text(here: Here, run_id: str, status: str, name: str) -> str:
    try:
        suffix = status if status in UNFINISHED else ""
        return (folder_of(here.root, run_id, suffix) / name).read_text(encoding="utf-8")
    except OSError:
        return ""


def _yaml(text: str) -> dict[str, Any]:
    try:
        found = from_yaml(text)
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, dict) else {}

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.read import cache, histories, members
from rawls.analysis.read.cache import Rows, cached
from rawls.analysis.read.load import Store, load
from rawls.runners.store import checksums
from rawls.runners.store.stored import FORMAT
from tests.analysis.stores import write_json, write_run, write_unfinished

load_module = sys.modules["rawls.analysis.read.load"]  # the package has the function under that name
RUNS_CACHE, HISTORY_CACHE = "cache/runs.arrow", "cache/history.arrow"
LINE = {"step": 10, "epoch": 1.5, "split": "valid", "wga": 0.1, "avg": None, "accuracy": [0.1, None], "count": [1, 2]}
PROBE = {"step": 11, "kind": "sampling_variance", "variance": 0.5}


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that is kept for any number of runs, however young their files are."""
    monkeypatch.setattr(cache, "FEW", 0)
    monkeypatch.setattr(cache, "SETTLED_NANOSECONDS", -(10**15))
    monkeypatch.setattr(histories, "RUNS_AT_ONCE", 2)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs whose own files were read."""
    found: list[str] = []
    finished, lines = load_module._finished, histories._lines

    def note_finished(run_id: str, folder: str) -> dict[str, Any]:
        found.append(run_id)
        return finished(run_id, folder)

    def note_lines(folder: str) -> bytes:
        found.append(f"{Path(folder).name} history")
        return lines(folder)

    monkeypatch.setattr(load_module, "_finished", note_finished)
    monkeypatch.setattr(histories, "_lines", note_lines)
    return found


def motley(root: Path) -> None:
    """A store of every kind of run."""
    for seed, run in enumerate("abc"):
        write_run(root, run, seed=seed, wga=seed / 8, history=[LINE, PROBE, {**LINE, "speed": seed}])
    made = {"git_sha": "abc", "git_dirty": False, "versions": {"torch": "2"}, "device": "cpu", "finished": "then"}
    write_json(root / "runs" / "a" / "environment.json", made)
    write_run(root, "plan", test=None, valid=None, provenance="plan only")
    write_run(root, "endless", plan={"epsilon_per_group": [1, float("inf")]}, history=[{**LINE, "wga": float("inf")}])
    write_run(root, "empty", test={"count": [0, 1], "accuracy": [0.0, 1.0]}, group_names=["x", "y"], history=[])
    (root / "runs" / "unreadable").mkdir()
    write_unfinished(root, "failed", "failed")
    running = write_unfinished(root, "running", "running")
    (running / "history.jsonl").write_text(json.dumps(LINE) + '\n{"step": 2, "wg')


def loaded(root: Path, run_ids: list[str] | None = None) -> Store:
    """With its histories, which are read when they are asked for."""
    store = load(root, run_ids)
    assert list(store.history.columns)
    return store


def same(one: Store, other: Store) -> None:
    for name in ("runs", "history", "groups"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name), obj=name)


@pytest.mark.usefixtures("eager")
def test_what_is_kept_is_what_the_files_say(results_root: Path, read: list[str]) -> None:
    motley(results_root)
    cold = loaded(results_root)
    assert sorted(read) == sorted(
        [*"abc", "plan", "endless", "empty", "unreadable", "failed.failed history", "running.running history"]
        + [f"{run} history" for run in [*"abc", "plan", "endless", "empty"]]
    )
    read.clear()
    warm = loaded(results_root)
    assert sorted(read) == ["failed.failed history", "running.running history"]
    same(cold, warm)
    assert len(cold.history) == 3 * 3 + 1 + 1
    assert list(cold.history["speed"].dropna()) == [0, 1, 2]
    assert cold.history["wga"].max() == float("inf")
    assert cold.runs.set_index("run_id")["epsilon_max"]["endless"] == float("inf")
    shutil.rmtree(results_root / "cache")
    same(cold, loaded(results_root))
    some = loaded(results_root, ["c", "running", "a"])
    assert list(some.runs["run_id"]) == ["c", "running", "a"]
    assert list(some.history["run_id"].drop_duplicates()) == ["c", "running", "a"]
    assert list(some.groups["run_id"].drop_duplicates()) == ["c", "a"]


@pytest.mark.usefixtures("eager")
def test_only_what_is_new_or_changed_is_read(results_root: Path, read: list[str]) -> None:
    motley(results_root)
    loaded(results_root)
    read.clear()
    write_run(results_root, "d", history=[LINE])
    write_run(results_root, "b", wga=0.875, history=[{**LINE, "step": 12345}])  # trained anew under the same id
    shutil.rmtree(results_root / "runs" / "c")
    store = loaded(results_root)
    assert {name for name in read if "." not in name} == {"b", "d", "b history", "d history"}
    assert "c" not in set(store.runs["run_id"]) | set(store.history["run_id"]) | set(store.groups["run_id"])
    assert store.runs.set_index("run_id")["test_wga"]["b"] == 0.875
    assert list(store.history["step"][store.history["run_id"] == "b"]) == [12345]
    read.clear()
    same(store, loaded(results_root))
    assert {name for name in read if "." not in name} == set()


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def garble(path: Path) -> None:
    path.write_text("no arrow")


def block(path: Path) -> None:
    """Neither readable nor writable."""
    shutil.rmtree(path.parent)
    path.parent.touch()


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("damage", [truncate, garble, block, os.unlink])
@pytest.mark.parametrize("name", [RUNS_CACHE, HISTORY_CACHE])
def test_a_damaged_cache_costs_time_only(results_root: Path, damage: Callable[[Path], None], name: str) -> None:
    motley(results_root)
    cold = loaded(results_root)
    damage(results_root / name)
    same(cold, loaded(results_root))


def test_young_files_and_few_runs_are_not_kept(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    motley(results_root)
    loaded(results_root)
    assert not (results_root / "cache").exists()
    monkeypatch.setattr(cache, "FEW", 0)
    for path in results_root.glob("runs/[ac]/*"):
        os.utime(path, (1e9, 1e9))
    cold = loaded(results_root)
    kept = cache._read(
        results_root / RUNS_CACHE, version_of(load_module.__file__, members.__file__, checksums.__file__)
    )[0]
    assert set(kept.where) == {"a", "c", "unreadable"}
    same(cold, loaded(results_root))


def version_of(*files: str | None) -> str:
    """The version of a cache made by this code."""
    return hashlib.sha256(b"".join(Path(str(name)).read_bytes() for name in (cache.__file__, *files))).hexdigest()


@pytest.mark.usefixtures("eager")
def test_a_change_of_the_code_makes_the_cache_anew(tmp_path: Path) -> None:
    code = tmp_path / "code.py"
    code.write_text("one")
    calls = []

    def parse(run_ids: Any) -> Rows:
        calls.append(list(run_ids))
        return load_module._rows([{"run_id": run_id, "status": "done"} for run_id in run_ids])

    for text in ("one", "one", "other", "other"):
        code.write_text(text)
        rows = cached(tmp_path / "x.arrow", {"a": str(tmp_path), "b": str(tmp_path)}, (), parse, code=[code])
        assert set(rows.where) == {"a", "b"}
    assert calls == [["a", "b"]] * 2


@pytest.mark.usefixtures("eager")
def test_runs_that_log_different_things_under_one_name_are_all_loaded(results_root: Path) -> None:
    write_run(results_root, "a", history=[{**LINE, "x": [1.5]}])
    write_run(results_root, "b", history=[{**LINE, "x": "text"}])
    write_run(results_root, "c", history=[{**LINE, "x": {"y": 1}}, {**LINE, "accuracy": None}])
    history = loaded(results_root).history
    assert list(history["x"].dropna()) == [[1.5], "text", {"y": 1}]
    assert list(history["wga"]) == [0.1] * 4


@pytest.mark.usefixtures("eager")
def test_lines_that_are_no_rows_are_left_out(results_root: Path) -> None:
    write_run(results_root, "a", history=[LINE])
    write_run(results_root, "b")
    text = json.dumps(LINE)
    (results_root / "runs" / "b" / "history.jsonl").write_text(f'{text}\n\n3\n[]\n{{"step": 4, \n{text}')
    assert list(loaded(results_root).history["run_id"]) == ["a", "b", "b"]


def test_a_store_of_a_newer_format_is_refused(results_root: Path) -> None:
    write_run(results_root, "a")
    write_json(results_root / "store.json", {"format": FORMAT})
    assert len(loaded(results_root).runs) == 1
    write_json(results_root / "store.json", {"format": FORMAT + 1})
    with pytest.raises(ValueError, match="was written by a newer version of rawls .*: update rawls"):
        loaded(results_root)

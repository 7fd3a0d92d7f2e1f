import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import Manifest, coordinate, results_root, without_folders
from rawls.runners.store.checksums import sealed
from tests.analysis.stores import entry, manifest, write_manifest, write_run, write_unfinished


def test_reading_gives_what_was_written(tmp_path: Path) -> None:
    content = manifest("asc/table1", [entry("a")], kind="accuracy_table")
    path = write_manifest(tmp_path, content)
    assert Manifest.read(path) == Manifest.of(content)
    assert results_root(path) == tmp_path


def test_the_reported_numbers_are_found_by_the_targets_name_unless_draw_says_otherwise() -> None:
    plain = Manifest.of(manifest("asc/table1", [], kind="x"))
    other = Manifest.of(manifest("asc/table1", [], kind="x", paper="wysiwyg", table="table2"))
    assert (plain.paper, plain.table) == ("asc", "table1")
    assert (other.paper, other.table) == ("wysiwyg", "table2")


def test_methods_come_in_the_papers_order_and_unlisted_labels_after_them() -> None:
    runs = [entry("a", label="beyond"), entry("b", label="azb"), entry("c", label="asc")]
    found = Manifest.of(manifest("asc/fig2", runs, kind="x", methods={"asc": "ASC", "dpsgd": "DPSGD", "azb": "aZB"}))
    assert found.methods == ["ASC", "DPSGD", "aZB", "beyond"]
    unlisted = Manifest.of({"target": "asc/fig2", "draw": {"kind": "x"}, "runs": runs})
    assert unlisted.methods == ["beyond", "azb", "asc"]


def test_a_part_of_a_table_has_the_names_of_its_methods_in_their_order() -> None:
    labels = ["dpsgd", "azb (equal)", "dpsgd (equal)", "else (equal)", "asc (b)"]
    runs = [entry(str(number), label=label) for number, label in enumerate(labels)]
    names = {"dpsgd": "DP-SGD", "azb": "aZB", "asc": "ASC"}
    found = Manifest.of(manifest("asc/table1", runs, kind="x", methods=names)).methods
    assert found == ["DP-SGD", "aZB", "ASC", "DP-SGD (equal)", "aZB (equal)", "ASC (b)", "else (equal)"]


def test_joining_gives_every_run_of_the_manifest_its_status(tmp_path: Path) -> None:
    write_run(tmp_path, "a", wga=0.5)
    write_run(tmp_path, "stranger")
    write_unfinished(tmp_path, "b", "failed")
    wanted = [entry("a", seed=5), entry("b"), entry("c", label="azb", batch_size=25)]
    runs = Manifest.of(manifest("asc/table1", wanted, kind="x")).join(load(tmp_path))
    assert list(runs["run_id"]) == ["a", "b", "c"]
    assert list(runs["status"]) == ["done", "failed", "missing"]
    assert list(runs["method"]) == ["ASC", "ASC", "aZB"]
    assert list(runs["seed"]) == [5, 0, 0]  # the manifest's, though the store of "a" says 0
    assert runs["test_wga"].iloc[0] == 0.5
    assert runs["test_wga"].iloc[1:].isna().all()
    assert coordinate(runs, "batch_size").iloc[2] == 25
    assert pd.isna(coordinate(runs, "batch_size").iloc[0])


def test_what_the_command_line_changed_is_said_of_every_run(tmp_path: Path) -> None:
    content = manifest("asc/table1", [entry("a"), entry("b", seed=1)], kind="x")
    changed = content | {"changed": ["schedule.max_steps=5", "seed=0,1"]}
    assert list(Manifest.of(changed).join(load(tmp_path))["changed"]) == ["schedule.max_steps=5, seed=0,1"] * 2
    assert list(Manifest.of(content).join(load(tmp_path))["changed"]) == ["", ""]


def test_runs_alike_but_for_what_is_not_drawn_are_refused_with_the_way_out(tmp_path: Path) -> None:
    def check(*runs: dict[str, Any], columns: tuple[str, ...] = ("method", "dataset", "seed")) -> None:
        found = Manifest.of(manifest("asc/table1", [run | {"scale": "paper"} for run in runs], kind="x"))
        joined = found.join(load(tmp_path))
        found.check_one_run_per(joined.assign(epsilon=coordinate(joined, "epsilon")), *columns)

    first, second = entry("a", epsilon=1.0, lr=0.1), entry("b", epsilon=8.0, lr=0.1)
    check(first, second | {"seed": 1})
    check(first, second | {"label": "further"})
    check(first, entry("c", dataset="celeba", epsilon=8.0))
    check(first, second, columns=("method", "seed", "epsilon"))
    with pytest.raises(ValueError) as caught:
        check(first, second | {"seed": 1}, second)
    assert str(caught.value) == (
        "asc/table1: 2 runs for ASC on Unbalanced MNIST (seed 0, scale paper, dataset unbalanced_mnist, algorithm asc, "
        "lr 0.1) differ in epsilon (1, 8): choose one of them on the command line, or give them labels of their own in "
        "conf/experiment/asc/table1.yaml"
    )
    with pytest.raises(ValueError, match=r"differ in momentum \(–, 0\.5\): choose"):
        check(first, entry("b", epsilon=1.0, lr=0.1, momentum=0.5))
    with pytest.raises(ValueError, match="differ in nothing that a manifest names: choose"):
        check(first, first)


def test_the_scale_that_was_asked_for_wins_over_the_one_that_trained_the_run(tmp_path: Path) -> None:
    write_run(tmp_path, "a", scale="laptop")
    write_run(tmp_path, "b", scale="laptop")
    runs = Manifest.of(manifest("asc/table1", [entry("a") | {"scale": "paper"}, entry("b")], kind="x"))
    assert list(runs.join(load(tmp_path))["scale"]) == ["paper", "laptop"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"target": "asc/x", "runs": []}, "needs 'draw'"),
        ({"draw": {"kind": "x"}, "runs": []}, "needs 'target'"),
        ({"target": "asc/x", "draw": {}, "runs": []}, "conf/experiment/asc/x.yaml"),
    ],
)
def test_an_incomplete_manifest_names_what_is_missing(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Manifest.of(content)


def test_a_manifest_that_cannot_be_read_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rawls reproduce TARGET"):
        Manifest.read(tmp_path / "manifest.json")
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        Manifest.read(tmp_path / "manifest.json")
    with pytest.raises(ValueError, match="results folder"):
        results_root(tmp_path / "manifest.json")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("OSError: [Errno 2] No such file: '/home/me/data/a.csv'", "OSError: [Errno 2] No such file: '…/a.csv'"),
        ("see /tmp/x/y, then /usr/lib/z.so", "see …/y, then …/z.so"),
        ("https://example.org/a/b and 1/2/3 of asc/table1", "https://example.org/a/b and 1/2/3 of asc/table1"),
    ],
)
def test_what_is_shown_to_others_names_no_folder_of_this_machine(text: str, left: str) -> None:
    assert without_folders(text) == left


@pytest.mark.parametrize(
    "fields",
    [
        None, [], "x", {"target": None, "draw": {}, "runs": []}, {"target": "a/b", "draw": None, "runs": []},
        {"target": "a/b", "draw": {"kind": "x"}, "runs": None},
        {"target": "a/b", "draw": {"kind": "x"}, "runs": [None]},
        {"target": "a/b", "draw": {"kind": "x"}, "runs": [{"run_id": 7, "dataset": "d", "algorithm": "a"}]},
        {"target": "a/b", "draw": {"kind": "x"}, "runs": [{"run_id": "ab", "dataset": None, "algorithm": "a"}]},
        {"target": 7, "draw": {"kind": "x"}, "runs": []},
    ],
)  # fmt: skip
def test_what_is_no_manifest_is_one_sentence(tmp_path: Path, fields: Any) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="manifest") as caught:
        Manifest.read(path)
    assert "reproduce" in str(caught.value)


def test_a_manifest_that_is_not_what_was_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    run = {"run_id": "ab", "dataset": "d", "algorithm": "a", "seed": 0}
    path.write_text(json.dumps(sealed({"target": "a/b", "draw": {"kind": "x"}, "runs": [run]})))
    assert Manifest.read(path).runs == [run]
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(ValueError, match="manifest.json is not what was written .* run `rawls reproduce TARGET` again"):
        Manifest.read(path)

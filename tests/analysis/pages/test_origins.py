from pathlib import Path
from typing import Any

from rawls.analysis.draw.tables import Table
from rawls.analysis.pages.origins import failures, made_by, material
from rawls.analysis.read.load import load
from tests.analysis.stores import write_json, write_run, write_unfinished

MACHINE = "A CPU, cpu, Linux, x86_64, 1 thread"
ENVIRONMENT: dict[str, Any] = {
    "git_sha": "0123456789abcdef", "git_dirty": False, "device": "cpu", "device_name": "A CPU", "system": "Linux",
    "machine": "x86_64", "num_threads": 1, "versions": {"python": "3.11", "torch": "2.13"},
    "finished": "2026-01-02T03:04:05+00:00",
}  # fmt: skip


def texts(table: Table | None) -> list[list[str]]:
    assert table is not None
    return [[cell.text for cell in row] for row in table.rows]


def test_runs_are_told_by_their_data_scale_and_state(results_root: Path) -> None:
    write_run(results_root, "a")
    write_run(results_root, "b", provenance="simulated", scale="smoke")
    write_run(results_root, "c", provenance="subset")
    write_run(results_root, "d", provenance="subset+stand-in")
    write_unfinished(results_root, "e", "failed")
    assert texts(material(load(results_root).runs)) == [
        ["Unbalanced MNIST", "real data", "paper", "done", "1"],
        ["Unbalanced MNIST", "SIMULATED DATA", "smoke", "done", "1"],
        ["Unbalanced MNIST", "SUBSET", "paper", "done", "1"],
        ["Unbalanced MNIST", "SUBSET · STAND-IN", "paper", "done", "1"],
        ["Unbalanced MNIST", "not known before it is done", "paper", "failed", "1"],
    ]


def test_what_made_the_runs_is_said_once_for_those_alike(results_root: Path) -> None:
    differ: dict[str, dict[str, Any]] = {"a": {}, "b": {"finished": "2026-01-09"}, "c": {"git_dirty": True}}
    for run, changes in differ.items():
        write_run(results_root, run)
        write_json(results_root / "runs" / run / "environment.json", ENVIRONMENT | changes)
    write_run(results_root, "d")  # without an environment
    assert texts(made_by(results_root, load(results_root).runs)) == [
        ["0123456789", MACHINE, "python 3.11, torch 2.13", "2026-01-02 – 2026-01-09", "2"],
        ["0123456789 + uncommitted changes", MACHINE, "python 3.11, torch 2.13", "2026-01-02", "1"],
        ["–", "–", "–", "–", "1"],
    ]


def test_failures_are_told_with_the_last_line_of_their_trace_those_alike_together(results_root: Path) -> None:
    for run in ("a", "b", "c", "d"):
        write_unfinished(results_root, run, "failed", label="azb")
    last = write_unfinished(results_root, "e", "failed")
    (last / "error.txt").write_text("RuntimeError: x\n\nTraceback\nRuntimeError: x\nNote: y\n\n", encoding="utf-8")
    silent = write_unfinished(results_root, "f", "failed")
    (silent / "error.txt").unlink()
    (results_root / "runs" / "g").mkdir()
    table = failures(results_root, load(results_root).runs, {"e": "asc/table1, ASC"})
    assert texts(table) == [
        ["a, b, c and 1 more", "azb on unbalanced_mnist", "`in calibrate`", "4"],
        ["e", "asc/table1, ASC", "`Note: y`", "1"],
        ["f", "asc on unbalanced_mnist", "`nothing was written about it`", "1"],
        ["g", "no table or figure asks for it", texts(table)[3][2], "1"],
    ]
    assert "summary.json" in texts(table)[3][2]


def test_without_failures_there_is_no_table(results_root: Path) -> None:
    write_run(results_root, "a")
    write_unfinished(results_root, "b", "running")
    assert failures(results_root, load(results_root).runs, {}) is None

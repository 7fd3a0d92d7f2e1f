"""The bench runs end to end and says what it measured; how fast anything is, no test asks."""

import csv
import json
from pathlib import Path

import pytest

from runners import bench
from runners.errors import ConfigError


def test_a_tiny_bench_writes_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--workloads", "logistic", "--rounds", "1", "--steps", "5", f"results.root={tmp_path}"]
    assert bench.main(arguments) == 0

    printed = capsys.readouterr().out
    text = (tmp_path / "bench" / "speed.md").read_text("utf-8")
    assert text in printed
    header = "| " + " | ".join(bench.COLUMNS.values()) + " |"
    assert header in text
    assert "logistic: " in text

    rows = list(csv.DictReader((tmp_path / "bench" / "speed.csv").read_text("utf-8").splitlines()))
    assert [row["method"] for row in rows] == list(bench.METHODS.values())
    assert all(float(row["ms_per_step"]) > 0 and float(row["over_opacus"]) > 0 for row in rows)
    shares = {row["method"]: row["stratified_share"] for row in rows}
    assert [method for method, share in shares.items() if share] == [bench.METHODS["whole"]]

    record = json.loads((tmp_path / "bench" / "speed.json").read_text("utf-8"))
    assert set(record["raw"]["logistic"]) == set(bench.METHODS)
    assert record["machine"]["cores"] >= 1 and "torch" in record["machine"]["versions"]
    assert str(tmp_path) not in text + json.dumps(record)


def test_ratios_are_of_medians() -> None:
    rounds = {
        "rawls": (1.0, 2.0, 9.0),
        "whole": (2.5, 2.5, 2.5),
        "plain": (4.0, 4.0, 4.0),
        "hooks": (10.0, 8.0, 12.0),
        "ghost": (30.0, 1.0, 20.0),
    }
    measured = {
        "mlp": {
            method: [{"ms_per_step": ms, "extra_mb": 3.0, "stratified_ms": ms / 10, "poisson_ms": 0.0} for ms in times]
            for method, times in rounds.items()
        }
    }
    rows = {row["method"]: row for row in bench.summarise(["mlp"], measured)}
    ours = rows[bench.METHODS["rawls"]]
    assert (ours["ms_per_step"], ours["over_opacus"], ours["over_plain"]) == (2.0, 5.0, 0.5)
    assert ours["stratified_share"] == pytest.approx(10)
    assert rows[bench.METHODS["ghost"]]["over_opacus"] == 0.5


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--workloads", "mlp,logistics"], "unknown workload 'logistics': did you mean logistic"),
        (["--rounds", "0"], "--rounds=0 must be at least 1"),
        (["--steps", "-3"], "--steps=-3 must be at least 1"),
        (["dataset=digits"], "does not know 'dataset=digits'"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        bench.main(arguments)

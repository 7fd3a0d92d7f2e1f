"""The bench runs end to end and says what it measured; how fast anything is, no test asks."""

import csv
import json
from pathlib import Path

import pytest

from rawls.runners.bench import command, step, sweep
from rawls.runners.config.errors import ConfigError


@pytest.mark.system  # half a minute of processes
def test_a_tiny_bench_of_one_run_writes_its_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(step.METHODS, "ghost")
    monkeypatch.setattr(step, "OPACUS", ("hooks",))
    arguments = ["step", "--workloads", "logistic", "--rounds", "1", "--steps", "5", f"results.root={tmp_path}"]
    assert command.main(arguments) == 0

    printed = capsys.readouterr().out
    text = (tmp_path / "bench" / "speed.md").read_text("utf-8")
    assert text in printed
    assert "| " + " | ".join(step.COLUMNS.values()) + " |" in text
    assert "logistic: " in text

    rows = list(csv.DictReader((tmp_path / "bench" / "speed.csv").read_text("utf-8").splitlines()))
    assert [row["method"] for row in rows] == list(step.METHODS.values())
    assert all(float(row["ms_per_step"]) > 0 and float(row["over_opacus"]) > 0 for row in rows)
    shares = {row["method"]: row["stratified_share"] for row in rows}
    assert [method for method, share in shares.items() if share] == [step.METHODS["rawls"]]

    record = json.loads((tmp_path / "bench" / "speed.json").read_text("utf-8"))
    assert set(record["raw"]["logistic"]) == set(step.METHODS)
    assert record["machine"]["cores"] >= 1 and "torch" in record["machine"]["versions"]
    assert str(tmp_path) not in text + json.dumps(record)


@pytest.mark.system
def test_a_tiny_bench_of_ten_runs_writes_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {key: sweep.arrangements(2)[key] for key in ("same batch", "rawls", "plain", "hooks")}
    monkeypatch.setattr(sweep, "arrangements", lambda _cores: few)
    monkeypatch.setattr(sweep, "OPACUS_SIDE_BY_SIDE", ("hooks",))
    monkeypatch.setattr(sweep, "OPACUS", ("hooks",))
    monkeypatch.setattr(sweep, "PLAIN", ("plain",))
    arguments = ["sweep", "--workloads", "logistic", "--rounds", "1", "--steps", "3", f"results.root={tmp_path}"]
    assert command.main(arguments) == 0
    rows = list(csv.DictReader((tmp_path / "bench" / "sweep.csv").read_text("utf-8").splitlines()))
    assert [row["arrangement"] for row in rows] == [arrangement.title for arrangement in few.values()]
    assert all(float(row[key]) > 0 for row in rows for key in list(sweep.COLUMNS)[2:])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["step", "--workloads", "mlp,logistics"], "unknown workload 'logistics': did you mean logistic"),
        (["--rounds", "0"], "--rounds=0 must be at least 1"),
        (["--steps", "-3"], "--steps=-3 must be at least 1"),
        (["--runs", "0"], "--runs=0 must be at least 1"),
        (["dataset=digits"], "does not know 'dataset=digits'"),
        (["steps"], "does not know 'steps': did you mean step"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        command.main(arguments)

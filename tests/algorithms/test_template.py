"""The template is copied, given its YAML and trained, with nothing else touched."""

import json
from pathlib import Path

import pytest

from rawls.runners.cli.commands import main
from rawls.runners.store.stored import LEDGER, SUMMARY
from tests.tree import ROOT

YAML = "_target_: mine.Mine\nclip_norm: 1.0\nloss_scale: 2.0\n"
STEPS = 4


def test_a_copy_of_the_template_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The module lies in a folder of Python's path, its YAML where --config-dir says."""
    (tmp_path / "mine.py").write_text((ROOT / "algorithms" / "_template.py").read_text("utf-8"), encoding="utf-8")
    (tmp_path / "conf" / "algorithm").mkdir(parents=True)
    (tmp_path / "conf" / "algorithm" / "mine.yaml").write_text(YAML, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RAWLS_MODULES", "mine")
    small = [f"schedule.max_steps={STEPS}", "schedule.evaluations=1", "tracking=off"]
    assert main(["train", "--config-dir", "conf", "algorithm=mine", "dataset=digits", "privacy=eps8", *small]) == 0
    assert "mine on digits" in capsys.readouterr().out
    (folder,) = (tmp_path / "results" / "runs").iterdir()
    assert 7.9 < json.loads((folder / SUMMARY).read_text("utf-8"))["plan"]["epsilon"] <= 8
    (line,) = json.loads((folder / LEDGER).read_text("utf-8"))["releases"]
    assert (line["name"], line["count"]) == ("gradient", STEPS)

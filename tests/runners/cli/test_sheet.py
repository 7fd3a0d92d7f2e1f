"""Privacy sheets without training, of every method; those of record and the README's table are current."""

from __future__ import annotations

from pathlib import Path

import pytest

from rawls.accounting.sheets.published import planned_lines
from rawls.runners.cli import sheet
from rawls.runners.cli.commands import main
from rawls.runners.config.compose import choices, composer
from rawls.runners.config.errors import ConfigError
from rawls.runners.training.setup import Prepared, prepare_run
from tests.accounting.sheets.naive import answer_rows, tables
from tests.tree import ROOT

METHODS = choices("algorithm")


def prepared(name: str) -> Prepared:
    """The run of a sheet of record; a process plans it once."""
    return prepare_run(composer()([f"algorithm={name}", *sheet.RECORD]))


def of_record(name: str) -> str:
    return (ROOT / sheet.FOLDER / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.system  # plans every method
def test_the_sheets_and_the_table_of_record_are_current() -> None:
    """`rawls sheet record`, at the root of the clone, makes them so."""
    expected = sheet.record(ROOT)
    assert {path.name for path in expected} == {f"{name}.md" for name in METHODS} | {"README.md"}
    there = {*(ROOT / sheet.FOLDER).glob("*"), ROOT / "README.md"}
    assert there == expected.keys()
    for path, content in expected.items():
        assert path.read_text(encoding="utf-8") == content, f"{path.name} is not what rawls sheet record writes"


@pytest.mark.parametrize("name", METHODS)
def test_a_sheet_says_what_the_plan_says(name: str) -> None:
    """Epsilons as the plan has them, answers by naive code from the lines that its ledger would have."""
    plan, text = prepared(name).plan, of_record(name)
    if plan is None:
        assert "Nobody is protected" in text and "Guarantee" not in tables(text)
        return
    rows = tables(text)
    assert dict(rows["Guarantee"])["ε, the largest of any record"] == f"{plan.epsilon:.4g}"
    assert rows["Answer"] == answer_rows(planned_lines(plan))
    of_groups = {row[0]: row[-1] for row in rows["Group"]}
    of_plan = [plan.epsilon] * 10 if plan.filtered else plan.epsilon_per_group
    for group, epsilon in zip(prepared(name).group_names, of_plan, strict=True):
        assert of_groups.get(group, of_groups.get("every one of 10")) == f"{epsilon:.4g}"
    assert all(f"{assumption[1:]}." in text for assumption in prepared(name).assumptions)


def test_a_method_in_the_readme_has_its_file_paper_status_and_sheet() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith("| `dp_is_sgd` |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    plan = prepared("dp_is_sgd").plan
    assert plan is not None and plan.claim is not None
    assert cells == [
        "`dp_is_sgd`",
        "`algorithms/dp_is_sgd.py`",
        "Kulynych et al. 2022, WYSIWYG; Algorithm 1",
        f"claim differs: ε = {plan.claim.epsilon:.4g} by `gdp_clt`; proven: ε = {plan.epsilon:.4g}",
        "[sheet](analysis/reproduced/privacy/dp_is_sgd.md)",
    ]


def test_a_sheet_is_printed_and_nothing_is_trained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = ["algorithm=dpsgd", "dataset=digits", "privacy.noise_multiplier=2", "privacy.epsilon=null"]
    assert main(["sheet", *overrides, "owners=digits"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# Privacy sheet: dpsgd on digits\n\nEach of the 1,034 training records")
    assert f"This is a plan: `rawls sheet {' '.join(overrides)}` made it, and nothing was trained." in printed
    assert "| 2, given |" in printed
    assert list(tmp_path.iterdir()) == []


def test_a_budget_of_owners_is_said_with_them() -> None:
    assert f"`rawls sheet algorithm=idp_sgd {' '.join(sheet.RECORD)}`" in of_record("idp_sgd")
    assert "owners=" not in of_record("asc")
    rows = tables(of_record("idp_sgd"))["Group"]
    assert rows[0][:4] == ["digit 0", "classes 0, 1, 2, 3, 4", "2", "111"]


def test_all_prints_every_method(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheet, "choices", lambda group: ("dpsgd", "sgd"))
    assert sheet.main(["all", "dataset=digits"]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]
    assert titles == [f"# Privacy sheet: {name} on digits" for name in ("dpsgd", "sgd")]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["all", "algorithm=asc"], "rawls sheet all takes every method: leave algorithm=asc out, or leave out all"),
        (["asc"], r"rawls sheet does not know 'asc': give all, record, or algorithm=NAME"),
        (["record", "dataset=digits"], "rawls sheet does not know 'record'"),
        (["algorithm=acs"], "unknown algorithm 'acs'"),
        (["algorithm=fdpg", "privacy.accountant=pld"], "FDPG ends by a filter"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        sheet.main(arguments)


def test_record_is_written_in_a_clone_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sheet, "choices", lambda group: ("sgd",))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="README.md has no table of methods here: call rawls sheet record in a clone"):
        sheet.main(["record"])
    (tmp_path / "README.md").write_text(f"Before.\n{sheet.BEGIN}old\n{sheet.END}After.\n")
    left_over = tmp_path / sheet.FOLDER / "gone.md"
    left_over.parent.mkdir(parents=True)
    left_over.write_text("of a method that is gone")
    assert sheet.main(["record"]) == 0
    text = (tmp_path / "README.md").read_text()
    assert text.startswith(f"Before.\n{sheet.BEGIN}\n| algorithm |") and text.endswith(f"{sheet.END}After.\n")
    assert "old" not in text and "| `sgd` | `algorithms/sgd.py` |" in text
    assert (tmp_path / sheet.FOLDER / "sgd.md").read_text() == of_record("sgd") and not left_over.exists()
    assert capsys.readouterr().out.splitlines() == ["analysis/reproduced/privacy/sgd.md", "README.md"]
    assert sheet.main(["record"]) == 0 and (tmp_path / "README.md").read_text() == text


def test_a_method_that_names_no_paper_is_no_part_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rawls.algorithms.core.about._SOURCE", __import__("re").compile("(never)"))
    with pytest.raises(ConfigError, match="algorithms/asc.py does not name its paper: write in brackets"):
        sheet.record(ROOT)

"""Tables and figure of audits say what the records say."""

from pathlib import Path

import pandas as pd

from rawls.analysis.draw.audits import MARKS, Audits
from rawls.analysis.draw.figures import COLOURS
from rawls.analysis.read.audit_records import audits
from rawls.runners.audit.findings import BROKEN, BY_ATTACK, BY_LEDGER, HOLDS
from tests.analysis.audits import RECORDS, record, write_audits


def test_a_method_has_the_row_of_its_best_attack(tmp_path: Path) -> None:
    write_audits(tmp_path)
    found = Audits.of(audits(tmp_path))  # the torn one is left out
    rows = [[cell.text for cell in row] for row in found.table().rows]
    assert [row[0] for row in rows] == ["asc", "dp_is_sgd", "dpsur", "fdpg"]
    assert rows[0][1:7] == ["holds", "accounted", "published sums, full batch, 2 steps", "–", "8", "5.5"]
    assert (rows[1][2], rows[1][4]) == ("gdp_clt", "2.5") and rows[3][4] == "none finite"
    assert rows[0][7:] == ["2920", "61 s", "1 of 1"] and rows[3][-1] == "1 of 2"


def test_a_refuted_claim_stands_beside_the_bound_or_proof_that_refutes_it() -> None:
    """Not beside the highest bound, which may be of another setting with a claim of its own."""
    refuted = record("dp_is_sgd", "claim refuted by the ledger", claim=13.8, rule="gdp_clt")
    refuted["findings"][0] |= {"claim": 6.6, "rule": "gdp_clt", "lower_bound": 1.0}
    (row,) = [[cell.text for cell in row] for row in Audits.of([refuted]).table().rows]
    assert row[3:7] == ["published sums, own law, 16 steps", "6.6", "8", "1"]


def test_every_verdict_has_a_mark() -> None:
    assert set(MARKS) == {HOLDS, BY_ATTACK, BY_LEDGER, *BROKEN}


def test_confidence_is_said_of_a_method_and_of_the_table() -> None:
    assert "with a confidence of 99.9 %, those of all 4 with 99.6 %." in Audits.of(RECORDS).notes()[0]
    assert "those of all" not in Audits.of(RECORDS[:1]).notes()[0]


def test_data_sets_are_named_where_there_are_several_and_twins_of_data_are_stamped() -> None:
    other = {**record("asc"), "dataset": "unbalanced_mnist", "provenance": "simulated"}
    found = Audits.of([RECORDS[0], other])
    assert list(found.methods["name"]) == ["asc on Digits", "asc on Unbalanced MNIST"]
    assert "Digits, Unbalanced MNIST (SIMULATED DATA)" in found.caption()


def test_files_hold_all_that_was_found(tmp_path: Path) -> None:
    written = Audits.of(RECORDS).write(tmp_path / "audits")
    assert [path.name for path in written] == ["audit.md", "audit.csv", "attacks.csv", "twins.csv", "audit.png"]
    methods, bounds, twins = (pd.read_csv(path) for path in written[1:4])
    assert len(methods) == 4 and len(bounds) == 12 and len(twins) == 5
    assert methods.loc[1, "claim"] == 2.5 and pd.isna(methods.loc[3, "claim"])
    text = written[0].read_text("utf-8")
    assert "NOBODY" in text and "| final model" in text and "claim refuted by the ledger" in text


def test_the_figure_draws_bounds_claims_and_proofs_of_every_method() -> None:
    (axis,) = Audits.of(RECORDS).figure().axes
    shown = {line.get_label(): line for line in axis.lines}
    assert [text.get_text() for text in axis.get_yticklabels()] == ["fdpg", "dpsur", "dp_is_sgd", "asc"]
    assert shown["proven"].get_xdata().tolist() == [8.0] * 4  # type: ignore[union-attr]
    assert shown["claimed"].get_xdata().tolist()[1:] == [6.5, 2.5, 8.0]  # type: ignore[union-attr]
    assert shown["shown by attack"].get_color() == COLOURS[0]
    assert axis.get_xlim()[0] == 0


def test_the_figure_is_the_same_twice() -> None:
    assert Audits.of(RECORDS).svg() == Audits.of(RECORDS).svg()

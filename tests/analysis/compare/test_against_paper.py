import math

import pandas as pd
import pytest

from rawls.analysis.compare.against_paper import (
    Measured,
    column_title,
    compare,
    comparison_table,
    distance_mark,
    overall,
    signed,
    summary_line,
    swapped,
)
from rawls.analysis.metrics.statistics import Spread, spread


def printed(*rows: tuple[str, str, float, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["method", "column", "mean", "std", "n"])


def measured(
    method: str, mean: float, std: float = 1.0, n: int = 5, column: str = "celeba/wga", reasons: tuple[str, ...] = ()
) -> Measured:
    found = Spread(mean=mean, std=std, n=n) if n else spread([])
    return Measured(method=method, column=column, spread=found, needed=5, reasons=reasons)


PAPER = printed(("A", "celeba/wga", 60, 1, 5), ("B", "celeba/wga", 40, 1, 5), ("C", "celeba/wga", 39.5, 1, 5))


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (measured("A", 62.0), "reproduced"),
        (measured("A", 62.1), "differs"),
        (measured("A", 57.9), "differs"),
        (measured("A", 58.0), "reproduced"),
        (measured("A", 0, n=0), "missing"),
        (
            measured("A", 60, reasons=("simulated data", "scale: laptop")),
            "not comparable (simulated data, scale: laptop)",
        ),
        (measured("A", 62.0, std=math.nan, n=1), "reproduced"),  # judged by the paper's spread alone
    ],
)
def test_verdict_of_a_cell(ours: Measured, verdict: str) -> None:
    assert compare([ours], PAPER)["verdict"].item() == verdict


def test_a_cell_without_any_spread_is_not_judged() -> None:
    single = printed(("A", "celeba/wga", 60, math.nan, math.nan))
    row = compare([measured("A", 60, std=math.nan, n=1)], single).iloc[0]
    assert row["verdict"] == "no spread to judge by"
    assert row["paper_n"] == 1


@pytest.mark.parametrize(
    ("apart", "mark"),
    [(0.0, "within-1"), (1.0, "within-1"), (1.1, "within-2"), (2.0, "within-2"), (2.1, "within-3"), (3.1, "beyond-3"),
     (math.inf, "beyond-3")],
)  # fmt: skip
def test_the_mark_of_a_distance(apart: float, mark: str) -> None:
    assert distance_mark(apart) == mark


def test_only_cells_that_are_judged_are_marked() -> None:
    ours = [measured("A", 63), measured("B", 40, reasons=("simulated data",)), measured("C", 0, n=0)]
    rows = comparison_table(compare(ours, PAPER), "").rows
    assert [[cell.mark for cell in row] for row in rows] == [["", "", "", "", *["within-3"] * 3], [""] * 7, [""] * 7]


def test_numbers_of_a_row() -> None:
    row = compare([measured("A", 63, std=2)], PAPER).iloc[0]
    assert (row["difference"], row["n"], row["paper_n"]) == (3, 5, 5)
    assert row["pooled_std"] == pytest.approx(math.sqrt((1 + 4) / 2))
    assert row["pooled_stds_apart"] == pytest.approx(3 / math.sqrt(2.5))


def test_only_what_both_sides_have_is_compared_in_our_order() -> None:
    ours = [measured("B", 40), measured("ours alone", 50), measured("A", 60), measured("A", 60, column="digits/wga")]
    assert list(compare(ours, PAPER)["method"]) == ["B", "A"]


def test_order_is_the_same_when_only_the_papers_ties_are_swapped() -> None:
    comparison = compare([measured("A", 50), measured("B", 30), measured("C", 35)], PAPER)
    assert swapped(comparison) == {"celeba/wga": []}
    assert summary_line(comparison).endswith("ordering of methods: same")


def test_order_differs_when_a_clear_pair_is_swapped_and_the_pair_is_named() -> None:
    comparison = compare([measured("A", 30), measured("B", 35), measured("C", 20)], PAPER)
    assert swapped(comparison) == {"celeba/wga": [("B", "A")]}
    assert summary_line(comparison).endswith("ordering of methods: differs in CelebA WGA (B above A)")


def test_a_missing_method_has_no_place_in_the_order() -> None:
    comparison = compare([measured("A", 60), measured("B", 0, n=0)], PAPER)
    assert swapped(comparison) == {}


def test_summary_counts_what_was_judged_and_names_the_rest() -> None:
    ours = [measured("A", 60), measured("B", 44), measured("C", 0, n=0)]
    assert summary_line(compare(ours, PAPER)) == (
        "1 of 2 cells within two pooled standard deviations; 1 cell missing; ordering of methods: same"
    )
    simulated = [measured("A", 60, reasons=("simulated data",)), measured("B", 40, reasons=("simulated data",))]
    assert summary_line(compare(simulated, PAPER)) == (
        "2 cells not comparable (simulated data); ordering of methods: same"
    )
    assert summary_line(compare([], PAPER)) == "The paper prints no number for these cells."


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ([], "no numbers in the paper to compare with"),
        ([measured("A", 60), measured("B", 40)], "reproduced"),
        ([measured("A", 60), measured("B", 50)], "1 of 2 comparable cells reproduced"),
        ([measured("A", 70)], "0 of 1 comparable cells reproduced"),
        ([measured("A", 60, reasons=("scale: laptop",))], "not comparable (scale: laptop)"),
        ([measured("A", 60), measured("B", 40, reasons=("scale: laptop",))], "1 of 1 comparable cells reproduced"),
    ],
)
def test_overall_verdict(ours: list[Measured], verdict: str) -> None:
    assert overall(compare(ours, PAPER)) == verdict


def test_comparison_table_shows_both_sides_with_their_n() -> None:
    comparison = compare([measured("A", 57, n=5), measured("B", 40, n=4), measured("C", 0, n=0)], PAPER)
    rows = [[cell.text for cell in row] for row in comparison_table(comparison, "").rows]
    assert rows == [
        ["A", "CelebA WGA", "60.0 ± 1.0", "57.0 ± 1.0 (n=5)", "−3.0", "3.0", "differs"],
        ["B", "CelebA WGA", "40.0 ± 1.0", "40.0 ± 1.0 (n=4/5)", "0.0", "0.0", "reproduced"],
        ["C", "CelebA WGA", "39.5 ± 1.0", "– (n=0/5)", "–", "–", "missing"],
    ]


def test_signs_and_titles() -> None:
    assert [signed(number) for number in (1.26, -1.26, -0.04, math.nan)] == ["+1.3", "−1.3", "0.0", "–"]
    assert column_title("unbalanced_mnist/avg") == "Unbalanced MNIST AVG"

import math
import re

import pandas as pd
import pytest

from rawls.analysis.draw.tables import Cell, Table, best, csv_text, latex_text, spread_text
from rawls.analysis.metrics.statistics import Spread, spread
from rawls.analysis.read.papers_numbers import reported


def value(mean: float, std: float = math.nan, n: int = 3) -> Spread:
    return Spread(mean=mean, std=std, n=n)


TABLE = Table(
    caption="A_caption.",
    header=["Method", "Batch", "WGA", "AVG"],
    spans=[("", 2), ("CelebA & more", 2)],
    rows=[[Cell(text="a|b"), Cell(text="25"), Cell(text="1.0 ± 0.1", bold=True), Cell(text="–")]],
    notes=["* 5 % ε."],
    num_labels=1,
)


def test_markdown_is_aligned_and_escaped() -> None:
    assert TABLE.markdown().splitlines() == [
        "A_caption.",
        "",
        "| Method | Batch | CelebA & more WGA | CelebA & more AVG |",
        "| ------ | ----: | ----------------: | ----------------: |",
        "| a\\|b   |    25 |     **1.0 ± 0.1** |                 – |",
        "",
        "* 5 % ε.",
    ]


def test_latex_is_a_booktabs_table() -> None:
    assert TABLE.latex().splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{A\_caption. * 5 \% $\varepsilon$.}",
        r"\begin{tabular}{lrrr}",
        r"\toprule",
        r"\multicolumn{2}{c}{} & \multicolumn{2}{c}{CelebA \& more} \\",
        r"\cmidrule(lr){3-4}",
        r"Method & Batch & WGA & AVG \\",
        r"\midrule",
        r"a|b & 25 & \textbf{1.0 $\pm$ 0.1} & -- \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_no_character_of_ours_is_left_for_latex_to_stumble_over() -> None:
    text = latex_text("±–−ε✓✗≈×·κσξ100%_#&{}~^\\$")
    assert text.isascii()
    assert not re.search(r"(?<!\\)[%#&_]", text)


@pytest.mark.parametrize(
    ("found", "needed", "text"),
    [
        (value(59.24, 2.46), 3, "59.2 ± 2.5"),
        (value(59.24, 2.46, n=2), 3, "59.2 ± 2.5 (n=2/3)"),
        (value(59.24, n=1), 1, "59.2"),
        (value(59.24, n=1), 3, "59.2 (n=1/3)"),
        (spread([]), 3, "– (n=0/3)"),
        (spread([]), 0, "–"),
    ],
)
def test_a_mean_is_printed_as_the_papers_do_with_n_where_seeds_are_missing(
    found: Spread, needed: int, text: str
) -> None:
    assert spread_text(found, needed=needed) == text


def test_bold_is_the_best_and_all_within_its_own_std() -> None:
    assert best([value(10, 1), value(9, 5), value(8.9, 5), value(11, 1.5)]) == [True, False, False, True]


def test_bold_without_spread_is_the_best_alone_and_nothing_is_bold_in_an_empty_column() -> None:
    assert best([value(10, n=1), value(9.99, n=1), spread([])]) == [True, False, False]
    assert best([spread([]), spread([])]) == [False, False]


def test_bold_in_the_papers_own_table() -> None:
    table = reported("asc", "table1")
    bold = {}
    for column, rows in table.groupby("column"):
        marks = best([value(row.mean, row.std, n=5) for row in rows.itertuples()])
        bold[column] = {method for method, mark in zip(rows["method"], marks, strict=True) if mark}
    assert bold == {
        "unbalanced_mnist/wga": {"ASC"},
        "unbalanced_mnist/avg": {"ASC", "DPSGD"},
        "celeba/wga": {"ASC"},
        "celeba/avg": {"ASC"},
        "bank_fraud/wga": {"ASC", "aZB-weak"},  # exactly one std apart as printed
        "bank_fraud/avg": {"aZB-weak"},
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("a\nb\x1b[2Jc", "a b [2Jc"),
        ("<script>x</script>", r"\<script>x\</script>"),
        ("p < 0.05", "p < 0.05"),
        ("[x](javascript:y)", r"[x]\(javascript:y)"),
    ],
)
def test_nothing_but_text_begins_in_a_cell_of_markdown(text: str, shown: str) -> None:
    table = Table(caption="A", header=["h", text], rows=[[Cell(text="r"), Cell(text=text)]])
    head, _, row = table.markdown().splitlines()[2:5]
    assert head.split(" | ", 1)[1].strip(" |") == row.split(" | ", 1)[1].strip(" |") == shown


def test_no_cell_of_a_csv_is_a_formula_and_numbers_stay_numbers() -> None:
    frame = pd.DataFrame({"label": ["=HYPERLINK(1)", "@x", "-1+2", "-0.5", "asc", None], "wga": [-0.5, 1, 2, 3, 4, 5]})
    lines = csv_text(frame).splitlines()
    assert lines == ["label,wga", "'=HYPERLINK(1),-0.5", "'@x,1", "'-1+2,2", "-0.5,3", "asc,4", ",5"]

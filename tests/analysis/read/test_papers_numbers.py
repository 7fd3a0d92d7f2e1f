import csv

import pytest

from rawls.analysis.read.papers_numbers import FOLDER, agreement, reported

# ASC Table 1, typed in a second time, in the order of its columns.
TABLE_1 = {
    "ASC": "59.2 2.5 84.5 0.4 64.4 2.9 75.9 0.9 43.9 3.0 57.9 0.8",
    "DPSGD": "20.4 3.3 84.8 0.3 16.7 0.8 67.8 0.3 0.7 0.3 50.3 0.1",
    "aZB": "0.8 0.4 11.6 0.8 4.6 4.1 51.2 1.1 32.8 7.7 51.6 0.5",
    "aZB-prop": "3.6 1.3 17.0 3.1 36.9 8.4 65.3 3.2 23.9 7.4 51.6 2.4",
    "aZB-weak": "7.2 3.4 48.3 5.1 42.8 15.7 67.0 6.3 40.9 4.3 59.8 0.4",
}
COLUMNS = [
    f"{dataset}/{metric}" for dataset in ("unbalanced_mnist", "celeba", "bank_fraud") for metric in ("wga", "avg")
]
# The lattice points behind the rounded noise multipliers of App. E.4.
LATTICE = [
    ("DPSGD", "unbalanced_mnist/256", 9.21875),
    ("ASC", "unbalanced_mnist/256", 9.609375),
    ("aZB-prop", "unbalanced_mnist/256", 9.609375),
    ("aZB", "unbalanced_mnist/256", 950),
    ("aZB", "unbalanced_mnist/25", 295),
    ("aZB-weak", "unbalanced_mnist/256", 92.5),
    ("aZB-weak", "unbalanced_mnist/25", 28.75),
    ("DPSGD", "celeba/256", 5.078125),
    ("ASC", "celeba/256", 5.5859375),
    ("aZB", "celeba/256", 570),
    ("aZB", "celeba/36", 213.75),
    ("aZB-weak", "celeba/256", 34.6875),
    ("aZB-weak", "celeba/36", 13.28125),
    ("DPSGD", "bank_fraud/1000", 3.828125),
    ("ASC", "bank_fraud/1000", 4.21875),
]


def test_table_1_is_whole() -> None:
    table = reported("asc", "table1")
    found = {(row.method, row.column): (row.mean, row.std) for row in table.itertuples()}
    expected = {}
    for method, text in TABLE_1.items():
        numbers = [float(number) for number in text.split()]
        for column, pair in zip(COLUMNS, zip(numbers[::2], numbers[1::2], strict=True), strict=True):
            expected[method, column] = pair
    assert found == expected
    assert (table["n"] == 5).all()


@pytest.mark.parametrize(("method", "where", "lattice_point"), LATTICE)
def test_the_printed_noise_multipliers_round_their_lattice_points(
    method: str, where: str, lattice_point: float
) -> None:
    table = reported("asc", "calibration")
    row = table[(table["method"] == method) & (table["column"] == f"{where}/noise_multiplier")]
    assert agreement(lattice_point, row["printed"].item()) == "equal"


# FDPG's four tables: cells, and the test rows of its CelebA groups (non-blond M and F, blond F and M).
FDPG_CELLS = {"table1": 62, "table2": 92, "table3": 128, "table4": 12}
CELEBA_TEST_ROWS = [7535, 9767, 2480, 180]
FDPG_PAIRS = [
    ("table1", "adult", ("male", "female")),
    ("table1", "dutch", ("male", "female")),
    ("table2", "unbalanced_mnist", ("class2", "class8")),
    ("table2", "celeba_eyeglasses", ("male", "female")),
]


def fdpg(table: str) -> dict[tuple[str, str], float]:
    return {(row.method, row.column): row.mean for row in reported("fdpg", table).itertuples()}


@pytest.mark.parametrize("table", FDPG_CELLS)
def test_every_cell_of_fdpg_is_there_with_its_spread_where_one_is_printed(table: str) -> None:
    rows = reported("fdpg", table)
    assert len(rows) == FDPG_CELLS[table]
    assert rows["std"].notna().all() == rows["n"].eq(5).all() == (table != "table4")
    assert rows["std"].isna().all() == (table == "table4")


def test_fdpg_prints_294_cells_and_some_are_as_they_stand_there() -> None:
    assert sum(FDPG_CELLS.values()) == 294
    spreads = {(row.method, row.column): (row.printed, row.std) for row in reported("fdpg", "table2").itertuples()}
    assert spreads["FDPG", "unbalanced_mnist/pi"] == ("1.84", 2.7)
    assert spreads["FDPG (AUTO-S)", "unbalanced_mnist/class8"] == ("77.35", 5.5)
    assert spreads["DPSUR", "celeba_eyeglasses/total"] == ("93.54", 0.0)
    assert fdpg("table4")["AUTO-S", "adult/equalised_odds"] == 0.2250


def test_the_totals_of_adult_are_the_means_of_its_two_equal_groups_but_for_dpsur() -> None:
    cells = fdpg("table1")
    apart = {
        method: abs((cells[method, "adult/male"] + cells[method, "adult/female"]) / 2 - cells[method, "adult/total"])
        for method, column in cells
        if column == "adult/total"
    }
    assert {method for method, distance in apart.items() if distance > 0.021} == {"DPSUR"}


def test_the_totals_of_celeba_are_its_four_groups_weighted_by_their_test_rows_but_for_one() -> None:
    cells = fdpg("table3")
    apart = {}
    for method in [method for method, column in cells if column == "celeba_blond/total"]:
        groups = [cells[method, f"celeba_blond/group{place}"] for place in (1, 2, 3, 4)]
        weighted = sum(a * n for a, n in zip(groups, CELEBA_TEST_ROWS, strict=True)) / sum(CELEBA_TEST_ROWS)
        apart[method] = abs(weighted - cells[method, "celeba_blond/total"])
    assert {method for method, distance in apart.items() if distance > 0.015} == {"DP-IS-SGD"}


def test_gaps_of_two_groups_are_those_of_the_printed_means_in_32_of_34_rows() -> None:
    others, rows = [], 0
    for table, dataset, (one, other) in FDPG_PAIRS:
        cells = fdpg(table)
        for method in [method for method, column in cells if column == f"{dataset}/pi"]:
            base = f"NON-DP{' (AUTO-S)' if 'AUTO-S' in method else ''}"
            costs = [cells[base, f"{dataset}/{name}"] - cells[method, f"{dataset}/{name}"] for name in (one, other)]
            rows += 1
            if abs(abs(costs[0] - costs[1]) - cells[method, f"{dataset}/pi"]) > 0.021:
                others.append((method, dataset))
    assert rows == 34
    assert others == [("DiSK", "celeba_eyeglasses"), ("FDPG (AUTO-S)", "celeba_eyeglasses")]


# WYSIWYG's Table 1, typed in a second time, in the order of its columns.
WYSIWYG_TABLE_1 = {
    "SGD-l2": "73.0 86.3 41.8 57.4 67.9",
    "IS-SGD-l2": "82.4 85.8 70.6 64.3 70.4",
    "IW-SGD-l2": "89.0 86.5 67.6 65.7 68.1",
    "gDRO-l2": "84.5 85.2 67.3 67.3 75.9",
    "gDRO-l2-SOTA": "86.9 - - 69.9 78.0",
    "DP-IS-SGD": "86.0 82.5 51.4 70.4 72.3",
    "IS-SGD-n": "84.9 85.5 71.0 71.9 70.8",
    "IW-SGD-n": "88.5 88.5 70.9 69.9 69.7",
    "gDRO-n": "83.3 87.5 56.4 71.3 78.0",
}
WYSIWYG_DATASETS = ["celeba_hair", "utkface", "inat", "civilcomments", "mnli"]
UTKFACE_TEST_ROWS = 4_708


def wysiwyg(table: str) -> dict[tuple[str, str], float]:
    return {(row.method, row.column): row.mean for row in reported("wysiwyg", table).itertuples()}


def test_table_1_of_wysiwyg_is_whole() -> None:
    expected = {
        (method, f"{dataset}/wga"): float(text)
        for method, texts in WYSIWYG_TABLE_1.items()
        for dataset, text in zip(WYSIWYG_DATASETS, texts.split(), strict=True)
        if text != "-"
    }
    assert wysiwyg("table1") == expected
    assert len(expected) == 43


def test_the_notebook_has_the_cells_of_table_1_but_for_one() -> None:
    table, notebook = wysiwyg("table1"), wysiwyg("table1_notebook")
    printed = {(method, column.removesuffix("test_wga") + "wga"): value for (method, column), value in notebook.items()}
    differing = {key for key, value in table.items() if key in printed and abs(printed[key] - value) > 0.0501}
    assert differing == {("IS-SGD-l2", "inat/wga")}


def test_figure_1_of_wysiwyg_is_the_blond_men_of_its_group_table() -> None:
    figure, groups = wysiwyg("fig1"), wysiwyg("groups")
    assert len(figure) == 8
    for (method, column), value in figure.items():
        dataset, split, _ = column.replace("_wga", "/wga").split("/")
        assert abs(groups[method, f"{dataset}/{split}/blond male"] - value) <= 1.0


def test_figure_4_of_wysiwyg_is_whole_and_consistent() -> None:
    """A share of UTKFace's test rows is one of 4,708; no disparity exceeds the range that WGA leaves."""
    epsilons = wysiwyg("calibration")
    figures = {name: wysiwyg(f"fig4_{name}") for name in ("celeba", "utkface", "inat")}
    assert [len(cells) for cells in figures.values()] == [30, 27, 24]
    for cells in figures.values():
        points = {(method, column.rpartition("/")[0]) for method, column in cells}
        assert all((method, f"{point}/epsilon") in epsilons for method, point in points)
        for method, point in points:
            assert cells[method, f"{point}/disparity"] + cells[method, f"{point}/wga"] <= 100.5
    for (_, column), value in figures["utkface"].items():
        if column.endswith("/total"):
            assert abs(round(value / 100 * UTKFACE_TEST_ROWS) / UTKFACE_TEST_ROWS * 100 - value) <= 0.00501


def test_printed_digits_survive_reading() -> None:
    printed = reported("asc", "calibration").set_index(["method", "column"])["printed"]
    assert printed["aZB", "celeba/256/noise_multiplier"] == "570.00"
    assert printed["DPSGD", "unbalanced_mnist/256/epsilon"] == "1.00"


def test_a_figure_has_no_printed_numbers_and_neither_has_an_unknown_paper() -> None:
    for paper, table in (("asc", "fig2"), ("nobody", "table1")):
        rows = reported(paper, table)
        assert rows.empty
        assert {"method", "column", "printed", "mean", "std", "n"} <= set(rows.columns)


def test_every_file_has_the_agreed_columns_and_no_cell_twice() -> None:
    for path in FOLDER.glob("*.csv"):
        head, *lines = csv.reader(path.read_text(encoding="utf-8").splitlines())
        assert ",".join(head) == "paper,table,method,column,mean,std,n,source"
        keys = [tuple(line[:4]) for line in lines]
        assert len(keys) == len(set(keys))
        assert {key[0] for key in keys} == {path.stem}


@pytest.mark.parametrize(
    ("value", "printed", "expected"),
    [
        (0.9915, "0.99", "equal"),
        (0.9849, "0.99", "last digit"),
        (19.375, "19.38", "equal"),
        (19.375, "19.37", "equal"),
        (0.9955, "0.99", "last digit"),
        (1.0151, "1.00", "differs"),
        (949.99, "950", "equal"),
        (948.4, "950", "differs"),
    ],
)
def test_agreement_is_at_the_printed_precision(value: float, printed: str, expected: str) -> None:
    assert agreement(value, printed) == expected

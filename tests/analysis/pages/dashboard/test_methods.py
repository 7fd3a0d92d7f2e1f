from pathlib import Path

from tests.analysis.pages.dashboard.pages import half_finished, page, text


def test_the_first_page_ranks_what_is_finished_and_says_whom_to_take(results_root: Path) -> None:
    half_finished(results_root)
    app = page("methods", results_root)
    said = text(app)
    assert "Take ASC: of 4 methods it has the highest validation WGA." in said
    assert "UNFINISHED" not in said, "those that are not finished are no part of the ranking"
    (table,) = app.dataframe
    assert list(table.value["Method"])[:2] == ["ASC", "DPSGD"]
    assert list(table.value["Rank"].dropna()) == [1, 2, 3, 4]
    assert list(table.value["Method"])[-1] == "aZB-weak", "it proves more than was asked for: no contender"
    assert 'href="curves?sweep=all+runs&amp;dataset=unbalanced_mnist"' in said


def test_an_empty_folder_says_how_to_rank_methods_on_ones_own_table(results_root: Path) -> None:
    assert "rawls choose dataset=table" in text(page("methods", results_root))

import re
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rawls.analysis.pages import report
from rawls.runners.store.checksums import of_files
from tests.analysis.audits import write_audits
from tests.analysis.pages.pages import Page
from tests.analysis.stores import (
    GOLDEN,
    entry,
    golden_report,
    golden_store,
    manifest,
    write_manifest,
    write_run,
    write_unfinished,
)

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def page_of(root: Path, *manifests: Mapping[str, Any] | Path) -> Page:
    root.mkdir(exist_ok=True)
    text = report.text(root, manifests, now=NOW)
    page = Page(text)
    assert page.wrong == []
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert not any(name in text for name in ("http:", "https:", "//", "url(", "@import", "<script", "<link"))
    sources = [attributes["src"] for _, attributes in page.elements if "src" in attributes]
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    links = [attributes["href"] for _, attributes in page.elements if "href" in attributes]
    assert all(link.startswith("#") and link[1:] in ids for link in links)
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    return page


def curve(target: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    return manifest(target, runs, kind="training_curve")


def write_curve(root: Path, run: str, **changes: Any) -> None:
    rows = [{"step": 10 * n, "epoch": float(n), "split": "valid", "wga": n / 10, "avg": n / 8} for n in (1, 2, 3)]
    write_run(root, run, history=rows, **changes)


def test_the_text_of_a_small_store(results_root: Path) -> None:
    shutil.copytree(GOLDEN / "store" / "runs", results_root / "runs")
    found = golden_report(results_root, GOLDEN / "store" / "targets" / "asc" / "table1" / "default" / "manifest.json")
    assert found == (GOLDEN / "report.txt").read_text(encoding="utf-8")


def test_every_target_and_figure_is_there_with_its_command(results_root: Path) -> None:
    golden = golden_store(results_root)
    write_curve(results_root, "a")
    figure = write_manifest(results_root, curve("asc/fig2", [entry("a")]))
    never = curve("asc/fig4", [entry("x")])
    page = page_of(results_root, golden, figure, never, {"target": "asc/broken"})
    rows = [line.split(" | ") for line in page.lines if line.startswith("asc/") and line.count(" | ") == 6]
    assert [(row[0], row[2]) for row in rows] == [
        ("asc/table1 [default]", "partial"),
        ("asc/fig2 [default]", "complete"),
        ("asc/fig4 [default]", "missing"),
    ]
    assert [row[-1] for row in rows] == [f"rawls reproduce asc/{name}" for name in ("table1", "fig2", "fig4")]
    broken = "asc/broken |  | broken | 0\xa0of\xa00 | – | cannot be read"
    assert sum(line.startswith(broken) for line in page.lines) == 1
    headings = [line for line in page.lines if line.startswith("asc/") and " | " not in line]
    assert len(headings) == 2 * 4  # in the contents, and over its part
    assert headings[:4] == ["asc/table1", "asc/fig2", "asc/fig4", "asc/broken"]
    (picture,) = page.all("img")
    assert picture["alt"] == "Figure: Title of asc/fig2, target ε = 1. The table after it has its numbers."
    assert "Next: nothing of it has run; rawls reproduce asc/fig4 trains it." in page.lines


def test_cells_are_coloured_by_their_distance_and_the_text_says_it_too(results_root: Path) -> None:
    page = page_of(results_root, golden_store(results_root))
    marks = [cell["class"].split()[-1] for cell in page.all("td") if "-" in cell.get("class", "")]
    assert {mark: marks.count(mark) for mark in marks} == {"within-3": 9, "within-2": 6, "within-1": 15}
    assert sum(line.endswith(" | reproduced") for line in page.lines) == 7
    assert sum(line.endswith(" | differs") for line in page.lines) == 3


def test_the_privacy_sheet_of_a_run_is_folded_into_its_target(results_root: Path) -> None:
    write_curve(results_root, "a")
    path = write_manifest(results_root, curve("asc/fig2", [entry("a")]))
    assert not any("Privacy sheet" in line for line in page_of(results_root, path).lines)
    sheet = "# Privacy sheet: asc\n\nProtected.\n\n## Proven\n\n| Guarantee | Value |\n| --- | --- |\n| ε | 8 |\n"
    folder = results_root / "runs" / "a"
    (folder / "privacy.md").write_text(sheet, encoding="utf-8")
    (folder / "checksums.json").write_text(of_files(folder, [path.name for path in folder.iterdir()]))
    lines = page_of(results_root, path).lines
    place = lines.index("Privacy sheet: ASC, Unbalanced\xa0MNIST, ε = 1")
    assert lines[place + 1 : place + 4] == ["Privacy sheet: asc", "Protected.", "Proven"]
    assert "ε | 8" in lines


def test_simulated_data_are_stamped_and_not_coloured(results_root: Path) -> None:
    write_curve(results_root, "a", provenance="simulated")
    table = manifest("asc/table1", [entry("a")], kind="accuracy_table")
    page = page_of(results_root, table, curve("asc/fig2", [entry("a")]))
    text = "\n".join(page.lines)
    assert "Everything here comes from SIMULATED DATA" in text
    assert "rawls data unbalanced_mnist fetches the real files or says where to put them" in text
    assert page.all("img")[0]["alt"].endswith("SIMULATED DATA. The table after it has its numbers.")
    assert not any("-" in cell.get("class", "") for cell in page.all("td"))
    rows = [line.split(" | ") for line in page.lines if line.startswith("asc/") and line.count(" | ") == 6]
    assert [row[2] for row in rows] == ["simulated", "simulated"]


def test_an_empty_store_says_what_to_do(results_root: Path) -> None:
    page = page_of(results_root, curve("asc/fig2", [entry("a")]))
    assert "No run is stored in this results folder yet." in "\n".join(page.lines)
    assert "rawls reproduce asc/table1 dataset=digits scale=smoke" in "\n".join(page.lines)
    assert "No run was begun." in page.lines
    assert not {"Result", "Privacy"} & set(page.lines)


def test_a_computed_figure_is_shown_though_nothing_ran(results_root: Path) -> None:
    page = page_of(results_root, manifest("fdpg/fig5", [], kind="normalisation_error"))
    text = "\n".join(page.lines)
    assert "Verdict: complete." in text
    assert "γ = 0.01" in text
    assert "nothing of it has run" not in text and "standard deviation over seeds." not in text
    assert len([tag for tag, _ in page.elements if tag == "img"]) == 1


def test_a_store_of_failures_says_why_and_what_then(results_root: Path) -> None:
    write_unfinished(results_root, "a", "failed")
    page = page_of(results_root, curve("asc/fig2", [entry("a")]))
    assert "a | asc/fig2, ASC | in calibrate | 1" in page.lines
    assert (
        "No run is finished: 0 of 1 runs, 1 failed. Why runs failed is said below; once that is mended, the same "
        "command trains them again." in page.lines
    )


def test_half_a_sweep_says_what_is_left(results_root: Path) -> None:
    write_curve(results_root, "a")
    write_unfinished(results_root, "b", "running", seed=1)
    page = page_of(results_root, curve("asc/fig2", [entry("a"), entry("b", seed=1)]))
    assert (
        "Next: 1 of 2 runs are left; rawls reproduce asc/fig2 trains those only. rawls status says which of them "
        "train now; the same command goes on with the others." in page.lines
    )
    assert "Verdict: partial (1 of 2 runs, 1 running)." in page.lines


def test_without_a_target_the_runs_are_still_told(results_root: Path) -> None:
    write_run(results_root, "a")
    page = page_of(results_root)
    assert "No table or figure was asked for: rawls targets lists what there is." in page.lines


def test_what_cannot_be_drawn_hides_nothing_else(results_root: Path) -> None:
    write_run(results_root, "a")
    write_run(results_root, "b", dataset="celeba")
    two = curve("asc/fig2", [entry("a"), entry("b", dataset="celeba")])
    page = page_of(results_root, two, manifest("asc/table1", [entry("a")], kind="accuracy_table"))
    assert any(line.startswith("Verdict: cannot be drawn (asc/fig2 draws one dataset") for line in page.lines)
    assert any(line.startswith("ASC | Unbalanced MNIST WGA | 59.2 ± 2.5 | 50.0") for line in page.lines)


def test_a_command_is_shown_without_the_places_of_one_machine(results_root: Path) -> None:
    content = curve("asc/fig2", [entry("a")])
    content["command"] = "rawls reproduce asc/fig2 seed=0 tracking=off data.root=x/y results.root=x/z"
    page = page_of(results_root, content)
    assert "Command: rawls reproduce asc/fig2 seed=0" in page.lines
    assert not any("x/" in line for line in page.lines)


def test_the_file_is_replaced_when_the_new_one_is_whole(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = golden_store(results_root)
    path = report.write(results_root, [golden], now=NOW)
    assert path == results_root / "report" / "index.html"
    first = path.read_text(encoding="utf-8")
    assert report.write(results_root, [golden], now=NOW).read_text(encoding="utf-8") == first

    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ValueError, match="no space"):
        report.write(results_root, [], now=NOW)
    assert [file.name for file in path.parent.iterdir()] == ["index.html"]
    assert path.read_text(encoding="utf-8") == first


def test_audits_have_a_section_where_there_are_some(tmp_path: Path) -> None:
    assert "Audit" not in report.text(tmp_path, [], now=NOW)
    write_audits(tmp_path)
    said = report.text(tmp_path, [], now=NOW)
    assert '<section aria-labelledby="audit">' in said and "claim refuted by the ledger" in said
    assert "Figure: Audit on Digits" in said and "NOBODY" in said

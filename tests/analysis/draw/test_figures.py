import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from rawls.analysis.draw.figures import COLOURS, COLUMN, MARKERS, PAGE, Panel, Sheet, draw, looks

METHODS = ["ASC", "DPSGD", "aZB"]
# Linear RGB as seen without one kind of cone (Machado et al. 2009, severity 1), and by most.
VISIONS = {
    "most": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
RGB_TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]


def points(methods: list[str], count: int = 5, factor: float = 1.0) -> pd.DataFrame:
    """Points of each method on a line of its own."""
    rows = [
        {"method": method, "x": float(x), "mean": factor * (place + 1), "low": factor * 0.5, "high": factor * 4.0}
        for place, method in enumerate(methods)
        for x in range(count)
    ]
    return pd.DataFrame(rows, columns=["method", "x", "mean", "low", "high"])


def sheet(num_panels: int = 1, **options: object) -> Sheet:
    panels = [Panel(data=points(METHODS), title=f"panel {n}", xlabel="Epoch", ylabel="WGA") for n in range(num_panels)]
    return Sheet(panels=panels, methods=METHODS, **options)  # type: ignore[arg-type]


def test_a_method_keeps_its_look_whichever_others_are_drawn() -> None:
    assert looks(METHODS)["aZB"] == looks([*METHODS, "aZB-prop"])["aZB"]


def test_twenty_methods_look_different_and_eight_differ_in_colour_and_marker() -> None:
    found = list(looks([f"method {n}" for n in range(20)]).values())
    assert len({(look.colour, look.marker, look.dash) for look in found}) == 20
    assert len({look.colour for look in found[:8]}) == len({look.marker for look in found[:8]}) == 8


@pytest.mark.parametrize("vision", VISIONS)
def test_every_two_colours_are_told_apart_by_every_vision(vision: str) -> None:
    """Distance in CIELAB of what is seen; a difference of 2 or 3 is just noticeable, we ask for five times that."""
    channels = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in COLOURS]) ** 2.2
    seen = (channels @ np.array(VISIONS[vision]).T).clip(0, 1)
    x, y, z = np.cbrt((seen @ np.array(RGB_TO_XYZ).T) / np.sum(RGB_TO_XYZ, axis=1)).T
    lab = np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)]).T
    distances = np.linalg.norm(lab[:, None] - lab[None, :], axis=2) + 1000 * np.eye(len(lab))
    assert distances.min() > 15


@pytest.mark.parametrize(("num_panels", "width", "rows"), [(1, COLUMN, 1), (3, PAGE, 1), (5, PAGE, 2)])
def test_sizes_fit_a_column_or_the_page(num_panels: int, width: float, rows: int) -> None:
    figure = draw(sheet(num_panels))
    assert figure.get_figwidth() == width
    assert len(figure.axes) == num_panels
    assert len({round(axis.get_position().y0, 3) for axis in figure.axes}) == rows


def test_the_legend_names_the_methods_that_are_drawn_in_the_papers_order() -> None:
    panel = Panel(data=points(["aZB", "ASC"]))
    (legend,) = draw(Sheet(panels=[panel], methods=METHODS)).legends
    assert [text.get_text() for text in legend.get_texts()] == ["ASC", "aZB"]


@pytest.mark.parametrize("legend", [True, False])
def test_the_stamp_is_visible_text_that_nothing_covers(legend: bool) -> None:
    figure = draw(sheet(2, stamp="SIMULATED DATA · scale: laptop", legend=legend))
    figure.draw_without_rendering()
    text = figure.legends[0].get_title() if legend else figure.texts[0]
    assert text.get_text() == "SIMULATED DATA · scale: laptop"
    box = text.get_window_extent()
    assert figure.bbox.containsx(box.x0)
    assert figure.bbox.containsx(box.x1)
    assert figure.bbox.containsy(box.y1)
    tops = [found.y1 for axis in figure.axes if (found := axis.get_tightbbox())]
    assert len(tops) == 2
    assert box.y0 >= max(tops)


def test_a_long_stamp_is_broken_between_its_notices() -> None:
    figure = draw(sheet(stamp="SIMULATED DATA · scale: laptop · UNFINISHED: 3 of 10 runs, 1 failed"))
    assert figure.legends[0].get_title().get_text() == (
        "SIMULATED DATA · scale: laptop ·\nUNFINISHED: 3 of 10 runs, 1 failed"
    )


def test_a_notice_longer_than_a_line_is_broken_between_its_words() -> None:
    shas = [f"{place}234567" for place in range(5)]
    figure = draw(sheet(stamp=f"MADE BY 5 VERSIONS OF THE CODE ({', '.join(shas)}) · scale: laptop"))
    lines = figure.legends[0].get_title().get_text().split("\n")
    assert len(lines) > 1
    assert max(map(len, lines)) <= 46
    assert all(any(sha in line for line in lines) for sha in shas)


def test_a_log_axis_holds_its_band() -> None:
    figure = draw(Sheet(panels=[Panel(data=points(METHODS, factor=0.01), log=True)], methods=METHODS))
    (axis,) = figure.axes
    low, high = axis.get_ylim()
    assert axis.get_yscale() == "log"
    assert 0 < low <= 0.005
    assert high >= 0.04


def test_points_of_several_methods_stand_side_by_side_over_the_names_of_their_places() -> None:
    panel = Panel(data=points(METHODS, count=2), ticks=["one", "two"])
    (axis,) = draw(Sheet(panels=[panel], methods=METHODS)).axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["one", "two"]
    places = sorted(x for container in axis.containers for x in container[0].get_xdata())
    assert np.allclose(places, [-0.18, 0, 0.18, 0.82, 1, 1.18])
    assert all(container[0].get_linestyle() == "None" for container in axis.containers)


@pytest.mark.parametrize(("names", "rotation"), [(["DP-SGD"] * 4, 0), (["DPSGD-Global-Adapt"] * 3, 35)])
def test_names_that_would_run_into_each_other_are_slanted_on_a_taller_figure(names: list[str], rotation: int) -> None:
    panel = Panel(data=points(METHODS, count=len(names)), ticks=names)
    figure = draw(Sheet(panels=[panel, panel], methods=METHODS))
    assert {label.get_rotation() for axis in figure.axes for label in axis.get_xticklabels()} == {rotation}
    assert (figure.get_figheight() > draw(sheet(2)).get_figheight()) == (rotation > 0)


def test_a_shared_axis_from_zero_holds_what_a_later_panel_has() -> None:
    low, high = points(["ASC"]), points(["ASC"], factor=10)
    panels = [Panel(data=data, from_zero=True, ticks=["a", "b", "c", "d", "e"]) for data in (low, high)]
    figure = draw(Sheet(panels=panels, methods=METHODS, share_y=True))
    bottom, top = figure.axes[0].get_ylim()
    assert bottom == 0
    assert top > 40


def test_panels_stand_as_many_to_a_row_as_is_asked() -> None:
    figure = draw(sheet(4, across=2))
    assert len({round(axis.get_position().y0, 3) for axis in figure.axes}) == 2
    assert len({round(axis.get_position().y0, 3) for axis in draw(sheet(4, across=4)).axes}) == 1


def test_panels_of_one_method_each_share_both_axes_even_the_empty_one() -> None:
    full, empty = points(["ASC"], count=7), points([])
    panels = [Panel(data=full, title="ASC"), Panel(data=empty, title="aZB", note="no finished run")]
    figure = draw(Sheet(panels=panels, methods=METHODS, share_y=True, legend=False))
    first, second = figure.axes
    assert first.get_xlim() == second.get_xlim()
    assert first.get_ylim() == second.get_ylim()
    assert [text.get_text() for text in second.texts] == ["no finished run"]
    assert figure.legends == []


def test_files_are_a_picture_and_a_pdf_with_embedded_truetype_fonts(tmp_path: Path) -> None:
    for name, write in sheet(3).files().items():
        write(tmp_path / name)
    picture = imread(tmp_path / "figure.png")
    assert picture.shape[1] == round(PAGE * 220)
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 100
    pdf = (tmp_path / "figure.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert set(re.findall(rb"/Subtype /(Type3|Type0|TrueType|CIDFontType2)", pdf)) == {b"Type0", b"CIDFontType2"}
    assert b"/FontFile2" in pdf


def test_equal_data_give_equal_files(tmp_path: Path) -> None:
    for run in ("first", "second"):
        for name, write in sheet().files().items():
            write(tmp_path / f"{run}.{name}")
    for name in ("figure.png", "figure.pdf"):
        assert (tmp_path / f"first.{name}").read_bytes() == (tmp_path / f"second.{name}").read_bytes()


def test_nothing_heavy_is_imported_before_something_is_drawn() -> None:
    code = (
        "import sys, rawls.analysis.draw.render, rawls.analysis.draw.target_states; print(*({'torch', "
        "'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_there_is_a_marker_for_every_colour() -> None:
    assert len(MARKERS) == len(COLOURS) == len(set(MARKERS)) == len(set(COLOURS))


def test_an_svg_is_equal_for_equal_data_and_needs_no_font() -> None:
    first = sheet().svg()
    assert first == sheet().svg()
    assert "<svg" in first and "<text" not in first and "<path" in first

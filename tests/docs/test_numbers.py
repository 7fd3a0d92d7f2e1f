"""The documents say what the repository's own commands printed: their numbers are those of the committed records."""

import csv
import re
from collections.abc import Iterator

from tests.docs.pages import DOCS
from tests.tree import ROOT

FINDINGS, REPRODUCE, SPEED = (
    (DOCS / f"{page}.md").read_text(encoding="utf-8") for page in ("findings", "reproduce", "speed")
)
RECORDS = ROOT / "analysis" / "reproduced"
RATIOS = {"over_one_opacus": 1, "over_opacus_processes": 1, "over_plain": 2}  # and the digits they are shown with


def rows(*path: str) -> list[dict[str, str]]:
    with open(RECORDS.joinpath(*path), newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table_after(heading: str, page: str) -> list[list[str]]:
    """The cells of the first Markdown table after this text of a page, without its head."""
    after = page[page.index(heading) :]
    lines = [line.strip() for line in after.splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    found = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found[2:]


def experiments() -> Iterator[str]:
    for path in sorted((ROOT / "conf" / "experiment").rglob("*.yaml")):
        yield path.relative_to(ROOT / "conf" / "experiment").with_suffix("").as_posix()


def test_speed_is_what_the_bench_of_record_measured() -> None:
    measured = {(row["workload"], row["arrangement"]): row for row in rows("bench", "sweep.csv")}
    expected = []
    for workload in dict.fromkeys(name for name, _ in measured):
        ten = measured[workload, "rawls, ten runs over 2 processes"]
        drawn = measured[workload, "rawls, ten runs over 2 processes, rows drawn and gathered too"]
        digits = 3 if float(ten["ms_per_step"]) < 1 else 1
        ratios = [f"{float(ten[key]):.{n}f}" for key, n in RATIOS.items()]
        times = [f"{float(row['ms_per_step']):.{digits}f}" for row in (ten, drawn)]
        expected.append([workload, *times, *ratios])
    assert table_after("# Speed", SPEED) == expected


def test_what_the_bench_missed_is_said() -> None:
    missed = {
        path.stem: re.findall(r"^- (\w+):.*?MISSED", path.read_text(encoding="utf-8"), re.MULTILINE)
        for path in sorted((RECORDS / "bench").glob("*.md"))
    }
    assert {name: workloads for name, workloads in missed.items() if workloads} == {"speed": ["logistic", "mlp"]}
    over = {(row["workload"], row["method"]): float(row["over_base"]) for row in rows("bench", "methods.csv")}
    dpsur, disk = (max(over[workload, method] for workload in ("mlp", "mnist_cnn")) for method in ("dpsur", "disk"))
    assert f"DPSUR's\nsecond draw {dpsur:.2f}, DiSK's second gradient {disk:.2f}" in SPEED
    assert "missed: the extra\nmemory of the two tiny models" in SPEED


def test_one_run_is_as_fast_as_the_bench_of_record_measured() -> None:
    found = re.search(r"One run by itself is (.*?) times faster", SPEED, re.DOTALL)
    assert found is not None
    ours = [row["over_opacus"] for row in rows("bench", "speed.csv") if row["method"].startswith("rawls, the same")]
    assert re.findall(r"[\d.]+", found[1]) == [f"{float(ratio):.1f}" for ratio in ours]


def test_table_1_is_the_record() -> None:
    cells: dict[str, list[str]] = {}
    for row in rows("asc", "table1", "comparison.csv"):
        for mean, std in (("paper_mean", "paper_std"), ("mean", "std")):
            cells.setdefault(row["method"], []).append(f"{float(row[mean]):.1f} ± {float(row[std]):.1f}")
    assert table_after("**Table 1, Unbalanced MNIST**", FINDINGS) == [
        [method, *values] for method, values in cells.items()
    ]


def test_other_readings_of_table_1_are_the_record() -> None:
    cells: dict[str, list[str]] = {}
    for row in rows("asc", "table1_readings", "table.csv"):
        cells.setdefault(row["method"], []).append(f"{float(row['mean']):.1f} ± {float(row['std']):.1f}")
    assert table_after("**Other readings**", FINDINGS) == [[method, *values] for method, values in cells.items()]


def test_how_many_cells_reproduce_is_counted() -> None:
    verdicts = [row["verdict"] for row in rows("asc", "table1", "comparison.csv")]
    assert f"{verdicts.count('reproduced')} of {len(verdicts)} cells lie within" in FINDINGS


def test_fdpgs_table_1_is_the_record() -> None:
    def spread(row: dict[str, str], whose: str = "") -> str:
        return f"{float(row[f'{whose}mean']):.2f} ± {float(row[f'{whose}std']):.2f}"

    printed = {(row["method"], row["column"]): row for row in rows("fdpg", "table1", "comparison.csv")}
    ours = {
        (row["method"], row["dataset"]): row for row in rows("fdpg", "table1", "table.csv") if row["metric"] == "pi"
    }
    expected = []
    for method in dict.fromkeys(row["method"] for row in ours.values() if not row["part"] and row["n"] != "0"):
        of_both = [ours[method, dataset] for dataset in ("adult", "dutch")]
        gaps = [
            text for row in of_both for text in (spread(printed[method, f"{row['dataset']}/pi"], "paper_"), spread(row))
        ]
        epsilons = [[f"{float(row[f'epsilon_{kind}']):.2f}" for row in of_both] for kind in ("claimed", "proven")]
        expected.append([method, *gaps, *map(" / ".join, epsilons)])
    assert table_after("**FDPG, Table 1**", FINDINGS) == expected


def test_what_brings_class_8_back_is_the_record() -> None:
    found = next(row for row in rows("fdpg", "search_mnist", "table.csv") if row["method"] == "FDPG (less noise)")
    assert f"class 8 is at {float(found['test_wga']):.1f} % and the mean at {float(found['test_avg']):.1f}" in FINDINGS


def test_how_many_cells_of_fdpg_reproduce_is_counted() -> None:
    for target, told in (("table1", "{} of {} cells lie within two"), ("table1_text", "{} of {} cells do")):
        verdicts = [row["verdict"] for row in rows("fdpg", target, "comparison.csv") if "(" not in row["method"]]
        assert told.format(verdicts.count("reproduced"), len(verdicts)) in FINDINGS


def test_wysiwygs_epsilons_are_the_record() -> None:
    verdicts = [row["agreement"] for row in rows("wysiwyg", "calibration", "table.csv") if row["agreement"]]
    assert f"all {len(verdicts)} that the paper's notebooks print" in FINDINGS and set(verdicts) == {"equal"}


def test_wysiwygs_adult_is_the_record() -> None:
    found: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows("wysiwyg", "fig4_adult", "figure.csv"):
        if row["epsilon_max"] and 1.85 < float(row["epsilon_max"]) < 1.95:  # where the noise was given
            found.setdefault(row["method"], {})[row["quantity"]] = row
    expected = []
    for method, quantities in found.items():
        own = [quantities[name] for name in ("disparity", "total", "test_wga")]
        cells = [f"{float(row['mean']):.1f} ± {float(row['std']):.1f}" for row in own]
        epsilons = [f"{float(own[0][name]):.2f}" for name in ("claim_epsilon", "epsilon_max")]
        expected.append([method, *cells, *epsilons])
    assert table_after("**WYSIWYG on Adult**", FINDINGS) == expected


def test_the_arena_is_the_record() -> None:
    found: dict[tuple[str, str], list[str]] = {}
    for row in sorted(rows("arena", "table.csv"), key=lambda row: float(row["epsilon"])):
        found.setdefault((row["method"], row["dataset"]), []).append(f"{float(row['test_wga']):.1f}")
    datasets = ("adult_census", "dutch", "cardiotocography", "digits")
    told = table_after("**Test WGA at ε = 1 and at ε = 8**", FINDINGS)
    assert len(told) == 5
    assert told == [[method, *(", ".join(found[method, dataset]) for dataset in datasets)] for method, *_ in told]
    best = sorted(
        float(row["test_wga"])
        for row in rows("arena", "table.csv")
        if (row["dataset"], row["epsilon"], row["private"]) == ("adult_census", "1", "True")
    )
    assert 75.0 - best[-2] < 8, "as the README says of two methods"


def test_every_target_has_its_command() -> None:
    named = set(re.findall(r"rawls reproduce (\w+(?:/\w+)?)|`(\w+/\w+)`|rawls (choose)", REPRODUCE))
    named.add(("choose_private",))  # rawls choose private=true
    assert {target for target in experiments() if not any(target in pair for pair in named)} == set()

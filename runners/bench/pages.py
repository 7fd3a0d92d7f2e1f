"""`rawls bench pages`: how long the dashboard and the report take on a store of many finished runs.

The store has a target of every run (a grid, as for choosing hyper-parameters), a table and a figure of a few, and was
read once before, so that what analysis derives from the runs is there. Each page is then opened, and what a visitor may
do there is done, in a process of its own; the time is that of the page's script, to which a browser's drawing comes.
"""

import json
import multiprocessing
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from argparse import Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rawls.runners.bench import store
from rawls.runners.bench.table import Row, Table, judged, number

if TYPE_CHECKING:
    from streamlit.testing.v1 import AppTest

SEEDS = 5  # of the table and the figure
START_SECONDS = 60.0
OPEN_GOAL_SECONDS, INTERACTION_GOAL_SECONDS, REPORT_GOAL_SECONDS = 3.0, 1.0, 30.0
_TARGETS = {
    "asc/table1": ("Worst-group and average accuracy", "accuracy_table"),
    "asc/fig2": ("Learning curves", "training_curve"),
    "asc/tuning": ("Hyper-parameters chosen by validation WGA", "selection_table"),
}
_VARIANT = "paper"

Act = Callable[["AppTest"], Any]


def _select(key: str, value: str) -> Act:
    return lambda app: app.selectbox(key=key).set_value(value)


def _several(key: str, choice: Callable[[list[str]], list[str]]) -> Act:
    return lambda app: app.multiselect(key=key).set_value(choice(app.multiselect(key=key).options))


def _view(value: str) -> Act:
    return lambda app: app.button_group(key="view").set_value(value)


ALL_RUNS = _select("sweep", "all runs")
EVERY_CONFIGURATION = _several("configurations", lambda options: options)
# page -> what a visitor does there, one thing after another
VISITS: dict[str, dict[str, Act]] = {
    "methods": {},
    "papers": {},
    "target": {
        "a figure": _select("target", f"asc/fig2 · {_VARIANT}"),
        "a table": _select("target", f"asc/table1 · {_VARIANT}"),
        "the grid of all runs": _select("target", f"asc/tuning · {_VARIANT}"),
    },
    "compare": {
        "all runs": ALL_RUNS,
        "WGA and AVG": _view("WGA and AVG"),
        "one budget": _select("epsilon", "1"),
        "groups": _view("Groups"),
        "differences by seed": _view("Differences by seed"),
        "of a group": _select("metric", "digit 8"),
        "every configuration": EVERY_CONFIGURATION,
    },
    "curves": {
        "all runs": ALL_RUNS,
        "per group": _select("series", "accuracy of a group"),
        "other groups": _several("groups", lambda options: options[3:5]),
        "against steps": _select("against", "step"),
        "every configuration": EVERY_CONFIGURATION,
    },
    "privacy": {
        "all runs": ALL_RUNS,
        "one budget": _select("epsilon", "1"),
        "every configuration": EVERY_CONFIGURATION,
    },
    "audit": {},
    "runs": {
        "one method": _several("method", lambda options: options[:1]),
        "one budget": _select("epsilon", "8"),
        "one run": lambda app: app.text_input(key="text").set_value("0000000000000"),
        "two beside each other": lambda app: (
            app.text_input(key="a").set_value(f"{0:016x}"),
            app.text_input(key="b").set_value(f"{1:016x}"),
        ),
    },
}


def measured(options: Namespace) -> Table:
    """Make a store in a temporary folder, and measure."""
    rows: list[Row] = []
    with TemporaryDirectory(prefix="rawls-bench-") as folder:
        root = Path(folder)
        print(f"making {options.runs} runs", file=sys.stderr)
        manifests = _make(root, options.runs)
        _fresh(_read, root)
        rows.append({"what": "dashboard: served", "seconds": _served(root)})
        for page, acts in VISITS.items():
            print(f"visiting {page}", file=sys.stderr)
            times = _fresh(_visited, root, page)
            titles = [f"{page}: opened", *(f"{page}: {act}" for act in acts)]
            rows += [{"what": title, "seconds": seconds} for title, seconds in zip(titles, times, strict=True)]
        print("writing the report", file=sys.stderr)
        rows.append({"what": "report", "seconds": _fresh(_reported, root, manifests)})
    return Table(
        name="pages",
        title=f"Dashboard and report on {options.runs} finished runs, {store.ROWS} rows of {store.NUM_GROUPS} groups",
        about="Seconds on the clock; a fresh process for each page, its imports not counted.",
        columns={"what": "what", "seconds": "seconds"},
        digits={"seconds": 2},
        rows=rows,
        verdicts=_verdicts(rows),
        raw={str(row["what"]): row["seconds"] for row in rows},
    )


def _verdicts(rows: Sequence[Row]) -> list[str]:
    seconds = {str(row["what"]): number(row, "seconds") for row in rows}
    pages = {what: value for what, value in seconds.items() if what not in ("dashboard: served", "report")}
    opened = max(value for what, value in pages.items() if what.endswith(": opened"))
    slowest = max((what for what in pages if not what.endswith(": opened")), key=lambda what: pages[what])
    told = {
        "opening": (seconds["dashboard: served"] + opened, OPEN_GOAL_SECONDS, "served, and the slowest page opened"),
        "interactions": (pages[slowest], INTERACTION_GOAL_SECONDS, f"the slowest, {slowest}"),
        "report": (seconds["report"], REPORT_GOAL_SECONDS, "written"),
    }
    return [
        judged(name, {f"{about}: {value:.2f} s (goal {goal:g})": value < goal})
        for name, (value, goal, about) in told.items()
    ]


def _make(root: Path, runs: int) -> list[Path]:
    """The runs, and the manifests of three targets."""
    entries = store.make(root, runs=runs, rows=store.ROWS)
    first = entries[0]["coordinates"]
    few = [entry for entry in entries if entry["coordinates"] == first and entry["seed"] < SEEDS]
    manifests = []
    for target, (title, kind) in _TARGETS.items():
        path = root / "targets" / target / _VARIANT / "manifest.json"
        path.parent.mkdir(parents=True)
        wanted = [entry for entry in entries if entry["coordinates"]["epsilon"] == first["epsilon"]]
        manifest = {
            "target": target,
            "title": title,
            "variant": _VARIANT,
            "command": f"rawls reproduce {target} scale=paper",
            "draw": {"kind": kind, "methods": {label: label for label in store.METHODS}},
            "runs": wanted if kind == "selection_table" else few,
        }
        path.write_text(json.dumps(manifest), encoding="utf-8")
        manifests.append(path)
    return manifests


def _fresh(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns in a process that has done nothing else."""
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _read(root: Path) -> None:
    from rawls.analysis.read import settings
    from rawls.analysis.read.load import load

    shutil.rmtree(root / "cache", ignore_errors=True)
    time.sleep(3)  # what is younger than two seconds is not kept
    loaded = load(root)
    settings.load(root, loaded.runs["run_id"])
    assert len(loaded.history) and len(loaded.ledger)


def _served(root: Path) -> float:
    """From the command until the server answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "rawls.runners.cli.commands",
        "dashboard",
        f"results.root={root}",
        f"port={port}",
        "headless=true",
    ]
    began = time.perf_counter()
    house = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, cwd=house, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while time.perf_counter() - began < START_SECONDS:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=1):
                        return time.perf_counter() - began
                except OSError:
                    time.sleep(0.02)
            raise RuntimeError(f"bench: the dashboard did not answer within {START_SECONDS:g} seconds")
        finally:
            process.terminate()


def _visited(root: Path, page: str) -> list[float]:
    """Seconds until the page was opened, and of each thing done there."""
    import importlib
    import logging

    from streamlit.testing.v1 import AppTest

    logging.disable(logging.WARNING)  # that there is no server is no news

    importlib.import_module(f"rawls.analysis.pages.dashboard.{page}")
    app = AppTest.from_function(_page, args=(page, str(root)), default_timeout=600)
    times = [_run(app)]
    for act in VISITS[page].values():
        act(app)
        times.append(_run(app))
    return times


def _run(app: "AppTest") -> float:
    began = time.perf_counter()
    app.run()
    seconds = time.perf_counter() - began
    if problem := [error.value for error in app.exception] or [error.value for error in app.error]:
        raise RuntimeError(f"bench: the page says {problem[0]}")
    return seconds


def _page(module: str, root: str) -> None:
    """What AppTest runs as a script of its own."""
    import importlib
    from pathlib import Path

    from rawls.analysis.pages.dashboard.stored import Here

    importlib.import_module(f"rawls.analysis.pages.dashboard.{module}").show(Here(root=Path(root)))


def _reported(root: Path, manifests: Sequence[Path]) -> float:
    from rawls.analysis.pages import report

    began = time.perf_counter()
    report.write(root, manifests)
    return time.perf_counter() - began

"""The dashboard as people see it: Debian's Chromium on a store made by a real small sweep.

Screenshots of every page lie in test-artifacts/dashboard afterwards.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.analysis.pages.dashboard.pages import failures, simulated
from tests.tree import ROOT

pytestmark = pytest.mark.system

SHOTS = ROOT / "test-artifacts" / "dashboard"
LAPTOP = {"width": 1366, "height": 768}
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
NAMES = ("Methods", "Papers", "Target", "Compare", "Curves", "Privacy", "Audit", "Runs")
FIRST = "Which method?"
SWEEP = ["reproduce", "asc/table1", "dataset=digits", "algorithm=asc,dpsgd", "scale=smoke", "privacy=eps8"]
SWEEP += ["tracking=off"]
# Streamlit looks for its root below a page's own address first, and does not find it there.
LOOKS_FOR_ITS_ROOT = re.compile(r"/[a-z]+/_stcore/(health|host-config)$")
PATIENCE_MILLISECONDS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        told = "chromium is not installed: needs the Debian package chromium"
        if os.environ.get("CI"):
            pytest.fail(told)
        pytest.skip(told)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()


def rawls(*arguments: str, root: Path, out: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """A command in a session of its own."""
    command = [sys.executable, "-m", "rawls.runners.cli.commands", *arguments, f"results.root={root}"]
    return subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.DEVNULL, text=True, start_new_session=True)


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that is interrupted at the end, with what it began."""
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def dashboard(root: Path) -> Iterator[str]:
    """Its address."""
    with ended(rawls("dashboard", "headless=true", root=root, out=subprocess.PIPE)) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert found
        yield found.group()


@contextmanager
def looked_at(browser: Browser, address: str) -> Iterator[Page]:
    """A page of a laptop's size, in which nothing goes wrong and which asks nobody else."""
    page = browser.new_page(viewport=LAPTOP)  # type: ignore[arg-type]
    page.set_default_timeout(PATIENCE_MILLISECONDS)
    wrong: list[str] = []

    def told(message: ConsoleMessage) -> None:
        if message.type == "error" and not LOOKS_FOR_ITS_ROOT.search(message.location["url"]):
            wrong.append(f"{message.text} ({message.location['url']})")

    def asked(request: Request) -> None:
        if not request.url.startswith((address, "data:", "blob:")):
            wrong.append(f"asks {request.url}")

    page.on("console", told)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", asked)
    open_when_served(page, address)
    yield page
    assert page.locator("[data-testid=stException]").count() == 0
    page.close()
    assert wrong == []


def open_when_served(page: Page, address: str) -> None:
    """The address is printed a moment before it is served."""
    for _ in range(100):
        if subprocess.run([sys.executable, "-c", _CONNECT, address.rpartition(":")[2]], check=False).returncode == 0:
            break
    page.goto(address)
    expect(page.get_by_role("heading", level=1)).to_have_text(FIRST)


_CONNECT = (
    "import socket, sys, time; time.sleep(0.1); socket.create_connection(('127.0.0.1', int(sys.argv[1]))).close()"
)


def settled(page: Page) -> None:
    """Nothing runs any more, and charts are drawn."""
    page.wait_for_function("!document.querySelector('[data-testid=stStatusWidget]')")
    page.wait_for_timeout(600)


def photograph(page: Page, name: str) -> None:
    """The first screen, and the whole page."""
    settled(page)
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")
    height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({"width": LAPTOP["width"], "height": max(LAPTOP["height"], min(int(height), 5000))})
    page.wait_for_timeout(300)
    page.screenshot(path=SHOTS / f"{name}-whole.png")
    page.set_viewport_size(LAPTOP)  # type: ignore[arg-type]


def visit(page: Page, name: str) -> None:
    page.get_by_role("link", name=name, exact=True).first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(FIRST if name == "Methods" else name)


def choose(page: Page, label: str, option: str) -> None:
    """With the keyboard alone."""
    box = page.get_by_role("combobox", name=label)
    box.focus()
    page.keyboard.press("ArrowDown")
    box.fill(option)
    page.keyboard.press("Enter")
    settled(page)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a real sweep of four runs."""
    root = tmp_path_factory.mktemp("dashboard") / "results"
    assert rawls(*SWEEP, root=root).wait(300) == 0
    return root


@pytest.fixture(scope="module")
def address(swept: Path) -> Iterator[str]:
    with dashboard(swept) as found:
        yield found


def test_every_page_opens_and_is_photographed(browser: Browser, address: str) -> None:
    with looked_at(browser, address) as page:
        for name in NAMES:
            visit(page, name)
            photograph(page, name.lower())
            tops = page.locator("[data-testid=stMainBlockContainer]").bounding_box()
            assert tops and tops["width"] <= LAPTOP["width"]


def test_one_click_leads_from_a_paper_to_its_table_and_to_a_comparison(browser: Browser, address: str) -> None:
    with looked_at(browser, address) as page:
        visit(page, "Papers")
        page.get_by_role("link", name="table1: Worst-case and average group accuracy").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Target")
        expect(page.get_by_text("4 of 4 runs")).to_be_visible()
        page.get_by_role("link", name="compare the methods").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Compare")
        for view in ("WGA and AVG", "Groups", "Differences by seed"):
            page.get_by_role("radio", name=view).click()
            photograph(page, f"compare-{view.lower().replace(' ', '-')}")
        expect(page.get_by_role("columnheader", name="95 % interval")).to_be_visible()
        choose(page, "Compared with", "DPSGD")
        expect(page.get_by_role("caption").filter(has_text="minus that of DPSGD")).to_be_visible()


def test_the_first_page_says_whom_to_take_and_leads_to_the_curves(browser: Browser, address: str) -> None:
    with looked_at(browser, address) as page:
        expect(page.get_by_text("of 2 methods").or_(page.get_by_text("No method reaches every group"))).to_be_visible()
        expect(page.locator("[data-testid=stDataFrame]")).to_be_visible()
        page.get_by_role("link", name="their curves").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Curves")


def test_a_link_shows_the_same_view_to_somebody_else(browser: Browser, address: str) -> None:
    with looked_at(browser, address) as page:
        visit(page, "Curves")
        choose(page, "Series", "accuracy of a group")
        photograph(page, "curves-groups")
        link = page.url
        seen = page.locator("main table, [data-testid=stMain] table").all_inner_texts()
    assert "series=accuracy" in link
    with looked_at(browser, address) as page:
        page.goto(link)
        expect(page.get_by_role("heading", level=1)).to_have_text("Curves")
        expect(page.get_by_role("caption").filter(has_text="accuracy of a group")).to_be_visible()
        assert page.locator("main table, [data-testid=stMain] table").all_inner_texts() == seen


def test_runs_are_filtered(browser: Browser, address: str) -> None:
    with looked_at(browser, address) as page:
        visit(page, "Runs")
        expect(page.get_by_text("4 runs, the newest first")).to_be_visible()
        choose(page, "Method", "DPSGD")
        expect(page.get_by_text("2 runs, the newest first")).to_be_visible()
        assert "method=DPSGD" in page.url


def test_a_run_in_progress_is_followed(browser: Browser, swept: Path, address: str) -> None:
    long = ["train", "dataset=digits", "algorithm=dpsgd", "scale=smoke", "privacy=eps8", "tracking=off", "seed=7"]
    long += ["schedule.max_steps=null", "schedule.epochs=3000"]
    with looked_at(browser, address) as page:
        visit(page, "Runs")
        expect(page.get_by_text("Nothing trains here at the moment.")).to_be_visible()
        with ended(rawls(*long, root=swept)):
            step = page.locator("table", has_text="In training").locator("tbody td").first
            expect(step).to_contain_text("%", timeout=PATIENCE_MILLISECONDS)
            first = step.inner_text()
            photograph(page, "runs-in-progress")
            expect(step).not_to_have_text(first)
            expect(page.get_by_text("Half finished: 4 done, 1 training")).to_be_visible()
        expect(page.get_by_text("Nothing trains here at the moment.")).to_be_visible()
        page.reload()
        expect(page.get_by_text("Half finished: 4 done, 1 interrupted")).to_be_visible()


@pytest.mark.parametrize("kind", ["empty", "failures", "simulated"])
def test_a_store_of_little_says_what_to_do(kind: str, browser: Browser, results_root: Path) -> None:
    makers = {"failures": failures, "simulated": simulated}
    if kind in makers:
        makers[kind](results_root)
    says = {"empty": "There are no runs", "failures": "No run is finished", "simulated": "SIMULATED DATA"}
    with dashboard(results_root) as address, looked_at(browser, address) as page:
        for name in NAMES:
            visit(page, name)
            expect(page.get_by_text(says[kind]).first).to_be_visible()
            photograph(page, f"{kind}-{name.lower()}")

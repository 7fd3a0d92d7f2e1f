"""Files of a store that are damaged, lost, cut or forged: never other numbers, and the same said everywhere."""

import io
import json
import random
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pandas as pd
import pytest

from rawls.analysis.draw.render import draw
from rawls.analysis.pages.report import text as report_text
from rawls.analysis.read.load import Store, load
from rawls.analysis.read.manifest import Manifest
from rawls.analysis.read.settings import load as settings_of
from rawls.runners.cli.commands import main
from rawls.runners.store.doctor import examine
from tests.faults.conftest import Tally
from tests.faults.stores import copied, flipped, manifest, runs

# Of a finished run; all but the last are read to be shown.
KINDS = [
    *("summary.json", "config.yaml", "history.jsonl", "ledger.json", "environment.json", "privacy.md"),
    *("checksums.json", "weights.safetensors"),
]
FRAMES = ("runs", "groups", "history", "ledger")


def shown(store: Store) -> dict[str, pd.DataFrame]:
    """All that is read of the runs that are done, and how they were configured."""
    done = list(store.runs.loc[store.runs["status"] == "done", "run_id"])
    frames = {name: getattr(store, name) for name in FRAMES}
    found = {name: frame[frame["run_id"].isin(done)].reset_index(drop=True) for name, frame in frames.items()}
    return found | {"settings": pd.DataFrame(settings_of(store.root, done)).T.astype(str)}


def same(one: dict[str, pd.DataFrame], other: dict[str, pd.DataFrame], run: str) -> bool:
    """Whether the second shows what the first does, or what the first does of all runs but this."""
    for name, frame in one.items():
        key = frame.index if name == "settings" else frame["run_id"]
        part = frame[key.isin(set(other["runs"]["run_id"]))].reset_index(drop=True)
        if part.astype(str).to_dict() != other[name].reset_index(drop=True).astype(str).to_dict():
            return False
    return set(one["runs"]["run_id"]) - set(other["runs"]["run_id"]) <= {run}


@pytest.mark.parametrize("name", KINDS)
def test_flipped_bits(store: Path, tmp_path: Path, name: str, positions: int, tally: Tally) -> None:
    """One flipped bit in a file of a finished run.

    Seed 0. Each time every frame is what it was, or what it was without that run; what the weights lost, doctor finds.
    """
    root, chance = copied(store, tmp_path / "results"), random.Random(0)
    whole, run = shown(load(root)), runs(root)[0]
    content = (run / name).read_bytes()
    for bit in (chance.randrange(8 * len(content)) for _ in range(positions)):
        tally.tried()
        (run / name).write_bytes(flipped(content, bit))
        found = load(root)
        assert same(whole, shown(found), run.name), f"bit {bit}"
        status = dict(zip(found.runs["run_id"], found.runs["status"], strict=True))[run.name]
        if name == "weights.safetensors":
            assert status == "done"
        elif name != "checksums.json":
            assert status == "damaged", f"bit {bit}"
        tally.survived()
    assert list(examine(root)) and run.name in str(next((root / "replaced").iterdir()))


def test_manifests(store: Path, tmp_path: Path, positions: int, tally: Tally) -> None:
    """One flipped bit in a manifest."""
    root, chance = copied(store, tmp_path / "results"), random.Random(0)
    path, known = manifest(root), load(root)
    content, whole = path.read_bytes(), draw(Manifest.read(path), known).text
    for bit in (chance.randrange(8 * len(content)) for _ in range(positions)):
        tally.tried()
        path.write_bytes(flipped(content, bit))
        try:
            assert draw(Manifest.read(path), known).text == whole, f"bit {bit}"
        except ValueError as error:
            assert "reproduce" in str(error)
        tally.survived()


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def nothing(path: Path) -> None:
    path.write_text("{}")


def null(path: Path) -> None:
    path.write_text("null")


def forge(path: Path) -> None:
    """A worst group of 99 %, as valid JSON."""
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"test": fields["test"] | {"wga": 0.99, "avg": 0.99}}))


@pytest.mark.parametrize(
    ("name", "damage"),
    [("summary.json", forge), *[("summary.json", one) for one in (remove, cut, empty, nothing, null)]]
    + [(name, one) for name in KINDS[1:7] for one in (remove, cut)],
)
def test_said_alike(
    store: Path, tmp_path: Path, name: str, damage: Callable[[Path], None], tally: Tally,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A damaged, lost, cut or forged file: stamped and left out in table, report, compare and status alike."""
    tally.tried()
    root = copied(store, tmp_path / "results")
    run = runs(root)[0]
    damage(run / name)
    found, told = load(root), f"runs/{run.name}/"
    row = found.runs.set_index("run_id").loc[run.name]
    assert row["status"] == "damaged" and row["error"].startswith(told) and "rawls doctor" in row["error"]
    drawing = draw(Manifest.read(manifest(root)), found)
    assert drawing.verdict.startswith("partial (1 of 2 runs, 1 damaged)") and "99.0" not in drawing.text
    page = report_text(root, [manifest(root)])
    assert "DAMAGED: 1 run is left out" in page and told in page and str(tmp_path) not in page
    where = f"results.root={root}"
    assert main(["status", where]) == 0
    assert "1 done, 1 damaged (`rawls doctor" in capsys.readouterr().out
    assert main(["compare", "ASC", "DPSGD", where]) == 2  # one of the two has no run left
    assert main(["doctor", where]) == 1
    assert f"{told}" in capsys.readouterr().out
    assert main(["doctor", where]) == 0 and (root / "replaced" / f"{run.name}.1").is_dir()
    tally.survived()


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes: the kernel refuses, as on a full disk."""
    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize("command", ["report", "render"])
@pytest.mark.parametrize("size", [0, 100])
def test_full_disks(store: Path, tmp_path: Path, command: str, size: int, tally: Tally) -> None:
    """A disk that fills up while a report or a drawing is written: one sentence, and the former one stays."""
    tally.tried()
    root = copied(store, tmp_path / "results")
    words = [command, *([str(manifest(root))] if command == "render" else [f"results.root={root}"])]
    assert main(words) == 0
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    said = io.StringIO()  # where pytest keeps what is printed must not be full too
    with redirect_stderr(said), redirect_stdout(io.StringIO()), small_disk(size):
        code = main(words)
    assert code == 2 and "cannot be written (File too large)" in said.getvalue()
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    tally.survived()

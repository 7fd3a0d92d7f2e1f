import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rawls.runners.cli import commands
from rawls.runners.store.leases import Leases
from rawls.runners.store.results_store import Store
from tests.tree import ROOT

# In the place of W&B: notes its arguments, and takes the folders whose names do not end in `refused`.
FAKE = """
import json, os, sys
from pathlib import Path
assert sys.argv[1:3] == ["sync", "--yes"] and "WANDB_MODE" not in os.environ
calls = Path(os.environ["CALLS"])
calls.write_text(json.dumps(json.loads(calls.read_text()) + [sys.argv[3:]]))
for folder in map(Path, sys.argv[3:]):
    if folder.name.endswith("refused"):
        print("wandb: ERROR Failed to upload: permission denied.", file=sys.stderr)
    else:
        next(folder.glob("*.wandb")).with_suffix(".wandb.synced").touch()
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where W&B's stand-in notes what it was called with."""
    package = tmp_path / "stand_in" / "wandb"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "__main__.py").write_text(FAKE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    path = tmp_path / "calls.json"
    path.write_text("[]", encoding="utf-8")
    monkeypatch.setenv("CALLS", str(path))
    return path


def mirrored(root: Path, run_id: str, *, sent: bool = False) -> Path:
    folder = root / "wandb" / f"offline-run-20260101_000000-{run_id}"
    folder.mkdir(parents=True)
    (folder / f"run-{run_id}.wandb").touch()
    if sent:
        (folder / f"run-{run_id}.wandb.synced").touch()
    return folder


def names(calls: Path) -> list[list[str]]:
    return [[Path(folder).name[-2:] for folder in call] for call in json.loads(calls.read_text(encoding="utf-8"))]


def test_what_is_not_sent_is_sent_once(calls: Path, results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mirrored(results_root, "aa")
    mirrored(results_root, "bb", sent=True)
    mirrored(results_root, "cc")
    assert commands.main(["wandb", "sync", f"results.root={results_root}"]) == 0
    assert commands.main(["wandb", "sync", f"results.root={results_root}"]) == 0
    assert names(calls) == [["aa", "cc"]]
    assert capsys.readouterr().out == "2 runs sent\nnothing to send: 3 runs sent before\n"


def test_a_run_in_training_waits(calls: Path, results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mirrored(results_root, "aa")
    mirrored(results_root, "bb")
    held = Store(results_root).claim("bb", {"seed": 0})
    assert held is not None
    assert commands.main(["wandb", "sync", f"results.root={results_root}"]) == 0
    held.release()
    assert commands.main(["wandb", "sync", f"results.root={results_root}"]) == 0
    assert names(calls) == [["aa"], ["bb"]]
    assert capsys.readouterr().out == "1 run in training: sync again when they are done\n1 run sent\n1 run sent\n"


def test_a_target_that_is_being_mirrored_waits_too(calls: Path, results_root: Path) -> None:
    mirrored(results_root, "aa")
    mirrored(results_root, "target-bb")
    (results_root / "runs").mkdir()
    lease = Leases(results_root).take("target-bb")
    assert lease is not None
    assert commands.main(["wandb", "sync", f"results.root={results_root}"]) == 0
    lease.release()
    assert commands.main(["wandb", "sync", f"results.root={results_root}"]) == 0
    assert names(calls) == [["aa"], ["bb"]]


def test_what_wandb_does_not_take_is_one_sentence(
    calls: Path, results_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mirrored(results_root, "aa")
    mirrored(results_root, "refused")
    assert commands.main(["wandb", "sync", f"results.root={results_root}"]) == 2
    assert capsys.readouterr().err == (
        "rawls: error: W&B did not take 1 of 2 runs (Failed to upload: permission denied): the same command sends what "
        "is left\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["wandb"], "rawls wandb can do two things: rawls wandb sync [results.root=FOLDER], rawls wandb workspace"),
        (["wandb", "login"], "rawls wandb can do two things: rawls wandb sync [results.root=FOLDER], rawls wandb"),
        (["wandb", "sync", "seed=1"], "rawls wandb sync does not know 'seed=1': only results.root=FOLDER can be set"),
        (["wandb", "sync"], "there is nothing to sync under results/wandb: runs are mirrored there with"),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert commands.main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"rawls: error: {sentence}")


def test_without_a_login_wandb_itself_is_asked_and_the_answer_is_one_line(tmp_path: Path, results_root: Path) -> None:
    mirrored(results_root, "aa")
    private = {"HOME": str(tmp_path), "WANDB_CONFIG_DIR": str(tmp_path), "NETRC": str(tmp_path / "netrc")}
    environment = {key: value for key, value in os.environ.items() if key != "WANDB_API_KEY"} | private
    command = [sys.executable, "-m", "rawls.runners.cli.commands", "wandb", "sync", f"results.root={results_root}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "rawls: error: W&B knows no key of yours: call `wandb login` once, or set WANDB_API_KEY\n"

import fcntl
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from rawls.runners.store.identity import hashed_part
from rawls.runners.store.results_store import ResultsError, RunFolder, Store, to_json
from rawls.runners.store.stored import FORMAT
from tests.faults import disks
from tests.tree import ROOT

RUN, OTHER, THIRD = "00000000000000aa", "00000000000000bb", "00000000000000cc"
CONFIG: dict[str, Any] = {
    "algorithm": {"_target_": "rawls.algorithms.asc.Asc"},
    "privacy": {"epsilon": 1e-05},
    "seed": 3,
}


def claimed(store: Store, run_id: str = RUN) -> RunFolder:
    folder = store.claim(run_id, CONFIG)
    assert folder is not None
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def rows(folder: RunFolder) -> list[Any]:
    return [json.loads(line) for line in (folder.path / "history.jsonl").read_text("utf-8").splitlines()]


def start_script(script: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE)


def test_a_finished_run_is_done_and_holds_its_files(results_root: Path) -> None:
    store = Store(results_root)
    assert store.state(RUN) == "missing"
    assert store.done() == []
    folder = claimed(store)
    assert store.state(RUN) == "running"
    assert folder.path.name == f"{RUN}.running"
    folder.append_history({"step": 1, "wga": 0.5})
    folder.save_checkpoint({"step": 1})
    folder.finish({"test": {"wga": 0.25}}, {"releases": []}, {"device": "cpu"})
    assert store.state(RUN) == "done"
    assert store.done() == [RUN]
    assert store.summary(RUN) == {"test": {"wga": 0.25}}
    assert not folder.held
    assert names(results_root / "runs") == {RUN}
    assert names(results_root / "runs" / RUN) == {
        "checksums.json",
        "config.yaml",
        "environment.json",
        "history.jsonl",
        "ledger.json",
        "summary.json",
    }
    assert store.claim(RUN, CONFIG) is None


def test_a_released_run_is_interrupted_and_keeps_its_checkpoint(results_root: Path) -> None:
    store = Store(results_root)
    folder = claimed(store)
    folder.append_history({"step": 5})
    folder.save_checkpoint({"step": 5})
    folder.release()
    assert store.state(RUN) == "interrupted"
    again = claimed(store)
    assert again.load_checkpoint() == {"step": 5}
    assert rows(again) == [{"step": 5}]


def test_a_failed_run_keeps_trace_and_checkpoint_and_can_be_tried_again(results_root: Path) -> None:
    store = Store(results_root)
    folder = claimed(store)
    folder.save_checkpoint({"step": 5})
    folder.fail(ZeroDivisionError("no such\n  inverse\n"))
    assert store.state(RUN) == "failed"
    assert store.error(RUN) == "ZeroDivisionError: no such"
    trace = (results_root / "runs" / f"{RUN}.failed" / "error.txt").read_text("utf-8")
    assert trace == "ZeroDivisionError: no such\n\nZeroDivisionError: no such\n  inverse\n\n"
    again = claimed(store)
    assert again.load_checkpoint() == {"step": 5}
    assert names(again.path) == {"config.yaml", "checkpoint.pt"}


def test_a_history_without_checkpoint_is_forgotten_for_the_run_starts_anew(results_root: Path) -> None:
    store = Store(results_root)
    folder = claimed(store)
    folder.append_history({"step": 0})
    folder.release()
    assert names(claimed(store).path) == {"config.yaml"}


HOLD = """
import sys, time
from pathlib import Path
from rawls.runners.store.results_store import Store
print(Store(Path(sys.argv[1])).claim(sys.argv[2], {}) is not None, flush=True)
time.sleep(600)
"""


def test_a_run_is_held_until_its_process_is_killed(results_root: Path) -> None:
    store = Store(results_root)
    holder = start_script(HOLD, str(results_root), RUN)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "True\n"
        assert store.state(RUN) == "running"
        assert store.claim(RUN, {}) is None
        holder.kill()
    assert store.state(RUN) == "interrupted"
    assert store.claim(RUN, {}) is not None


SCRAMBLE = """
import sys
from pathlib import Path
from rawls.runners.store.results_store import Store
store = Store(Path(sys.argv[1]))
for number in range(60):
    folder = store.claim(f"{number:016x}", {})
    if folder is not None:
        print(number)
        folder.finish({}, {}, {})
"""


def test_processes_that_claim_the_same_runs_at_once_share_them_without_overlap(results_root: Path) -> None:
    processes = [start_script(SCRAMBLE, str(results_root)) for _ in range(4)]
    outputs = [process.communicate()[0].split() for process in processes]
    assert sorted(int(number) for output in outputs for number in output) == list(range(60))
    assert len(Store(results_root).done()) == 60
    assert len(names(results_root / "runs")) == 60


@pytest.mark.parametrize("end", ["done", "failed", "interrupted"])
def test_another_configuration_under_the_same_id_is_refused_by_name(results_root: Path, end: str) -> None:
    store = Store(results_root)
    folder = claimed(store)
    match end:
        case "done":
            folder.finish({}, {}, {})
        case "failed":
            folder.fail(RuntimeError("x"))
        case _:
            folder.release()
    with pytest.raises(ValueError, match=rf"{RUN} is stored .* with another privacy and seed: move that folder"):
        store.claim(RUN, {**CONFIG, "privacy": {"epsilon": 2.0}, "seed": 4})
    assert store.state(RUN) == end
    assert (store.claim(RUN, CONFIG) is None) == (end == "done")


def test_only_what_changes_numbers_identifies_a_run(results_root: Path) -> None:
    elsewhere = {
        "device": "cuda",
        "results": {"root": "r"},
        "scale": {"name": "laptop"},
        "tracking": {"mode": "off"},
    }
    hashed = hashed_part({**CONFIG, **elsewhere, "privacy": {"epsilon": 1e-05, "delta": None}})
    assert hashed == {**CONFIG, "algorithm": {"_target_": "algorithms.asc.Asc"}}
    store = Store(results_root)
    claimed(store).release()
    assert store.claim(RUN, {**CONFIG, **elsewhere}) is not None


@pytest.mark.skipif(not disks.EXISTS, reason="no /dev/full here")
@pytest.mark.parametrize(
    "name", ["checkpoint.pt.tmp", "history.jsonl", "ledger.json.tmp", "summary.json.tmp", "error.txt.tmp"]
)
def test_a_full_disk_is_one_sentence_and_costs_no_checkpoint(
    results_root: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(results_root)
    folder = claimed(store)
    folder.save_checkpoint({"step": 5})
    disks.fill(monkeypatch, lambda other: other == name)
    with pytest.raises(ResultsError, match=r"can no longer be written \(No space left on device\).* goes on from"):
        match name:
            case "checkpoint.pt.tmp":
                folder.save_checkpoint({"step": 6})
            case "history.jsonl":
                folder.append_history({"step": 6})
            case "error.txt.tmp":
                folder.fail(RuntimeError("x"))
            case _:
                folder.finish({}, {}, {})
    folder.release()
    assert store.state(RUN) == "interrupted"
    disks.fill(monkeypatch, lambda _: False)
    again = claimed(store)
    assert again.load_checkpoint() == {"step": 5}
    again.finish({}, {}, {})
    assert store.state(RUN) == "done"


def test_a_run_that_only_lacks_its_rename_is_completed_not_trained_again(
    results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(results_root)
    folder = claimed(store)
    folder.save_checkpoint({"step": 5})
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RunFolder, "_close_as_done", interrupt)
        folder.finish({"seed": 3}, {}, {})
    folder.release()
    assert store.state(RUN) == "interrupted"
    assert store.claim(RUN, CONFIG) is None
    assert store.state(RUN) == "done"
    assert names(results_root / "runs") == {RUN}
    assert "checkpoint.pt" not in names(results_root / "runs" / RUN)


@pytest.mark.parametrize(
    "planted", ["history.jsonl", "config.yaml.tmp", "checkpoint.pt.tmp", "error.txt", "error.txt.tmp"]
)
def test_a_planted_link_leads_nowhere(results_root: Path, tmp_path: Path, planted: str) -> None:
    """Who may write to a run's folder puts a link there, to a file of whoever trains."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    store = Store(results_root)
    folder = claimed(store)
    (folder.path / planted).symlink_to(victim)
    if planted == "history.jsonl":
        with pytest.raises(OSError, match="symbolic link"):
            folder.append_history({"step": 1})
    folder.save_checkpoint({"step": 1})
    folder.fail(RuntimeError("x"))
    assert claimed(store).load_checkpoint() == {"step": 1}
    assert victim.read_text() == "mine"


def test_the_folder_of_a_run_is_no_link(results_root: Path, tmp_path: Path) -> None:
    """What lies in the folder of an unfinished run is deleted as it is opened."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("dear")
    store = Store(results_root)
    store.check()
    (results_root / "runs" / f"{RUN}.failed").symlink_to(mine)
    with pytest.raises(ValueError, match="is a link to another folder"):
        store.claim(RUN, CONFIG)
    assert (mine / "letter.txt").read_text() == "dear"


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_results_that_cannot_be_written_are_refused_before_training(results_root: Path) -> None:
    results_root.write_text("a file, not a folder")
    with pytest.raises(ResultsError, match=r"results\.root=.* cannot be written \(Not a directory\): set results"):
        Store(results_root).check()


def test_a_nearly_full_disk_is_refused_before_training(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(results_root).check()
    usage = shutil.disk_usage(results_root)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100 * 2**20))
    with pytest.raises(ResultsError, match="has 100 MiB free, less than 256: free some space"):
        Store(results_root).check()


def test_a_store_of_the_first_format_opens_and_its_locks_are_swept_away(results_root: Path) -> None:
    """It had a lock per run and no store.json; a lock that a process still holds keeps its run."""
    store = Store(results_root)
    claimed(store).finish({}, {}, {})
    for run_id in (OTHER, THIRD):
        claimed(store, run_id).release()
    for run_id in (RUN, OTHER, THIRD):
        (results_root / "runs" / f"{run_id}.lock").touch()
    (results_root / "store.json").unlink()
    with open(results_root / "runs" / f"{THIRD}.lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        store = Store(results_root)
        store.check()
        assert names(results_root / "runs") == {RUN, f"{OTHER}.running", f"{THIRD}.running", f"{THIRD}.lock"}
        assert store.states() == {RUN: "done", OTHER: "interrupted", THIRD: "running"}
        assert {run_id: store.state(run_id) for run_id in (RUN, OTHER, THIRD)} == store.states()
        assert store.claim(THIRD, CONFIG) is None
    assert store.claim(THIRD, CONFIG) is not None
    assert json.loads((results_root / "store.json").read_text()) == {"format": FORMAT}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (json.dumps({"format": FORMAT + 1}), r"results\.root=.* newer version of rawls .*: update rawls, or set"),
        ("{", r"store\.json cannot be read: it should say"),
        ("[]", r"store\.json cannot be read: it should say"),
    ],
)
def test_a_store_of_a_newer_or_unknown_format_is_refused(results_root: Path, text: str, sentence: str) -> None:
    claimed(Store(results_root)).release()
    (results_root / "store.json").write_text(text)
    with pytest.raises(ResultsError, match=sentence) as caught:
        Store(results_root)
    assert "\n" not in str(caught.value)


def test_the_states_of_many_runs_are_those_of_each(results_root: Path) -> None:
    store = Store(results_root)
    assert store.states() == {}
    assert store.states([RUN]) == {RUN: "missing"}
    ids = [f"{number:016x}" for number in range(5)]
    claimed(store, ids[0]).finish({}, {}, {})
    claimed(store, ids[1]).fail(RuntimeError("x"))
    claimed(store, ids[2]).release()
    held = claimed(store, ids[3])
    (results_root / "runs" / "tmpfile").touch()
    expected = dict(zip(ids, ["done", "failed", "interrupted", "running", "missing"], strict=True))
    assert store.states(ids) == expected == {run_id: store.state(run_id) for run_id in ids}
    assert store.states() == {run_id: state for run_id, state in expected.items() if state != "missing"}
    held.release()


def test_a_known_configuration_is_compared_without_parsing_yaml(
    results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, parsed = Store(results_root), []
    monkeypatch.setattr(yaml, "load", lambda text, **_: parsed.append(text))
    claimed(store).finish({}, {}, {})
    store.check_config(RUN, {**CONFIG, "device": "cuda"})
    assert parsed == []


@pytest.mark.parametrize("sealed", [True, False])
def test_an_edited_configuration_is_read_again(results_root: Path, sealed: bool) -> None:
    """With a comment below its first line, and without that line, as the first format wrote it."""
    store = Store(results_root)
    folder = claimed(store)
    folder.release()
    path = folder.path / "config.yaml"
    seal, _, rest = path.read_text().partition("\n")
    path.write_text(f"{seal}\n# mine\n{rest}" if sealed else rest)
    store.check_config(RUN, CONFIG)
    if not sealed:
        with pytest.raises(ValueError, match="with another seed"):
            store.check_config(RUN, {**CONFIG, "seed": 4})


def test_json_has_null_for_nan_and_plain_numbers_for_arrays() -> None:
    value = {
        "a": [math.nan, 1.5, math.inf],
        "b": torch.tensor([1, 2]),
        "c": torch.tensor(math.nan).numpy()[()],
        4: (True,),
    }
    assert to_json(value) == '{"a": [null, 1.5, Infinity], "b": [1, 2], "c": null, "4": [true]}'

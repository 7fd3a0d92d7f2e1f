import errno
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

from runners.store import ResultsError, RunFolder, Store, hashed_part, to_json
from tests.tree import ROOT

RUN = "00000000000000aa"
CONFIG: dict[str, Any] = {
    "algorithm": {"_target_": "algorithms.asc.Asc"},
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
from runners.store import Store
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
from runners.store import Store
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


def test_a_lock_let_go_between_our_opening_and_locking_it_is_not_taken_twice(
    results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(results_root)
    first, flock = claimed(store), fcntl.flock

    def slow_flock(lock: int, operation: int) -> None:
        first.release()
        flock(lock, operation)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", slow_flock)
        second = claimed(store)
    assert store.claim(RUN, CONFIG) is None
    second.release()
    assert store.claim(RUN, CONFIG) is not None


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
    assert hashed_part({**CONFIG, **elsewhere, "privacy": {"epsilon": 1e-05, "delta": None}}) == CONFIG
    store = Store(results_root)
    claimed(store).release()
    assert store.claim(RUN, {**CONFIG, **elsewhere}) is not None


def test_every_torn_history_is_rewound_to_its_whole_lines(results_root: Path) -> None:
    folder = claimed(Store(results_root))
    for step in (1, 2, 2, 3):
        folder.append_history({"step": step, "wga": step / 8})
    path = folder.path / "history.jsonl"
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        folder.rewind_history(2)
        kept = [json.loads(line) for line in whole[:length].split(b"\n") if line.endswith(b"}")]
        assert rows(folder) == [row for row in kept if row["step"] <= 2]
    folder.append_history({"step": 3})
    assert [row["step"] for row in rows(folder)] == [1, 2, 2, 3]
    folder.release()


def test_checkpoints_come_back_as_they_were_saved(results_root: Path) -> None:
    folder = claimed(Store(results_root))
    assert folder.load_checkpoint() is None
    state = {"params": torch.arange(3.0), "step": 4, "nested": {"texts": ["a", None], 3: (True, 0.5, b"x")}}
    folder.save_checkpoint({"step": 0})
    folder.save_checkpoint(state)
    loaded = folder.load_checkpoint()
    assert loaded is not None
    assert torch.equal(loaded.pop("params"), torch.arange(3.0))
    assert loaded == {"step": 4, "nested": {"texts": ["a", None], 3: (True, 0.5, b"x")}}


def test_a_checkpoint_that_could_not_be_loaded_is_refused_when_saved(results_root: Path) -> None:
    folder = claimed(Store(results_root))
    with pytest.raises(TypeError, match=r"state\['a'\]\[1\] is a ndarray"):
        folder.save_checkpoint({"a": [1, torch.zeros(2).numpy()]})
    assert folder.load_checkpoint() is None


def full_disk(path: Path) -> None:
    """Make a file that the kernel refuses to fill, as on a full disk."""
    path.symlink_to("/dev/full")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "name", ["checkpoint.pt.tmp", "history.jsonl", "ledger.json.tmp", "summary.json.tmp", "error.txt"]
)
def test_a_full_disk_is_one_sentence_and_costs_no_checkpoint(results_root: Path, name: str) -> None:
    store = Store(results_root)
    folder = claimed(store)
    folder.save_checkpoint({"step": 5})
    full_disk(folder.path / name)
    with pytest.raises(ResultsError, match=r"can no longer be written \(No space left on device\).* goes on from"):
        match name:
            case "checkpoint.pt.tmp":
                folder.save_checkpoint({"step": 6})
            case "history.jsonl":
                folder.append_history({"step": 6})
            case "error.txt":
                folder.fail(RuntimeError("x"))
            case _:
                folder.finish({}, {}, {})
    folder.release()
    assert store.state(RUN) == "interrupted"
    if name == "history.jsonl":
        (folder.path / name).unlink()
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


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_results_that_cannot_be_written_are_refused_before_training(results_root: Path) -> None:
    results_root.write_text("a file, not a folder")
    with pytest.raises(
        ResultsError, match=r"results\.root=.* cannot be written and locked \(Not a directory\): set results\.root"
    ):
        Store(results_root).check()


def test_a_file_system_without_locks_is_refused_before_training(
    results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(ResultsError, match=r"cannot be written and locked \(Function not implemented\)"):
        Store(results_root).check()


def test_a_checkpoint_that_cannot_be_read_says_what_to_delete(results_root: Path) -> None:
    folder = claimed(Store(results_root))
    folder.save_checkpoint({"step": 5})
    (folder.path / "checkpoint.pt").write_bytes(b"half a checkpoint")
    with pytest.raises(ValueError, match=r"checkpoint\.pt cannot be read: delete it, and the run starts anew"):
        folder.load_checkpoint()


def test_a_nearly_full_disk_is_refused_before_training(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store(results_root).check()
    usage = shutil.disk_usage(results_root)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100 * 2**20))
    with pytest.raises(ResultsError, match="has 100 MiB free, less than 256: free some space"):
        Store(results_root).check()


def test_the_lock_of_a_process_killed_right_after_finishing_is_swept_away(results_root: Path) -> None:
    store = Store(results_root)
    claimed(store).finish({}, {}, {})
    claimed(store, "00000000000000bb").release()
    for run_id in (RUN, "00000000000000bb"):
        (results_root / "runs" / f"{run_id}.lock").touch()
    store.check()
    assert names(results_root / "runs") == {RUN, "00000000000000bb.running", "00000000000000bb.lock"}


def test_json_has_null_for_nan_and_plain_numbers_for_arrays() -> None:
    value = {
        "a": [math.nan, 1.5, math.inf],
        "b": torch.tensor([1, 2]),
        "c": torch.tensor(math.nan).numpy()[()],
        4: (True,),
    }
    assert to_json(value) == '{"a": [null, 1.5, Infinity], "b": [1, 2], "c": null, "4": [true]}'

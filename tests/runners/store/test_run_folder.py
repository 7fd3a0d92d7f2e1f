"""What is damaged is found before it is used: checkpoints, histories, configurations, summaries, finished runs."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rawls.runners.process import worker
from rawls.runners.process.worker import PlannedRun
from rawls.runners.schedule.backends.local import ThisMachine
from rawls.runners.schedule.launcher import launch
from rawls.runners.store.checksums import verify
from rawls.runners.store.results_store import RunFolder, Store
from tests.runners.toy_fleet import TASK, planned, train_fleet

RUN = "00000000000000aa"
CONFIG: dict[str, Any] = {"algorithm": {"_target_": "rawls.algorithms.asc.Asc"}, "seed": 3}
ROWS = [{"step": step, "wga": step / 8} for step in (1, 2, 2, 3)]
ANEW = r"delete .*00000000000000aa\.\*/checkpoint\.pt, and the run starts anew$"
FLIPS, CUTS = 300, 100


def claimed(root: Path, config: dict[str, Any] = CONFIG) -> RunFolder:
    folder = Store(root).claim(RUN, config)
    assert folder is not None
    return folder


def rows(folder: RunFolder) -> list[Any]:
    return [json.loads(line) for line in (folder.path / "history.jsonl").read_text("utf-8").splitlines()]


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def interrupted(root: Path) -> RunFolder:
    """A run with three rows before its checkpoint and one after it."""
    folder = claimed(root)
    for row in ROWS[:3]:
        folder.append_history(row)
    folder.save_checkpoint({"step": 2, "params": torch.arange(100.0), "velocity": torch.zeros(0), "ledger": "[]"})
    folder.append_history(ROWS[3])
    return folder


@pytest.fixture
def folder(results_root: Path) -> Iterator[RunFolder]:
    """An interrupted run, held."""
    found = interrupted(results_root)
    yield found
    found.release()


def test_a_flipped_bit_or_a_cut_of_a_checkpoint_is_always_found_and_named(folder: RunFolder) -> None:
    """Seed 0: 300 bits anywhere and every one of the first line, 100 lengths; never other numbers."""
    path = folder.path / "checkpoint.pt"
    whole, chance = path.read_bytes(), random.Random(0)
    bits = [*range(8 * (whole.index(b"\n") + 1)), *(chance.randrange(8 * len(whole)) for _ in range(FLIPS))]
    lengths = [0, 1, len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(CUTS))]
    for damaged in (*(flipped(whole, bit) for bit in bits), *(whole[:length] for length in lengths), whole + b"\0"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"^the checkpoint was damaged, .*{ANEW}"):
            folder.load_checkpoint()
    path.write_bytes(whole)
    loaded = folder.load_checkpoint()
    assert loaded is not None and torch.equal(loaded["params"], torch.arange(100.0))


def test_a_history_is_rewound_to_its_checkpoint_and_a_lost_or_changed_line_is_named(
    results_root: Path, folder: RunFolder
) -> None:
    """Every length, and seed 0: 100 bits before the checkpoint; what came after it may be torn."""
    path = folder.path / "history.jsonl"
    whole = path.read_bytes()
    before = whole.rindex(b"\n", 0, -1) + 1
    chance = random.Random(0)
    lost = [whole[:length] for length in range(before)]
    for damaged in (*lost, *(flipped(whole, chance.randrange(8 * before)) for _ in range(100))):
        path.write_bytes(damaged)
        for read in (folder.load_checkpoint, folder.rewind_history):
            with pytest.raises(ValueError, match=rf"^history\.jsonl has lost or changed lines .*{ANEW}"):
                read()
    path.unlink()
    with pytest.raises(ValueError, match=ANEW):
        folder.load_checkpoint()
    for length in range(before, len(whole) + 1):
        path.write_bytes(whole[:length])
        assert folder.load_checkpoint() is not None
        folder.rewind_history()
        assert rows(folder) == ROWS[:3]
    folder.append_history(ROWS[3])
    folder.save_checkpoint({"step": 3})
    folder.release()
    again = claimed(results_root)
    assert again.load_checkpoint() == {"step": 3}
    again.rewind_history()
    assert rows(again) == ROWS


def test_what_is_deleted_as_the_sentence_says_starts_anew(results_root: Path, folder: RunFolder) -> None:
    (folder.path / "checkpoint.pt").write_bytes(b"half a checkpoint")
    with pytest.raises(ValueError) as caught:
        folder.load_checkpoint()
    folder.fail(caught.value)
    (named,) = Path("/").glob(str(caught.value).partition("delete /")[2].partition(",")[0])
    named.unlink()
    again = claimed(results_root)
    assert again.load_checkpoint() is None
    assert {path.name for path in again.path.iterdir()} == {"config.yaml"}


NUMPY: dict[str, Any] = {
    "float64": np.float64(0.1),
    "float32": np.float32(0.1),
    "int": np.int64(-7),
    "flag": np.bool_(True),
    "0-d": np.array(0.3),
    "empty": np.zeros((0, 3), np.int32),
    "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "texts": np.array(["a", "bc"]),
    "python": 0.1,
}


def test_checkpoints_come_back_as_they_were_saved(results_root: Path) -> None:
    folder = claimed(results_root)
    assert folder.load_checkpoint() is None
    state = {"step": 4, "nested": {"texts": ["a", None], 3: (True, 0.5, -1)}}
    folder.save_checkpoint({"step": 0})
    folder.save_checkpoint(state | {"params": torch.arange(3.0), "numpy": NUMPY})
    loaded = folder.load_checkpoint()
    assert loaded is not None
    assert torch.equal(loaded.pop("params"), torch.arange(3.0))
    arrays = loaded.pop("numpy")
    assert loaded == state
    assert arrays.keys() == NUMPY.keys()
    for name, value in NUMPY.items():
        assert type(arrays[name]) is type(value), name
        assert np.asarray(arrays[name]).dtype == np.asarray(value).dtype
        assert np.shape(arrays[name]) == np.shape(value)
        assert np.array_equal(arrays[name], value)
    arrays["columns"][0, 0] = 5.0  # a method may write into its state


@pytest.mark.parametrize(
    ("value", "sentence"),
    [({1}, r"state\['a'\]\[1\] is a set"), (np.array([None]), r"state\['a'\]\[1\] is an array of object")],
)
def test_a_checkpoint_that_could_not_be_loaded_is_refused_when_saved(
    results_root: Path, value: Any, sentence: str
) -> None:
    folder = claimed(results_root)
    with pytest.raises(TypeError, match=sentence):
        folder.save_checkpoint({"a": [1, value]})
    assert folder.load_checkpoint() is None


def with_summary(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run whose process was killed before the last rename."""
    folder = interrupted(root)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RunFolder, "_close_as_done", interrupt)
        folder.finish({"seed": 3}, {"releases": []}, {})
    folder.release()
    return folder.path


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["summary.json", "ledger.json", "checksums.json", "history.jsonl"])
@pytest.mark.parametrize("content", [b"", b"{}", b'{"seed": 4}'])
def test_an_unfinished_run_with_garbage_for_results_is_trained_on(
    results_root: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes
) -> None:
    folder = with_summary(results_root, monkeypatch)
    history = (folder / "history.jsonl").read_bytes()
    (folder / name).write_bytes(history[:-1] if name == "history.jsonl" else content)
    again = claimed(results_root)
    assert {path.name for path in again.path.iterdir()} == {"config.yaml", "history.jsonl", "checkpoint.pt"}
    assert again.load_checkpoint() is not None
    again.finish({"seed": 3}, {}, {})
    assert verify(results_root / "runs" / RUN) == []


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda text: text[: len(text) // 2],
    "empty": lambda text: b"",
    "no YAML": lambda text: b"\x00\xff: [",
    "a list": lambda text: b"- 1\n",
    "another value": lambda text: text.replace(b"steps: 3", b"steps: 1"),
}


def test_damaged_configurations_of_unfinished_runs_fail_those_runs_and_no_others(results_root: Path) -> None:
    store, runs = Store(results_root), [planned(number, steps=3) for number in range(len(DAMAGE) + 2)]
    named = {}
    for run, damage in zip(runs[1:], DAMAGE.values(), strict=False):
        folder = store.claim(run.run_id, run.config)
        assert folder is not None
        folder.release()
        path = folder.path / "config.yaml"
        path.write_bytes(damage(path.read_bytes()))
        named[run.run_id] = f"config.yaml of this run is damaged: delete {folder.path.with_suffix('.*')}, and it starts"
    outcome = launch(runs, store=store, backend=ThisMachine(workers=1), task=TASK)
    errors = {failure.run_id: failure.error for failure in outcome.failed}
    assert errors == {run_id: f"DamagedConfig: {sentence} anew" for run_id, sentence in named.items()}
    assert (store.done(), outcome.exit_code) == ([runs[0].run_id, runs[-1].run_id], 1)
    again = runs[1]
    assert tried(store, again) == "failed", "nothing was done about it"
    shutil.rmtree(store.folder(again.run_id, "failed"))
    assert tried(store, again) == "done"


def tried(store: Store, run: PlannedRun) -> str:
    worker.train((run,), store=store, train_fleet=train_fleet, send=lambda _: None, asked_to_stop=lambda: False)
    return store.state(run.run_id)


def finished(root: Path) -> Path:
    folder = interrupted(root)
    folder.finish({"seed": 3}, {"releases": []}, {"device": "cpu"}, {"weights.safetensors": b"\x00\x01"})
    return root / "runs" / RUN


FILES = ["config.yaml", "environment.json", "history.jsonl", "ledger.json", "summary.json", "weights.safetensors"]


def test_a_finished_run_is_verified_file_by_file(results_root: Path) -> None:
    folder = finished(results_root)
    assert verify(folder) == []
    assert sorted(json.loads((folder / "checksums.json").read_text())) == FILES
    for name in FILES:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content + b" ")
        (said,) = verify(folder)
        assert said == f"runs/{RUN}/{name} is not what was written (its SHA-256 differs)"
        (folder / name).unlink()
        (said,) = verify(folder)
        assert said == f"runs/{RUN}/{name} is missing"
        (folder / name).write_bytes(content)
    assert verify(folder) == []


def test_results_of_older_versions_have_no_checksums_and_stay_valid(results_root: Path) -> None:
    folder = finished(results_root)
    (folder / "checksums.json").unlink()
    (folder / "summary.json").write_text("{}")
    assert verify(folder) == []
    assert verify(results_root / "nowhere") == []


def test_one_flipped_bit_anywhere_in_a_finished_run_is_found(results_root: Path) -> None:
    """Seed 0, 40 bits of each file."""
    folder, chance = finished(results_root), random.Random(0)
    for name in [*FILES, "checksums.json"]:
        content = (folder / name).read_bytes()
        for _ in range(40):
            (folder / name).write_bytes(flipped(content, chance.randrange(8 * len(content))))
            said = verify(folder)
            assert said and all("\n" not in sentence and f"runs/{RUN}/" in sentence for sentence in said)
        (folder / name).write_bytes(content)
    assert verify(folder) == []

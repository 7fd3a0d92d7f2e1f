"""Two real gloo processes train one run: as one process does, killed or not, and none waits for another in vain."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist

from rawls.runners.config.compose import compose, resolve
from rawls.runners.config.errors import ConfigError
from rawls.runners.schedule.backends import torchrun as distributed
from rawls.runners.store.checkpoints import unpack
from tests.runners import watched_train
from tests.tree import ROOT

PATIENCE_SECONDS = 180
SETTINGS = [
    "dataset=digits", "dataset.max_examples=200", "scale=smoke", "schedule.batch_size=17", "schedule.max_steps=12",
    "schedule.evaluations=3", "privacy=eps8", "optimizer.momentum=0.5", "tracking=off", "algorithm=asc", "device=cpu",
]  # fmt: skip


class Trained:
    """What a command left in a folder."""

    def __init__(self, root: Path) -> None:
        (self.folder,) = (root / "runs").glob("*[0-9a-f]")
        self.summary = json.loads((self.folder / "summary.json").read_text())
        self.history = [json.loads(line) for line in (self.folder / "history.jsonl").read_text().splitlines()]
        self.ledger = (self.folder / "ledger.json").read_text()
        self.params = [torch.load(path) for path in sorted(root.glob("params.*.pt"))]
        self.steps = [torch.load(path) for path in sorted(root.glob("steps.*.pt"))]


def environment(root: Path, **more: str) -> dict[str, str]:
    root.mkdir(exist_ok=True)
    return {"WATCHED": str(root), "OMP_NUM_THREADS": "1", **more}


def train(root: Path, *overrides: str, processes: int = 2, misbehave: str = "") -> list[tuple[int | None, str]]:
    """Exit code and stderr of each process; they meet at a store of this one, as under torchrun at the agent's.

    They are forked from one process that has imported everything.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([watched_train.__name__])
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": str(processes)}
    meeting |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "MISBEHAVE": misbehave}
    arguments = [*SETTINGS, f"results.root={root}", *overrides]
    started = []
    for rank in range(processes):
        own = environment(root, RANK=str(rank), LOCAL_RANK=str(rank), **meeting)
        process = context.Process(target=watched_train.main_in, args=(own, root / f"errors.{rank}", arguments))
        process.start()
        started.append(process)
    try:
        for process in started:
            process.join(PATIENCE_SECONDS)
        return [(process.exitcode, (root / f"errors.{rank}").read_text()) for rank, process in enumerate(started)]
    finally:
        for process in started:
            process.kill()
            process.join()


def torchrun(root: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    """The command that a user gives."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    command += [watched_train.__name__, *SETTINGS, f"results.root={root}", *overrides]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment(root), capture_output=True, text=True)


def assert_equal(two: Trained, one: Trained) -> None:
    """But for the rounding of sums that are taken in another order."""
    assert two.ledger == one.ledger
    assert two.folder.name == one.folder.name
    assert len(two.params) == 2 and torch.equal(*two.params)
    torch.testing.assert_close(two.params[0], one.params[0], rtol=1e-4, atol=1e-5)
    assert len(two.history) == len(one.history) == 3 * 3
    for ours, expected in zip([*two.history, two.summary["test"]], [*one.history, one.summary["test"]], strict=True):
        assert ours.keys() == expected.keys()
        for key, value in expected.items():
            assert ours[key] == (value if isinstance(value, str) else pytest.approx(value, abs=1e-5))


@pytest.mark.system  # ten seconds of processes
@pytest.mark.parametrize("engine", ["fused", pytest.param("opacus_hooks", marks=pytest.mark.nightly)])
def test_a_run_of_two_killed_processes_equals_that_of_one(engine: str, tmp_path: Path) -> None:
    chosen = f"engine={engine}"
    assert [code for code, _ in train(tmp_path / "one", chosen, processes=1)] == [0]
    codes = [code for code, _ in train(tmp_path / "two", chosen, misbehave="0:7:kill 1:7:kill")]
    assert codes == [-9, -9]
    (running,) = (tmp_path / "two" / "runs").glob("*.running")
    assert unpack((running / "checkpoint.pt").read_bytes())[0]["step"] == 7
    (first, told), second = train(tmp_path / "two", chosen)
    assert (first, second) == (0, (0, "")) and "\ndone: asc on digits" in told
    assert_equal(Trained(tmp_path / "two"), Trained(tmp_path / "one"))
    (again, told), second = train(tmp_path / "two", chosen)
    assert (again, second) == (0, (0, "")) and "nothing to do" in told, "what is done is not trained again"


def test_torchrun_trains_one_run(tmp_path: Path) -> None:
    chosen = ["algorithm=azb", "schedule.batch_size=15", "probe.sampling_variance_every=5"]
    ended = torchrun(tmp_path / "two", *chosen)
    assert ended.returncode == 0, ended.stderr
    train(tmp_path / "one", *chosen, processes=1)
    two, one = Trained(tmp_path / "two"), Trained(tmp_path / "one")
    said, *_, folder = ended.stdout.splitlines()  # by one of the processes
    assert said.startswith("azb on digits, ") and Path(folder).parent == tmp_path / "two" / "runs"
    probes = [[row["variance"] for row in of.history if "variance" in row] for of in (two, one)]
    assert len(probes[0]) == 3 and probes[0] == pytest.approx(probes[1], rel=1e-4)
    for trained in (two, one):
        trained.history = [row for row in trained.history if "variance" not in row]
    assert_equal(two, one)


def test_secure_draws_are_the_same_in_all_processes_and_in_no_two_runs(tmp_path: Path) -> None:
    """Rows, noise, and what becomes of released group losses by a rounding that is random, too."""
    for name in ("first", "second"):
        often = ["schedule.batch_size=40", "schedule.epochs=3"]  # epochs, each with a reweighting
        assert [code for code, _ in train(tmp_path / name, "privacy.secure=true", *often)] == [0, 0]
    first, second = Trained(tmp_path / "first"), Trained(tmp_path / "second")
    for trained in (first, second):
        assert len(trained.params) == 2 and torch.equal(*trained.params)
        ours, theirs = trained.steps
        assert len(ours) == len(theirs) == 12 * 3
        assert all(map(torch.equal, ours, theirs))
        releases = json.loads(trained.ledger)["releases"]
        assert sum(line["count"] for line in releases if line["name"] == "gradient") == 12
    assert (first.params[0] - second.params[0]).abs().max() > 1e-3
    assert not torch.equal(first.steps[0][0], second.steps[0][0])


def test_an_error_in_one_process_ends_all_and_is_said(tmp_path: Path) -> None:
    (first, told), (second, trace) = train(tmp_path, misbehave="1:5:raise")
    (failed,) = (tmp_path / "runs").glob("*.failed")
    reason = "RuntimeError: process 1: ArithmeticError: no inverse"
    assert (failed / "error.txt").read_text().splitlines()[0] == reason
    assert first == 1 and reason in told
    assert second == 1 and "ArithmeticError: no inverse" in trace
    (first, told), (second, said) = train(tmp_path, misbehave="0:9:raise")
    assert first == 1 and "ArithmeticError: no inverse" in told
    assert (second, said) == (1, "")
    (first, told), (second, said) = train(tmp_path, misbehave="1:10:kill")
    assert first == 1 and "RuntimeError: one of the 2 processes of this run has ended or did not answer" in told
    assert second == -9
    assert [code for code, _ in train(tmp_path)] == [0, 0]


def test_an_interrupt_of_the_first_process_saves_and_ends_all(tmp_path: Path) -> None:
    """That of another is none: torchrun passes its own on to all, and they must stop at the same step."""
    ended = train(tmp_path, misbehave="1:3:interrupt 0:6:interrupt")
    assert [code for code, _ in ended] == [130, 130]
    assert "interrupted; run the same command again to go on" in ended[0][1] and ended[1][1] == ""
    (running,) = (tmp_path / "runs").glob("*.running")
    assert unpack((running / "checkpoint.pt").read_bytes())[0]["step"] == 7


@pytest.mark.system  # ten seconds
def test_what_cannot_be_trained_is_said_once_before_anything_is(tmp_path: Path) -> None:
    ended = torchrun(tmp_path, "schedule.batch_size=5000")
    assert (ended.returncode, ended.stdout) == (1, "")
    sentence = "asc on digits, ε=8, seed 0: schedule.batch_size=5000 must lie between"
    assert f"\nrawls: error: {sentence}" in ended.stderr and ended.stderr.count(sentence) == 1
    assert "SIGABRT" not in ended.stderr


@pytest.mark.parametrize("algorithm", ["sgd", "minimax_phased_erm"])
def test_methods_that_see_the_whole_batch_train_in_one_process(algorithm: str) -> None:
    config, alone = resolve(compose(["dataset=digits", f"algorithm={algorithm}", "privacy=eps8"])), object()
    with pytest.raises(ConfigError, match=f"^{algorithm} trains in one process: start it without torchrun$"):
        distributed._lead(config, cast(Any, alone), "test")


def device(monkeypatch: pytest.MonkeyPatch, wanted: str, local_rank: int) -> str:
    """Where a process of a machine with two GPUs computes."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    return distributed._device({"device": wanted})


@pytest.mark.parametrize("wanted", ["auto", "cuda"])
def test_every_process_takes_a_gpu_of_its_own(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [device(monkeypatch, wanted, rank) for rank in (0, 1)] == ["cuda:0", "cuda:1"]
    assert device(monkeypatch, "cpu", 1) == "cpu"
    with pytest.raises(ConfigError, match="device=cuda: torch sees 2 GPUs here: start no more processes"):
        device(monkeypatch, wanted, 2)


def test_a_gpu_by_its_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="device=cuda:1 is one GPU, but every process needs one of its own"):
        device(monkeypatch, "cuda:1", 0)


def test_an_onlooker_takes_whatever_a_fleet_writes(tmp_path: Path) -> None:
    order: Any = distributed.Order(run_id="x", path=tmp_path, checkpoint={"step": 3})
    folder = distributed.Onlooker(order)
    folder.rewind_history()
    folder.append_history({"step": 4})
    folder.save_checkpoint({"step": 4})
    folder.finish({}, {}, {})
    assert folder.load_checkpoint() == {"step": 3}
    assert list(tmp_path.iterdir()) == []

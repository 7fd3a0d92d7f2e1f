import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rawls.runners.process.worker import PlannedRun
from rawls.runners.schedule.backends.local import ThisMachine
from rawls.runners.schedule.launcher import Outcome, closing_lines, launch
from rawls.runners.schedule.progress import Message, Reporter
from rawls.runners.store.results_store import ResultsError, Store
from tests.runners.toy_fleet import MODULUS, TASK, planned, train_fleet, writers
from tests.tree import ROOT

# Far beyond what anything here takes; reaching it is a failure.
PATIENCE_SECONDS = 120


class Recorder(Reporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Message] = []
        self.notes: list[str] = []

    def message(self, fleet: int, message: Message) -> None:
        super().message(fleet, message)
        self.messages.append(message)

    def note(self, text: str) -> None:
        self.notes.append(text)


def contents(root: Path) -> dict[str, bytes]:
    """Every file under a folder."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def undisturbed(root: Path, runs: list[PlannedRun]) -> dict[str, bytes]:
    """The store that these runs make, one after another."""
    store = Store(root)
    for run in runs:
        folder = store.claim(run.run_id, run.config)
        assert folder is not None
        train_fleet([run.config], [folder], lambda _: None)
    return contents(root)


def start_sweep(root: Path, count: int, workers: int, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.runners.toy_fleet", str(root), str(count), str(workers), *options]
    return subprocess.Popen(command, cwd=ROOT, text=True, stderr=subprocess.PIPE)


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.exists() else []


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.system  # twenty seconds
def test_a_sweep_killed_at_random_moments_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    """Five kills of the launcher: one of them while it starts, the rest while runs are trained."""
    chance = random.Random(20240611)
    root, count, kills = tmp_path / "killed", 6, 0
    while kills < 5:
        before = contents(root)
        with start_sweep(root, count, 2) as sweep:
            if kills >= 1:
                wait_until(lambda before=before: contents(root) != before or sweep.poll() is not None)  # type: ignore[misc]
            time.sleep(chance.uniform(0.0, 1.5 if kills < 1 else 0.25))
            sweep.kill()
            kills += 1
    with start_sweep(root, count, 2) as sweep:
        assert sweep.wait(PATIENCE_SECONDS) == 0
    runs = [planned(number, pause=0.01) for number in range(count)]
    assert contents(root) == undisturbed(tmp_path / "undisturbed", runs)


def test_two_launchers_on_one_store_train_every_run_once(tmp_path: Path) -> None:
    root, log = tmp_path / "r", tmp_path / "log"
    with start_sweep(root, 8, 1, str(log), "2") as one, start_sweep(root, 8, 1, str(log), "2") as other:
        # A launcher that finds the last runs in the other's hands leaves them open.
        assert 0 in (one.wait(PATIENCE_SECONDS), other.wait(PATIENCE_SECONDS))
    counts = Counter(line.rpartition(" ")[0] for line in lines(log))
    assert counts == {f"{what} {number:016x}": 1 for what in ("begin", "end") for number in range(8)}
    assert len(writers(log)) == 2
    assert len(Store(root).done()) == 8


def test_workers_do_not_outlive_a_launcher_that_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with start_sweep(tmp_path / "r", 4, 2, str(log)) as sweep:
        wait_until(lambda: len(writers(log)) == 2)
        workers = writers(log)
        assert all(alive(worker) for worker in workers)
        sweep.kill()
    wait_until(lambda: not any(alive(worker) for worker in workers))


@pytest.mark.parametrize("count", [1, pytest.param(4, marks=pytest.mark.nightly)])
def test_an_interrupted_sweep_says_how_to_go_on_and_ends_the_same(tmp_path: Path, count: int) -> None:
    """Alone in the launcher's process, and in workers; a run goes on from the very step it was at."""
    root = tmp_path / "r"
    with start_sweep(root, count, 2) as sweep:
        wait_until(lambda: any(root.rglob("history.jsonl")))
        sweep.send_signal(signal.SIGINT)
        assert sweep.wait(PATIENCE_SECONDS) == 130
        assert sweep.stderr is not None
        said = sweep.stderr.read().splitlines()
    assert said[-1] == "interrupted; run the same command again to go on"
    assert "Traceback" not in "\n".join(said)
    store, runs = Store(root), [planned(number, pause=0.01) for number in range(count)]
    states = {store.state(run.run_id) for run in runs}
    assert "interrupted" in states
    assert states <= {"interrupted", "missing", "done"}
    for run in runs:
        folder = store.claim(run.run_id, run.config)
        if folder is not None:
            state = folder.load_checkpoint()
            history = lines(folder.path / "history.jsonl")
            assert len(history) == (0 if state is None else state["step"])
            train_fleet([run.config], [folder], lambda _: None)
    assert contents(root) == undisturbed(tmp_path / "undisturbed", runs)


def test_failures_are_a_table_and_do_not_stop_the_others(tmp_path: Path) -> None:
    """One fleet of four, of which one run fails and one kills its worker, each whenever it is tried."""
    options: list[dict[str, Any]] = [{}, {"fail_at": 9}, {"die_at": 12}, {}]
    runs = [planned(number, log=str(tmp_path / "log"), **extra) for number, extra in enumerate(options)]
    store, shown = Store(tmp_path / "r"), Recorder()
    outcome = launch(runs, store=store, backend=ThisMachine(workers=1), report=shown, task=TASK)
    assert outcome.done == [runs[0].run_id, runs[3].run_id]
    assert outcome.open == []
    assert [(failure.run_id, failure.label) for failure in outcome.failed] == [
        (runs[1].run_id, "toy 1"),
        (runs[2].run_id, "toy 2"),
    ]
    assert outcome.exit_code == 1
    errors = [failure.error for failure in outcome.failed]
    assert errors[0] == "ArithmeticError: no inverse at step 9"
    assert "died 3 times during this run (SIGKILL, perhaps out of memory: use engine=" in errors[1]
    assert shown.notes == [
        "2 of 4 runs failed; the same command tries them again:",
        f"  {runs[1].run_id}  toy 1  {errors[0]}",
        f"  {runs[2].run_id}  toy 2  {errors[1]}",
    ]
    assert "in train_fleet" in (tmp_path / "r" / "runs" / f"{runs[1].run_id}.failed" / "error.txt").read_text("utf-8")
    assert {message["run_id"]: message["event"] for message in shown.messages} == {
        run.run_id: "done" if number in (0, 3) else "failed" for number, run in enumerate(runs)
    }
    assert shown.summary() == "2/4 runs done, 2 failed"


@pytest.mark.parametrize("what", ["fits", pytest.param("survives", marks=pytest.mark.system)])
def test_a_fleet_that_runs_out_of_memory_goes_on_in_halves(what: str, tmp_path: Path) -> None:
    """As torch says it, and as the kernel kills for it: no fleet of one, for two have room."""
    sizes = tmp_path / "sizes"
    options: dict[str, Any] = {"sizes": str(sizes), what: 2}
    runs = [planned(number, **options) for number in range(8)]
    outcome = launch(runs, store=Store(tmp_path / "r"), backend=ThisMachine(workers=1), task=TASK)
    assert outcome == Outcome(done=[run.run_id for run in runs])
    assert sorted(lines(sizes)) == ["2", "2", "2", "2", "4", "4", "8"]
    assert contents(tmp_path / "r") == undisturbed(tmp_path / "undisturbed", runs)


GROUPS = Path("/sys/fs/cgroup")


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A group of processes that the kernel lets have so much memory together; skips where none can be made."""
    old = (GROUPS / "memory" / "memory.limit_in_bytes").exists()
    path = GROUPS / ("memory" if old else "") / f"rawls-{os.getpid()}"
    try:
        path.mkdir()
        (path / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(limit))
    except OSError as error:
        with suppress(OSError):
            path.rmdir()
        pytest.skip(f"no group of processes can be limited here: {error}")
    try:
        yield path
    finally:
        wait_until(lambda: not (path / "cgroup.procs").read_text())
        path.rmdir()


def killed_for_memory(group: Path) -> int:
    """How many processes of a group the kernel has killed."""
    told = next(path for name in ("memory.events", "memory.oom_control") if (path := group / name).exists())
    return sum(int(line.split()[1]) for line in lines(told) if line.startswith("oom_kill "))


@pytest.mark.system  # a gigabyte
def test_a_worker_that_the_kernel_kills_for_memory_goes_on_in_halves(tmp_path: Path) -> None:
    """For real: the fleet of four takes more than its group of processes may have, and those of two do not."""
    script = """
import sys
from pathlib import Path
from rawls.runners.schedule.backends.local import ThisMachine
from rawls.runners.schedule.launcher import launch
from rawls.runners.store.results_store import Store
from tests.runners.toy_fleet import TASK, planned

if __name__ == "__main__":
    root = Path(sys.argv[1])
    runs = [planned(number, sizes=sys.argv[2], survives=2, eats=4 << 30) for number in range(4)]
    sys.exit(launch(runs, store=Store(root / "r"), backend=ThisMachine(workers=1), task=TASK).exit_code)
"""
    (tmp_path / "sweep.py").write_text(script)
    sizes = tmp_path / "sizes"
    with memory_group(limit=1 << 30) as group:
        inside = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group)]
        command = [*inside, sys.executable, str(tmp_path / "sweep.py"), str(tmp_path), str(sizes)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        ended = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True)
        assert ended.returncode == 0, ended.stderr
        assert killed_for_memory(group) == 1
    assert sorted(lines(sizes)) == ["2", "2", "4"]
    runs = [planned(number, sizes=str(sizes), survives=2, eats=4 << 30) for number in range(4)]
    assert contents(tmp_path / "r") == undisturbed(tmp_path / "undisturbed", runs)


def test_a_run_that_does_not_fit_alone_fails_with_the_way_out(tmp_path: Path) -> None:
    runs = [planned(number, fits=0 if number == 1 else 4) for number in range(4)]
    outcome = launch(runs, store=Store(tmp_path / "r"), backend=ThisMachine(workers=1), task=TASK)
    assert outcome.done == [run.run_id for run in runs if run is not runs[1]]
    (failure,) = outcome.failed
    assert failure.run_id == runs[1].run_id
    assert failure.error == (
        "MemoryError: the run does not fit into memory, even alone: use engine=opacus_ghost or engine=opacus_hooks "
        "with a smaller physical_batch, or another device"
    )
    trace = (tmp_path / "r" / "runs" / f"{runs[1].run_id}.failed" / "error.txt").read_text("utf-8")
    assert "DefaultCPUAllocator: can't allocate memory" in trace
    alone = launch([runs[1]], store=Store(tmp_path / "r"), task=TASK)
    assert [failure.error for failure in alone.failed] == [failure.error]


@pytest.mark.system  # a quarter of a minute
def test_a_run_whose_worker_was_killed_twice_is_tried_with_no_other_beside_it(tmp_path: Path) -> None:
    alone = str(tmp_path / "deaths")
    runs = [planned(number, f"key {number}", alone=alone, greedy=number == 1) for number in range(2)]
    outcome = launch(runs, store=Store(tmp_path / "r"), backend=ThisMachine(workers=2), task=TASK)
    assert outcome == Outcome(done=[run.run_id for run in runs])
    assert Path(alone).read_text("utf-8") == "xx"


def test_a_run_whose_worker_died_once_is_finished_by_another(tmp_path: Path) -> None:
    runs = [planned(number, die_at=20, once=str(tmp_path / "once")) for number in range(2)]
    outcome = launch(runs, store=Store(tmp_path / "r"), backend=ThisMachine(workers=1), task=TASK)
    assert outcome == Outcome(done=[run.run_id for run in runs])
    assert contents(tmp_path / "r") == undisturbed(tmp_path / "undisturbed", runs)


def test_what_is_done_is_skipped_and_one_missing_run_is_trained_in_this_process(tmp_path: Path) -> None:
    log, store, shown = tmp_path / "log", Store(tmp_path / "r"), Recorder()
    runs = [planned(number, log=str(log)) for number in range(3)]
    undisturbed(tmp_path / "r", runs[:2])
    log.unlink()
    outcome = launch([*runs, runs[2]], store=store, backend=ThisMachine(workers=2), report=shown, task=TASK)
    assert outcome == Outcome(done=[runs[2].run_id], skipped=[runs[0].run_id, runs[1].run_id])
    assert outcome.exit_code == 0
    assert lines(log) == [f"{what} {runs[2].run_id} {os.getpid()}" for what in ("begin", "end")]
    assert shown.summary() == "3/3 runs done, 2 of them before"
    assert launch(runs, store=store, task="no.such:task").skipped == [run.run_id for run in runs]


def test_a_failed_run_is_tried_again_by_the_next_launch(tmp_path: Path) -> None:
    run, store = planned(1, fail_at=30), Store(tmp_path / "r")
    assert len(launch([run], store=store, task=TASK).failed) == 1
    folder = store.claim(run.run_id, run.config)
    assert folder is not None
    assert folder.load_checkpoint() == {"step": 28, "value": 3 * 48271**28 % MODULUS}
    folder.release()
    assert launch([run], store=store, task=TASK).failed[0].error == "ArithmeticError: no inverse at step 30"


def test_a_run_that_another_process_holds_is_left_open(tmp_path: Path) -> None:
    runs, store, shown = [planned(number) for number in range(2)], Store(tmp_path / "r"), Recorder()
    folder = store.claim(runs[0].run_id, runs[0].config)
    assert folder is not None
    outcome = launch(runs, store=store, backend=ThisMachine(workers=1), report=shown, task=TASK)
    folder.release()
    assert outcome == Outcome(done=[runs[1].run_id], open=[runs[0].run_id], held=[runs[0].run_id])
    assert outcome.exit_code == 1
    assert shown.notes == ["1 of 2 runs are trained by another process: try again when it ends"]


def test_a_disk_that_fills_up_stops_the_sweep_with_one_sentence(tmp_path: Path) -> None:
    runs, store = [planned(0), planned(1, full_at=14), planned(2)], Store(tmp_path / "r")
    with pytest.raises(ResultsError, match=r"No space left on device.* run the same command again"):
        launch(runs, store=store, backend=ThisMachine(workers=1), task=TASK)
    assert [store.state(run.run_id) for run in runs] == ["done", "interrupted", "interrupted"]
    folder = store.claim(runs[1].run_id, runs[1].config)
    assert folder is not None
    assert folder.load_checkpoint() == {"step": 7, "value": 3 * 48271**7 % MODULUS}
    folder.release()


def test_a_worker_that_cannot_start_is_an_error_not_an_endless_loop(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="No module named 'no_such_module'"):
        launch(
            [planned(0), planned(1)],
            store=Store(tmp_path / "r"),
            backend=ThisMachine(workers=1),
            task="no_such_module:task",
        )


def test_bad_sweeps_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "r")
    with pytest.raises(ValueError, match=r"hydra\.launcher\.workers=0 must be 1 or more"):
        launch([planned(1)], store=store, backend=ThisMachine(workers=0), task=TASK)
    with pytest.raises(ValueError, match=r"toy 1 and toy 1 differ, yet both have the id 0{15}1"):
        launch([planned(1), planned(1, steps=50)], store=store, task=TASK)
    assert not (tmp_path / "r").exists()
    launch([planned(1)], store=store, task=TASK)
    launch([planned(2, fail_at=1)], store=store, task=TASK)
    with pytest.raises(ValueError, match="is stored in .* with another steps"):
        launch([planned(2, fail_at=1, steps=50), planned(3)], store=store, task=TASK)
    assert store.state(planned(3).run_id) == "missing"


def test_an_outcome_without_trouble_is_a_line_and_of_a_single_run_its_result_says_more() -> None:
    assert closing_lines(Outcome(done=["a"], skipped=["b"]), total=2) == ["all 2 runs are done, 1 of them before"]
    assert closing_lines(Outcome(done=["a", "b"]), total=2) == ["all 2 runs are done"]
    assert closing_lines(Outcome(done=["a"]), total=1) == []

import errno
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rawls.runners.process.worker import train
from rawls.runners.store import leases, presence
from rawls.runners.store.leases import Lease, Leases
from rawls.runners.store.results_store import LeaseLost, RunFolder, Store
from rawls.runners.store.stored import DEAD_AFTER_SECONDS
from tests.runners.store.lease_tools import (
    HOLD,
    LONG_AGO,
    PATIENCE_SECONDS,
    RUN,
    claimed,
    contents,
    dead_lease,
    leased,
    line,
    move_elsewhere,
    script,
    wait_until,
    worker_files,
)
from tests.runners.toy_fleet import TASK, planned, train_fleet

TRAIN = f"""
import sys
from pathlib import Path
from rawls.runners.process import worker
from tests.runners.toy_fleet import planned
fleet = (planned(0, pause=0.02), planned(1, pause=0.02))
print(worker.train_elsewhere(fleet, Path(sys.argv[1]), "{TASK}"))
"""

SCRAMBLE = """
import sys, time
from pathlib import Path
from rawls.runners.store.stored import DEAD_AFTER_SECONDS
from rawls.runners.store.results_store import Store
store = Store(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    folder = store.claim(f"{number:016x}", {})
    if folder is not None:
        print(number)
        folder.append_history({"step": 1})
        folder.finish({}, {}, {})
"""


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of this process beat when they begin, and then not for an hour."""
    monkeypatch.setattr(presence, "BEAT_SECONDS", 3600.0)


def test_the_run_of_a_killed_worker_is_taken_over_at_once_on_the_same_machine(results_root: Path) -> None:
    store = Store(results_root)
    with script(HOLD, str(results_root), RUN) as holder:
        assert line(holder) == "True"
        assert store.state(RUN) == "running" and store.claim(RUN, {}) is None
        (dead,) = leased(results_root).values()
        holder.kill()
        holder.wait()
        assert store.state(RUN) == "interrupted"
        folder = claimed(store)
    (name, token), *others = leased(results_root).items()
    assert name == f"{RUN}.lease.2" and token != dead and not others
    assert worker_files(results_root) == {f"{token}.json", f"{token}.lock"}
    folder.release()
    assert leased(results_root) == {} and worker_files(results_root) == set()


def test_a_worker_elsewhere_is_dead_once_its_beats_are_missed(
    results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the clock of the file system, whatever ours says."""
    store, wrong = Store(results_root), time.time() + 1e6
    with script(HOLD, str(results_root), RUN) as holder:
        assert line(holder) == "True"
        holder.send_signal(signal.SIGSTOP)
        (token,) = leased(results_root).values()
        monkeypatch.setattr(time, "time", lambda: wrong)
        move_elsewhere(results_root, token, age=DEAD_AFTER_SECONDS / 2)
        assert store.state(RUN) == "running" and store.claim(RUN, {}) is None
        monkeypatch.setattr(time, "time", lambda: wrong - 2e6)
        move_elsewhere(results_root, token, age=LONG_AGO)
        assert store.state(RUN) == "interrupted"
        claimed(store).release()


@pytest.mark.system  # ten seconds of processes
def test_a_suspended_worker_whose_runs_were_taken_over_writes_no_more(results_root: Path, tmp_path: Path) -> None:
    store, runs = Store(results_root), [planned(number, pause=0.02) for number in range(2)]
    history = results_root / "runs" / f"{runs[0].run_id}.running" / "history.jsonl"
    with script(TRAIN, str(results_root)) as sleeper:
        wait_until(lambda: history.exists() and len(history.read_text().splitlines()) > 8)
        sleeper.send_signal(signal.SIGSTOP)
        (token,) = set(leased(results_root).values())
        move_elsewhere(results_root, token, age=LONG_AGO)
        folders = [store.claim(run.run_id, run.config) for run in runs]
        first, second = folders
        assert first is not None and second is not None
        assert len(first.path.joinpath("history.jsonl").read_text().splitlines()) > 8
        train_fleet([runs[0].config], [first], lambda _: None)
        sleeper.send_signal(signal.SIGCONT)
        assert line(sleeper) == "[]"  # nothing to try again: the other run is lost as well
        assert sleeper.wait(PATIENCE_SECONDS) == 0
        assert set(leased(results_root)) == {f"{runs[1].run_id}.lease.2"}
        train_fleet([runs[1].config], [second], lambda _: None)
    for run in runs:
        train_fleet([run.config], [claimed_as(Store(tmp_path / "undisturbed"), run)], lambda _: None)
    assert contents(results_root) == contents(tmp_path / "undisturbed")


def claimed_as(store: Store, run: Any) -> RunFolder:
    folder = store.claim(run.run_id, run.config)
    assert folder is not None
    return folder


WRITES: dict[str, Callable[[RunFolder], None]] = {
    "append": lambda folder: folder.append_history({"step": 9}),
    "rewind": lambda folder: folder.rewind_history(),
    "save": lambda folder: folder.save_checkpoint({"step": 9}),
    "finish": lambda folder: folder.finish({}, {}, {}),
    "fail": lambda folder: folder.fail(RuntimeError("x")),
}


@pytest.mark.usefixtures("seldom")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("end", ["held", "interrupted", "again"])
def test_nothing_is_written_after_a_takeover(results_root: Path, write: str, end: str) -> None:
    """Whether the other still holds the run, let it go, or someone holds it anew under the number that was ours."""
    slept, store = Store(results_root), Store(results_root)
    mine = claimed(slept)
    mine.append_history({"step": 1})
    mine.append_history({"step": 2})
    (token,) = leased(results_root).values()
    move_elsewhere(results_root, token, age=LONG_AGO)
    theirs = claimed(store)
    theirs.append_history({"step": 3})
    if end != "held":
        theirs.release()
    if end == "again":
        theirs = claimed(store)
        assert set(leased(results_root)) == {f"{RUN}.lease.1"}
    before = contents(results_root)
    with pytest.raises(LeaseLost, match=f"run {RUN} was taken over by another worker"):
        WRITES[write](mine)
    assert not mine.held
    mine.release()
    after = contents(results_root)
    assert {name for name in before if name not in after} <= {f"workers/{token}.json", f"workers/{token}.lock"}
    assert {name: before[name] for name in after} == after
    theirs.release()


@pytest.mark.usefixtures("seldom")
def test_a_takeover_while_a_checkpoint_is_written_keeps_the_others(
    results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, store = claimed(Store(results_root)), Store(results_root)
    mine.save_checkpoint({"step": 1})
    fsync = os.fsync

    def slow_fsync(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        fsync(descriptor)
        (token,) = leased(results_root).values()
        move_elsewhere(results_root, token, age=LONG_AGO)
        claimed(store).save_checkpoint({"step": 2})

    monkeypatch.setattr(os, "fsync", slow_fsync)
    with pytest.raises(LeaseLost):
        mine.save_checkpoint({"step": 3})
    folder = RunFolder(results_root, mine.path, Leases(results_root).take("another"))  # type: ignore[arg-type]
    assert folder.load_checkpoint() == {"step": 2}


@pytest.mark.parametrize("left_by_the_dead", [False, True])
def test_processes_that_race_for_the_same_runs_train_each_once(results_root: Path, left_by_the_dead: bool) -> None:
    count = 40
    if left_by_the_dead:
        for number in range(count):
            dead_lease(results_root, 1 + number % 3, f"{number:016x}")
    racers = [script(SCRAMBLE, str(results_root), str(count)) for _ in range(4)]
    processes = [racer.__enter__() for racer in racers]
    try:
        assert [line(process) for process in processes] == ["ready"] * 4
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        outputs = [process.communicate()[0].split() for process in processes]
    finally:
        for racer in racers:
            racer.__exit__(None, None, None)
    assert sorted(int(number) for output in outputs for number in output) == list(range(count))
    assert len(Store(results_root).done()) == count
    assert leased(results_root) == {} and worker_files(results_root) == set()
    histories = {path.read_text() for path in results_root.glob("runs/*/history.jsonl")}
    assert histories == {'{"step": 1}\n'}


def before_linking(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Have something happen once, after a worker looked at the leases and before it makes its own."""
    link = leases._link

    def slow_link(*arguments: Any) -> bool:
        monkeypatch.setattr(leases, "_link", link)
        happens()
        return link(*arguments)

    monkeypatch.setattr(leases, "_link", slow_link)


def test_a_takeover_that_comes_second_gives_up(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead_lease(results_root, 1)
    mine, theirs = Leases(results_root), Leases(results_root)
    kept: list[Lease | None] = []
    before_linking(monkeypatch, lambda: kept.append(theirs.take(RUN)))
    assert mine.take(RUN) is None
    assert kept[0] is not None
    kept[0].check()
    assert set(leased(results_root)) == {f"{RUN}.lease.2"}


def test_a_run_finished_between_our_look_and_our_lease_is_not_trained_again(
    results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_lease(results_root, 1)
    before_linking(monkeypatch, lambda: claimed(Store(results_root)).finish({"by": "another"}, {}, {}))
    store = Store(results_root)
    assert store.claim(RUN, {}) is None
    assert store.summary(RUN) == {"by": "another"}
    assert leased(results_root) == {} and worker_files(results_root) == set()


def test_a_release_and_a_new_claim_between_our_look_and_our_lease_keep_the_claim(
    results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """We saw a dead worker's number 1. Number 1 is a living one's by the time we make number 2."""
    dead_lease(results_root, 1)
    store, kept = Store(results_root), []

    def change_hands() -> None:
        claimed(Store(results_root)).release()
        kept.append(claimed(Store(results_root)))

    before_linking(monkeypatch, change_hands)
    assert store.claim(RUN, {}) is None
    kept[0].append_history({"step": 1})
    assert set(leased(results_root)) == {f"{RUN}.lease.1"}
    assert len(worker_files(results_root)) == 2
    kept[0].release()


def test_who_finds_a_higher_number_beside_his_own_withdraws(
    results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other's look was older than ours: it saw a lease that is no more, and made the number after it."""
    other = claimed(Store(results_root), "another")
    (token,) = leased(results_root).values()
    higher = dead_lease(results_root, 7)
    higher.unlink()
    before_linking(monkeypatch, lambda: higher.write_text(json.dumps({"worker": token})))
    assert Store(results_root).claim(RUN, {}) is None
    assert set(leased(results_root)) == {f"{RUN}.lease.7", "another.lease.1"}
    other.release()


@pytest.mark.usefixtures("seldom")
def test_a_higher_number_that_is_withdrawn_at_once_costs_nothing(
    results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = claimed(Store(results_root))
    higher = dead_lease(results_root, 2)
    monkeypatch.setattr(time, "sleep", lambda _: higher.unlink(missing_ok=True))
    folder.append_history({"step": 1})
    assert folder.held
    dead_lease(results_root, 2)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(LeaseLost):
        folder.append_history({"step": 2})
    folder.release()


def test_without_hard_links_a_lease_without_content_is_a_sign_of_life(
    results_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    first, second = Store(results_root), Store(results_root)
    mine = claimed(first)
    assert second.claim(RUN, {}) is None
    mine.release()
    empty = dead_lease(results_root, 4)
    empty.write_text("")
    assert second.claim(RUN, {}) is None
    then = presence.now_of(empty.parent) - LONG_AGO
    os.utime(empty, (then, then))
    claimed(second)
    assert set(leased(results_root)) == {f"{RUN}.lease.5"}


def test_a_fleet_that_loses_a_run_tries_the_others_again_and_fails_none(results_root: Path) -> None:
    store, runs = Store(results_root), (planned(0), planned(1))

    def lose_one(_configs: object, folders: list[RunFolder], _report: object) -> None:
        first, _ = folders
        dead_lease(results_root, 2, first.run_id)
        first.append_history({"step": 1})

    again = train(runs, store=store, train_fleet=lose_one, send=lambda _: None, asked_to_stop=lambda: False)
    assert again == [runs[1].run_id]
    assert store.states() == dict.fromkeys([run.run_id for run in runs], "interrupted")


@pytest.mark.parametrize("worker", ["../../victim", "/etc/passwd", "", 7, None])
def test_a_forged_lease_names_no_file_elsewhere(results_root: Path, worker: object) -> None:
    """The files of a dead worker are removed: what a lease calls one is no path."""
    (results_root / "runs").mkdir(parents=True)
    victim = results_root.parent / "victim.json"
    victim.write_text("{}")
    lease = results_root / "runs" / f"{RUN}.lease.1"
    lease.write_text(json.dumps({"worker": worker}))
    os.utime(lease, (LONG_AGO, LONG_AGO))
    assert leases.read(lease) == ""
    taken = Leases(results_root).take(RUN)
    assert taken is not None and victim.exists()
    taken.release()

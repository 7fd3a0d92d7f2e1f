import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rawls.runners.cli import commands
from rawls.runners.schedule.progress import Message, Reporter
from rawls.runners.schedule.status import Follower, Status, announce, main, sweeps, working_fleets
from rawls.runners.store import presence
from rawls.runners.store.presence import Presence
from rawls.runners.store.results_store import Store
from tests.runners.store.lease_tools import claimed, line, script, wait_until
from tests.runners.toy_fleet import TASK

TRAIN = f"""
import sys
from pathlib import Path
from rawls.runners.process import worker
from tests.runners.toy_fleet import planned
worker.train_elsewhere(tuple(planned(n, pause=0.05) for n in range(2)), Path(sys.argv[1]), "{TASK}")
"""

SWEEP = """
import sys, time
from pathlib import Path
from rawls.runners.schedule.status import announce
from rawls.runners.store.results_store import Store
with announce(Store(Path(sys.argv[1])), command="rawls train -m", run_ids=["a"]):
    print("ready", flush=True)
    time.sleep(600)
"""


class Recorder(Reporter):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(clock=lambda: 1000.0)
        self.told: list[tuple[object, ...]] = []

    def fleet_started(self, fleet: int, labels: Mapping[str, str]) -> None:
        super().fleet_started(fleet, labels)
        self.told.append(("started", fleet, dict(labels)))

    def message(self, fleet: int, message: Message) -> None:
        super().message(fleet, message)
        self.told.append((message["event"], fleet, message["run_id"], message.get("step")))

    def fleet_ended(self, fleet: int) -> None:
        super().fleet_ended(fleet)
        self.told.append(("ended", fleet))

    def new(self) -> list[tuple[object, ...]]:
        told, self.told = self.told, []
        return told


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats that come at once."""
    monkeypatch.setattr(presence, "BEAT_SECONDS", 0.01)


def working(root: Path, *runs: dict[str, Any]) -> Presence:
    """A worker that does nothing but say these things of its runs."""
    return Presence(root / "workers", lambda: {"runs": [dict(run) for run in runs]}).open()


def at(run_id: str, step: int, **more: Any) -> dict[str, Any]:
    return {"run_id": run_id, "label": f"run {run_id}", "step": step, "steps": 100, "event": "progress", **more}


def test_a_sweep_is_announced_as_long_as_its_launcher_lives(results_root: Path) -> None:
    store = Store(results_root)
    claimed(store, "a").finish({}, {}, {})
    assert sweeps(results_root) == []
    with announce(store, command="rawls reproduce x", run_ids=["a", "b", "c"]):
        (sweep,) = sweeps(results_root)
        assert (sweep.command, sweep.total, sweep.run_ids) == ("rawls reproduce x", 3, ("b", "c"))
        assert sweep.pid == os.getpid()
    assert sweeps(results_root) == [] and list((results_root / "sweeps").iterdir()) == []
    with script(SWEEP, str(results_root)) as launcher:
        assert line(launcher) == "ready"
        assert [sweep.pid for sweep in sweeps(results_root)] == [launcher.pid]
        launcher.kill()
        launcher.wait()
        assert sweeps(results_root) == []
    store.check()
    assert list((results_root / "sweeps").iterdir()) == []


def test_a_follower_tells_of_a_fleet_from_its_claim_to_its_end(results_root: Path) -> None:
    store, shown = Store(results_root), Recorder()
    ids = ["a", "b", "c", "d"]
    shown.start(total=4, skipped=0)
    folders = {run_id: claimed(store, run_id) for run_id in "abc"}
    follower = Follower(store, shown, ids)
    follower.look()
    assert shown.new() == []  # a claim that said nothing yet
    for run_id in "ab":
        store.leases.note({"run_id": run_id, "label": f"run {run_id}", "event": "claimed"})
    wait_until(lambda: len(working_fleets(results_root)[0].runs if working_fleets(results_root) else ()) == 2)
    follower.look()
    assert shown.new() == [("started", 1, {"a": "run a", "b": "run b"})]
    store.leases.note(at("a", 3, wga=0.5))
    wait_until(lambda: "step" in working_fleets(results_root)[0].runs[0])
    follower.look()
    follower.look()
    assert shown.new() == [("progress", 1, "a", 3)]
    folders["a"].finish({}, {}, {})
    folders["c"].fail(RuntimeError("x"))
    claimed(store, "d").finish({}, {}, {})
    follower.look()
    told = shown.new()
    assert told[0] == ("done", 1, "a", None)
    assert told[1:] == [
        *[("started", 2, {"c": "c"}), ("failed", 2, "c", None), ("ended", 2)],
        *[("started", 3, {"d": "d"}), ("done", 3, "d", None), ("ended", 3)],
    ]
    folders["b"].release()
    follower.look()
    assert shown.new() == [("interrupted", 1, "b", None), ("ended", 1)]
    assert shown.summary() == "2/4 runs done, 1 failed"


def test_a_fleet_that_grows_is_told_anew(results_root: Path) -> None:
    store, shown = Store(results_root), Recorder()
    store.check()
    runs = [at("a", 5)]
    worker = Presence(results_root / "workers", lambda: {"runs": [dict(run) for run in runs]}).open()
    follower = Follower(store, shown, ["a", "b"])
    follower.look()
    runs.append(at("b", 7))
    worker.news()
    wait_until(lambda: len(working_fleets(results_root)[0].runs) == 2)
    shown.new()
    follower.look()
    worker.close()
    assert shown.new() == [
        ("ended", 1),
        ("started", 2, {"a": "run a", "b": "run b"}),
        ("progress", 2, "a", 5),
        ("progress", 2, "b", 7),
    ]


def test_a_run_that_failed_before_the_sweep_counts_once_it_fails_again(results_root: Path) -> None:
    store, shown = Store(results_root), Recorder()
    claimed(store, "a").fail(RuntimeError("x"))
    failed = results_root / "runs" / "a.failed"
    os.utime(failed, (1e9, 1e9))
    follower = Follower(store, shown, ["a"])
    follower.look()
    assert shown.new() == []
    claimed(store, "a").fail(RuntimeError("y"))
    follower.look()
    assert [told[0] for told in shown.new()] == ["started", "failed", "ended"]


def test_one_look_shows_fleets_with_rate_and_time_left_by_sweep(
    results_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(results_root)
    claimed(store, "a").finish({}, {}, {})
    with ExitStack() as stack:
        stack.enter_context(announce(store, command="rawls reproduce x", run_ids=["a", "b", "c", "d"]))
        told = {"first": 30, "elapsed": 10.0, "wga": 0.25}
        for one in (working(results_root, at("b", 50, **told), at("c", 50, **told)), working(results_root, at("z", 1))):
            stack.callback(one.close)
        claimed(store, "d").finish({}, {}, {})
        assert main([f"results.root={results_root}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"rawls reproduce x (process {os.getpid()} on ")
    # 40 steps of two runs in (a little more than) 10 seconds; 100 are left.
    assert lines[1].startswith("  run b + run c, 2 runs 100/200 ") and lines[1].endswith(" left validation WGA 25.0 %")
    assert 3 < float(lines[1].split("100/200 ")[1].split()[0]) <= 4
    assert lines[2].startswith("  2/4 runs done, 1 of them before, ")
    assert lines[3].startswith("no sweep, a worker alone (process ")
    assert lines[4:6] == ["  run z 1/100", "  0/1 runs done"]
    assert lines[6] == f"results.root={results_root}: 2 done"


def test_it_says_what_is_left_when_nothing_trains(results_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said() -> str:
        assert main([f"results.root={results_root}"]) == 0
        return capsys.readouterr().out.strip().replace(f"results.root={results_root}", "")

    assert said() == "no runs under  yet: start some with `rawls reproduce TARGET` or `rawls train`"
    assert not results_root.exists()
    store = Store(results_root)
    claimed(store, "a").finish({}, {}, {})
    assert said() == ": 1 done; nothing trains: everything begun is done"
    claimed(store, "b").release()
    claimed(store, "c").fail(RuntimeError("x"))
    claimed(store, "d").release()
    assert said() == (
        ": 1 done, 2 interrupted, 1 failed; nothing trains: the command that began them goes on with what is not done"
    )


def test_on_a_terminal_it_goes_on_until_nothing_trains(
    results_root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(results_root)
    store.check()
    worker, printed = working(results_root, at("a", 5)), [""]

    def drawn() -> bool:
        printed[0] += capsys.readouterr().out
        return "run a" in printed[0] and "0/1 runs done" in printed[0]

    def sleep(_seconds: float) -> None:
        wait_until(drawn)
        worker.close()

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main([f"results.root={results_root}"], sleep=sleep) == 0
    assert f"no runs under results.root={results_root} yet" in capsys.readouterr().out.splitlines()[-1]


def test_what_trains_in_another_process_is_seen(results_root: Path) -> None:
    with script(TRAIN, str(results_root)) as trainer:
        status = Status(results_root)
        wait_until(lambda: status.look() and re.search("2 runs.*steps/s", str(status.lines())) is not None)
        title, fleet, summary = status.lines()
        assert f"process {trainer.pid} on" in title
        assert fleet.startswith("  toy 0 + toy 1, 2 runs ") and "/80 " in fleet and "validation WGA 50.0 %" in fleet
        assert summary.startswith("  0/2 runs done")
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(100) == 0
        assert not status.look() and status.lines() == []
    assert Store(results_root).state(f"{0:016x}") == "interrupted"


def test_the_command_takes_the_folder_and_nothing_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert commands.main(["status", f"results.root={tmp_path}"]) == 0
    assert "no runs under" in capsys.readouterr().out
    assert commands.main(["status", "seed=1"]) == 2
    assert capsys.readouterr().err == (
        "rawls: error: rawls status does not know 'seed=1': only results.root=FOLDER can be set\n"
    )
    assert commands.main(["status", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: rawls status ")


def test_a_torn_file_is_nobody(results_root: Path) -> None:
    Store(results_root).check()
    (results_root / "workers").mkdir()
    (results_root / "workers" / "torn.json").write_text(json.dumps({"token": "torn"})[:-3])
    assert working_fleets(results_root) == []

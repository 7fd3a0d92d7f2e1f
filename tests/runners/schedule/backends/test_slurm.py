"""The launcher `slurm`, with a real Slurm of one node on this machine (tests/runners/schedule/backends/slurm.py)."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rawls.runners import train
from rawls.runners.config.errors import ConfigError
from rawls.runners.schedule import status
from rawls.runners.schedule.backends import slurm as slurm_launcher
from tests.runners.schedule.backends.elsewhere import (
    NUM_RUNS,
    finish,
    in_the_middle,
    interrupt,
    kill_one,
    numbers,
    sweep,
    wait_until,
)
from tests.runners.schedule.backends.slurm import missing_programs, one_node

SLURM = "hydra/launcher=slurm"
SMALL = ["dataset=digits", "scale=smoke", "tracking=off"]


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    """The environment in which the commands of Slurm find it."""
    missing = missing_programs()
    if missing:
        told = f"{', '.join(missing)} not installed: needs the Debian packages slurm-wlm and munge"
        if os.environ.get("CI"):
            pytest.fail(told)
        pytest.skip(told)
    with tempfile.TemporaryDirectory(prefix="slurm") as folder, one_node(Path(folder)) as environment:
        yield environment


def job_of(worker: status.Working) -> str:
    """The id of the job that a process belongs to, as submitit calls it."""
    told = Path(f"/proc/{worker.pid}/environ").read_bytes().decode(errors="replace").split("\0")
    variables = dict(text.split("=", 1) for text in told if "=" in text)
    return f"{variables['SLURM_ARRAY_JOB_ID']}_{variables['SLURM_ARRAY_TASK_ID']}"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands that succeed and say nothing, and are all that is found."""
    folder = tmp_path / "commands"
    folder.mkdir()
    for name in ("sbatch", "srun", "squeue", "scancel", "scontrol"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def refused(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        train.main(["-m", SLURM, "seed=0,1", *SMALL, *overrides])
    assert "\n" not in str(caught.value)
    assert not Path("results/runs").exists()
    return str(caught.value)


def test_without_sbatch_it_says_so(commands: Path) -> None:
    (commands / "sbatch").unlink()
    assert refused().startswith("hydra/launcher=slurm needs the command sbatch, which is not here: call rawls on a ")


def test_a_controller_that_does_not_answer_is_told(commands: Path) -> None:
    (commands / "squeue").write_text("#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact' >&2\nexit 1\n")
    assert refused() == "Slurm does not answer: slurm_load_jobs error: Unable to contact"


def test_a_missing_package_says_how_to_install_it(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert refused() == "hydra/launcher=slurm needs the package submitit: pip install 'rawls[slurm]'"


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("time_limit=1", "hydra.launcher.time_limit=1 must be at least 2"),
        ("cpus=0", "hydra.launcher.cpus=0 must be at least 1"),
        ("gpus=-1", "hydra.launcher.gpus=-1 must be at least 0"),
        ("memory=0", "hydra.launcher.memory=0 must be positive"),
        ("partition=3", "hydra.launcher.partition=3 must be a text or null"),
        ("workers=0", "hydra.launcher.workers=0 must be 1 or more"),
    ],
)
def test_what_is_wrong_is_one_sentence(option: str, sentence: str, commands: Path) -> None:
    assert refused(f"hydra.launcher.{option}") == sentence


@pytest.mark.parametrize("others", [0o777, 0o757])
def test_nothing_is_submitted_where_others_can_write(tmp_path: Path, others: int) -> None:
    """What jobs answer are pickles. The sticky /tmp above is no danger: there nobody renames what is ours."""
    root = tmp_path / "a" / "results"
    root.mkdir(parents=True)
    slurm_launcher.check_nobody_else_writes(root)
    for folder in (root, root.parent):
        folder.chmod(others)
        with pytest.raises(ConfigError, match=f"others can write to {folder}, .*chmod go-w {folder}"):
            slurm_launcher.check_nobody_else_writes(root)
        folder.chmod(0o1777)
        slurm_launcher.check_nobody_else_writes(root)
        folder.chmod(0o755)


def test_what_a_job_is_given() -> None:
    cluster = slurm_launcher.SlurmCluster(time_limit=2, partition="gpu", cpus=3, gpus=1, memory=1.5)
    assert cluster._parameters(7) == {
        "job_name": "rawls",
        "time": 2,
        "partition": "gpu",
        "nodes": 1,
        "ntasks_per_node": 1,
        "cpus_per_task": 3,
        "gpus_per_node": 1,
        "mem": "1536MB",
        "array_parallelism": 7,
        "signal_delay_s": 30,
    }


@pytest.mark.system
def test_a_killed_worker_and_a_preempted_job_cost_only_their_time(slurm: dict[str, str], tmp_path: Path) -> None:
    """Two jobs of an array come to the numbers of two processes of this machine; one is killed, the other preempted."""
    with sweep(tmp_path / "here") as command:
        assert finish(command)[0] == 0
    there = tmp_path / "there"
    with sweep(there, SLURM, environment=slurm) as command:
        killed = kill_one(there, command)
        worker = wait_until(lambda: in_the_middle(there, not_by=killed), command)
        job = job_of(worker)
        subprocess.run(["scancel", "--signal=USR2", job], env=slurm, check=True)
        # No checkpoint is due so early: these were saved for the warning.
        saved = [there / "runs" / f"{run['run_id']}.running" / "checkpoint.pt" for run in worker.runs]
        wait_until(lambda: all(path.exists() for path in saved), command)
        wait_until(lambda: f"{job} PENDING" in queue(slurm), command)
        code, said = finish(command)
    assert code == 0, said
    assert sum(line.startswith("done: ") for line in said) == NUM_RUNS
    assert len(numbers(tmp_path / "here")) == 3 * NUM_RUNS
    assert numbers(there) == numbers(tmp_path / "here")


def queue(environment: dict[str, str]) -> list[str]:
    """The jobs that wait or run."""
    command = ["squeue", "--noheader", "--array", "--format=%i %T"]
    return subprocess.check_output(command, env=environment, text=True).splitlines()


@pytest.mark.system
def test_an_interrupted_sweep_is_saved_and_leaves_no_job(slurm: dict[str, str], tmp_path: Path) -> None:
    """One job at a time, so that one waits."""
    with sweep(tmp_path, SLURM, "hydra.launcher.workers=1", "optimizer.momentum=0.1,0.2", environment=slurm) as command:
        interrupt(tmp_path, command)
    assert queue(slurm) == []


@pytest.mark.system
def test_what_sbatch_refuses_is_told(slurm: dict[str, str], tmp_path: Path) -> None:
    with sweep(tmp_path, SLURM, "hydra.launcher.partition=none", environment=slurm) as command:
        code, said = finish(command)
    assert code == 2
    assert said[-1].startswith("rawls: error: sbatch refused the jobs: ") and "partition" in said[-1]

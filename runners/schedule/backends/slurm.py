"""Backend `slurm`: fleets as one job array, through submitit.

A job that is about to be preempted or to time out saves its runs, and goes back into the queue by submitit's
checkpointing. Whether a job is still there is asked of squeue, because submitit asks sacct, which is only there with
accounting. Jobs outlive a launcher that is killed; the same command again trains what they leave.

What is handed to a job, and what it answers, are pickles: who can write them runs code as us. So they lie in a folder
that is the user's alone, under folders in which nobody else can put another in its place; or nothing is submitted.
"""

import math
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rawls.runners.config.errors import ConfigError
from rawls.runners.schedule.backends.cluster import Cluster, FleetTask, Scheduler, require
from rawls.runners.schedule.crew import Ending
from rawls.runners.store.results_store import Store

_COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol")
_SECONDS_BETWEEN_LOOKS = 5.0
_COMMAND_SECONDS = 60.0
_MAX_ARRAY = 1000  # Slurm's own limit, unless a site changed it
_WARNING_SECONDS = 90
# submitit counts only time limits, and a long run may meet many.
_TIME_LIMITS = 10**6


@dataclass(frozen=True, kw_only=True)
class SlurmCluster(Cluster):
    """What conf/hydra/launcher/slurm.yaml says; all of it is of one job, which trains one fleet."""

    time_limit: int = 240
    partition: str | None = None
    cpus: int = 1
    gpus: int = 0
    memory: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("time_limit", 2), ("cpus", 1), ("gpus", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"hydra.launcher.{name}={getattr(self, name)} must be at least {least}")
        if self.memory is not None and not self.memory > 0:
            raise ValueError(f"hydra.launcher.memory={self.memory:g} must be positive")

    def check(self) -> None:
        require("submitit")
        for command in _COMMANDS:
            if shutil.which(command) is None:
                raise ConfigError(
                    f"hydra/launcher=slurm needs the command {command}, which is not here: "
                    "call rawls on a machine that submits jobs to Slurm, or choose another hydra/launcher"
                )
        answer = _call("squeue", "--noheader", "--user", str(os.getuid()))
        if answer.returncode:
            raise ConfigError(f"Slurm does not answer: {_last_line(answer.stderr)}")

    @property
    def has_gpus(self) -> bool:
        return self.gpus > 0

    @property
    def bytes_of_a_worker(self) -> float:
        return math.inf if self.memory is None else self.memory * 2**30

    @contextmanager
    def joined(self, store: Store) -> Iterator[tuple[Scheduler, int]]:
        room = self.workers or 16
        check_nobody_else_writes(store.root)
        folder = store.root.absolute() / "slurm" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.parent.chmod(0o700)
        jobs = _SlurmJobs(folder, self._parameters(room))
        yield jobs, room
        if not jobs.deaths:
            shutil.rmtree(folder, ignore_errors=True)

    def _parameters(self, room: int) -> dict[str, Any]:
        """As submitit calls them."""
        asked = {
            "job_name": "rawls",
            "time": self.time_limit,
            "partition": self.partition,
            "nodes": 1,
            "ntasks_per_node": 1,
            "cpus_per_task": self.cpus,
            "gpus_per_node": self.gpus or None,
            "mem": None if self.memory is None else f"{round(self.memory * 1024)}MB",
            "array_parallelism": room,
            "signal_delay_s": min(_WARNING_SECONDS, self.time_limit * 60 // 4),
        }
        return {name: value for name, value in asked.items() if value is not None}


def check_nobody_else_writes(root: Path) -> None:
    """Raise a ConfigError if others could put a folder of theirs in the place of one that we make in `root`."""
    user = os.getuid()
    for folder in (root.resolve(), *root.resolve().parents):
        found = folder.stat()
        ours = found.st_uid in (user, 0)
        shared = found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid))
        # In a sticky folder only its owner and ours rename what is ours.
        if not ours or (shared and not found.st_mode & stat.S_ISVTX):
            raise ConfigError(
                f"others can write to {folder}, and who can do so could run code as you through Slurm's jobs: "
                f"take that away (chmod go-w {folder}), or set results.root to a folder that is yours alone"
            )


def _is_own_group(group: int) -> bool:
    """Whether a group is the user's own, as many systems make one of each user's name, with nobody else in it."""
    import grp
    import pwd

    try:
        name = pwd.getpwuid(os.getuid()).pw_name
        found = grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == name and set(found.gr_mem) <= {name}


class _SlurmJobs:
    """Jobs by their ids."""

    def __init__(self, folder: Path, parameters: dict[str, Any]) -> None:
        import submitit

        self.deaths = 0
        self._submitit = submitit
        self._executor = submitit.SlurmExecutor(folder, max_num_timeout=_TIME_LIMITS)
        self._executor.update_parameters(**parameters)
        self._jobs: dict[str, Any] = {}
        self._looked = 0.0
        self._missed: set[str] = set()
        self._stopping = False

    def submit(self, tasks: Sequence[FleetTask]) -> list[Any]:
        errors = self._submitit.core.utils
        jobs = []
        for start in range(0, len(tasks), _MAX_ARRAY):
            part = [_Job(task) for task in tasks[start : start + _MAX_ARRAY]]
            try:
                with self._executor.batch():
                    array = [self._executor.submit(job) for job in part]
            except (errors.FailedJobError, errors.FailedSubmissionError) as error:
                raise ConfigError(f"sbatch refused the jobs: {_last_line(str(error))}") from error
            jobs += array
        self._jobs |= {job.job_id: job for job in jobs}
        return [job.job_id for job in jobs]

    def ended(self, jobs: Collection[Any]) -> dict[Any, Ending]:
        ended = {job: self._answer(job) for job in jobs if self._jobs[job].paths.result_pickle.exists()}
        now = time.monotonic()
        if now - self._looked < (1.0 if self._stopping else _SECONDS_BETWEEN_LOOKS):
            return ended
        queued = _queued()
        self._looked = time.monotonic()
        if queued is None:  # the controller is away: the jobs are not
            return ended
        missed = {job for job in jobs if job not in queued and job not in ended}
        # Twice, for the answer of a job that just ended may reach us later than its end.
        for job in missed if self._stopping else missed & self._missed:
            self.deaths += 1
            death = f"Slurm's job {job} is gone, its log is {self._jobs[job].paths.stderr}"
            ended[job] = Ending(death=death, perhaps_memory=True)
        self._missed = missed
        return ended

    def stop(self, jobs: Collection[Any]) -> None:
        self._stopping = True
        if jobs:
            _call("scancel", "--state=PENDING", *jobs)
            _call("scancel", "--signal=INT", *jobs)

    def kill(self, jobs: Collection[Any]) -> None:
        if jobs:
            _call("scancel", *jobs)

    def _answer(self, job: str) -> Ending:
        errors = self._submitit.core.utils
        try:
            answer: Ending = self._jobs[job].result()
            return answer
        except (errors.FailedJobError, errors.UncompletedJobError) as error:
            self.deaths += 1
            return Ending(fatal=RuntimeError(f"a worker broke down:\n{error}"))


@dataclass(frozen=True)
class _Job:
    """What submitit calls on the node, and calls again after a preemption or a time limit."""

    task: FleetTask

    def __call__(self) -> Ending:
        requeue = signal.getsignal(signal.SIGUSR2)
        warned = False

        def warn(_number: int, _frame: FrameType | None) -> None:
            nonlocal warned
            warned = True
            signal.raise_signal(signal.SIGTERM)  # a request to save, which the runs answer between two steps

        if callable(requeue):
            signal.signal(signal.SIGUSR2, warn)
        answer = self.task()
        # Saved by a signal that was not our launcher's. Slurm says what comes next: a warning, upon which submitit
        # puts the job back into the queue and exits here; or the end of this process, with or without another start.
        while self._interrupted(answer) and not self.task.stop.exists():
            if warned and callable(requeue):
                requeue(signal.SIGUSR2, None)
            time.sleep(0.5)
        return answer

    def checkpoint(self) -> Any:
        """The same again: the store knows how far the runs are."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)

    def _interrupted(self, answer: Ending) -> bool:
        if answer.fatal is not None:
            return False
        store = Store(self.task.root)
        states = {store.state(run.run_id) for run in self.task.fleet if run.run_id not in answer.again}
        return bool(states & {"missing", "interrupted"})


def _queued() -> set[str] | None:
    """The user's jobs that wait or run; None if Slurm does not say."""
    answer = _call("squeue", "--noheader", "--array", "--format=%i", "--user", str(os.getuid()))
    return None if answer.returncode else set(answer.stdout.split())


def _call(*command: str) -> "subprocess.CompletedProcess[str]":
    """A command of Slurm, which a Ctrl-C meant for us does not reach."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS, start_new_session=True
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]} took more than {_COMMAND_SECONDS:g} s")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1]

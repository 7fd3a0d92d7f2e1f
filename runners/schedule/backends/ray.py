"""Backend `ray`: fleets as tasks of a Ray cluster that runs already, or of one started here for the sweep.

Each fleet gets a process of its own (max_calls=1), prepared before its first tensor. Ray retries nothing: what to do
about a dead worker is for us to say (runners/schedule/crew.py).
"""

import os
import socket
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from rawls.runners.config.errors import ConfigError
from rawls.runners.process import lifecycle
from rawls.runners.process.worker import PlannedRun
from rawls.runners.schedule import planner
from rawls.runners.schedule.backends.cluster import Cluster, FleetTask, Scheduler, require
from rawls.runners.schedule.crew import Ending
from rawls.runners.store.results_store import Store

_CONNECT_SECONDS = 5.0
# Results go by the store, so Ray's own memory for objects is as small as it allows.
_OBJECT_STORE_BYTES = 80 * 2**20


@dataclass(frozen=True, kw_only=True)
class RayCluster(Cluster):
    """What conf/hydra/launcher/ray.yaml says: `address` None is a cluster of our own; cpus and gpus are a fleet's."""

    address: str | None = None
    num_cpus: float = 1.0
    num_gpus: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.num_cpus > 0:
            raise ValueError(f"hydra.launcher.num_cpus={self.num_cpus:g} must be positive")
        if not self.num_gpus >= 0:
            raise ValueError(f"hydra.launcher.num_gpus={self.num_gpus:g} must not be negative")

    def check(self) -> None:
        require("ray")
        if self.address in (None, "auto"):
            return
        try:
            where = urlsplit(self.address if "://" in str(self.address) else f"//{self.address}")
            host, port = where.hostname, where.port
        except ValueError:
            host = port = None
        if host is None or port is None:
            raise ConfigError(f"hydra.launcher.address={self.address} must be HOST:PORT, auto or null")
        try:  # Ray itself would try for two minutes, and then end this process
            socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
        except OSError as error:
            raise self._unreachable(error) from error

    @contextmanager
    def joined(self, store: Store) -> Iterator[tuple[Scheduler, int]]:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        import ray

        options: dict[str, Any] = {"address": self.address}
        if self.address is None:
            cores = self.num_cpus * self.workers if self.workers else max(lifecycle.num_cores(), self.num_cpus)
            options = {"address": "local", "num_cpus": cores, "object_store_memory": _OBJECT_STORE_BYTES}
        with redirect_stdout(sys.stderr):  # stdout is for results, and Ray tells there of workers that died
            try:
                ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", **options)
            except (OSError, RuntimeError, ValueError) as error:
                raise self._unreachable(error) from error
            try:
                yield _RayTasks(self), self.workers or self._room(ray.cluster_resources())
            finally:
                ray.shutdown()

    @property
    def has_gpus(self) -> bool:
        return self.num_gpus > 0

    def estimate(self, run: PlannedRun) -> planner.Estimate:
        return planner.measured(run) if self.address is None else super().estimate(run)

    def _room(self, resources: dict[str, float]) -> int:
        """For how many fleets there are cpus and gpus now."""
        wanted = {"CPU": self.num_cpus, "GPU": self.num_gpus}
        rooms = [int(resources.get(name, 0) / each) for name, each in wanted.items() if each]
        if self.address is None and min(rooms) == 0:
            raise ConfigError(f"hydra.launcher.num_gpus={self.num_gpus:g}: Ray finds no such GPUs on this machine")
        return max(1, min(rooms))  # a cluster of others may grow

    def _unreachable(self, error: Exception) -> ConfigError:
        reason = str(error).strip().partition("\n")[0]
        if self.address is None:
            return ConfigError(f"Ray does not start on this machine: {reason}")
        return ConfigError(
            f"hydra.launcher.address={self.address}: no Ray cluster answers there ({reason}); "
            "start one with `ray start --head`, or leave the address null to have one for this sweep"
        )


class _RayTasks:
    """Tasks of a Ray that this process is connected to; a job is the reference to a task's answer."""

    def __init__(self, cluster: RayCluster) -> None:
        import ray

        self._ray = ray
        options = {"num_cpus": cluster.num_cpus, "num_gpus": cluster.num_gpus, "max_calls": 1, "max_retries": 0}
        self._train = ray.remote(**options)(_train)

    def submit(self, tasks: Sequence[FleetTask]) -> list[Any]:
        return [self._train.remote(task) for task in tasks]

    def ended(self, jobs: Collection[Any]) -> dict[Any, Ending]:
        waiting = list(jobs)
        ready, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0) if waiting else ([], [])
        return {job: self._answer(job) for job in ready}

    def stop(self, jobs: Collection[Any]) -> None:
        for job in jobs:  # a task that trains gets SIGINT, one that waits never begins
            self._ray.cancel(job, force=False)

    def kill(self, jobs: Collection[Any]) -> None:
        for job in jobs:
            self._ray.cancel(job, force=True)

    def _answer(self, job: Any) -> Ending:
        errors = self._ray.exceptions
        try:
            answer: Ending = self._ray.get(job)
            return answer
        except errors.TaskCancelledError:
            return Ending()
        except errors.RayTaskError as error:
            return Ending(fatal=RuntimeError(f"a worker broke down:\n{error}"))
        except errors.RayError as error:
            return Ending(death=f"{type(error).__name__}, perhaps out of memory", perhaps_memory=True)


def _train(task: FleetTask) -> Ending:
    """What Ray calls in the worker's process."""
    return task()

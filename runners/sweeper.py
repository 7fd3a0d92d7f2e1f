"""Hydra sweeper `blocks`: expands an experiment's blocks or a plain grid, and gives the runs to the launcher.

Our launchers (local, ray, slurm) take them all at once; one of the ecosystem (joblib, submitit) gets one run
per job.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from runners.errors import RunsFailed
from runners.experiments import Plan, plan, write_manifest
from runners.local_launcher import LocalLauncher, search_path_of
from runners.ray_launcher import RayLauncher
from runners.slurm_launcher import SlurmLauncher
from runners.store import Store

_PACKAGE = "hydra_plugins"
swept: list[tuple[Plan, Path]] = []
"""The targets of this process and their manifests: Hydra passes nothing on to whoever started the sweep."""


class BlockSweeper(Sweeper):
    """The plugin."""

    def __init__(self) -> None:
        self._launcher: Launcher
        self._base: tuple[str, ...]

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._base = search_path_of(config)
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        asked = plan(arguments, self._base)
        if asked.target:
            root = Path(asked.runs[0].config["results"]["root"])
            Store(root).check()
            swept.append((asked, write_manifest(asked, root)))
        returns = self._launcher.launch([list(run.overrides) for run in asked.runs], initial_job_idx=0)
        failed = sum(job.status is not JobStatus.COMPLETED for job in returns)
        if failed:
            raise RunsFailed(1)
        return returns


def register() -> None:
    """Make Hydra know the plugins that conf/config.yaml chooses.

    Hydra instantiates plugins only from modules called `hydra_plugins.*`, and that is no folder of this
    house: so there is a module of that name in memory, which holds them.
    """
    try:
        package = importlib.import_module(_PACKAGE)
    except ModuleNotFoundError:  # no other plugin is installed
        package = sys.modules[_PACKAGE] = ModuleType(_PACKAGE)
        package.__path__ = []
    module = ModuleType(f"{_PACKAGE}.rawls")
    for plugin in (BlockSweeper, LocalLauncher, RayLauncher, SlurmLauncher):
        plugin.__module__ = module.__name__
        setattr(module, plugin.__name__, plugin)
        Plugins.instance().register(plugin)
    sys.modules[module.__name__] = module
    package.rawls = module  # type: ignore[attr-defined]

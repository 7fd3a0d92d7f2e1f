"""What Hydra sees of us when `rawls train -m` is a sweep: a sweeper and three launchers.

The sweeper `blocks` expands an experiment's blocks or a plain grid. Our launchers (local, ray, slurm) take all its runs
at once; one of the ecosystem (joblib, submitit) gets one run per job.
"""

import importlib
import shlex
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from rawls.runners.cli.arguments import plain
from rawls.runners.cli.next_steps import next_steps
from rawls.runners.config.compose import composer, run_id
from rawls.runners.config.errors import RunsFailed
from rawls.runners.process.news import counted
from rawls.runners.schedule.crew import Backend
from rawls.runners.schedule.launcher import backend_of, train
from rawls.runners.store.results_store import Store
from rawls.runners.sweeps.experiments import SweepPlan, plan, write_manifest
from rawls.runners.training.chance import advice_on_sweep

_PACKAGE = "hydra_plugins"


class BlockSweeper(Sweeper):
    """The plugin `hydra/sweeper=blocks`."""

    def __init__(self) -> None:
        self._launcher: Launcher
        self._base: tuple[str, ...]

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._base = _search_path_of(config)
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        asked = plan(arguments, self._base)
        if asked.target:
            Store(asked.root).check()
            write_manifest(asked, asked.root)
        try:
            returns = self._launcher.launch([list(run.overrides) for run in asked.runs], initial_job_idx=0)
        except RunsFailed:
            _close(asked)  # those that are done are told of
            raise
        _close(asked)
        if any(job.status is not JobStatus.COMPLETED for job in returns):
            raise RunsFailed(1)
        return returns


class _SweepLauncher(Launcher):
    """All runs of a sweep at once, and its end as an exit code; `options` are the fields of its backend."""

    def __init__(self, **options: Any) -> None:
        self._backend: Backend
        self._base: tuple[str, ...] = ()

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._base = _search_path_of(config)
        # Not while Hydra makes the plugin: it would wrap what is wrong in sentences of its own.
        self._backend = backend_of(OmegaConf.to_container(config.hydra.launcher, resolve=True))  # type: ignore[arg-type]

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        compose = composer(self._base)
        configs = [compose(overrides) for overrides in counted(job_overrides, "composed", len(job_overrides))]
        outcome = train(configs, self._backend, command=f"{sys.argv[0]} {shlex.join(map(plain, sys.argv[1:]))}")
        if outcome.exit_code:
            raise RunsFailed(outcome.exit_code)
        return [JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED) for overrides in job_overrides]


class LocalLauncher(_SweepLauncher):
    """The plugin `hydra/launcher=local`."""


class RayLauncher(_SweepLauncher):
    """The plugin `hydra/launcher=ray`."""


class SlurmLauncher(_SweepLauncher):
    """The plugin `hydra/launcher=slurm`."""


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


def _close(asked: SweepPlan) -> None:
    """Print what came of the sweep: here the command line hands over to analysis."""
    from rawls.analysis.compare.closing_table import closing_table

    if table := closing_table(asked.root, [run_id(run.config) for run in asked.runs]):
        print(table)
        store = Store(asked.root)
        states = store.states([run.run_id for run in asked.runs])
        done = [run for run in asked.runs if states[run.run_id] == "done"]
        told = [advice_on_sweep([(run.label, run.config, store.summary(run.run_id)) for run in done])]
        print("\n".join(filter(None, [*told, next_steps(asked.root, asked.runs)])))


def _search_path_of(config: DictConfig) -> tuple[str, ...]:
    """Those of Hydra's own overrides that decide where configurations are found."""
    overrides: list[str] = OmegaConf.select(config, "hydra.overrides.hydra")
    return tuple(text for text in overrides if text.startswith("hydra.searchpath"))

"""`python -m tests.runners.saving_sweep ROOT STEPS`: a sweep of real runs in two workers that save at every step."""

import sys
from pathlib import Path
from typing import Any

from rawls.runners.config.compose import composer
from rawls.runners.process.worker import Report
from rawls.runners.schedule.backends.local import ThisMachine
from rawls.runners.schedule.launcher import launch, planned
from rawls.runners.store.results_store import RunFolder, Store
from rawls.runners.training import fleet

TASK = "tests.runners.saving_sweep:train_fleet"
OVERRIDES = ("dataset=digits", "privacy=eps8", "scale=smoke", "schedule.evaluations=10", "tracking=off")
RUNS = 6


def train_fleet(configs: list[dict[str, Any]], folders: list[RunFolder], report: Report) -> None:
    fleet.SECONDS_BETWEEN_CHECKPOINTS, fleet.SAVING_SHARE = 0.0, 1.0
    fleet.train_fleet(configs, folders, report)


def main(root: Path, steps: str) -> int:
    compose, here = composer(()), (f"schedule.max_steps={steps}", f"results.root={root}")
    configs = [
        compose([*OVERRIDES, *here, f"algorithm={algorithm}", f"seed={seed}"])
        for algorithm in ("asc", "dpsgd", "azb_prop")
        for seed in range(RUNS // 3)
    ]
    backend = ThisMachine(workers=2)
    return launch([planned(config) for config in configs], store=Store(root), backend=backend, task=TASK).exit_code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))

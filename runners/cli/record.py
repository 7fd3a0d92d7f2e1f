"""`rawls record`: keep the runs of a target in the repository, and take recorded ones into a results folder."""

import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rawls.runners.cli.arguments import results_root
from rawls.runners.cli.planned import named_target, planned
from rawls.runners.config.errors import ConfigError
from rawls.runners.store.records import record, recorded, take
from rawls.runners.store.results_store import Store
from rawls.runners.store.stored import MANIFEST, target_folder
from rawls.runners.sweeps.experiments import SweepPlan

FOLDER = Path("analysis") / "reproduced"
RUNS = "runs"
NOT_KEPT = (".tex", ".pdf")  # forms of a drawing that only a paper asks for


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["keep", *rest]:
            _keep(planned(*named_target(rest)))
        case ["take", *rest] if all("=" in text for text in rest):
            _take(Store(results_root("record take", rest)), recorded(_records()))
        case ["take", *rest]:
            asked, there = planned(*named_target(rest)), set(recorded(_records()))
            _take(Store(asked.root), [run_id for run_id in _ids(asked) if run_id in there])
        case _:
            raise ConfigError("rawls record can do two things: rawls record take [TARGET], rawls record keep TARGET")
    return 0


def _keep(asked: SweepPlan) -> None:
    """Record every finished run of a target; and its drawing, once all are."""
    if not FOLDER.is_dir():
        raise ConfigError(f"there is no folder {FOLDER} here: call rawls record keep in a clone of the suite")
    store, wanted = Store(asked.root), _ids(asked)
    done = [run_id for run_id in wanted if store.state(run_id) == "done"]
    new = sum(record(store, run_id, FOLDER / RUNS) for run_id in done)
    print(f"{new} of {len(wanted)} runs recorded, {len(done) - new} were before; {len(wanted) - len(done)} to train")
    if len(done) < len(wanted):
        return
    for path in sorted(target_folder(asked.root, str(asked.target), asked.variant).iterdir()):
        if path.name != MANIFEST and path.suffix not in NOT_KEPT:
            copy = FOLDER / str(asked.target) / path.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            print(copy)


def _take(store: Store, run_ids: Sequence[str]) -> None:
    """Put recorded runs among those of a results folder."""
    store.check()
    taken = sum(take(store, run_id, _records()) for run_id in run_ids)
    print(f"{taken} recorded runs are now in {store.root}, {len(run_ids) - taken} were there before")
    print(f"See them: rawls dashboard results.root={store.root}")


def _ids(asked: SweepPlan) -> list[str]:
    return list(dict.fromkeys(run.run_id for run in asked.runs))


def _records() -> Path:
    folder = records_here()
    if folder is None:
        raise ConfigError("nothing is recorded here: recorded runs come with a clone of the suite, not with a wheel")
    return folder


def records_here() -> Path | None:
    """Where recorded runs lie: a clone has them, a wheel has none."""
    spec = find_spec("rawls.analysis")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / FOLDER.name / RUNS
    return folder if folder.is_dir() else None

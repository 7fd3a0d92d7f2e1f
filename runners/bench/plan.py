"""`rawls bench plan`: how long a thousand runs take from the command to the fleets that are handed to workers.

Each sweep is planned in a fresh process as `rawls train -m` plans it, imports counted: composed, checked (data loaded,
methods and models built, noise calibrated for every run), probed and packed into fleets. Nothing is trained.
"""

import json
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

from rawls.runners.bench.table import Row, Table, judged

_GRID = ["algorithm=asc,dpsgd,azb_prop", "optimizer.lr=0.01,0.03,0.1", "privacy.epsilon=1,2,4", "seed=range(0,37)"]
SWEEPS = {
    "digits: 3 methods x 3 rates x 3 budgets x 37 seeds": ["dataset=digits", *_GRID],
    "MNIST's twin at paper scale: the same": ["dataset=unbalanced_mnist", "scale=paper", *_GRID],
    "digits: a grid of 10 x 10 x 10 for one method": [
        "dataset=digits",
        "algorithm=asc",
        "algorithm.clip_norm=0.1,0.2,0.5,1,2,5,10,20,50,100",
        "algorithm.group_lr=0.1,0.2,0.3,0.5,1,2,3,5,7,10",
        "optimizer.lr=0.01,0.02,0.05,0.1,0.2,0.5,1,2,5,10",
    ],
}
STAGES = {"composed": "compose", "checked": "check and calibrate", "packed": "probe and pack"}
GOAL_SECONDS = 10.0
_SCRIPT = """
import json, sys, time
from pathlib import Path
began, root, arguments = float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
arguments += [f"results.root={root}/results", f"data.root={root}/data", "tracking=off"]
def seconds():
    return time.time() - began
from rawls.runners.process import lifecycle
lifecycle.prepare_process()
from rawls.runners.sweeps.experiments import plan
from rawls.runners.schedule.launcher import planned, preflight
from rawls.runners.schedule.planner import pack_fleets, places
from rawls.runners.store.results_store import Store
found = {"imported": seconds()}
runs = [planned(run.config) for run in plan(arguments, ()).runs]
found["composed"] = seconds()
preflight(runs, Store(root / "results"))
found["checked"] = seconds()
packed = pack_fleets(runs, workers=len(places(runs, workers=None)))
found["packed"] = seconds()
assert sorted(run.run_id for fleet in packed for run in fleet) == sorted(run.run_id for run in runs)
print(json.dumps({**found, "runs": len(runs), "fleets": len(packed)}))
"""


def measured(options: Namespace) -> Table:
    """Plan each sweep once."""
    raw = {name: _planned(name, arguments) for name, arguments in SWEEPS.items()}
    rows: list[Row] = []
    for name, found in raw.items():
        ends = ["imported", *STAGES]
        row: Row = {"what": name, "runs": str(found["runs"]), "fleets": str(found["fleets"])}
        row |= {"imported": found["imported"], "total": found["packed"]}
        row |= {end: found[end] - found[before] for before, end in zip(ends, ends[1:], strict=False)}
        rows.append(row)
    titles = {"what": "sweep", "runs": "runs", "fleets": "fleets", "imported": "import", **STAGES, "total": "total"}
    return Table(
        name="plan",
        title="From the command to the fleets",
        about="Seconds on the clock, a fresh process each.",
        columns=titles,
        digits=dict.fromkeys(("imported", *STAGES, "total"), 2),
        rows=rows,
        verdicts=[
            judged(
                name,
                {f"{found['packed']:.1f} s (goal {GOAL_SECONDS:g})": found["packed"] < GOAL_SECONDS},
            )
            for name, found in raw.items()
        ],
        raw=raw,
    )


def _planned(name: str, arguments: list[str]) -> dict[str, float]:
    print(f"planning {name}", file=sys.stderr)
    house = Path(__file__).resolve().parents[2]
    with TemporaryDirectory(prefix="rawls-bench-") as folder:
        command = [sys.executable, "-c", _SCRIPT, str(time.time()), folder, *arguments]
        said = subprocess.run(command, cwd=house, text=True, stdout=subprocess.PIPE, check=True).stdout
    found: dict[str, float] = json.loads(said.splitlines()[-1])
    return found

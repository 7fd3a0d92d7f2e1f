"""What a sweep is closed with: one table of WGA, AVG, claim and proven epsilon, a row for each setting of its runs."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from rawls.analysis.draw.budget_texts import OPEN, between, budgets, claim_text, order, rules_told, titled
from rawls.analysis.draw.stamps import stamp
from rawls.analysis.draw.tables import Cell, Table, count_text, spread_text
from rawls.analysis.draw.titles import DASH, dataset_title
from rawls.analysis.metrics.statistics import spread
from rawls.analysis.read import settings as all_settings
from rawls.analysis.read.load import load
from rawls.analysis.read.manifest import differing, in_words
from rawls.analysis.read.settings import Settings

MOST_ROWS = 100
_ALONE = ("seed", "dataset", "algorithm", "privacy.epsilon", "privacy.noise_multiplier")  # have columns of their own


def closing_table(results_root: str | Path, run_ids: Iterable[str]) -> str:
    """The finished runs among these, seeds of one setting together; empty without any."""
    runs = load(results_root, run_ids).runs
    done = runs[runs["status"] == "done"]
    if done.empty:
        return ""
    known = all_settings.load(results_root, done["run_id"])
    done = done.assign(
        budget=budgets(done),
        setting=[json.dumps(_own(known[run_id]), sort_keys=True, default=str) for run_id in done["run_id"]],
    )
    rows = [
        (dataset, order(budget), [Cell(text=text) for text in _texts(words, budget, own)])
        for (dataset, algorithm), of_method in done.groupby(["dataset", "algorithm"], sort=False)
        for words, budget, own in _settings(str(algorithm), of_method)
    ]
    rows.sort(key=lambda row: row[:2])
    table = Table(
        caption="",
        header=["Method", "Dataset", "Budget", "WGA", "AVG", "Seeds", "Claim", "Proven ε"],
        rows=[cells for *_, cells in rows[:MOST_ROWS]],
        num_labels=3,
    )
    more = f"{len(rows) - MOST_ROWS} more settings are not shown: `rawls dashboard` has all."
    notes = [
        stamp(done.assign(changed="")),
        "Test accuracy in percent, last iterate, mean ± standard deviation over seeds.",
        *(f"Claim by {rule}." for rule in rules_told(done)),
        *([more] if len(rows) > MOST_ROWS else []),
    ]
    return "\n".join([table.markdown().strip(), *filter(None, notes)])


def _settings(algorithm: str, runs: pd.DataFrame) -> Iterable[tuple[str, str, pd.DataFrame]]:
    """(its name, with what tells it from the method's other settings; its budget; its runs) of each setting."""
    points = {text: json.loads(text) for text in runs["setting"].unique()}
    names = differing(list(points.values()))
    for (text, budget), own in runs.groupby(["setting", "budget"], sort=False):
        words = in_words(_short(points[text]), [name.rpartition(".")[2] for name in names])
        yield (f"{algorithm} ({words})" if words else algorithm), str(budget), own


def _texts(method: str, budget: str, runs: pd.DataFrame) -> Sequence[str]:
    scores = [spread(runs[name]).scaled(100) for name in ("test_wga", "test_avg")]
    proven = OPEN if budget == OPEN else between(runs["epsilon_max"], ".4g")
    return [
        method,
        dataset_title(str(runs["dataset"].iloc[0])),
        titled(budget),
        *(spread_text(score, needed=len(runs)) for score in scores),
        count_text(len(runs), len(runs)),
        DASH if budget == OPEN else claim_text(runs, ".4g"),
        proven,
    ]


def _own(settings: Settings) -> Settings:
    return {key: value for key, value in settings.items() if key not in _ALONE and value is not None}


def _short(point: Settings) -> Settings:
    return {key.rpartition(".")[2]: value for key, value in point.items()}

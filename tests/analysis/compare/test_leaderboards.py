from pathlib import Path
from typing import Any

import yaml

from rawls.analysis.compare.leaderboards import Leaderboard, leaderboards
from rawls.analysis.read import settings
from rawls.analysis.read.load import load
from tests.analysis.stores import run_id, write_run

OPEN: dict[str, Any] = {"plan": None, "private": False, "claim": None}


def run(
    root: Path,
    algorithm: str,
    wga: float,
    *,
    seed: int = 0,
    lr: float = 0.1,
    epsilon: float | None = 1.0,
    **fields: Any,
) -> None:
    """A finished run with its configuration."""
    ident = run_id(algorithm, seed, lr, epsilon, sorted(fields))
    plan = {"target_epsilon": epsilon} if epsilon else None
    write_run(root, ident, algorithm=algorithm, seed=seed, wga=wga, avg=wga, **{"plan": plan, **fields})
    config = {"optimizer": {"lr": lr}, "privacy": {"epsilon": epsilon}, "seed": seed}
    (root / "runs" / ident / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")


def boards(root: Path) -> list[Leaderboard]:
    store = load(root)
    return leaderboards(store, {}, settings.load(root, store.runs["run_id"]))


def test_of_a_method_the_setting_with_most_seeds_counts_and_then_the_best_on_validation(tmp_path: Path) -> None:
    for seed in range(2):
        run(tmp_path, "asc", 0.5, seed=seed, lr=0.1)
        run(tmp_path, "asc", 0.6, seed=seed, lr=0.2)
    run(tmp_path, "asc", 0.9, lr=0.3)
    run(tmp_path, "dpsgd", 0.4)
    (board,) = boards(tmp_path)
    assert [(place.method, place.setting, len(place.runs)) for place in board.places] == [
        ("asc", "lr 0.2", 2),
        ("dpsgd", "", 1),
    ]


def test_budgets_datasets_and_scales_are_contests_of_their_own(tmp_path: Path) -> None:
    for epsilon in (1.0, 8.0):
        run(tmp_path, "asc", 0.5, epsilon=epsilon)
        run(tmp_path, "dpsgd", 0.4, epsilon=epsilon)
    run(tmp_path, "asc", 0.9, scale="smoke")
    run(tmp_path, "asc", 0.9, dataset="digits")
    run(tmp_path, "sgd", 0.9, epsilon=None, **OPEN)
    found = [
        (board.dataset, board.scale, board.budget, [place.method for place in board.places])
        for board in boards(tmp_path)
    ]
    assert found == [
        ("unbalanced_mnist", "paper", "1", ["asc", "dpsgd", "sgd"]),
        ("unbalanced_mnist", "paper", "8", ["asc", "dpsgd", "sgd"]),
        ("digits", "paper", "1", ["asc"]),
        ("unbalanced_mnist", "smoke", "1", ["asc"]),
    ]


def test_an_empty_store_has_none(tmp_path: Path) -> None:
    assert boards(tmp_path) == []

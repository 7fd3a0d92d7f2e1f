"""Fleets whose runs train on different numbers of rows."""

from __future__ import annotations

from pathlib import Path

from rawls.runners.config.compose import run_id
from rawls.runners.store.results_store import Store
from rawls.runners.training import setup
from tests.runners.training.test_fleet import configured, results, train


def test_seeds_that_differ_in_rows_and_in_steps_are_the_same_alone_and_in_a_fleet(tmp_path: Path) -> None:
    """Of 54,678 and 54,660 rows, say, the batch makes four steps and three."""
    asked = [
        "dataset=unbalanced_mnist", "dataset.provenance=simulated", "dataset.kept=coin", "dataset.validation=0",
        "dataset.max_examples=null", "model=logistic", "algorithm=dpsgd", "schedule.max_steps=null",
        "schedule.epochs=1", "schedule.evaluations=1",
    ]  # fmt: skip
    data = setup.load(configured(tmp_path, *asked))
    sizes = [len(data.splits(seed).train) for seed in (0, 1)]
    batch = (max(sizes) - 1) // 3
    assert min(sizes) <= 3 * batch < max(sizes)
    overrides = [(*asked, f"schedule.batch_size={batch}", f"seed={seed}") for seed in (0, 1)]
    together = [configured(tmp_path / "together", *run) for run in overrides]
    train(tmp_path / "together", together)
    steps = {Store(tmp_path / "together").summary(run_id(config))["steps"] for config in together}
    assert steps == {3, 4}
    for run in overrides:
        alone = configured(tmp_path / "alone", *run)
        train(tmp_path / "alone", [alone])
        assert results(tmp_path / "alone", alone) == results(tmp_path / "together", alone)

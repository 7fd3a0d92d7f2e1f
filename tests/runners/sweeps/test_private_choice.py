"""One model of a random number of tries: what is charged, what is kept of an interruption, and that the rest goes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rawls.accounting.accountants.stopping import Stopping, stopping
from rawls.runners.cli.commands import main
from rawls.runners.config.compose import run_id
from rawls.runners.config.errors import RunsFailed
from rawls.runners.store.results_store import Store
from rawls.runners.sweeps.experiments import SweepPlan, plan
from rawls.runners.sweeps.private_choice import DRAWS, FOLDER, choose_privately, noise_of_score
from rawls.runners.training.fleet import train_fleet

SMALL = [
    *("experiment=choose_private", "dataset=digits", "model=logistic", "scale=smoke", "privacy.epsilon=3"),
    *(
        "schedule.max_steps=3",
        "schedule.evaluations=1",
        "algorithm=dpsgd,auto_s",
        "optimizer.lr=0.1",
        "privacy.tries=3",
    ),
]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), min_size=1, max_size=6), st.data())
def test_one_row_moves_wga_by_no_more_than_one_over_the_smallest_group(
    groups: list[tuple[int, int]], data: st.DataObject
) -> None:
    sizes = [size for size, _ in groups]
    right = [min(correct, size) for size, correct in groups]
    place = data.draw(st.integers(0, len(groups) - 1))
    other = list(right)
    other[place] += data.draw(st.sampled_from([-1, 1]))
    if 0 <= other[place] <= sizes[place]:
        before, after = (min(r / n for r, n in zip(counts, sizes, strict=True)) for counts in (right, other))
        assert abs(before - after) <= 1 / min(sizes) + 1e-12


def test_a_score_costs_a_validation_row_what_a_try_may_cost_a_training_row() -> None:
    chosen = stopping(tries=10, epsilon=2.0, delta=1e-5)
    std = noise_of_score(chosen, 2.0, 1e-5, 25)
    divergence = chosen.order * (1 / 25 / std) ** 2 / 2  # of a Gaussian whose mean one row moves by 1/25
    assert divergence == pytest.approx(chosen.allowed(2.0, 1e-5))


def asked(root: Path, *overrides: str) -> SweepPlan:
    return plan([*SMALL, f"results.root={root}", *overrides])


def trained(configs: Sequence[dict[str, Any]]) -> None:
    store = Store(Path(configs[0]["results"]["root"]))
    store.check()
    for config in configs:
        folder = store.claim(run_id(config), config)
        assert folder is not None
        train_fleet([config], [folder], lambda message: None)


def test_the_chosen_run_is_published_whole_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stopping, "draw", lambda self, generator: 4)
    seen: list[dict[str, Any]] = []

    def train(configs: Sequence[dict[str, Any]]) -> None:
        seen.extend(configs)
        trained(configs)

    choice = choose_privately(asked(tmp_path), train)
    assert len(seen) == 4 and len({config["seed"] for config in seen}) == 4
    (published,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    assert published.name == run_id(choice.config) and run_id(choice.config) in {run_id(config) for config in seen}
    assert list((tmp_path / FOLDER).iterdir()) == []
    summary = Store(tmp_path).summary(published.name)
    assert summary["plan"]["epsilon"] <= 3.0 and summary["ledger_epsilon"] == pytest.approx(summary["plan"]["epsilon"])
    assert summary["plan"]["order"] == choice.stopping.order or summary["plan"]["order"] is None
    assumed = " ".join(json.loads((published / "ledger.json").read_text())["assumptions"])
    assert "chosen as the best of a random number of tries, 3 in the mean: epsilon covers the choice" in assumed
    assert choice.config["privacy"]["secure"] is True
    assert "those are deleted, and what the terminal showed of them is not to be passed on" in choice.told()
    assert all(config["alone"] for config in seen), "a fleet's size is stored, and would tell how many there were"
    assert json.loads((published / "environment.json").read_text())["fleet"] == 1


def test_without_the_choice_the_same_noise_would_claim_less(tmp_path: Path) -> None:
    """What the ledger must charge: the broken twin, which forgets the choice, comes out lower."""
    from rawls.runners.training import setup

    run = asked(tmp_path).runs[0]
    whole = setup.prepare_run(run.config).plan
    forgetful = run.config | {"privacy": run.config["privacy"] | {"tries": None, "epsilon": None}}
    assert whole is not None
    twin = setup.prepare_run(
        forgetful | {"privacy": forgetful["privacy"] | {"noise_multiplier": whole.noise_multiplier}}
    ).plan
    assert twin is not None and twin.epsilon < 0.9 * whole.epsilon <= 0.9 * 3.0


def test_what_was_interrupted_goes_on_with_the_same_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stopping, "draw", lambda self, generator: 2)

    def interrupted(configs: Sequence[dict[str, Any]]) -> None:
        raise RunsFailed(130)

    with pytest.raises(RunsFailed):
        choose_privately(asked(tmp_path), interrupted)
    (drawn,) = (tmp_path / FOLDER).rglob(DRAWS)
    before = json.loads(drawn.read_text())
    seeds: list[int] = []

    def train(configs: Sequence[dict[str, Any]]) -> None:
        seeds.extend(config["seed"] for config in configs)
        trained(configs)

    choose_privately(asked(tmp_path), train)
    assert seeds == [seed for _, seed, _ in before] and not drawn.exists()


def test_its_candidates_are_nobodys_to_see(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["reproduce", "choose_private", f"results.root={tmp_path}"]) == 2
    assert "call rawls choose private=true" in capsys.readouterr().err


def test_a_method_that_ends_by_a_filter_cannot_be_tried(tmp_path: Path) -> None:
    from rawls.runners.training import setup

    run = asked(tmp_path, "algorithm=fdpg").runs[0]
    with pytest.raises(ValueError, match="ends by a filter"):
        setup.prepare_run(run.config)

"""One run with many canaries: it trains as planned, its coins are seen where noise lets them be, and never too well."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from rawls.accounting.mechanism.streams import FleetNoise
from rawls.runners.audit.named import attack_by_name
from rawls.runners.audit.one_run import Game, Options
from rawls.runners.config.compose import composer
from rawls.runners.config.errors import ConfigError
from rawls.runners.training.setup import prepare_run

FULL_BATCH = ["dataset=digits", "model=logistic", "schedule.batch_size=1034", "schedule.epochs=2", "tracking=off"]


def game(*overrides: str, options: Options, algorithm: str = "dpsgd") -> Game:
    return Game(composer()([*FULL_BATCH, f"algorithm={algorithm}", *overrides]), options)


def of_all(rows: list[dict[str, Any]], attacker: str) -> dict[str, Any]:
    (found,) = [row for row in rows if row["record"] == "all canaries" and row["attack"] == f"one run, {attacker}"]
    return found


def noise(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """All noise times a factor, which no ledger sees."""
    honest = FleetNoise.add

    def add(self: FleetNoise, values: torch.Tensor, stds: tuple[float, ...], *at: Any) -> None:
        honest(self, values, tuple(factor * std for std in stds), *at)

    monkeypatch.setattr(FleetNoise, "add", add)


def test_coins_decide_nothing_but_who_contributes() -> None:
    """Plan and law are the run's own; coins are fair (600, seed 0: within 4 standard errors) and of each run."""
    played = game(options=Options(canaries=300, runs=2))
    assert played.plan is prepare_run(composer()([*FULL_BATCH, "algorithm=dpsgd"])).plan
    assert played.coins.shape == (2, 300) and abs(played.coins.mean() - 0.5) < 4 * 0.5 / np.sqrt(600)
    assert not np.array_equal(*played.coins)
    members = [played._member(run) for run in range(2)]
    for member, coins in zip(members, played.coins, strict=True):
        assert member.without.tolist() == played.positions[~coins].tolist()
        assert member.positions(0).tolist() == sorted(set(range(1034)) - set(member.without))


def test_canaries_lie_where_they_are_asked_for() -> None:
    smallest = game(options=Options(where="smallest_group"))
    assert len(smallest.positions) == 19
    assert (smallest.rows.cells[smallest.positions] == 8).all()
    owned = game("owners=digits", options=Options(where="most_private_owner", canaries=40), algorithm="idp_sgd")
    owners = np.asarray(owned.task.population.owners)[owned.rows.cells[owned.positions]]
    assert len(owners) == 40 and set(owners) == {int(np.argmin(owned.task.owner_epsilons))}
    with pytest.raises(ConfigError, match="where=most_private_owner: the run has no owners"):
        game(options=Options(where="most_private_owner"))


def test_a_record_is_the_row_under_another_label_or_one_pixel() -> None:
    row, wrong, pixel = (game(options=Options(canaries=50, record=kind)) for kind in ("row", "mislabelled", "pixel"))
    at = torch.from_numpy(row.positions)
    assert (row.rows.labels[at] != wrong.rows.labels[at]).all() and torch.equal(row.rows.rows, wrong.rows.rows)
    inputs = pixel.rows.gather(pixel.rows.rows)
    assert (inputs[at].flatten(1).sort().values[:, -2:] == torch.tensor([0.0, 100.0])).all()
    others = np.setdiff1d(np.arange(1034), row.positions)
    assert torch.equal(inputs[others], row.rows.gather(row.rows.rows)[others])
    assert torch.equal(pixel.rows.labels[others], row.rows.labels[others])


def test_without_noise_every_coin_is_seen_and_with_much_noise_none() -> None:
    """300 pixel canaries at full batch, seed 0. Nearly no noise: 99 % of all coins are guessed, and the bound is what
    so many guesses can show; much noise: no more than half of them and 4 standard errors, and no bound."""
    options = Options(canaries=300, record="pixel")
    seen = game("privacy.epsilon=null", "privacy.noise_multiplier=1e-3", "privacy.delta=1e-9", options=options).play()
    found = of_all(seen, "sums")
    assert found["right"] >= 0.99 * found["guesses"] and 3.0 < found["lower_bound"] < found["proven"]
    blind = game("privacy.epsilon=null", "privacy.noise_multiplier=1e3", options=options)
    readings = blind.play()
    assert all(row["lower_bound"] == 0 for row in readings)


def test_the_bound_of_every_part_stays_below_what_is_proven_and_a_tenth_of_the_noise_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Poisson, epsilon 0.5, two runs of 500 pixel canaries, seed 0; delta 1e-6 is not what decides."""
    asked = ["algorithm.sampling=poisson", "privacy.epsilon=0.5", "privacy.delta=1e-6"]
    options = Options(record="pixel", runs=2)
    rows = game(*asked, options=options).play()
    assert {row["record"] for row in rows} == {"all canaries", *(f"group digit {digit}" for digit in range(10))}
    assert all(row["lower_bound"] <= row["proven"] for row in rows)
    noise(0.1, monkeypatch)
    found = of_all(game(*asked, options=options).play(), "sums")
    assert found["lower_bound"] > 2 * found["proven"]


def test_an_open_method_is_attacked_by_its_final_model(tmp_path: Path) -> None:
    """400 rows, each in or out, of a linear model trained for 40 epochs at a high rate."""
    arguments = [*FULL_BATCH, "algorithm=sgd", f"results.root={tmp_path}", "canaries=400", "record=pixel"]
    rates = ["optimizer.lr=1", "schedule.batch_size=64", "schedule.epochs=40"]
    name, report = attack_by_name(["attack=one_run", *arguments, *rates])
    assert name == "one_run" and {row["attack"] for row in report.rows} == {"one run, losses"}
    assert of_all(report.rows, "losses")["lower_bound"] > 0.3 and report.rows[0]["proven"] is None
    assert pd.read_csv(report.files[0])["lower_bound"].tolist() == pytest.approx(
        [row["lower_bound"] for row in report.rows]
    )


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["attack=lyra"], "attack=lyra names no attack: did you mean lira"),
        ([], "names no attack"),
        (["attack=one_run", "canaries=0"], "canaries=0 must be at least 1"),
        (["attack=one_run", "record=cat"], "record=cat must be one of row, mislabelled, pixel"),
        (["attack=one_run", "all"], "does not know 'all'"),
        (["attack=one_run", "schedule.plan_only=true"], "can't be attacked in one run"),
        (["attack=one_run", "algorithm=minimax_phased_erm", "model=logistic"], "can't be attacked in one run"),
        (["attack=lira", "seed=3"], "'seed=3': an attack's runs have seeds and halves of their own"),
        (["attack=lira", "shadows=2"], "shadows=2 must be at least 4"),
    ],
)
def test_what_can_not_be_attacked_is_one_sentence(asked: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        attack_by_name([*asked, *(["algorithm=dpsgd"] if "algorithm" not in str(asked) else [])])

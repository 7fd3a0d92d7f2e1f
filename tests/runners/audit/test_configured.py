"""A configured method: its own data with records exchanged, its own plan on other schedules."""

import numpy as np
import pytest
import torch

from rawls.accounting.events import Neighbouring
from rawls.runners.audit import attacks
from rawls.runners.audit.attacks import Setting, attacked, records_of, settings_of
from rawls.runners.audit.canary_game import CONFIDENCE, scores_of
from rawls.runners.audit.command import _configured
from rawls.runners.audit.configured import FAR, Configured


def configured(name: str, *overrides: str) -> Configured:
    return Configured.of(_configured(name, ["dataset.max_examples=200", *overrides]))


def test_a_record_is_exchanged_in_the_runs_that_ask_and_in_no_other() -> None:
    case = configured("dpsgd")
    canary = case.canaries(8)[0]
    usual, changed = case.training_rows([{}, {canary.position: canary.record}])
    before, after = (rows.gather(rows.rows) for rows in (usual, changed))
    differ = (before != after).flatten(1).any(1).nonzero()[:, 0].tolist()
    assert differ == [canary.position] and case.cell_of(canary.position) == 8
    assert int(changed.labels[canary.position]) == canary.record.label
    assert torch.equal(changed.labels[: canary.position], usual.labels[: canary.position])
    assert changed.gather is usual.gather  # a fleet looks all of its inputs up in one place


def test_canaries_have_a_pixel_that_no_row_uses_and_pull_in_opposite_directions() -> None:
    case = configured("dpsgd")
    assert case.plan.budget.neighbouring is Neighbouring.REPLACE_ONE
    (rows,) = case.training_rows([{}])
    inputs = rows.gather(rows.rows).flatten(1)
    for canary in case.canaries(8):
        assert canary.instead is not None and canary.instead.label == canary.record.label
        pixel = int(canary.record.inputs.abs().argmax())
        assert float(inputs[:, pixel].var()) == float(inputs.var(0).min())
        assert float(canary.record.inputs.view(-1)[pixel]) == -float(canary.instead.inputs.view(-1)[pixel]) in FAR
    assert all(canary.instead is None for canary in configured("auto_s").canaries(8))


def test_a_full_batch_is_all_rows_at_the_configurations_own_budget() -> None:
    case = configured("dpsgd", "privacy=eps8")
    wide = case.full_batch(2)
    assert (wide.batch_size, wide.steps) == (sum(case.sizes), 2)
    assert wide.plan.epsilon == pytest.approx(8, rel=1e-3) and wide.plan.budget == case.plan.budget
    played = scores_of(wide, wide.canaries(8)[:3], "test", second=False, steps=2)
    largest = 2 * (2 / wide.plan.noise_multiplier) ** 2  # two steps, in which the record moves the sum by two bounds
    assert played.gaussian and 0.8 * largest < played.exposures.max() <= largest * (1 + 1e-6)


def test_owners_are_taken_where_a_method_keeps_them_and_the_most_private_is_attacked() -> None:
    case = configured("idp_sgd")
    assert case.task.owner_epsilons == (2, 8)
    cell = records_of(case)["most private owner"]
    assert case.task.population.owners[cell] == 0 and case.plan.epsilon_per_cell[cell] < 2.01
    assert list(records_of(configured("dpsgd"))) == ["smallest group"]


def test_all_bounds_on_a_method_share_its_confidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two settings with two views and a few runs each, and two attackers of many canaries."""
    usual = settings_of(configured("dp_is_sgd", "schedule.max_steps=2"))
    few = {name: Setting(case=one.case, runs=6, pilots=4) for name, one in usual.items()}
    monkeypatch.setattr(attacks, "settings_of", lambda _: few)
    found = attacked(configured("dp_is_sgd", "schedule.max_steps=2"))
    assert len(found) == 6
    assert {one.attack for one in found} == {"published sums", "final model", "one run, sums", "one run, losses"}
    assert all(one.confidence == pytest.approx(1 - (1 - CONFIDENCE) / 6, abs=1e-12) for one in found)
    assert {one.rule for one in found} == {"gdp_clt"} and all(one.runs == 20 for one in found)
    assert all(np.isfinite(one.lower_bound) and one.proven == pytest.approx(8, rel=1e-3) for one in found)


def test_data_that_are_too_large_are_named_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"set dataset\.max_examples=\d+ or less"):
        Configured.of(_configured("dpsgd", ["dataset=unbalanced_mnist", "dataset.provenance=simulated"]))

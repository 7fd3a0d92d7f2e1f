"""`rawls train -m 'algorithm=glob(*)'`: one command trains every method there is, whatever it asks for.

Open methods take no budget, some keep owners, some train linear models only: none of it may stop the others.
"""

from __future__ import annotations

from functools import lru_cache

import pytest

from rawls.runners.config.compose import choices, composer, run_id
from rawls.runners.config.specifications import name_of
from rawls.runners.sweeps.experiments import ComposedRun, plan
from rawls.runners.training.setup import check_model, prepare_run

REST = ("dataset=digits", "privacy=eps8", "owners=digits")


@lru_cache(maxsize=1)
def swept() -> dict[str, ComposedRun]:
    asked = plan(["algorithm=glob(*)", *REST])
    return {name_of(run.config["algorithm"]): run for run in asked.runs}


def test_the_sweep_has_every_method_once() -> None:
    assert tuple(swept()) == choices("algorithm")
    assert len({run.run_id for run in swept().values()}) == len(swept())


@pytest.mark.parametrize("name", choices("algorithm"))
def test_a_method_can_be_trained_in_the_sweep(name: str) -> None:
    """By what the launcher checks of each run before any of them starts."""
    config = swept()[name].config
    check_model(config)
    prepared = prepare_run(config)
    if prepared.plan is None:
        assert not prepared.method.private and config["privacy"]["epsilon"] is None
        alone = composer()([f"algorithm={name}", "dataset=digits", "privacy=none"])
        assert run_id(alone) == run_id(config), "the budget of the sweep makes another run of it"
    elif prepared.method.keeps_owners:
        assert prepared.plan.budget.owner_epsilons and config["privacy"]["epsilon"] is None
    else:
        assert prepared.plan.budget.epsilon == 8 and config["owners"] is None

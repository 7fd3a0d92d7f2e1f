"""The methods that are compared do the same work."""

import pytest

from runners.bench import methods, step, sweep


@pytest.mark.parametrize("method", ["rawls", "same batch", *methods.METHODS])
def test_every_method_steps(method: str) -> None:
    made = methods.step_of("logistic", method)
    made()
    made()


def test_every_workload_has_a_model() -> None:
    assert methods.MODELS.keys() == step.WORKLOADS.keys() | sweep.WORKLOADS.keys()

"""The methods that are compared do the same work."""

import pytest

from rawls.runners.bench import methods, step, sweep


@pytest.mark.filterwarnings("ignore:optax.global_norm:DeprecationWarning")  # jax-privacy's affair
@pytest.mark.parametrize("method", ["rawls", "same batch", *methods.METHODS])
@pytest.mark.parametrize("workload", ["logistic", "mnist_cnn_pooled"])
def test_every_method_steps(method: str, workload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if method == "jax":
        pytest.importorskip("jax_privacy")
    monkeypatch.setattr(methods, "BATCH", 8)
    made = methods.step_of(workload, method)
    made()
    made()


def test_every_workload_has_a_model() -> None:
    assert methods.MODELS.keys() == step.WORKLOADS.keys() | sweep.WORKLOADS.keys()

"""The methods that are compared do the same work."""

import pytest
import torch

from rawls.algorithms.pgd_at import PgdAt
from rawls.models.architectures.parts.transformer import PADDING
from rawls.runners.bench import each_method, methods, plain_loops, step, sweep


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


def test_a_method_without_privacy_steps_on_one_batch_as_its_plain_loop_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "BATCH", 8)
    problem = methods.Problem.of("logistic")
    stepper = methods.open_stepper_of(problem, PgdAt())
    stepper.keep_full_batch()
    batch = stepper.batch
    assert batch is not None and batch.count(0) == 8
    before = stepper.params.clone()
    stepper.next_step()
    assert stepper.batch is batch and not stepper.params.equal(before)
    module = problem.build()
    start = [parameter.detach().clone() for parameter in module.parameters()]
    plain_loops.adversarial(module, batch.inputs[0], batch.labels[0])()
    assert not all(one.equal(other) for one, other in zip(module.parameters(), start, strict=True))


def test_a_workload_has_the_batch_and_the_inputs_of_its_model() -> None:
    inputs, labels = methods.Problem.of("distilbert_2").batch()
    assert inputs.shape == (8, 128) and labels.shape == (8,)
    assert not inputs.is_floating_point() and bool((inputs != PADDING).all())
    inputs, _ = methods.Problem.of("logistic").batch()
    assert inputs.shape == (methods.BATCH, 104)


def test_the_loops_that_attack_train_alike() -> None:
    """From the same starts to the same parameters, but for rounding; not without the attack."""
    problem = methods.Problem.of("logistic")
    images, labels = problem.batch()[0].sigmoid(), problem.batch()[1]
    trained = []
    for loop in (plain_loops.rice, plain_loops.adversarial, plain_loops.plain):
        torch.manual_seed(0)
        module = problem.build()
        torch.manual_seed(1)
        loop(module, images, labels)()
        trained.append(torch.cat([parameter.detach().flatten() for parameter in module.parameters()]))
    torch.testing.assert_close(trained[0], trained[1], rtol=1e-4, atol=1e-6)
    assert (trained[0] - trained[2]).abs().max() > 1e-4


def test_every_workload_has_a_model() -> None:
    assert methods.MODELS.keys() == step.WORKLOADS.keys() | sweep.WORKLOADS.keys() | each_method.WORKLOADS.keys()

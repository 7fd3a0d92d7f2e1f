"""The plain engine: one pass of autograd over a whole batch, for methods without privacy.

No gradient of a sample is ever apart from the others, so layers may mix samples (BatchNorm), draw at random (dropout),
or be whatever else torch knows. The norms that are shown are zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import torch
from torch import Tensor, nn

from rawls.models.engines.base import (
    FlatParameters,
    InputGradients,
    Look,
    ModuleEngine,
    SecondPoint,
    Triple,
    Weigh,
    WeightedSum,
    aligned,
    aligned_rows,
    bindable,
    initial_parameters,
    usable_by_autograd,
)
from rawls.models.engines.batch_parts import Part, weigh_parts
from rawls.models.engines.check_layers import check_layers, draws_at_random
from rawls.models.engines.fused import FusedEngine
from rawls.models.engines.layer_steps import by_autograd
from rawls.models.engines.propagation import is_chain
from rawls.models.objectives import CROSS_ENTROPY, Objective, evaluate, gradients_of_inputs, predict

AT_ONCE = 512  # samples that are evaluated together


class PlainEngine(ModuleEngine):
    """Sums of weights x losses by autograd, one run after another.

    A run's row is its parameters and behind them its buffers, running statistics above all. A step moves the buffers,
    in the row itself, as torch does in training; its total is of the parameters alone. Evaluation moves nothing.

    Args:
        build: makes the module; called with torch's generator seeded by `initial`.
        device: where parameters and batches live.
    """

    def __init__(
        self, build: Callable[[], nn.Module], *, device: torch.device, objective: Objective = CROSS_ENTROPY
    ) -> None:
        super().__init__(build, device, objective)
        check_layers(self._module, "plain")
        self._parameters = [getattr(layer, name) for layer, name in self._flat.of_layers()]
        self._draws = any(draws_at_random(layer) for layer in self._module.modules())
        self.num_buffers = sum(buffer.numel() for buffer in self._module.buffers())

    def initial(self, seed: int) -> Tensor:
        module = initial_parameters(self._build, seed)
        return torch.cat([FlatParameters(module).flatten(module), *_buffers(module)]).to(self._device)

    def named(self, params: Tensor) -> dict[str, Tensor]:
        found, start = super().named(params[: self.num_parameters]), self.num_parameters
        for name, buffer in self._module.named_buffers():
            found[name] = params[start : start + buffer.numel()].view(buffer.shape)
            start += buffer.numel()
        return found

    def weighted_sum(
        self,
        params: Tensor,
        inputs: Tensor,
        labels: Tensor,
        weigh: Weigh,
        counts: Sequence[int] | None = None,
        *,
        look: Look | None = None,
        second: SecondPoint | None = None,
        seeds: Sequence[int] | None = None,
    ) -> WeightedSum:
        """As the contract says, but `weigh` is called once per run, for its whole batch; nan goes through.

        Raises:
            ValueError: what is asked for belongs to private methods, or seeds are missing.
        """
        if second is not None or (look is not None and "norms" in look.needs):
            raise ValueError("engine=plain has no norms of samples and no second point; use engine=auto")
        if self._draws and seeds is None:
            raise ValueError("the model draws at random in training, so engine=plain needs a seed for each run")
        runs, slots = labels.shape
        rows: list[list[Triple]] = []
        self._set_training(True)
        with torch.inference_mode(False):
            inputs, labels = usable_by_autograd(inputs), usable_by_autograd(labels)
            total = aligned_rows(runs, self.num_parameters, like=params)
            for run in range(runs):
                used = slots if counts is None else counts[run]
                parts: list[Part] = []
                if used:
                    self._bind(params[run])
                    with _drawing(None if seeds is None else seeds[run], self._device):
                        parts.append(self._part(aligned(inputs[run])[:used], labels[run, :used], run, total[run]))
                    self._store(params[run])
                rows.append(weigh_parts(parts.copy, slice(run, run + 1), weigh, look, counts, params))
                if used < slots:
                    rows[-1].append((params.new_zeros(1, slots - used),) * 3)
        return WeightedSum.of_parts(rows, total)

    def evaluate(self, params: Tensor, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        self._bind(params)
        self._set_training(False)
        with torch.no_grad():
            return evaluate(self._objective, self._module, inputs, labels, AT_ONCE)

    def predict(self, params: Tensor, inputs: Tensor) -> Tensor:
        self._bind(params)
        self._set_training(False)
        with torch.no_grad():
            return predict(self._module, inputs, AT_ONCE)

    def input_gradients(self, params: Tensor, labels: Tensor, *, seed: int | None = None) -> InputGradients:
        if self._chain is not None:
            return self._chain.input_gradients(params, labels)
        self._bind(params)
        self._set_training(seed is not None)
        at_once = AT_ONCE if seed is None else max(len(labels), 1)  # layers that mix samples see them all
        model = by_autograd(self._module)

        def gradients(inputs: Tensor) -> Tensor:
            with _drawing(seed if self._draws else None, self._device):
                return gradients_of_inputs(self._objective, model, inputs, labels, at_once)

        return gradients

    @cached_property
    def _chain(self) -> FusedEngine | None:
        """Takes gradients of inputs faster, where the model is a chain of layers, none of which mixes or draws."""
        return (
            FusedEngine(self._build, device=self._device, objective=self._objective) if is_chain(self._module) else None
        )

    def _part(self, inputs: Tensor, labels: Tensor, run: int, total: Tensor) -> Part:
        """A run's whole batch, and what adds its weighted gradients to the total."""
        with torch.enable_grad():
            losses = self._objective.losses(self._module(inputs), labels)
        shown = losses.detach().unsqueeze(0)

        def add(weights: Tensor) -> None:
            gradients = torch.autograd.grad(
                losses, self._parameters, usable_by_autograd(weights[0]), allow_unused=True, materialize_grads=True
            )
            for view, gradient in zip(self._flat.views(total), gradients, strict=True):
                view.copy_(gradient)

        window = slice(run, run + 1), slice(0, len(labels))
        return Part(window, shown, torch.zeros_like(shown), finite=True, add=add)

    def _set_training(self, training: bool) -> None:
        """To tell every layer takes as long as the layers of a small model compute."""
        if self._module.training is not training:
            self._module.train(training)

    def _bind(self, row: Tensor) -> None:
        """Compute with these parameters, and with a copy of the buffers behind them."""
        self._flat.bind(bindable(row[: self.num_parameters]))
        if not self.num_buffers:
            return
        pieces = row[self.num_parameters :].split([buffer.numel() for buffer in self._module.buffers()])
        with torch.inference_mode(False):
            for buffer, values in zip(self._module.buffers(), pieces, strict=True):
                kind = row.dtype if buffer.is_floating_point() else buffer.dtype
                buffer.data = values.clone().view(buffer.shape).to(kind)

    def _store(self, row: Tensor) -> None:
        """Put the buffers back behind the parameters."""
        if self.num_buffers:
            with torch.inference_mode(row.is_inference()):  # elsewhere torch would not write there
                row[self.num_parameters :] = torch.cat(_buffers(self._module))


def _buffers(module: nn.Module) -> list[Tensor]:
    """The module's buffers as rows of numbers like its parameters."""
    like = next(module.parameters())
    return [buffer.reshape(-1).to(like.dtype) for buffer in module.buffers()]


@contextmanager
def _drawing(seed: int | None, device: torch.device) -> Iterator[None]:
    """Draw from this seed alone, and leave torch's generators as they were."""
    if seed is None:
        yield
        return
    # torch.manual_seed takes a fifth of a millisecond, and torch.random.fork_rng as much again.
    generators = [torch.default_generator]
    if device.type == "cuda":
        number = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[number])
    states = [generator.get_state() for generator in generators]
    try:
        for generator in generators:
            generator.manual_seed(seed)
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)

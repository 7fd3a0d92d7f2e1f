"""The Opacus engine: per-sample gradients by Opacus' module hooks, for models or layers the fused engine is
not for.

Mode `hooks` keeps the per-sample gradients of a micro-batch until they are weighted and summed; mode `ghost`
(Li et al. 2022; fast gradient clipping of Lee and Kifer 2021) takes the norms in one backward pass, layer by
layer, and the weighted sum from a second one, so that it never holds the gradients of more than a layer.
Weights, clipping and noise are not Opacus' affair here: only its rules for layers are used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, get_args

import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.grad_sample.functorch import ft_compute_per_sample_gradient
from torch import Tensor, nn

from rawls.models.engines.base import (
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
    usable_by_autograd,
)
from rawls.models.engines.batch_parts import Part, PointOfRun, points_of_run, weigh_parts
from rawls.models.engines.check_layers import check_layers
from rawls.models.engines.layer_rules import RULES
from rawls.models.engines.layer_steps import by_autograd
from rawls.models.objectives import CROSS_ENTROPY, Objective, evaluate, gradients_of_inputs, predict

Mode = Literal["hooks", "ghost"]


class _GhostClipping(GradSampleModuleFastGradientClipping):
    """Opacus' ghost clipping with norms that are never too low: they bound what the second pass adds.

    Its Gram matrices in single precision lose what positions that cancel leave, a fifth of a norm and more; and
    torch's own norm of some million entries is off by up to 1e-3. So the norms of every layer are taken here.
    """

    def __init__(self, module: nn.Module, **options: Any) -> None:
        super().__init__(module, **options)
        self.NORM_SAMPLERS = {type(layer): _layer_norms for layer in module.modules()}


def _layer_norms(layer: nn.Module, activations: list[Tensor], gradients: Tensor) -> dict[nn.Parameter, Tensor]:
    """Gradient norms [sample] of a layer's parameters; those of a layer with a ghost rule all under its first one."""
    parameters = list(layer.parameters(recurse=False))
    if isinstance(layer, nn.Linear | nn.Embedding):
        squares, _ = RULES[type(layer)].combine(layer, [(activations[0], gradients)])
        return dict.fromkeys(parameters, torch.zeros_like(squares)) | {parameters[0]: squares.sqrt()}
    sampler = GradSampleModule.GRAD_SAMPLERS.get(type(layer), ft_compute_per_sample_gradient)
    samples = sampler(layer, activations, gradients)
    return {parameter: _squares(values).sqrt() for parameter, values in samples.items()}


def _squares(values: Tensor) -> Tensor:
    """Squared norm of each sample's values; torch's norm would round long rows by far more."""
    return values.reshape(len(values), -1).square().sum(1)


_HOOKS = {"hooks": GradSampleModule, "ghost": _GhostClipping}
_RESULT = {"hooks": "grad_sample", "ghost": "_norm_sample"}  # the attribute of a parameter that the hooks set
PHYSICAL_BATCH = 16
LOOK_BYTES = 1 << 30  # per-sample gradients that a look may keep until their weights are known; more are computed twice


class OpacusEngine(ModuleEngine):
    """Per-sample gradients by hooks on modules, one run after another, in micro-batches.

    Args:
        build: makes the module; called with torch's generator seeded by `initial`.
        device: where parameters and batches live.
        mode: `hooks` is the reference; `ghost` needs less memory and refuses a layer used twice.
        physical_batch: samples per micro-batch; it changes memory and speed, the result only by rounding.
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        *,
        device: torch.device,
        mode: Mode = "hooks",
        physical_batch: int = PHYSICAL_BATCH,
        objective: Objective = CROSS_ENTROPY,
    ) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"mode={mode} is not one of the Opacus engine's: {', '.join(get_args(Mode))}")
        if physical_batch < 1:
            raise ValueError(f"physical_batch={physical_batch} must be at least 1")
        # In training mode for good: hooks are silent in the other, and to no layer taken here it matters.
        super().__init__(build, device, objective)
        self._mode = mode
        self._physical_batch = physical_batch
        check_layers(self._module, "opacus")
        self._parameters = [getattr(layer, name) for layer, name in self._flat.of_layers()]
        names = {id(parameter): name for name, parameter in self._module.named_parameters()}
        self._names = [names[id(parameter)] for parameter in self._parameters]
        for layer in self._module.modules():
            if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
                layer.register_forward_pre_hook(_make_contiguous)
        # Not strict: it refuses constant buffers too, and check_layers has refused the layers it is after.
        self._hooks = _HOOKS[mode](self._module, loss_reduction="sum", strict=False)

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
        runs, slots = labels.shape
        rows: list[list[Triple]] = []
        with torch.inference_mode(False), warnings.catch_warnings():
            # torch would say at every step that inputs need no gradient
            warnings.filterwarnings("ignore", "Full backward hook is firing")
            inputs, labels = usable_by_autograd(inputs), usable_by_autograd(labels)
            total = aligned_rows(runs, self.num_parameters, like=params)
            for run in range(runs):
                of_run = slice(run, run + 1)
                at = points_of_run(params, second, run)
                if len(at) > 1 and self._mode == "ghost":
                    raise ValueError("engine=opacus_ghost takes no gradients at two points; use engine=opacus_hooks")
                used = slots if counts is None else counts[run]
                views = self._flat.views(total[run])
                make = partial(self._parts, at, aligned(inputs[run]), labels[run], run, used, views)
                # Ghost mode is for those who lack memory, so it keeps nothing.
                keep = self._mode == "hooks" and used * self.num_parameters * params.element_size() <= LOOK_BYTES
                rows.append(weigh_parts(make, of_run, weigh, look, counts, params, keep=keep))
                if used < slots:
                    rows[-1].append((params.new_zeros(1, slots - used),) * 3)
        return WeightedSum.of_parts(rows, total)

    def evaluate(self, params: Tensor, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        self._flat.bind(params)
        with torch.no_grad():
            return evaluate(self._objective, self._module, inputs, labels, self._physical_batch)

    def predict(self, params: Tensor, inputs: Tensor) -> Tensor:
        self._flat.bind(params)
        with torch.no_grad():
            return predict(self._module, inputs, self._physical_batch)

    def input_gradients(self, params: Tensor, labels: Tensor, *, seed: int | None = None) -> InputGradients:
        self._flat.bind(bindable(params))
        model = by_autograd(self._module)

        def gradients(inputs: Tensor) -> Tensor:
            self._hooks.disable_hooks()
            try:
                return gradients_of_inputs(self._objective, model, inputs, labels, self._physical_batch)
            finally:
                self._hooks.enable_hooks()

        return gradients

    def _parts(
        self, at: list[PointOfRun], inputs: Tensor, labels: Tensor, run: int, used: int, views: list[Tensor]
    ) -> Iterator[Part]:
        """The micro-batches of a run, up to their weights."""
        for start in range(0, used, self._physical_batch):
            slots = slice(start, min(start + self._physical_batch, used))
            yield self._part(at, inputs[slots], labels[slots], (slice(run, run + 1), slots), views)

    def _part(
        self, at: list[PointOfRun], inputs: Tensor, labels: Tensor, window: tuple[slice, slice], views: list[Tensor]
    ) -> Part:
        """Losses and norms of a micro-batch, and what adds its weighted gradients to the views."""
        passes = [self._run_hooks(flat, share, inputs, labels) for flat, share in at]
        (losses, results), *others = passes
        for _, more in others:
            results = [result.add_(other) for result, other in zip(results, more, strict=True)]
        squares = torch.stack([_squares(result) for result in results]).sum(0)
        norms = squares.sqrt_().nan_to_num_(nan=torch.inf, posinf=torch.inf)
        finite = norms < torch.inf

        def add(weights: Tensor) -> None:
            if self._mode == "hooks":
                _add_samples(results, weights[0], finite, views)
            else:
                self._add_second_pass(at[0][0], losses, inputs, labels, weights[0], finite, views)

        return Part(window, losses.detach().unsqueeze(0), norms.unsqueeze(0), bool(finite.all()), add)

    def _run_hooks(
        self, flat: Tensor, share: float | None, inputs: Tensor, labels: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Losses, and per parameter the share of gradients [sample, ...] (hooks) or their norms [sample] (ghost)."""
        self._flat.bind(flat)
        attribute = _RESULT[self._mode]
        for parameter in self._parameters:
            setattr(parameter, attribute, None)
        with torch.enable_grad():
            try:
                losses = self._losses(inputs, labels)
            except NotImplementedError as error:
                raise ValueError("a layer is used twice in one forward pass; use engine=opacus_hooks") from error
            summed = losses.sum() if share is None else share * losses.sum()
            summed.backward(retain_graph=self._mode == "ghost")
        results = []
        for name, parameter in zip(self._names, self._parameters, strict=True):
            result = getattr(parameter, attribute)
            setattr(parameter, attribute, None)
            parameter.grad = None  # of the whole batch, a by-product
            if result is None or len(result) != len(labels):
                raise ValueError(
                    f"parameter '{name}' received no gradient per sample with engine=opacus_{self._mode}: "
                    "call its layer as a module, on a tensor whose first dimension is the sample"
                )
            results.append(result)
        return losses, results

    def _add_second_pass(
        self,
        flat: Tensor,
        losses: Tensor,
        inputs: Tensor,
        labels: Tensor,
        weights: Tensor,
        finite: Tensor,
        views: list[Tensor],
    ) -> None:
        """Add the gradient of the weighted loss, in which autograd itself sums over the samples."""
        if not bool(finite.any()):
            return
        self._flat.bind(flat)
        self._hooks.disable_hooks()
        with torch.enable_grad():
            if not bool(finite.all()):  # their part of the tape would turn a zero weight into nan
                losses, weights = self._losses(inputs[finite], labels[finite]), weights[finite]
            gradients = torch.autograd.grad((weights * losses).sum(), self._parameters)
        self._hooks.enable_hooks()
        for view, gradient in zip(views, gradients, strict=True):
            view.add_(gradient)

    def _losses(self, inputs: Tensor, labels: Tensor) -> Tensor:
        return self._objective.losses(self._module(inputs), labels)


def _make_contiguous(_layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Opacus unfolds images by the default layout's strides: others (channels-last) give wrong gradients."""
    return tuple(tensor.contiguous() for tensor in inputs)


def _add_samples(gradients: list[Tensor], weights: Tensor, finite: Tensor, views: list[Tensor]) -> None:
    """Add the weighted sum of per-sample gradients to the views, without those that are not finite."""
    complete = bool(finite.all())
    for view, gradient in zip(views, gradients, strict=True):
        rows = gradient.reshape(len(weights), -1)
        if complete:
            view.view(-1).addmv_(rows.T, weights)
        else:
            view.view(-1).addmv_(rows[finite].T, weights[finite])

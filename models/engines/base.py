"""What a per-sample gradient engine offers to the private step, and the flat parameter vector both share.

An engine turns parameters and a batch into per-sample losses and gradient norms, asks `weigh` for one
weight per sample, and returns the weighted sum of the per-sample gradients. It never sees a clipping
rule or a noise scale: those live in the step. Every tensor has a leading run axis (DESIGN section 4), and
how the runs are computed (stacked, or one after another) is the engine's own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from rawls.models.objectives import CROSS_ENTROPY, Objective

Weigh = Callable[[Tensor, Tensor, slice, slice], Tensor]
"""(losses, norms, runs, slots) of a window [run, slot] -> the weight of each of its samples."""


Triple = tuple[Tensor, Tensor, Tensor]
"""Losses, norms and weights [run, slot]."""

InputGradients = Callable[[Tensor], Tensor]
"""Inputs [sample, ...] -> the gradient of each sample's own loss with respect to them, in their shape."""


@dataclass(frozen=True)
class WeightedSum:
    """Per-sample losses, gradient norms and weights, [run, slot], and their weighted sum, [run, parameter]."""

    losses: Tensor
    norms: Tensor
    weights: Tensor
    total: Tensor

    @classmethod
    def of_parts(cls, parts: Sequence[Sequence[Triple]], total: Tensor) -> WeightedSum:
        """From losses, norms and weights [run, slot] of consecutive runs, in each of consecutive slots, if any."""
        of_runs = [_side_by_side(of_slots, 1) for of_slots in parts if of_slots]
        losses, norms, weights = _side_by_side(of_runs, 0) if of_runs else total.new_zeros(3, len(total), 0).unbind()
        return cls(losses, norms, weights, total)


def _side_by_side(triples: Sequence[Triple], dimension: int) -> Triple:
    if len(triples) == 1:
        return triples[0]
    losses, norms, weights = (torch.cat(values, dimension) for values in zip(*triples, strict=True))
    return losses, norms, weights


@dataclass(frozen=True)
class Look:
    """What runs ask of their whole batch before any of its samples is weighed.

    Args:
        needs: per run None, "losses" or "norms".
        see: (run, losses [slot in use], norms [slot in use] or None) -> None; called once for each run that asks,
            before the first `weigh` of that run.
    """

    needs: Sequence[Literal["losses", "norms"] | None]
    see: Callable[[int, Tensor, Tensor | None], None]


@dataclass(frozen=True)
class SecondPoint:
    """Gradients at two points: a sample's is share x (its gradient at these parameters) + (1 - share) x (at the first).

    Its norm is the norm of that. The losses shown are those at the first point, unless the share is 1.

    Args:
        params: [run, parameter].
        shares: per run; 0 leaves the second point out, 1 the first. A mean of the two lies between, but any will do.
    """

    params: Tensor
    shares: Sequence[float]


class Engine(Protocol):
    """Per-sample losses and norms, weighted gradient sums, and plain evaluation of one model.

    Args:
        num_buffers: running statistics, which lie behind the parameters in a run's row; none for private engines.
    """

    num_parameters: int
    num_buffers: int

    def initial(self, seed: int) -> Tensor:
        """Initial parameters and buffers, flat [parameter + buffer]; a function of the seed alone."""
        ...

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
        """Sum of weight x gradient over the samples of each run.

        Args:
            params: [run, parameter + buffer].
            inputs: [run, slot, ...]; a batch may be empty (no slots).
            labels: [run, slot].
            counts: slots in use of each run, the rest being padding; None when all are. An engine that loops over the
                runs leaves the padding out, so that a run in a ragged fleet is computed as it is alone.
            weigh: called once per window of samples, in order; windows partition the batch.
            look: what to show of a run's whole batch before it is weighed; the sums are the same bits without it.
            second: where to take gradients besides.
            seeds: one per run, for models that draw at random in training; the others ignore it.

        Formal guarantees: the weights are applied exactly as `weigh` returned them; a sample whose gradient
        is not finite contributes exactly zero and is shown to `weigh` with an infinite norm; a norm is not below the
        true one (but for float rounding), unless both are below 1e-12.
        """
        ...

    def evaluate(self, params: Tensor, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Losses and whether the prediction is right, [sample] each, of one run's parameters [parameter + buffer]."""
        ...

    def predict(self, params: Tensor, inputs: Tensor) -> Tensor:
        """Logits [sample, class] of one run."""
        ...

    def input_gradients(self, params: Tensor, labels: Tensor, *, seed: int | None = None) -> InputGradients:
        """What takes gradients with respect to inputs, of one run; until the engine is asked for something else.

        Args:
            seed: given, the model is as it is in training and draws by it; it moves no running statistics. The
                models of private methods are the same in training as in evaluation.
        """
        ...

    def named(self, params: Tensor) -> dict[str, Tensor]:
        """One run's parameters [parameter] by their names in the module's state_dict."""
        ...


def own_parameters(layer: nn.Module) -> list[str]:
    """Names of the parameters of a layer that are of no layer inside it.

    Opacus' recurrent layers show those of their cells a second time, under torch's names. Elsewhere a parameter of two
    layers is one that both compute with, which no engine supports.
    """
    own = dict(layer.named_parameters(recurse=False))
    if type(layer).__module__.startswith("opacus.layers."):
        inside = {id(parameter) for child in layer.children() for parameter in child.parameters()}
        return [name for name, parameter in own.items() if id(parameter) not in inside]
    return list(own)


class FlatParameters:
    """The parameters of a module as one flat vector, in the order of `named_parameters`."""

    def __init__(self, module: nn.Module) -> None:
        self._names: list[str] = []
        self._owners: list[tuple[nn.Module, str]] = []
        self._layout: list[tuple[torch.Size, tuple[int, ...], int]] = []  # shape, strides, offset
        self.num_parameters = 0
        seen: set[int] = set()
        for path, owner in module.named_modules():
            for name in own_parameters(owner):
                parameter = getattr(owner, name)
                if id(parameter) in seen:
                    raise ValueError(
                        f"parameter '{path}.{name}' is shared between layers, which no engine supports; "
                        "give each layer its own"
                    )
                seen.add(id(parameter))
                self._names.append(f"{path}.{name}" if path else name)
                self._owners.append((owner, name))
                shape = parameter.shape
                self._layout.append((shape, torch.empty(shape, device="meta").stride(), self.num_parameters))
                self.num_parameters += parameter.numel()

    def flatten(self, module: nn.Module) -> Tensor:
        """A copy of the module's present parameters as one float32 vector."""
        return torch.cat([getattr(owner, name).detach().reshape(-1) for owner, name in self._owners]).clone()

    def views(self, flat: Tensor) -> list[Tensor]:
        """Views of the flat vector, shaped as the parameters."""
        if flat.shape != (self.num_parameters,) or flat.stride() != (1,):
            raise ValueError(
                f"expected a contiguous vector of {self.num_parameters} parameters, not {tuple(flat.shape)}"
            )
        start = flat.storage_offset()
        return [flat.as_strided(shape, strides, start + offset) for shape, strides, offset in self._layout]

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """The same by the names of the parameters, as in the module's state_dict."""
        return dict(zip(self._names, self.views(flat), strict=True))

    def stacked_views(self, flat: Tensor) -> list[Tensor]:
        """Views of [run, parameter], shaped [run, *shape of the parameter]."""
        (rows, _), (step, _), start = flat.shape, flat.stride(), flat.storage_offset()
        return [
            flat.as_strided((rows, *shape), (step, *strides), start + offset) for shape, strides, offset in self._layout
        ]

    def bind(self, flat: Tensor) -> None:
        """Make the module compute with this flat vector; its storage is shared, nothing is copied."""
        for (owner, name), view in zip(self._owners, self.views(flat), strict=True):
            parameter = getattr(owner, name)
            parameter.data = view

    def of_layers(self) -> Iterator[tuple[nn.Module, str]]:
        """(layer, name) of each parameter, in flat order."""
        return iter(self._owners)


ALIGNMENT_BYTES = 64


def aligned_rows(rows: int, columns: int, like: Tensor) -> Tensor:
    """Zeros [row, column] whose rows begin at multiples of 64 bytes.

    Kernels round differently at other addresses, so without this a run in a fleet would drift from the same run alone.
    """
    step = ALIGNMENT_BYTES // like.element_size()
    width = -(-columns // step) * step
    return like.new_zeros(rows, width).narrow(1, 0, columns)


def aligned(values: Tensor) -> Tensor:
    """The same values at a multiple of 64 bytes: themselves if they lie there, else a copy."""
    return values if values.data_ptr() % ALIGNMENT_BYTES == 0 else values.clone()


def usable_by_autograd(values: Tensor) -> Tensor:
    """The same values as autograd takes them: a copy of what was made in inference mode, as the private step is."""
    return values.clone() if values.is_inference() else values


def bindable(flat: Tensor) -> Tensor:
    """The same parameters as modules take them, for autograd and without other kernels than in another fleet."""
    with torch.inference_mode(False):
        return usable_by_autograd(aligned(flat))


def initial_parameters(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a module with parameters that depend on the seed alone, whatever was drawn before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


class ModuleEngine:
    """What engines that compute with a module of their own share: its flat parameters, and how a run begins.

    Args:
        build: makes the module; called with torch's generator seeded by `initial`.
        device: where parameters and batches live.
    """

    num_buffers = 0

    def __init__(
        self, build: Callable[[], nn.Module], device: torch.device, objective: Objective = CROSS_ENTROPY
    ) -> None:
        self._build = build
        self._objective = objective
        self._device = device
        self._module = initial_parameters(build, 0).to(device).train()
        self._flat = FlatParameters(self._module)
        self.num_parameters = self._flat.num_parameters

    def initial(self, seed: int) -> Tensor:
        module = initial_parameters(self._build, seed)
        return FlatParameters(module).flatten(module).to(self._device)

    def named(self, params: Tensor) -> dict[str, Tensor]:
        return self._flat.named(params)


def check_samples_apart(engine: Engine, inputs: Tensor, labels: Tensor) -> None:
    """Raise a ValueError unless gradient norms in a batch are those of each sample alone.

    Layer by layer a model may look right and still be wrong: a layer called on something that is no sample (positions,
    one row for all), or code that mixes samples, gives norms that bound nothing.
    """
    params = engine.initial(0).unsqueeze(0)

    def norms_of(rows: slice) -> Tensor:
        def nothing(_losses: Tensor, norms: Tensor, *_window: slice) -> Tensor:
            return torch.zeros_like(norms)

        return engine.weighted_sum(params, inputs[rows].unsqueeze(0), labels[rows].unsqueeze(0), nothing).norms[0]

    together = norms_of(slice(None))
    alone = torch.cat([norms_of(slice(row, row + 1)) for row in range(len(labels))])
    if not torch.allclose(together, alone, rtol=1e-2, atol=1e-6 * float(alone.max())):
        raise ValueError(
            "the gradient of a sample depends on the others of its batch: call every layer on a tensor whose first "
            "dimension is the sample, and let nothing mix samples"
        )

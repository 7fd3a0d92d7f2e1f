"""What `rawls bench` measures, in a process that is prepared already: steps of one workload under one method."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from statistics import median

import torch
from torch import Tensor, nn

from rawls.accounting.mechanism.ledger import Ledger
from rawls.accounting.mechanism.plan import Budget
from rawls.accounting.mechanism.sampling import (
    BLOCK_STEPS,
    CellPoisson,
    Population,
    SamplingLaw,
    StratifiedWithoutReplacement,
)
from rawls.accounting.mechanism.streams import Streams
from rawls.algorithms.asc import Asc
from rawls.algorithms.core.fleet_step import FleetStep, Kind
from rawls.algorithms.core.method import Method, OpenMethod, Task
from rawls.algorithms.core.open_step import OpenMember, OpenStep
from rawls.algorithms.core.optimizers import Optimizer
from rawls.algorithms.core.rows import Batch, TrainingRows
from rawls.algorithms.core.step import PrivateMember, PrivateStep
from rawls.datasets.core.base import InMemory, rows_at_once
from rawls.models.architectures.cifar_cnn import CifarCnn
from rawls.models.architectures.distilbert import DistilBert
from rawls.models.architectures.logistic import Logistic
from rawls.models.architectures.mnist_cnn import MnistCnn
from rawls.models.architectures.parts.layers import MaxPool2, Tanh
from rawls.models.architectures.parts.transformer import PADDING, VOCABULARY
from rawls.models.architectures.preact_resnet18 import PreActResNet18
from rawls.models.architectures.resnet18 import ResNet18
from rawls.models.architectures.tabular_mlp import TabularMlp
from rawls.models.engines.choose_engine import fused_engine
from rawls.models.engines.plain import PlainEngine
from rawls.runners.bench.jax_step import jax_step
from rawls.runners.bench.memory import memory_taken
from rawls.runners.bench.plain_loops import Step, plain
from rawls.runners.process import lifecycle

GROUP_SIZES = (12_000, 5_000, 2_000, 1_000)
BATCH = 256
PARTS = 5  # the timed steps are cut into so many parts, and the median part counts
WARM_UP_STEPS = 5
FEW_DRAWS = 60
CPU = torch.device("cpu")
ASC = Asc()
warnings.filterwarnings("ignore", "Full backward hook is firing")  # Opacus', on inputs that need no gradient


def pooled_mnist_cnn(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The two convolutions of mnist_cnn with padding, and a 2x2 max-pooling after each."""
    channels, rows, columns = input_shape
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1),
        MaxPool2(),
        Tanh(),
        nn.Conv2d(32, 16, 3, padding=1),
        MaxPool2(),
        Tanh(),
        nn.Flatten(),
        nn.Linear(16 * (rows // 4) * (columns // 4), num_classes),
    )


@dataclass(frozen=True, kw_only=True)
class Model:
    """What a workload trains.

    Args:
        build: makes it of the shape of an input and the number of classes.
        batch: None takes BATCH rows.
        tokens: whether its inputs are tokens; else they are images, or numbers.
    """

    build: Callable[[tuple[int, ...], int], nn.Module]
    shape: tuple[int, ...]
    num_classes: int
    batch: int | None = None
    tokens: bool = False


MODELS = {
    "logistic": Model(build=Logistic().build, shape=(104,), num_classes=2),
    "mlp": Model(build=TabularMlp().build, shape=(60,), num_classes=2),
    "mnist_cnn_pooled": Model(build=pooled_mnist_cnn, shape=(1, 28, 28), num_classes=10),
    "mnist_cnn": Model(build=MnistCnn().build, shape=(1, 28, 28), num_classes=10),
    "cifar_cnn": Model(build=CifarCnn().build, shape=(3, 32, 32), num_classes=10),
    "preact_resnet18": Model(
        build=PreActResNet18(norm="batch", standardised="cifar10_pixels").build,
        shape=(3, 32, 32),
        num_classes=10,
        batch=32,
    ),
    "resnet18": Model(build=ResNet18().build, shape=(3, 64, 64), num_classes=2, batch=32),
    "distilbert_2": Model(
        build=DistilBert(pretrained=False, layers=2).build, shape=(128,), num_classes=2, batch=8, tokens=True
    ),
}


@dataclass(frozen=True)
class Problem:
    """A workload's model, its made-up data, and how many rows of them are a batch."""

    build: Callable[[], nn.Module]
    data: InMemory
    labels: Tensor
    batch_size: int

    @classmethod
    def of(cls, name: str) -> Problem:
        """Images are bytes, as ours lie in memory; tokens are any but padding; other inputs are normal."""
        model = MODELS[name]
        torch.manual_seed(0)
        shape = (sum(GROUP_SIZES), *model.shape)
        if model.tokens:
            inputs = torch.randint(PADDING + 1, VOCABULARY, shape)
        elif len(model.shape) > 1:
            inputs = torch.randint(256, shape, dtype=torch.uint8)
        else:
            inputs = torch.randn(shape)
        labels = torch.randint(model.num_classes, shape[:1])
        return cls(lambda: model.build(model.shape, model.num_classes), InMemory(inputs), labels, model.batch or BATCH)

    def batch(self) -> tuple[Tensor, Tensor]:
        """The first rows: inputs and labels."""
        return self.data.gather(torch.arange(self.batch_size)), self.labels[: self.batch_size]


def measure(name: str, method: str, steps: int) -> dict[str, float]:
    """Milliseconds per step and extra memory; for rawls also the milliseconds that drawing a step's rows takes."""
    step = step_of(name, method)
    lifecycle.give_back_freed_memory()  # what was freed by then would serve the steps, and not be counted
    before = memory_taken()
    for _ in range(WARM_UP_STEPS):
        step()
    result = {"ms_per_step": _milliseconds(step, steps)}
    result["extra_mb"] = (memory_taken() - before) / 2**20
    if method == "rawls":
        population = Population(GROUP_SIZES)
        batch_size = MODELS[name].batch or BATCH
        equal = tuple(batch_size // len(GROUP_SIZES) for _ in GROUP_SIZES)
        rates = tuple(batch / size for batch, size in zip(equal, GROUP_SIZES, strict=True))
        result["stratified_ms"] = _drawing(StratifiedWithoutReplacement(population, equal))
        result["poisson_ms"] = _drawing(CellPoisson(population, rates))
    return result


def step_of(name: str, method: str, runs: int = 1) -> Step:
    """What one step of a method is on a workload: 'rawls' for a fleet of runs; the others train one."""
    problem = Problem.of(name)
    if method in ("rawls", "same batch"):
        return private(problem, draw=method == "rawls", runs=runs)
    return METHODS[method](problem.build(), *problem.batch())


class KeepsBatch(FleetStep[Kind]):
    """Steps, one after another, on the same batch each time unless rows are to be drawn."""

    batch: Batch | None = None
    draws = False
    steps = 0

    def next_step(self) -> None:
        self.step(self.steps)
        self.steps += 1

    def keep_full_batch(self) -> None:
        """Keep one of all but few of the rows asked for, and no more: one more may take a tile or chunk of its own."""
        asked = self.members[0].task.batch_size
        drawn = (super(KeepsBatch, self)._draw(step) for step in range(FEW_DRAWS))
        self.batch = max(drawn, key=lambda batch: (batch.count(0) <= asked, -abs(asked - batch.count(0))))

    def _draw(self, step: int) -> Batch:
        if self.draws:  # not kept: a second batch in memory would cost the smallest model two percent of its step
            return super()._draw(step)
        if self.batch is None:
            self.batch = super()._draw(step)
        return self.batch


class OneBatch(KeepsBatch[PrivateMember], PrivateStep):
    """Private steps."""


class OneOpenBatch(KeepsBatch[OpenMember], OpenStep):
    """Steps without privacy."""


def private(problem: Problem, *, draw: bool, runs: int = 1, method: Method = ASC) -> Step:
    """Private steps of a fleet; of ASC: a stratified batch, a norm bound per group, ledger, noise and SGD."""
    return stepper_of(problem, draw=draw, runs=runs, method=method).next_step


def stepper_of(problem: Problem, *, draw: bool, runs: int, method: Method) -> OneBatch:
    """The private step of a fleet of runs that differ in their noise only."""
    task, rows = _task(problem), _rows(problem)
    plan = method.plan(task, _budget(method))
    engine = fused_engine(problem.build, device=CPU)

    def member(run: int) -> PrivateMember:
        streams = Streams(f"bench {run}")
        return PrivateMember(
            method=method,
            optimizer=Optimizer(lr=0.1),
            task=task,
            plan=plan,
            streams=streams,
            ledger=Ledger(streams, task.population),
            data=rows,
            state=method.start(task, plan),
        )

    params = torch.stack([engine.initial(run) for run in range(runs)])
    stepper = OneBatch(engine, [member(run) for run in range(runs)], params)
    stepper.draws = draw
    return stepper


def open_stepper_of(problem: Problem, method: OpenMethod) -> OneOpenBatch:
    """The steps of one run without privacy."""
    task, engine = _task(problem), PlainEngine(problem.build, device=CPU)
    member = OpenMember(
        method=method,
        optimizer=Optimizer(lr=0.1),
        task=task,
        streams=Streams("bench"),
        data=_rows(problem),
        state=method.start(task),
    )
    return OneOpenBatch(engine, [member], engine.initial(0).unsqueeze(0))


def _task(problem: Problem) -> Task:
    """No reweighting falls into the measurement: it is made once an epoch, not in every step."""
    population = Population(GROUP_SIZES)
    return Task(population=population, batch_size=problem.batch_size, steps=10_000, steps_per_epoch=10_001)


def _rows(problem: Problem) -> TrainingRows:
    return TrainingRows(
        rows=torch.arange(len(problem.labels)),
        labels=problem.labels,
        cells=torch.repeat_interleave(torch.arange(len(GROUP_SIZES)), torch.tensor(GROUP_SIZES)),
        gather=problem.data.gather,
        rows_at_once=rows_at_once(problem.data),
    )


def _budget(method: Method) -> Budget:
    return Budget(epsilon=8.0, delta=1e-5, neighbouring=method.neighbouring, accountant="rdp", search="tight")


def _hooks(module: nn.Module, inputs: Tensor, labels: Tensor) -> Step:
    """Opacus' default: per-sample gradients by hooks."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    wrapped = GradSampleModule(_contiguous(module))
    sgd = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    optimizer = DPOptimizer(sgd, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=len(labels))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(wrapped(inputs), labels).backward()
        optimizer.step()

    return step


def _ghost(module: nn.Module, inputs: Tensor, labels: Tensor) -> Step:
    """Opacus' ghost clipping: norms in one backward pass, the clipped sum in a second."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    wrapped = GradSampleModuleFastGradientClipping(_contiguous(module), max_grad_norm=1.0, use_ghost_clipping=True)
    sgd = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    optimizer = DPOptimizerFastGradientClipping(
        sgd, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=len(labels)
    )
    loss = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss())

    def step() -> None:
        optimizer.zero_grad()
        loss(wrapped(inputs), labels).backward()
        optimizer.step()

    return step


def _vmap(module: nn.Module, inputs: Tensor, labels: Tensor) -> Step:
    """The textbook's per-sample gradients: torch.func's vmap of grad, then clipping, noise and SGD."""
    from torch.func import functional_call, grad, vmap

    module = _without_layouts(module)
    params = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}

    def loss(params: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(module, params, (image.unsqueeze(0),))
        return nn.functional.cross_entropy(logits, label.unsqueeze(0))

    gradients_of = vmap(grad(loss), in_dims=(None, 0, 0))

    def step() -> None:
        gradients = gradients_of(params, inputs, labels)
        squares = torch.stack([values.flatten(1).square().sum(1) for values in gradients.values()]).sum(0)
        weights = (1.0 / squares.sqrt()).clamp(max=1.0)
        for name, values in gradients.items():
            total = torch.tensordot(weights, values, 1)
            params[name].sub_(total.add_(torch.randn_like(total)), alpha=0.1 / len(labels))

    return step


METHODS = {"plain": plain, "hooks": _hooks, "ghost": _ghost, "vmap": _vmap, "jax": jax_step}


def _contiguous(module: nn.Module) -> nn.Module:
    """The module as Opacus takes it: it misreads the channels-last layout of our pooling, and wants tokens whole."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Embedding):
            layer.register_forward_pre_hook(lambda _layer, inputs: tuple(x.contiguous() for x in inputs))
    return module


def _without_layouts(module: nn.Module) -> nn.Module:
    """The module with torch's own pooling: vmap knows no channels-last layout."""
    for name, child in module.named_children():
        if isinstance(child, MaxPool2):
            setattr(module, name, nn.MaxPool2d(2, child.stride))
        else:
            _without_layouts(child)
    return module


def _milliseconds(step: Step, steps: int) -> float:
    """Processor time of one step: the median of a few parts."""
    in_part = -(-steps // PARTS)
    parts = []
    for _ in range(PARTS):
        start = time.process_time()
        for _ in range(in_part):
            step()
        parts.append(1e3 * (time.process_time() - start) / in_part)
    return median(parts)


def _drawing(law: SamplingLaw) -> float:
    """Milliseconds that drawing the rows of one step takes, a block at a time as in training."""
    streams, blocks = Streams("bench"), count()

    def block() -> None:
        law.draw_block(streams.generator("sampling", next(blocks)), BLOCK_STEPS)

    return _milliseconds(block, 50) / BLOCK_STEPS

"""Open steps against torch's own loop; noise on the mean gradient, and attacked inputs, alone as in a fleet.

Every method without privacy is checked with weight decay (WYSIWYG's l2), for which torch.optim.SGD is the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rawls.accounting.mechanism.streams import FleetNoise, Streams
from rawls.algorithms.core.method import OpenMethod, PublicState, Task
from rawls.algorithms.core.open_step import NOISE, OpenMember, OpenStep
from rawls.algorithms.core.optimizers import Optimizer
from rawls.algorithms.gdro import Gdro
from rawls.algorithms.is_sgd import IsSgd
from rawls.algorithms.iw_sgd import IwSgd
from rawls.algorithms.pgd_at import PgdAt
from rawls.algorithms.sgd import Sgd
from rawls.models.engines.base import InputGradients
from rawls.models.engines.plain import PlainEngine
from rawls.runners.audit.contracts.saving import check_alone, check_resume, mixed_fleet
from rawls.runners.audit.problem import cases
from tests.algorithms.small import SIZES, TASK, rows, small_chain

STEPS = 6
WITH_DECAY = Optimizer(lr=0.3, momentum=0.9, weight_decay=0.1)
METHODS: dict[str, OpenMethod] = {
    "sgd": Sgd(), "is_sgd": IsSgd(), "iw_sgd": IwSgd(), "gdro": Gdro(group_lr=0.5), "pgd_at": PgdAt(attack_steps=3),
}  # fmt: skip
every_method = pytest.mark.parametrize("name", METHODS)


def member(method: OpenMethod, key: str = "run", optimizer: Optimizer = WITH_DECAY) -> OpenMember:
    streams = Streams(key)
    data = rows(scale=0.3)  # within [0, 1] here and there: an attack is clamped, and is not
    return OpenMember(
        method=method, optimizer=optimizer, task=TASK, streams=streams, data=data, state=method.start(TASK)
    )


def fleet(members: Sequence[OpenMember], seeds: Sequence[int] | None = None) -> OpenStep:
    engine = PlainEngine(small_chain, device=torch.device("cpu"))
    params = torch.stack([engine.initial(seed) for seed in seeds or range(len(members))])
    stepper = OpenStep(engine, members, params)
    for one in members:
        one.data = members[0].data
    return stepper


def trained(method: OpenMethod, steps: int = STEPS, key: str = "run", optimizer: Optimizer = WITH_DECAY) -> Tensor:
    stepper = fleet([member(method, key, optimizer)])
    for step in range(steps):
        stepper.step(step)
    return stepper.params[0].clone()


def group_weights_by_hand(name: str, cells: list[int]) -> list[float]:
    """The weight of each sample of a batch, by the formula of WYSIWYG's code; gDRO's are made where losses are."""
    if name == "iw_sgd":
        return [sum(SIZES) / (len(SIZES) * SIZES[cell]) / len(cells) for cell in cells]
    return [1 / len(cells) for _ in cells]


def dro_weights_by_hand(q: list[float], losses: list[float], cells: list[int]) -> list[float]:
    """q is updated in place."""
    for group in range(len(q)):
        own = [loss for loss, cell in zip(losses, cells, strict=True) if cell == group]
        q[group] *= float(np.exp(0.5 * (sum(own) / len(own) if own else 0.0)))
    total = sum(q)
    q[:] = [value / total for value in q]
    return [q[cell] / cells.count(cell) for cell in cells]


def attacked_by_hand(module: nn.Module, image: Tensor, label: Tensor, start: Tensor, steps: int) -> Tensor:
    """Rice et al.'s attack on one input: a perturbation within the ball, and within what keeps the input in [0, 1]."""
    delta = ((8 / 255) * start).clamp(-8 / 255, 8 / 255)
    delta = torch.min(torch.max(delta, 0 - image), 1 - image)
    for _ in range(steps):
        moved = delta.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(module(image + moved)[None], label[None]), moved)
        delta = (delta + (2 / 255) * gradient.sign()).clamp(-8 / 255, 8 / 255)
        delta = torch.min(torch.max(delta, 0 - image), 1 - image)
    return image + delta


def by_torch(name: str, plan_of: OpenMember, *, weights_of: str | None = None, attack_steps: int = 3) -> Tensor:
    """The parameters after STEPS steps of torch's own loop over the rows that the member draws."""
    torch.manual_seed(0)
    module = small_chain()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.3, momentum=0.9, weight_decay=0.1)
    data, q = plan_of.data, [1 / 3] * 3
    for step in range(STEPS):
        where = torch.from_numpy(plan_of.positions(step))
        inputs, labels, cells = data.gather(data.rows[where]), data.labels[where], data.cells[where].tolist()
        if name == "pgd_at":
            widest = 8
            drawn = plan_of.streams.generator("attack", step).random((widest, inputs.shape[1]), np.float32)
            start = 2 * torch.from_numpy(drawn) - 1
            worse = [
                attacked_by_hand(module, *of_sample, attack_steps)
                for of_sample in zip(inputs, labels, start[: len(inputs)], strict=True)
            ]
            inputs = torch.stack(worse).detach()
        losses = nn.functional.cross_entropy(module(inputs), labels, reduction="none")
        if name == "gdro":
            weights = dro_weights_by_hand(q, losses.tolist(), cells)
        else:
            weights = group_weights_by_hand(weights_of or name, cells)
        optimizer.zero_grad()
        (torch.tensor(weights) * losses).sum().backward()
        optimizer.step()
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


def test_yamls_hold_the_defaults() -> None:
    for name, method in METHODS.items():
        assert cases()[name].method == type(method)()


@every_method
def test_a_step_is_that_of_torchs_own_loop(name: str) -> None:
    """And would not be without weight decay."""
    method = METHODS[name]
    one = member(method)
    if name == "pgd_at":
        one.data = within_a_cube(one)
    stepper = fleet([one])
    for step in range(STEPS):
        stepper.step(step)
    expected = by_torch(name, one)
    torch.testing.assert_close(stepper.params[0], expected, rtol=1e-4, atol=1e-5)
    plain = replace(WITH_DECAY, weight_decay=0.0)
    assert (trained(method, optimizer=plain) - expected).abs().max() > 1e-2


def within_a_cube(one: OpenMember) -> Any:
    """The member's data as images are: some inputs lie at 0 and at 1."""
    gather = one.data.gather
    return replace(one.data, gather=lambda wanted: gather(wanted).clamp(0, 1))


def test_other_weights_and_a_weaker_attack_are_seen() -> None:
    """What the oracle above rejects: weights of another method; an attack of one step less."""
    one = member(METHODS["iw_sgd"])
    stepper = fleet([one])
    for step in range(STEPS):
        stepper.step(step)
    assert (stepper.params[0] - by_torch("iw_sgd", one, weights_of="sgd")).abs().max() > 1e-2
    attacking = member(METHODS["pgd_at"])
    attacking.data = within_a_cube(attacking)
    stepper = fleet([attacking])
    for step in range(STEPS):
        stepper.step(step)
    assert (stepper.params[0] - by_torch("pgd_at", attacking, attack_steps=2)).abs().max() > 1e-4


@dataclass(frozen=True, kw_only=True)
class Silent(Sgd):
    """Gradients of zero: what moves the parameters is the noise."""

    def weigh(self, task: Task, state: PublicState, losses: Tensor, cells: Tensor) -> tuple[Tensor, PublicState]:
        return torch.zeros_like(losses), state


def moves(method: OpenMethod, steps: int, lr: float = 1.0) -> np.ndarray:
    """By how much each step moves the parameters down, over the learning rate, [step, coordinate]."""
    stepper = fleet([member(method, optimizer=Optimizer(lr=lr))])
    found, before = [], stepper.params[0].clone()
    for step in range(steps):
        stepper.step(step)
        found.append(((before - stepper.params[0]) / lr).numpy())
        before = stepper.params[0].clone()
    return np.stack(found)


def check_noise(drawn: np.ndarray, std: float) -> None:
    """n = 39 coordinates x 200 steps: the std within 5 % (6 standard errors), correlations of neighbours below 0.06.

    Those are 5 standard errors. 10 % more or less noise is rejected, and so is noise that is drawn once.
    """
    assert abs(drawn.std() / std - 1) < 0.05
    assert abs(drawn.mean()) < 5 * std / np.sqrt(drawn.size)
    for one, other in ((drawn[1:], drawn[:-1]), (drawn[:, 1:], drawn[:, :-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.06


def test_noise_has_its_scale_on_every_coordinate_and_is_new_in_every_step() -> None:
    """Seed: key 'run'. Not scaled by the learning rate or the batch."""
    drawn = moves(Silent(gradient_noise=0.5), 200)
    check_noise(drawn, 0.5)
    for twin in (1.1 * drawn, 0.9 * drawn, drawn / TASK.batch_size, np.repeat(drawn[:1], 200, 0)):
        with pytest.raises(AssertionError):
            check_noise(twin, 0.5)
    np.testing.assert_allclose(moves(Silent(gradient_noise=0.5), 3, lr=0.01), drawn[:3], rtol=1e-3, atol=1e-4)


def test_noise_comes_before_momentum() -> None:
    """Two steps of heavy ball move by n0, and by 0.9 n0 + n1."""
    stepper = fleet([member(Silent(gradient_noise=0.5), optimizer=Optimizer(lr=1.0, momentum=0.9))])
    start = stepper.params[0].clone()
    stepper.step(0)
    stepper.step(1)
    first, second = (torch.zeros(1, stepper.params.shape[1]) for _ in range(2))
    for step, noise in enumerate((first, second)):
        FleetNoise([Streams("run")]).add(noise, (0.5,), step, (NOISE,))
    torch.testing.assert_close(stepper.params[0], start - 1.9 * first[0] - second[0], rtol=1e-5, atol=1e-5)


@every_method
def test_noise_moves_every_method_and_only_by_what_its_stream_says(name: str) -> None:
    """The first step under the same draws of rows: with noise less without is the noise."""
    noisy = replace(cast(Any, METHODS[name]), gradient_noise=0.25)
    plain = Optimizer(lr=1.0)
    difference = trained(METHODS[name], 1, optimizer=plain) - trained(noisy, 1, optimizer=plain)
    expected = torch.zeros(1, len(difference))
    FleetNoise([Streams("run")]).add(expected, (0.25,), 0, (NOISE,))
    torch.testing.assert_close(difference, expected[0], rtol=1e-3, atol=1e-5)


@every_method
def test_noisy_runs_resume_and_stand_in_fleets_as_alone(name: str) -> None:
    """Beside quiet runs of other methods, bit for bit."""
    noisy = replace(cases()[name], method=replace(cast(Any, cases()[name].method), gradient_noise=0.1))
    check_resume(noisy)
    together = [cases()["sgd"], noisy, cases()["is_sgd"], replace(noisy, name="again")]
    fleet_of_four = mixed_fleet(together)
    for run, case in enumerate(together):
        check_alone(case, fleet_of_four, run, f"mixed {run}", seed=run)


def test_runs_that_ask_for_nothing_pay_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise AssertionError("noise or gradients of inputs were made for a run that asks for none")

    monkeypatch.setattr(FleetNoise, "add", refuse)
    monkeypatch.setattr(Streams, "add_normal", refuse)
    monkeypatch.setattr(PlainEngine, "input_gradients", refuse)
    for name in ("sgd", "is_sgd", "iw_sgd", "gdro"):
        trained(METHODS[name], 2)


def test_attacks_of_several_kinds_in_one_fleet_are_those_of_each_alone() -> None:
    """Bit for bit: two runs of one attack, a run that makes none, and another attack."""
    members = [
        member(PgdAt(), "a"),
        member(PgdAt(gradient_noise=0.1), "b"),
        member(IsSgd(), "c"),
        member(PgdAt(radius=0.2, step_size=0.05, attack_steps=4), "d"),
    ]
    together = fleet(members)
    assert [run for run, _ in together._attacking] == [0, 1, 3]
    for step in range(STEPS):
        together.step(step)
    for run, one in enumerate(members):
        alone = fleet([member(one.method, one.streams.key)], [run])
        for step in range(STEPS):
            alone.step(step)
        assert torch.equal(alone.params[0], together.params[run])


def test_an_attack_stays_in_its_ball_and_in_the_cube_and_raises_the_loss() -> None:
    """400 inputs, some of them black or white, seed 0: the loss of nine tenths rises, the mean by more than at random.

    Without the clamps it would leave both.
    """
    torch.manual_seed(0)
    module, method = small_chain(), PgdAt(radius=0.1, step_size=0.03)
    inputs, labels = torch.rand(2, 200, 5).mul(1.4).sub(0.2).clamp(0, 1), torch.randint(3, (2, 200))

    def losses_of(at: Tensor) -> Tensor:
        return nn.functional.cross_entropy(module(at).flatten(0, 1), labels.flatten(), reduction="none")

    def gradients(at: Tensor) -> Tensor:
        moved = at.clone().requires_grad_()
        return torch.autograd.grad(losses_of(moved).sum(), moved)[0]

    start = torch.rand(2, 200, 5) * 2 - 1
    attacked = method.attack(inputs, start, gradients)
    assert attacked.min() >= 0 and attacked.max() <= 1
    assert (attacked - inputs).abs().max() <= 0.1 + 1e-6
    before, after, at_random = (losses_of(at).detach() for at in (inputs, attacked, (inputs + 0.1 * start).clamp(0, 1)))
    assert (after > before).float().mean() > 0.9 and (after - before).mean() > 2 * (at_random - before).abs().mean()
    loose = inputs + 0.1 * start + 0.03 * 10 * gradients(inputs).sign()
    assert loose.min() < 0 and (loose - inputs).abs().max() > 0.1


def check_confined(attacked: Tensor, inputs: Tensor, radius: float) -> None:
    """As close as the bounds, taken in single precision, are to the ball's; in [0, 1] without any slack."""
    assert attacked.min() >= 0 and attacked.max() <= 1
    assert bool(((attacked - inputs).abs() <= radius * (1 + 1e-6) + 1e-7).all())


def test_no_gradient_leads_an_attack_out_of_its_ball_or_the_cube() -> None:
    """60 attacks of random size, seed 0, on gradients that have nothing to do with a loss: nothing, huge, at random.

    Without either clamp some would leave.
    """
    chance, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    outside = np.zeros(2, dtype=int)
    for number in range(60):
        method = PgdAt(
            radius=float(10 ** chance.uniform(-3, 0.3)),
            step_size=float(10 ** chance.uniform(-3, 0.3)),
            attack_steps=int(chance.integers(1, 6)),
        )
        inputs = torch.rand(4, 3, 5, generator=generator).mul_(1.5).sub_(0.25).clamp_(0, 1)
        start = torch.rand(inputs.shape, generator=generator) * 2 - 1
        kept = inputs.clone(), start.clone()
        scale = (0.0, 1e30, 1.0)[number % 3]
        drawn = [torch.randn(inputs.shape, generator=generator) * scale for _ in range(method.attack_steps)]
        left = iter(drawn)
        attacked = method.attack(inputs, start, lambda _at, left=left: next(left))  # type: ignore[misc]
        check_confined(attacked, inputs, method.radius)
        assert torch.equal(inputs, kept[0]) and torch.equal(start, kept[1]), "what an attack is given stays as it is"
        free = inputs + method.radius * start + method.step_size * sum(gradient.sign() for gradient in drawn)
        outside += [bool((free - inputs).abs().max() > method.radius), bool(free.min() < 0 or free.max() > 1)]
        if bool((free - inputs).abs().max() > 1.01 * method.radius):
            with pytest.raises(AssertionError):
                check_confined(free, inputs, method.radius)
    assert (outside > 10).all()


@dataclass(frozen=True, kw_only=True)
class Noted(PgdAt):
    """Notes where its attacks start."""

    starts: list[Tensor]

    def attack(self, inputs: Tensor, start: Tensor, gradients: InputGradients) -> Tensor:
        self.starts.append(start.clone())
        return super().attack(inputs, start, gradients)


def starts_of(key: str, steps: Sequence[int], **options: Any) -> list[Tensor]:
    noted: list[Tensor] = []
    stepper = fleet([member(Noted(starts=noted, attack_steps=1, **options), key)])
    for step in steps:
        stepper.step(step)
    return noted


def test_attacks_start_where_run_and_step_say_and_nothing_else() -> None:
    """Whatever came before and whatever else is drawn; another run, or another step, starts elsewhere."""
    straight = starts_of("run", range(STEPS))
    assert all(start.min() >= -1 and start.max() <= 1 for start in straight)
    assert torch.equal(starts_of("run", [4])[0], straight[4])
    assert torch.equal(starts_of("run", [2, 4], gradient_noise=0.1)[1], straight[4])
    assert not any(torch.equal(one, other) for one, other in pairwise(straight))
    assert not torch.equal(starts_of("other", [4])[0], straight[4])


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        (torch.tensor([[0.0, 1.0], [-1.5, 0.5]]), r"within \[0, 1\], and these go from -1.5 to 1: choose"),
        (torch.tensor([[3, 1]]), r"these are integers \(torch.int64\): choose a dataset of images"),
    ],
)
def test_inputs_that_cannot_be_attacked_are_refused(inputs: Tensor, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        PgdAt().check_inputs(inputs)
    PgdAt().check_inputs(torch.tensor([[0.0, 1.0]]))


def positions_of(method: OpenMethod, blocks: int) -> np.ndarray:
    """All rows that so many blocks of steps draw."""
    drawing = method.drawing(TASK, method.start(TASK))
    generators: Callable[[int], np.random.Generator] = np.random.default_rng
    drawn = [drawing.draw_block(generators(block), drawing.block_steps) for block in range(blocks)]
    return np.concatenate([rows_of_step for block in drawn for rows_of_step in block])


def check_group_uniform(drawn: np.ndarray) -> None:
    """n = 102,400 draws: each third within 0.0074 (5 standard errors); each row within 5 of its expected count."""
    cells = np.repeat(np.arange(len(SIZES)), SIZES)
    shares = np.bincount(cells[drawn], minlength=len(SIZES)) / len(drawn)
    assert np.abs(shares - 1 / 3).max() < 0.0074
    expected = len(drawn) / 3 / np.array(SIZES)[cells]
    assert (np.abs(np.bincount(drawn, minlength=sum(SIZES)) - expected) < 5 * np.sqrt(expected)).all()


def test_is_sgd_draws_every_group_alike_and_every_row_of_a_group_alike() -> None:
    """Seeds 0 to 199. Uniform draws are rejected, and so is a draw that always takes a group's first rows."""
    drawn = positions_of(IsSgd(), 200)
    assert len(drawn) == 102_400
    check_group_uniform(drawn)
    assert len(np.unique(drawn[:8])) < 8 or len(np.unique(drawn[:800])) < 800  # with replacement
    starts = TASK.population.starts[np.repeat(np.arange(len(SIZES)), SIZES)[drawn]]
    for twin in (positions_of(Sgd(), 1_004)[:102_400], starts):
        with pytest.raises(AssertionError):
            check_group_uniform(twin)

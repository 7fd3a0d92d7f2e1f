"""Augmented images: what may come of one, and that a step augments before it attacks, by draws of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rawls.accounting.mechanism.streams import Streams
from rawls.algorithms.core.augmentation import PADDING, check_images, crop_and_flip
from rawls.algorithms.core.method import OpenMethod
from rawls.algorithms.core.open_step import OpenMember, OpenStep
from rawls.algorithms.core.optimizers import Optimizer
from rawls.algorithms.pgd_at import PgdAt
from rawls.algorithms.sgd import Sgd
from rawls.models.engines.plain import PlainEngine
from tests.algorithms.small import SIZES, TASK, rows

Build = Callable[[], nn.Module]
SHAPE = (2, 6, 7)
STEPS = 5
ATTACK = PgdAt(attack_steps=2, augmentation="crop_and_flip")


def crops_of(image: Tensor) -> list[Tensor]:
    """Every cut of an image [channel, row, column] from its mirrored frame, by rows, then columns."""
    padded = nn.functional.pad(image[None], (PADDING,) * 4, mode="reflect")[0]
    _, height, width = image.shape
    shifts = [(up, left) for up in range(2 * PADDING + 1) for left in range(2 * PADDING + 1)]
    return [padded[:, up : up + height, left : left + width] for up, left in shifts]


def test_images_are_shifted_by_reflection_and_half_are_flipped() -> None:
    """Seed 0, n = 1,000 images: every result is one of the 81 cuts or its mirror image, and each cut comes.

    Flips within 5 standard deviations of a half; cuts at the same place all over would be seen.
    """
    image = torch.arange(2 * 10 * 11.0).view(2, 10, 11)  # so large that no cut is another's mirror image
    crops, flips, shifts = crops_of(image), 0, set()
    for out in crop_and_flip(image.repeat(1000, 1, 1, 1), np.random.default_rng(0)):
        plain = [number for number, crop in enumerate(crops) if torch.equal(out, crop)]
        turned = [number for number, crop in enumerate(crops) if torch.equal(out.flip(2), crop)]
        assert len(plain) + len(turned) == 1
        flips += len(turned)
        shifts.update(plain + turned)
    assert 420 < flips < 580 and len(shifts) == 81


def test_an_image_is_augmented_alike_in_a_longer_batch() -> None:
    images = torch.rand(9, *SHAPE)
    few, all_of_them = (crop_and_flip(images[:count], np.random.default_rng(3)) for count in (4, 9))
    assert torch.equal(few, all_of_them[:4]) and not torch.equal(few, images[:4])


def test_other_inputs_are_refused() -> None:
    check_images("crop_and_flip", (3, 5, 5))
    for shape in [(12,), (1, 4, 8), (2, 3, 8, 8)]:
        with pytest.raises(ValueError, match=r"^algorithm.augmentation=crop_and_flip takes images .* or null$"):
            check_images("crop_and_flip", shape)


def small_cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 4 * 5, 3))


def normed_cnn() -> nn.Module:
    """With statistics of the batch, which it keeps, and draws of its own."""
    layers = list(small_cnn().children())
    return nn.Sequential(layers[0], nn.BatchNorm2d(3), nn.Dropout(0.2), *layers[1:])


def fleet(
    methods: Sequence[OpenMethod], keys: Sequence[str], rows_before: Tensor | None = None, build: Build = small_cnn
) -> OpenStep:
    engine = PlainEngine(build, device=torch.device("cpu"))
    images = torch.rand(sum(SIZES), *SHAPE, generator=torch.Generator().manual_seed(1))
    data = replace(rows(), gather=lambda wanted: images[wanted])
    optimizer = Optimizer(lr=0.5)
    members = [
        OpenMember(method=method, optimizer=optimizer, task=TASK, streams=Streams(key), data=data, state={})
        for method, key in zip(methods, keys, strict=True)
    ]
    return OpenStep(
        engine, members, torch.stack([engine.initial(0)] * len(members)) if rows_before is None else rows_before
    )


def trained(methods: Sequence[OpenMethod], keys: Sequence[str], build: Build = small_cnn) -> Tensor:
    """Parameters, and behind them the statistics that a model keeps, of each run."""
    stepper = fleet(methods, keys, build=build)
    for step in range(STEPS):
        stepper.step(step)
    return stepper.rows


def by_torch(*, attack_first: bool = False) -> Tensor:
    """The parameters of run 'a' by torch's own loop, image by image."""
    torch.manual_seed(0)
    module = small_cnn()
    optimizer, member = torch.optim.SGD(module.parameters(), lr=0.5), fleet([ATTACK], ["a"]).members[0]
    for step in range(STEPS):
        where = torch.from_numpy(member.positions(step))
        images, labels = member.data.gather(member.data.rows[where]), member.data.labels[where]
        start = torch.from_numpy(member.streams.generator("attack", step).random(images.shape, np.float32)) * 2 - 1

        def attacked(images: Tensor, labels: Tensor = labels, start: Tensor = start) -> Tensor:
            at = (images + ATTACK.radius * start).clamp(0, 1)
            for _ in range(ATTACK.attack_steps):
                at = at.detach().requires_grad_()
                (found,) = torch.autograd.grad(nn.functional.cross_entropy(module(at), labels), at)
                moved = (at.detach() + ATTACK.step_size * found.sign() - images).clamp(-ATTACK.radius, ATTACK.radius)
                at = (images + moved).clamp(0, 1)
            return at.detach()

        def augmented(images: Tensor, step: int = step) -> Tensor:
            drawn = member.streams.generator("augmentation", step).random((len(images), 3))
            found = []
            for image, (up, left, side) in zip(images, drawn, strict=True):
                crop = crops_of(image)[9 * int(9 * up) + int(9 * left)]
                found.append(crop.flip(2) if side < 0.5 else crop)
            return torch.stack(found)

        images = augmented(attacked(images)) if attack_first else attacked(augmented(images))
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(images), labels).backward()
        optimizer.step()
    return torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])


def test_a_step_augments_and_then_attacks() -> None:
    """And not the other way round, and not without."""
    found = trained([ATTACK], ["a"])[0]
    torch.testing.assert_close(found, by_torch(), rtol=1e-4, atol=1e-5)
    assert (found - by_torch(attack_first=True)).abs().max() > 1e-4
    assert (found - trained([replace(ATTACK, augmentation=None)], ["a"])[0]).abs().max() > 1e-3


@pytest.mark.parametrize("build", [small_cnn, normed_cnn])
def test_augmented_runs_stand_in_fleets_as_alone_and_resume(build: Build) -> None:
    """Bit for bit, beside runs that are not augmented; a fleet that begins at a later step draws what belongs to it."""
    methods = [ATTACK, Sgd(), replace(ATTACK, augmentation=None), Sgd(augmentation="crop_and_flip")]
    keys = ["a", "b", "c", "d"]
    together = trained(methods, keys, build)
    for run, (method, key) in enumerate(zip(methods, keys, strict=True)):
        assert torch.equal(trained([method], [key], build)[0], together[run])
    first = fleet(methods, keys, build=build)
    for step in range(2):
        first.step(step)
    second = fleet(methods, keys, first.rows.clone(), build)
    for step in range(2, STEPS):
        second.step(step)
    assert torch.equal(second.rows, together)
    assert not torch.equal(trained([ATTACK], ["e"], build)[0], together[0])

"""Addressed randomness: what is drawn depends only on (run, purpose, step), never on what was drawn before.

A run therefore gives the same result alone, in any fleet, on any worker and after a resume, and no generator state
is saved. Whoever knows the run's key can draw the same noise and take it off again. With `secure=True` noise comes
from the operating system, sampling from generators it seeds, and nothing repeats.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


NOISE_BLOCK = 16  # consecutive indices drawn by one generator: to seed it takes longer than a small model's noise
# For a tiny model a call takes longer than the noise: so many indices are drawn at once, and kept.
WHOLE_BLOCK = 64
WHOLE_BLOCK_NUMBERS = 1 << 16
DRAWN_AT_ONCE = 1 << 16  # normal numbers for a large model, a multiple of those that torch draws together
_TORCHS = 16


@dataclass(frozen=True)
class Streams:
    """The random streams of one run.

    Args:
        key: names the run (its id); equal keys give equal draws.
        secure: draw noise from the operating system's cryptographic generator, and seed the others from it.
    """

    key: str
    secure: bool = False
    _open: dict[tuple[object, ...], tuple[int, torch.Generator]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _kept: dict[tuple[object, ...], tuple[int, torch.Tensor]] = field(default_factory=dict, compare=False, repr=False)

    def seed(self, purpose: str, index: int) -> int:
        """A 128-bit seed for (run, purpose, index): wide enough that no two of all sweeps are ever equal."""
        digest = hashlib.sha256(f"{self.key}/{purpose}/{index}".encode()).digest()
        return int.from_bytes(digest[:16], "little")

    def generator(self, purpose: str, index: int) -> np.random.Generator:
        """A numpy generator that starts afresh for each (run, purpose, index)."""
        if self.secure:
            return np.random.Generator(np.random.PCG64(secrets.randbits(128)))
        return np.random.Generator(np.random.Philox(key=self.seed(purpose, index)))

    def add_normal(self, values: torch.Tensor, std: float, index: int, purpose: str = "noise") -> None:
        """Add independent N(0, std^2) to every entry, in place; exact on the CPU, per device type elsewhere."""
        if std == 0.0:
            return
        if self.secure:
            values.add_(_system_normal(values), alpha=std)
        elif _drawn_whole(values.numel()):
            block, place = divmod(index, WHOLE_BLOCK)
            address = (purpose, values.shape, values.dtype, values.device)
            kept = self._kept.get(address)
            if kept is None or kept[0] != block:
                kept = self._kept[address] = block, self.normal_block(values, block, purpose)
            values.addcmul_(kept[1][place], values.new_tensor(std))  # rounds as FleetNoise does
        else:
            generator = self._noise_generator(values, index, purpose)
            for part in _parts(values):
                part.add_(part.new_empty(part.shape).normal_(generator=generator), alpha=std)

    def add_laplace(self, values: torch.Tensor, scale: float, index: int, purpose: str) -> None:
        """Add independent Laplace noise of this scale to every entry, in place."""
        import torch

        drawn = self.generator(f"{purpose}: laplace", index).laplace(scale=scale, size=tuple(values.shape))
        values.add_(torch.from_numpy(np.asarray(drawn)).to(values))

    def normal_block(self, like: torch.Tensor, block: int, purpose: str) -> torch.Tensor:
        """Standard normal draws for the indices of a block, [place, *shape of like]."""
        generator = _torch_generator(like.device, self.seed(purpose, block))
        return like.new_empty(WHOLE_BLOCK, *like.shape).normal_(generator=generator)

    def _noise_generator(self, like: torch.Tensor, index: int, purpose: str) -> torch.Generator:
        """The generator of the index's block, about to draw what belongs to the index.

        The last one is kept and serves the next index; for any other the block is drawn from its beginning, so that
        what comes out depends on the index and not on what was asked before.
        """
        block, place = divmod(index, NOISE_BLOCK)
        address = (purpose, like.shape, like.dtype, like.device)
        next_index, generator = self._open.get(address, (-1, None))
        if next_index != index or place == 0 or generator is None:
            generator = _torch_generator(like.device, self.seed(purpose, block))
            for _ in range(place):
                like.new_empty(like.shape).normal_(generator=generator)
        self._open[address] = (index + 1, generator)
        return generator


class FleetNoise:
    """The noise of several runs, added to all of them at once; what a run gets does not depend on the others."""

    def __init__(self, streams: Sequence[Streams]) -> None:
        self._streams = streams
        self._secure = any(one.secure for one in streams)
        self._block: tuple[object, ...] = ()
        self._normal: tuple[torch.Tensor, ...]  # by place in the block
        self._stds: tuple[float, ...] = ()
        self._column: torch.Tensor

    def add(self, values: torch.Tensor, stds: tuple[float, ...], index: int, purposes: tuple[str, ...]) -> None:
        """Add N(0, std^2) of each run to its row of [run, coordinate], in place."""
        runs, length = values.shape
        if self._secure or not _drawn_whole(length):
            for run, one in enumerate(self._streams):
                one.add_normal(values[run], stds[run], index, purposes[run])
            return
        number, place = divmod(index, WHOLE_BLOCK)
        block = (number, purposes, runs, length, values.dtype, values.device)
        if block != self._block:
            import torch

            drawn = [one.normal_block(values[run], number, purposes[run]) for run, one in enumerate(self._streams)]
            self._block, self._normal = block, torch.stack(drawn, 1).unbind(0)
        if stds != self._stds:
            self._stds, self._column = stds, values.new_tensor(stds).unsqueeze(1)
        values.addcmul_(self._normal[place], self._column)


def _drawn_whole(numbers: int) -> bool:
    return WHOLE_BLOCK * numbers <= WHOLE_BLOCK_NUMBERS


def _parts(values: torch.Tensor) -> Sequence[torch.Tensor]:
    """Views in which a generator draws, one after another, what it draws for the whole, in less memory and the cache.

    On a CPU torch draws normal numbers 16 at a time, and the last 16 of what it is asked for anew if 16 do not divide
    that; fewer it draws in another way.
    """
    if values.device.type != "cpu" or values.dim() != 1:
        return [values]
    parts = max(0, len(values) - _TORCHS) // DRAWN_AT_ONCE
    return values.split([*parts * [DRAWN_AT_ONCE], len(values) - parts * DRAWN_AT_ONCE])


_STATE_START, _STATE_WORDS = 3, 624  # of the Mersenne twister, in 64-bit words of torch's CPU generator state


def _torch_generator(device: torch.device, seed: int) -> torch.Generator:
    """A torch generator that uses the whole seed.

    `manual_seed` keeps 32 bits of it on a CPU: among the 11,580 steps of one run, two would then add the same noise
    with a probability of 1.6 %, and their difference would be free of noise. So the whole state is filled instead.
    """
    import torch

    if device.type != "cpu":
        return torch.Generator(device=device).manual_seed(seed % 2**63)
    generator = torch.Generator()
    state = _fresh_cpu_state().clone()
    words = np.random.SFC64(seed).random_raw(_STATE_WORDS // 2).view(np.uint32)
    state.numpy()[8 * _STATE_START : 8 * (_STATE_START + _STATE_WORDS)].view(np.uint64)[:] = words
    return generator.set_state(state)


@cache
def _fresh_cpu_state() -> torch.Tensor:
    """The state of a CPU generator that has drawn nothing, once its layout is known to be the expected one."""
    import torch

    state = torch.Generator().manual_seed(5).get_state()
    words = state.numpy()[8 * _STATE_START :][:16].view(np.uint64).tolist()
    if words != [5, (1812433253 * 5 + 1) % 2**32]:  # how a Mersenne twister begins from seed 5
        raise RuntimeError(f"torch {torch.__version__} lays out its CPU generator in a new way; use torch 2.13")
    return state


def _system_normal(like: torch.Tensor) -> torch.Tensor:
    """Standard normal draws from the operating system, by the inverse CDF of 52-bit uniforms.

    Four independent draws are summed and halved, as Opacus' secure mode does, so that the float rounding of one draw
    does not show in the released value (Holohan and Braghin 2021).
    """
    import torch
    from scipy.special import ndtri

    count = 4 * like.numel()
    bits = np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64) >> np.uint64(12)
    normal = ndtri((bits.astype(np.float64) + 0.5) * 2.0**-52).reshape(4, -1).sum(0) / 2.0
    return torch.from_numpy(normal).to(like.dtype).reshape(like.shape).to(like.device)

"""Addressed randomness: what is drawn depends only on (run, purpose, step or block), never on what was drawn before.

A run therefore gives the same result alone, in any fleet, on any worker and after a resume, and no generator state
is saved. With `secure=True` the same calls draw from the operating system instead, and nothing repeats.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Streams:
    """The random streams of one run.

    Args:
        key: names the run (its id); equal keys give equal draws.
        secure: draw from the operating system's cryptographic generator; draws then never repeat.
    """

    key: str
    secure: bool = False

    def seed(self, purpose: str, index: int) -> int:
        """A 63-bit seed for (run, purpose, index)."""
        digest = hashlib.sha256(f"{self.key}/{purpose}/{index}".encode()).digest()
        return int.from_bytes(digest[:8], "little") >> 1

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
            return
        import torch

        generator = torch.Generator(device=values.device).manual_seed(self.seed(purpose, index))
        values.add_(torch.empty_like(values).normal_(generator=generator), alpha=std)


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

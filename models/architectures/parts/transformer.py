"""BERT's encoder, which DistilBERT and MiniLM are of: tokens to a vector at each position.

Devlin et al. 2019: learnt positions, normalisation behind each residual, GELU. Built of layers that every engine takes,
each called on a tensor whose first dimension is the sample, and without dropout, which no private method can have.
Padding (token 0, behind the others) is attended to by nobody; what comes out at its own positions is to be left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

VOCABULARY = 30_522  # BERT's uncased word pieces
POSITIONS = 512
PADDING = 0
_EPS = 1e-12


class TakesTokens:
    """A model specification whose inputs are tokens [position], integers; all others take numbers."""

    padding: ClassVar[int] = PADDING


class TokenEncoder(nn.Module):
    """Tokens [sample, position] to states [sample, position, width]."""

    def __init__(self, *, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(POSITIONS, width)
        self.norm = nn.LayerNorm(width, eps=_EPS)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        states = self.norm(self.words(tokens) + self.positions(places))
        for block in self.blocks:
            states = block(states, tokens != PADDING)
        return states


class _Block(nn.Module):
    """Attention among the positions of a sample, then a layer of four times the width at each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.mix = (nn.Linear(width, width) for _ in range(4))
        self.mix_norm = nn.LayerNorm(width, eps=_EPS)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.narrow_norm = nn.LayerNorm(width, eps=_EPS)

    def forward(self, states: Tensor, there: Tensor) -> Tensor:
        query, key, value = (self._by_head(part(states)) for part in (self.query, self.key, self.value))
        attended = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=there[:, None, None, :])
        states = self.mix_norm(states + self.mix(attended.transpose(1, 2).flatten(2)))
        return self.narrow_norm(states + self.narrow(nn.functional.gelu(self.widen(states))))

    def _by_head(self, states: Tensor) -> Tensor:
        """[sample, head, position, width of a head]."""
        return states.unflatten(2, (self.heads, -1)).transpose(1, 2)


def check_tokens(model: str, input_shape: tuple[int, ...]) -> None:
    """Refuse, in a sentence, shapes that are no rows of tokens."""
    if len(input_shape) != 1 or input_shape[0] > POSITIONS:
        raise ValueError(
            f"{model} takes rows of at most {POSITIONS} tokens, not {list(input_shape)}; choose another model"
        )


def draw_weights(module: nn.Module) -> None:
    """As BERT begins: normal weights of deviation 0.02, no biases."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Embedding):
            nn.init.normal_(layer.weight, std=0.02)
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)


def load_weights(encoder: TokenEncoder, state: Mapping[str, Tensor], names: Mapping[str, str], file: str) -> None:
    """Copy the weights of a file into the encoder.

    Args:
        state: what the file holds, by its own names.
        names: our layers to those of the file; {} stands for the number of a block.
        file: what it is called, for the error.

    Raises:
        ValueError: they are not those of such an encoder.
    """
    ours = {_theirs(name, names): parameter for name, parameter in encoder.named_parameters()}
    # Of a larger encoder it would have every weight of ours, and more.
    wrong = [key for key in ours if key not in state or state[key].shape != ours[key].shape]
    wrong += [key for key in [_theirs(f"blocks.{len(encoder.blocks)}.query.weight", names)] if key in state]
    if wrong:
        raise ValueError(
            f"{file} does not hold the weights of {len(encoder.blocks)} blocks of width {encoder.words.embedding_dim} "
            f"({wrong[0]} is missing, superfluous or of another shape): remove it and fetch it again"
        )
    with torch.no_grad():
        for key, parameter in ours.items():
            parameter.copy_(state[key])


def _theirs(name: str, names: Mapping[str, str]) -> str:
    """blocks.3.mix.bias -> what the file calls blocks.{}.mix, of 3, and bias."""
    layer, _, kind = name.rpartition(".")
    number = re.search(r"\d+", layer)
    return f"{names[re.sub(r'[0-9]+', '{}', layer)].format(number and number[0])}.{kind}"

"""BERT's encoder, which DistilBERT and MiniLM are of too: tokens to a vector at each position.

Devlin et al. 2019: learnt positions, normalisation behind each residual, GELU. Built of layers that every engine takes,
each called on a tensor whose first dimension is the sample, and without dropout, which no private method can have.
Padding (token 0, behind the others) is attended to by nobody; what comes out at its own positions is to be left alone.
Which positions are of the second of two texts needs no input of its own: those behind the first separator, which no
text has in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn

from rawls.models.architectures.parts.pretrained import Pretrained

VOCABULARY = 30_522  # BERT's uncased word pieces
POSITIONS = 512
PADDING, SEPARATOR = 0, 102
_EPS = 1e-12


class TakesTokens:
    """A model specification whose inputs are tokens [position], integers; all others take numbers."""

    padding: ClassVar[int] = PADDING


def of_second_text(tokens: Tensor) -> Tensor:
    """Whether each position [sample, position] lies behind the first separator, and is no padding."""
    ends = tokens == SEPARATOR
    return (ends.cumsum(1) > ends) & (tokens != PADDING)


@dataclass(frozen=True, kw_only=True)
class OfPublishedSize(Pretrained, TakesTokens):
    """A specification whose encoder is the published one; of another size than that it begins from scratch."""

    name: ClassVar[str]
    published: ClassVar[Mapping[str, int]]  # layers, width and heads
    pretrained: bool = True
    layers: Annotated[int, Ge(1), Le(48)] = 12
    width: Annotated[int, Ge(1), Le(8192)] = 768
    heads: Annotated[int, Ge(1), Le(128)] = 12

    def __post_init__(self) -> None:
        size = {name: getattr(self, name) for name in self.published}
        if self.pretrained and size != self.published:
            wanted = ", ".join(f"model.{name}={value}" for name, value in self.published.items())
            raise ValueError(
                f"the weights of {self.name} are for {wanted}: set model.pretrained=false for another size"
            )
        if self.width % self.heads:
            raise ValueError(f"model.width={self.width} must be a multiple of model.heads={self.heads}")


class TokenEncoder(nn.Module):
    """Tokens [sample, position] to states [sample, position, width].

    Args:
        kinds: of texts that have vectors of their own, as in BERT the first and the second of a row; 0: all are alike.
    """

    def __init__(self, *, layers: int, width: int, heads: int, kinds: int = 0) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.positions: nn.Module = nn.Embedding(POSITIONS, width)
        self.kinds = nn.Embedding(kinds, width) if kinds else None
        self.norm = nn.LayerNorm(width, eps=_EPS)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.embedded(tokens)
        for block in self.blocks:
            states = block(states, tokens != PADDING)
        return states

    def embedded(self, tokens: Tensor) -> Tensor:
        """What goes into the first block."""
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        vectors = self.words(tokens) + self.positions(places)
        if self.kinds is not None:
            vectors = vectors + self.kinds(of_second_text(tokens).long())
        return self.norm(vectors)


class Block(nn.Module):
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


def names_of_bert(prefix: str = "") -> dict[str, str]:
    """Our layers to those of files of BERT's, which may have a prefix, for `load_weights`."""
    block = f"{prefix}encoder.layer.{{}}"
    return {
        "words": f"{prefix}embeddings.word_embeddings",
        "positions": f"{prefix}embeddings.position_embeddings",
        "kinds": f"{prefix}embeddings.token_type_embeddings",
        "norm": f"{prefix}embeddings.LayerNorm",
        "blocks.{}.query": f"{block}.attention.self.query",
        "blocks.{}.key": f"{block}.attention.self.key",
        "blocks.{}.value": f"{block}.attention.self.value",
        "blocks.{}.mix": f"{block}.attention.output.dense",
        "blocks.{}.mix_norm": f"{block}.attention.output.LayerNorm",
        "blocks.{}.widen": f"{block}.intermediate.dense",
        "blocks.{}.narrow": f"{block}.output.dense",
        "blocks.{}.narrow_norm": f"{block}.output.LayerNorm",
    }


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

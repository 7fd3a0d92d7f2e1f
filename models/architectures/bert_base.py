"""BERT-base (Devlin et al. 2019) as a classifier of texts or pairs of texts (WYSIWYG): 109,483,778 parameters.

As in transformers: the state at the first position goes through the pretrained pooler (a linear layer and tanh), then
through a linear layer that begins anew. Deviation: no dropout (the original has .1), for what draws at random no
private engine takes. Pretrained means bert-base-uncased; padding changes nothing.

What the paper's code trains of it differs by method: without privacy and with noise alone the whole; for DP-IS-SGD all
but the vectors of positions (CivilComments, its `dpall_bert`), or the last of the twelve blocks, pooler and classifier
(MultiNLI, its `dp_bert`). What is not trained is no parameter of the model (models/architectures/parts/fixed.py), and
is not among the weights that a run keeps; from scratch it is drawn once for all seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from rawls.models.architectures.parts.fixed import Fixed
from rawls.models.architectures.parts.pretrained import hub_state
from rawls.models.architectures.parts.transformer import (
    PADDING,
    OfPublishedSize,
    TokenEncoder,
    check_tokens,
    draw_weights,
    load_weights,
    names_of_bert,
)

_NAME = "bert-base-uncased"
_URL = f"https://huggingface.co/google-bert/{_NAME}/resolve/main/model.safetensors"
_FILE = Path("bert", f"{_NAME}.safetensors")
_PREFIX = "bert."
_POOLER = f"{_PREFIX}pooler.dense"


@dataclass(frozen=True, kw_only=True)
class BertBase(OfPublishedSize):
    """BERT for rows of tokens."""

    name: ClassVar[str] = "bert_base"
    published: ClassVar[Mapping[str, int]] = {"layers": 12, "width": 768, "heads": 12}
    trained: Literal["whole", "all_but_positions", "last_layer"] = "whole"

    def build(self, input_shape: tuple[int, ...], num_classes: int, root: Path | None = None) -> nn.Module:
        check_tokens(self.name, input_shape)
        whole = _Classifier(self._encoder(), num_classes)
        draw_weights(whole)
        if self.pretrained:
            state = _newly_named(hub_state(_NAME, _URL, _FILE, root))
            load_weights(whole.encoder, state, names_of_bert(_PREFIX), _FILE.name)
            _load_pooler(whole.pooler, state)
        if self.trained == "whole":
            return whole
        fixed = whole.encoder if self.pretrained else self._drawn_once()
        if self.trained == "last_layer":
            return _LastLayer(fixed, whole)
        whole.encoder.positions = Fixed(fixed.positions)
        return whole

    def _encoder(self) -> TokenEncoder:
        return TokenEncoder(layers=self.layers, width=self.width, heads=self.heads, kinds=2)

    def _drawn_once(self) -> TokenEncoder:
        """One from scratch, whatever the seed: what is not trained must be the same wherever it is built."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            encoder = self._encoder()
            draw_weights(encoder)
        return encoder


class _Classifier(nn.Module):
    """Logits of the state at the first position."""

    def __init__(self, encoder: TokenEncoder, num_classes: int) -> None:
        super().__init__()
        width = encoder.words.embedding_dim
        self.encoder = encoder
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.classifier(torch.tanh(self.pooler(self.encoder(tokens)[:, 0])))


class _LastLayer(nn.Module):
    """The same, of which the last block, pooler and classifier are trained."""

    def __init__(self, fixed: TokenEncoder, whole: _Classifier) -> None:
        super().__init__()
        self.block, self.pooler, self.classifier = whole.encoder.blocks[-1], whole.pooler, whole.classifier
        fixed.blocks = fixed.blocks[:-1]
        self.below = Fixed(fixed)

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.below(tokens).to(self.pooler.weight.dtype)
        first = self.block(states, tokens != PADDING)[:, 0]
        return self.classifier(torch.tanh(self.pooler(first)))


def _newly_named(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A file of BERT's authors calls scale and shift of a normalisation gamma and beta."""
    return {key.replace(".gamma", ".weight").replace(".beta", ".bias"): value for key, value in state.items()}


def _load_pooler(pooler: nn.Linear, state: Mapping[str, Tensor]) -> None:
    """Copy it.

    Raises:
        ValueError: it is not there, or of another size.
    """
    for kind, ours in pooler.named_parameters():
        theirs = state.get(f"{_POOLER}.{kind}")
        if theirs is None or theirs.shape != ours.shape:
            raise ValueError(
                f"{_FILE.name} does not hold {_POOLER}.{kind} of width {pooler.out_features}: "
                "remove it and fetch it again"
            )
        with torch.no_grad():
            ours.copy_(theirs)

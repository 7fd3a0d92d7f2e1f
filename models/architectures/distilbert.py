"""DistilBERT (Sanh et al. 2019) as a classifier of texts, all of it trained (FDPG App. C.3): 66,955,010 parameters.

As in transformers: the state at the first position goes through a linear layer, ReLU, and one more, which begin anew.
Deviation: it has no dropout (the original .1, and .2 before the last layer), for what draws at random no private engine
takes. Pretrained means distilbert-base-uncased, which reads BERT's uncased word pieces; padding changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from annotated_types import Ge, Le
from torch import Tensor, nn

from rawls.models.architectures.parts.pretrained import hub_state
from rawls.models.architectures.parts.transformer import (
    OfPublishedSize,
    TokenEncoder,
    check_tokens,
    draw_weights,
    load_weights,
)

_NAME = "distilbert-base-uncased"
_URL = f"https://huggingface.co/distilbert/{_NAME}/resolve/main/pytorch_model.bin"
_FILE = Path("distilbert", f"{_NAME}.bin")
_BLOCK = "distilbert.transformer.layer.{}"
_NAMES = {
    "words": "distilbert.embeddings.word_embeddings",
    "positions": "distilbert.embeddings.position_embeddings",
    "norm": "distilbert.embeddings.LayerNorm",
    "blocks.{}.query": f"{_BLOCK}.attention.q_lin",
    "blocks.{}.key": f"{_BLOCK}.attention.k_lin",
    "blocks.{}.value": f"{_BLOCK}.attention.v_lin",
    "blocks.{}.mix": f"{_BLOCK}.attention.out_lin",
    "blocks.{}.mix_norm": f"{_BLOCK}.sa_layer_norm",
    "blocks.{}.widen": f"{_BLOCK}.ffn.lin1",
    "blocks.{}.narrow": f"{_BLOCK}.ffn.lin2",
    "blocks.{}.narrow_norm": f"{_BLOCK}.output_layer_norm",
}


@dataclass(frozen=True, kw_only=True)
class DistilBert(OfPublishedSize):
    """DistilBERT for rows of tokens."""

    name: ClassVar[str] = "distilbert"
    published: ClassVar[Mapping[str, int]] = {"layers": 6, "width": 768, "heads": 12}
    layers: Annotated[int, Ge(1), Le(48)] = 6

    def build(self, input_shape: tuple[int, ...], num_classes: int, root: Path | None = None) -> nn.Module:
        check_tokens(self.name, input_shape)
        classifier = _Classifier(TokenEncoder(layers=self.layers, width=self.width, heads=self.heads), num_classes)
        draw_weights(classifier)
        if self.pretrained:
            load_weights(classifier.encoder, hub_state(_NAME, _URL, _FILE, root), _NAMES, _FILE.name)
        return classifier


class _Classifier(nn.Module):
    """Logits of the state at the first position."""

    def __init__(self, encoder: TokenEncoder, num_classes: int) -> None:
        super().__init__()
        width = encoder.words.embedding_dim
        self.encoder = encoder
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, num_classes))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(tokens)[:, 0])

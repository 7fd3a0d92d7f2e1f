"""The encoder of DistilBERT and MiniLM: torch's own layers as the oracle, padding, and weights by other names."""

import pytest
import torch
from torch import Tensor, nn

from rawls.models.architectures.parts.transformer import (
    TokenEncoder,
    check_tokens,
    draw_weights,
    load_weights,
    of_second_text,
)

SIZE = {"layers": 2, "width": 12, "heads": 3}
NAMES = {  # a file's own
    "words": "emb.w",
    "positions": "emb.p",
    "norm": "emb.n",
    **{f"blocks.{{}}.{name}": f"deep.{{}}.{name}" for name in ("query", "key", "value", "mix", "mix_norm")},
    **{f"blocks.{{}}.{name}": f"deep.{{}}.{name}" for name in ("widen", "narrow", "narrow_norm")},
}
TOKENS = torch.tensor([[101, 7, 7, 9, 102, 0, 0], [101, 30_521, 5, 8, 8, 3, 102], [101, 102, 0, 0, 0, 0, 0]])


@pytest.fixture
def encoder() -> TokenEncoder:
    torch.manual_seed(0)
    return TokenEncoder(**SIZE).double()


def by_torch(encoder: TokenEncoder, tokens: Tensor) -> Tensor:
    """The same parameters in torch's transformer."""
    layer = nn.TransformerEncoderLayer(
        12, 3, 48, dropout=0, activation="gelu", layer_norm_eps=1e-12, batch_first=True, dtype=torch.float64
    )
    reference = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    for theirs, ours in zip(reference.layers, encoder.blocks, strict=True):
        state = {name: value.detach() for name, value in ours.named_parameters()}
        names = {"self_attn.out_proj": "mix", "linear1": "widen", "linear2": "narrow"}
        names |= {"norm1": "mix_norm", "norm2": "narrow_norm"}
        taken = {f"{to}.{kind}": state[f"{of}.{kind}"] for to, of in names.items() for kind in ("weight", "bias")}
        for kind in ("weight", "bias"):
            taken[f"self_attn.in_proj_{kind}"] = torch.cat([state[f"{of}.{kind}"] for of in ("query", "key", "value")])
        theirs.load_state_dict(taken)
    places = torch.arange(tokens.shape[1])
    states = encoder.norm(encoder.words.weight[tokens] + encoder.positions(places))
    return reference.train()(states, src_key_padding_mask=tokens == 0)


def test_is_torchs_transformer(encoder: TokenEncoder) -> None:
    filled = TOKENS != 0
    torch.testing.assert_close(encoder(TOKENS)[filled], by_torch(encoder, TOKENS)[filled], rtol=1e-10, atol=1e-12)


def test_padding_changes_nothing(encoder: TokenEncoder) -> None:
    """However much of it there is, and whatever else is in the batch."""
    together, filled = encoder(TOKENS), TOKENS != 0
    for row, there in zip(range(3), filled, strict=True):
        alone = encoder(TOKENS[row : row + 1, : int(there.sum())])[0]
        torch.testing.assert_close(together[row][there], alone, rtol=1e-12, atol=1e-14)
    wider = encoder(nn.functional.pad(TOKENS, (0, 300)))[:, :7]
    torch.testing.assert_close(wider[filled], together[filled], rtol=1e-12, atol=1e-14)
    moved = encoder(torch.cat([TOKENS[:, :1], TOKENS[:, 2:]], 1))  # a word less is no padding
    assert (moved[1, 0] - together[1, 0]).abs().max() > 1e-3


def their_state(encoder: TokenEncoder) -> dict[str, Tensor]:
    names = {"words": "emb.w", "positions": "emb.p", "norm": "emb.n"}
    state = {}
    for name, value in encoder.state_dict().items():
        first = name.partition(".")[0]
        state[name.replace("blocks", "deep") if first == "blocks" else name.replace(first, names[first])] = value
    return state | {"pooler.weight": torch.zeros(3)}


def test_weights_come_under_the_names_of_their_file(encoder: TokenEncoder) -> None:
    other = TokenEncoder(**SIZE).double()
    load_weights(other, their_state(encoder), NAMES, "some.bin")
    assert all(torch.equal(value, encoder.state_dict()[name]) for name, value in other.state_dict().items())


def test_weights_of_another_encoder_are_refused(encoder: TokenEncoder) -> None:
    state, sentence = (
        their_state(encoder),
        r"^some\.bin does not hold .* 2 blocks of width 12 \({} is .*fetch it again$",
    )
    missing = {key: value for key, value in state.items() if key != "deep.1.mix.bias"}
    wrong = {
        r"deep\.1\.mix\.bias": missing,
        r"emb\.p\.weight": state | {"emb.p.weight": torch.zeros(512, 13)},
        r"deep\.2\.query\.weight": state | {"deep.2.query.weight": torch.zeros(12, 12)},  # of three blocks
        r"emb\.w\.weight": {},
    }
    for key, content in wrong.items():
        with pytest.raises(ValueError, match=sentence.format(key)):
            load_weights(TokenEncoder(**SIZE), content, NAMES, "some.bin")


def test_drawn_weights_are_small_and_depend_on_the_seed() -> None:
    encoders = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        encoders.append(TokenEncoder(**SIZE))
        draw_weights(encoders[-1])
    first, again, other = (encoder.words.weight for encoder in encoders)
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert float(first.detach().std()) == pytest.approx(0.02, rel=0.01)  # of 366,264, within 0.1 % by chance
    assert not any(layer.bias.any() for layer in encoders[0].modules() if isinstance(layer, nn.Linear))


@pytest.mark.parametrize("shape", [(3, 28, 28), (), (513,)])
def test_what_is_no_row_of_tokens_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="^some takes rows of at most 512 tokens, not .*; choose another model$"):
        check_tokens("some", shape)
    check_tokens("some", (512,))


def test_the_second_text_is_what_lies_behind_the_first_separator() -> None:
    rows = torch.tensor([[101, 5, 102, 7, 8, 102, 0], [101, 5, 6, 7, 8, 102, 0], [101, 102, 102, 0, 0, 0, 0]])
    assert of_second_text(rows).tolist() == [
        [False, False, False, True, True, True, False], [False] * 7, [False, False, True, *[False] * 4],
    ]  # fmt: skip


def test_kinds_of_texts_have_vectors_where_they_are_asked_for(encoder: TokenEncoder) -> None:
    """Of the first kind nothing is added where its vector is zero, bit by bit."""
    kinds = TokenEncoder(**SIZE, kinds=2).double()
    kinds.load_state_dict({**encoder.state_dict(), "kinds.weight": torch.zeros(2, 12)})
    assert torch.equal(kinds(TOKENS), encoder(TOKENS))
    with torch.no_grad():
        assert kinds.kinds is not None
        kinds.kinds.weight[1] = 1.0 + torch.arange(12)
    pair = torch.tensor([[101, 7, 102, 9, 102, 0, 0]])
    assert torch.equal(kinds(TOKENS[1:2, :6]), encoder(TOKENS[1:2, :6]))
    assert (kinds(pair) - encoder(pair)).abs().max() > 1e-2

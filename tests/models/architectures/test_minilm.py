"""MiniLM: sentence embeddings by hand from a small file, and known ones where the real weights are at hand."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rawls.datasets.core.word_pieces import WordPieces
from rawls.models.architectures import minilm
from rawls.models.architectures.minilm import FILE, MiniLm
from rawls.models.architectures.parts.transformer import TokenEncoder

SMALL = {"layers": 1, "width": 8, "heads": 2}
BERT = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "norm": "embeddings.LayerNorm",
    "blocks.0.query": "encoder.layer.0.attention.self.query",
    "blocks.0.key": "encoder.layer.0.attention.self.key",
    "blocks.0.value": "encoder.layer.0.attention.self.value",
    "blocks.0.mix": "encoder.layer.0.attention.output.dense",
    "blocks.0.mix_norm": "encoder.layer.0.attention.output.LayerNorm",
    "blocks.0.widen": "encoder.layer.0.intermediate.dense",
    "blocks.0.narrow": "encoder.layer.0.output.dense",
    "blocks.0.narrow_norm": "encoder.layer.0.output.LayerNorm",
}
KINDS = "embeddings.token_type_embeddings.weight"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[TokenEncoder, Path]:
    """An encoder, and its file by BERT's names: the first kind of sentence has half of each position's vector."""
    monkeypatch.setattr(minilm, "SIZE", SMALL)
    torch.manual_seed(0)
    encoder = TokenEncoder(**SMALL)
    state = {}
    for name, value in encoder.state_dict().items():
        layer, _, kind = name.rpartition(".")
        state[f"{BERT[layer]}.{kind}"] = value.clone()
    kinds = torch.randn(2, 8)
    state["embeddings.position_embeddings.weight"] -= kinds[0]
    path = tmp_path / "model.safetensors"
    save_file({**state, KINDS: kinds, "pooler.dense.bias": torch.zeros(8)}, path)
    return encoder, path


def test_an_embedding_is_the_mean_of_what_is_there(small: tuple[TokenEncoder, Path]) -> None:
    encoder, path = small
    tokens = torch.tensor([[101, 5, 9, 102, 0, 0], [101, 7, 7, 7, 3, 102], [101, 102, 0, 0, 0, 0]])

    def by_hand(row: Tensor) -> Tensor:
        mean = encoder(row[row > 0].unsqueeze(0))[0].mean(0)
        return mean / mean.square().sum().sqrt()

    with torch.no_grad():
        found = MiniLm().encoder((6,), [path])(tokens)
        expected = torch.stack([by_hand(row) for row in tokens])
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        wider = MiniLm().encoder((50,), [path])(nn.functional.pad(tokens, (0, 44)))
        torch.testing.assert_close(wider, found, rtol=1e-5, atol=1e-6)


PAIRS = [([5, 6, 9], [5, 8]), ([7], [3, 3, 4]), ([4, 4, 8, 2], [9])]


def test_words_of_the_second_text_are_compared_with_their_like_in_the_first(
    small: tuple[TokenEncoder, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Word by word, in naive code; signs and padding have no partner, and are none."""
    monkeypatch.setattr(minilm, "PAIRED_BEHIND", 1)
    encoder, path = small
    kinds = load_file(path)[KINDS]
    rows = [[101, *first, 102, *second, 102] for first, second in PAIRS]
    tokens = torch.tensor([row + [0] * (12 - len(row)) for row in rows])

    def by_hand(first: list[int], second: list[int]) -> Tensor:
        row = torch.tensor([[101, *first, 102, *second, 102]])
        vectors = encoder.words(row) + encoder.positions(torch.arange(row.shape[1]))
        vectors[:, len(first) + 2 :] += kinds[1] - kinds[0]  # the small file's positions hold the first kind's
        states = encoder.blocks[0](encoder.norm(vectors), row > 0)[0]
        premise, hypothesis = states[1 : len(first) + 1], states[len(first) + 2 : -1]
        sums = [torch.zeros(8) for _ in range(4)]
        for word in hypothesis:
            near = torch.stack([torch.exp(10 * torch.cosine_similarity(word, other, 0)) for other in premise])
            partner = (near.unsqueeze(1) * premise).sum(0) / near.sum()
            for total, part in zip(sums, (word, partner, (word - partner).abs(), word * partner), strict=True):
                total += part
        return torch.cat([total / total.norm() for total in sums])

    with torch.no_grad():
        found = MiniLm().encoder((12,), [path])(tokens)
        torch.testing.assert_close(found, torch.stack([by_hand(*pair) for pair in PAIRS]), rtol=1e-4, atol=1e-5)
        wider = MiniLm().encoder((50,), [path])(nn.functional.pad(tokens, (0, 38)))
        assert torch.equal(wider, found)


def test_a_pair_without_words_has_finite_features(small: tuple[TokenEncoder, Path]) -> None:
    tokens = torch.tensor([[101, 102, 5, 102], [101, 5, 102, 102], [101, 102, 102, 0]])
    with torch.no_grad():
        assert MiniLm().encoder((4,), [small[1]])(tokens).isfinite().all()


def test_texts_and_pairs_are_not_mixed(small: tuple[TokenEncoder, Path]) -> None:
    tokens = torch.tensor([[101, 5, 102, 6, 102], [101, 5, 6, 102, 0]])
    with pytest.raises(ValueError, match="^minilm takes rows of one text or of two, not both: leave"):
        MiniLm().encoder((5,), [small[1]])(tokens)


def test_weights_of_another_network_are_refused(
    small: tuple[TokenEncoder, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minilm, "SIZE", {**SMALL, "layers": 2})
    with pytest.raises(ValueError, match=r"^model\.safetensors does not hold the weights of 2 blocks of width 8 "):
        MiniLm().encoder((6,), [small[1]])
    with pytest.raises(ValueError, match="^minilm takes rows of at most 512 tokens"):
        MiniLm().encoder((3, 8, 8), [small[1]])


def test_what_is_trained_is_one_linear_layer() -> None:
    model = MiniLm().build((384,), 2)
    assert [type(layer) for layer in model.children()] == [nn.Flatten, nn.Linear]
    assert MiniLm().stands_in


def test_real_embeddings_know_what_texts_are_about(shared_data: Path) -> None:
    """Two texts of one thing, and one of another."""
    weights, vocabulary = shared_data / "minilm" / FILE.filename, shared_data / "word_pieces" / "vocab.txt"
    if not (weights.is_file() and vocabulary.is_file()):
        pytest.skip(f"no weights of MiniLM or no vocabulary under {shared_data}")
    texts = [
        "A man is playing a guitar.",
        "Somebody plays music on a guitar.",
        "The stock market fell sharply today.",
    ]
    tokens = torch.from_numpy(WordPieces.read(vocabulary).encode(texts, 128))
    with torch.no_grad():
        found = MiniLm().encoder((128,), [weights])(tokens)
    near = found @ found.T
    assert float(near[0, 1]) == pytest.approx(0.8079, abs=1e-3)
    assert float(near[0, 2]) == pytest.approx(-0.0540, abs=1e-3)

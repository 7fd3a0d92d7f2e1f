"""DistilBERT: its published names and sizes, weights from a file or a clear refusal; padding changes nothing."""

from pathlib import Path
from urllib.error import URLError

import pytest
import torch
from torch import Tensor, nn

from rawls.models.architectures.distilbert import DistilBert

FILE = Path("distilbert", "distilbert-base-uncased.bin")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the published network were this small: a file of the real size is 268 MB."""
    monkeypatch.setattr(DistilBert, "published", {"layers": 2, "width": 8, "heads": 2})


def of_small_size(*, pretrained: bool = True) -> DistilBert:
    return DistilBert(pretrained=pretrained, layers=2, width=8, heads=2)


def published(width: int, layers: int) -> dict[str, Tensor]:
    """A file's entries as transformers names them, each a constant of its own; with the head of its pretraining."""
    at_each = {
        **{f"attention.{part}_lin": (width, width) for part in ("q", "k", "v", "out")},
        "ffn.lin1": (4 * width, width),
        "ffn.lin2": (width, 4 * width),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (30_522, width),
        "embeddings.position_embeddings.weight": (512, width),
    }
    for name in ["embeddings.LayerNorm", *(f"transformer.layer.{n}.{norm}" for n in range(layers) for norm in NORMS)]:
        shapes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)}
    for number in range(layers):
        for name, shape in at_each.items():
            shapes |= {f"transformer.layer.{number}.{name}.weight": shape}
            shapes |= {f"transformer.layer.{number}.{name}.bias": shape[:1]}
    state = {f"distilbert.{key}": torch.full(shape, place / 8) for place, (key, shape) in enumerate(shapes.items())}
    return state | {"vocab_transform.weight": torch.zeros(width, width), "vocab_projector.bias": torch.zeros(30_522)}


NORMS = ("sa_layer_norm", "output_layer_norm")
OURS = {
    "encoder.words.weight": "embeddings.word_embeddings.weight",
    "encoder.positions.weight": "embeddings.position_embeddings.weight",
    "encoder.norm.bias": "embeddings.LayerNorm.bias",
    "encoder.blocks.0.query.weight": "transformer.layer.0.attention.q_lin.weight",
    "encoder.blocks.0.key.weight": "transformer.layer.0.attention.k_lin.weight",
    "encoder.blocks.1.value.bias": "transformer.layer.1.attention.v_lin.bias",
    "encoder.blocks.1.mix.weight": "transformer.layer.1.attention.out_lin.weight",
    "encoder.blocks.0.mix_norm.weight": "transformer.layer.0.sa_layer_norm.weight",
    "encoder.blocks.1.widen.weight": "transformer.layer.1.ffn.lin1.weight",
    "encoder.blocks.0.narrow.bias": "transformer.layer.0.ffn.lin2.bias",
    "encoder.blocks.1.narrow_norm.bias": "transformer.layer.1.output_layer_norm.bias",
}


def save(root: Path, content: object) -> Path:
    (root / FILE).parent.mkdir(exist_ok=True)
    torch.save(content, root / FILE)
    return root / FILE


@pytest.mark.usefixtures("small")
def test_pretrained_takes_the_encoder_and_nothing_else(tmp_path: Path) -> None:
    state = published(8, 2)
    save(tmp_path, state)
    built = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        built.append(of_small_size().build((9,), 2, tmp_path))
    for ours, theirs in OURS.items():
        assert torch.equal(built[0].get_parameter(ours), state[f"distilbert.{theirs}"]), ours
    first, second = (dict(model.named_parameters()) for model in built)
    differ = {name for name in first if not torch.equal(first[name], second[name])}
    assert differ == {"head.0.weight", "head.2.weight"}
    assert sum(value.numel() for name, value in first.items() if name.startswith("encoder.")) == sum(
        value.numel() for key, value in state.items() if key.startswith("distilbert.")
    )


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("damage", ["cut", "foreign", "list"])
def test_damaged_weights_are_refused_in_a_sentence(tmp_path: Path, damage: str) -> None:
    contents: dict[str, object] = {"foreign": {"bert.weight": torch.zeros(2)}, "list": [1, 2]}
    path = save(tmp_path, contents.get(damage, published(8, 2)))
    sentence = r"^distilbert-base-uncased\.bin does not hold the weights of 2 blocks of width 8 .* fetch it again$"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:5_000])
        sentence = r"^the pretrained weights of distilbert-base-uncased cannot be had .*model\.pretrained=false$"
    with pytest.raises(ValueError, match=sentence):
        of_small_size().build((9,), 2, tmp_path)


@pytest.mark.usefixtures("small")
def test_without_network_the_refusal_says_what_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise URLError("Name or service not known")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    with pytest.raises(ValueError, match=rf"Name or service.*put https://\S+ as {FILE} under data\.root, or set"):
        of_small_size().build((9,), 2, tmp_path)


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^the weights of distilbert are for model\.layers=6, .*pretrained=false"):
        DistilBert(layers=2)
    with pytest.raises(ValueError, match=r"^model\.width=10 must be a multiple of model\.heads=4$"):
        DistilBert(pretrained=False, layers=1, width=10, heads=4)
    with pytest.raises(ValueError, match="^distilbert takes rows of at most 512 tokens"):
        of_small_size(pretrained=False).build((3, 28, 28), 2)


def test_padding_changes_no_logits() -> None:
    torch.manual_seed(0)
    model = of_small_size(pretrained=False).build((9,), 2).double()
    for parameter in model.parameters():  # larger than they begin
        nn.init.normal_(parameter, std=0.5)
    tokens = torch.tensor([[101, 5, 6, 102, 0, 0, 0, 0, 0], [101, 5, 6, 5, 5, 8, 2, 2, 102]])
    together = model(tokens)
    torch.testing.assert_close(model(tokens[:1, :4]), together[:1], rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(model(nn.functional.pad(tokens, (0, 40))), together, rtol=1e-12, atol=1e-14)
    assert (together[0] - together[1]).abs().max() > 1e-4

"""BERT-base: its published names and sizes, weights from a file or a clear refusal, and what of it is trained."""

from pathlib import Path
from urllib.error import URLError

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from rawls.models.architectures.bert_base import BertBase
from rawls.models.engines.base import FlatParameters
from rawls.models.engines.fused import FusedEngine
from tests.models.conftest import fixed_weights, oracle

FILE = Path("bert", "bert-base-uncased.safetensors")
SIZE = {"layers": 2, "width": 8, "heads": 2}
PAIR = torch.tensor(
    [[101, 5, 6, 102, 7, 8, 102, 0, 0], [101, 5, 6, 9, 7, 8, 102, 0, 0], [101, 3, 102, 4, 4, 4, 4, 4, 102]]
)
ENTRIES = ("embeddings.token_type_embeddings.weight", "pooler.dense.bias", "encoder.layer.0.output.LayerNorm.beta")
PARTS = ("whole", "all_but_positions", "last_layer")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the published network were this small: a file of the real size is 440 MB."""
    monkeypatch.setattr(BertBase, "published", SIZE)


def of_small_size(trained: str = "whole", *, pretrained: bool = True) -> BertBase:
    return BertBase(pretrained=pretrained, trained=trained, **SIZE)  # type: ignore[arg-type]


def published(width: int, layers: int) -> dict[str, Tensor]:
    """A file's entries as BERT's authors name them, drawn at random; with the head of its pretraining."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (30_522, width),
        "embeddings.position_embeddings.weight": (512, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "pooler.dense.weight": (width, width),
        "pooler.dense.bias": (width,),
    }
    of_block = {
        **{f"attention.self.{part}": (width, width) for part in ("query", "key", "value")},
        "attention.output.dense": (width, width), "intermediate.dense": (4 * width, width),
        "output.dense": (width, 4 * width),
    }  # fmt: skip
    norms = ["embeddings.LayerNorm"]
    for number in range(layers):
        block = f"encoder.layer.{number}"
        norms += [f"{block}.{part}.LayerNorm" for part in ("attention.output", "output")]
        for name, shape in of_block.items():
            shapes |= {f"{block}.{name}.weight": shape, f"{block}.{name}.bias": shape[:1]}
    shapes |= {f"{name}.{kind}": (width,) for name in norms for kind in ("gamma", "beta")}
    generator = torch.Generator().manual_seed(5)
    state = {f"bert.{key}": 0.5 * torch.randn(shape, generator=generator) for key, shape in shapes.items()}
    return state | {"cls.predictions.bias": torch.zeros(30_522), "cls.seq_relationship.weight": torch.zeros(2, width)}


def save(root: Path, state: dict[str, Tensor]) -> Path:
    (root / FILE).parent.mkdir(exist_ok=True)
    save_file(state, root / FILE)
    return root / FILE


def by_hand(state: dict[str, Tensor], tokens: Tensor, classifier: nn.Linear) -> Tensor:
    """Logits from the entries of a file: torch's own layers, a row at a time without its padding."""
    take = {key.removeprefix("bert."): value.double() for key, value in state.items()}

    def norm(name: str, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, (8,), take[f"{name}.LayerNorm.gamma"], take[f"{name}.LayerNorm.beta"], 1e-12)

    def line(name: str, x: Tensor) -> Tensor:
        return nn.functional.linear(x, take[f"{name}.weight"], take[f"{name}.bias"])

    logits = []
    for row in tokens:
        own = row[row > 0].tolist()
        first_end = own.index(102)
        kinds = [int(place > first_end) for place in range(len(own))]
        x = take["embeddings.word_embeddings.weight"][own] + take["embeddings.position_embeddings.weight"][: len(own)]
        x = norm("embeddings", x + take["embeddings.token_type_embeddings.weight"][kinds])
        for number in range(2):
            block = f"encoder.layer.{number}"
            parts = [line(f"{block}.attention.self.{part}", x) for part in ("query", "key", "value")]
            heads = []
            for head in (slice(0, 4), slice(4, 8)):
                query, key, value = (part[:, head] for part in parts)
                heads.append(torch.softmax(query @ key.T / 2, 1) @ value)
            x = norm(f"{block}.attention.output", x + line(f"{block}.attention.output.dense", torch.cat(heads, 1)))
            wide = nn.functional.gelu(line(f"{block}.intermediate.dense", x))
            x = norm(f"{block}.output", x + line(f"{block}.output.dense", wide))
        logits.append(classifier(torch.tanh(line("pooler.dense", x[0]))))
    return torch.stack(logits)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("trained", PARTS)
def test_pretrained_is_the_files_network_whatever_is_trained(tmp_path: Path, trained: str) -> None:
    """Every entry counts, kinds of texts too; only the classifier begins anew."""
    state = published(8, 2)
    save(tmp_path, state)
    torch.manual_seed(3)
    model = of_small_size(trained).build((9,), 3, tmp_path)
    with torch.no_grad():
        found = model(PAIR)
        classifier = model.get_submodule("classifier").double()
        assert isinstance(classifier, nn.Linear)
        torch.testing.assert_close(found.double(), by_hand(state, PAIR, classifier), rtol=1e-4, atol=1e-5)
        for entry in ENTRIES:
            changed = state | {f"bert.{entry}": state[f"bert.{entry}"] + 1 + torch.arange(8)}
            assert (by_hand(changed, PAIR, classifier) - found).abs().max() > 1e-3


@pytest.mark.usefixtures("small")
def test_what_is_not_trained_is_no_parameter(tmp_path: Path) -> None:
    save(tmp_path, published(8, 2))
    names = {
        trained: {name for name, _ in of_small_size(trained).build((9,), 3, tmp_path).named_parameters()}
        for trained in PARTS
    }
    assert names["whole"] - names["all_but_positions"] == {"encoder.positions.weight"}
    assert {name.partition(".")[0] for name in names["last_layer"]} == {"block", "pooler", "classifier"}
    whole = {name.removeprefix("encoder.blocks.1.") for name in names["whole"] if "blocks.1" in name}
    assert {name.removeprefix("block.") for name in names["last_layer"] if name.startswith("block.")} == whole


@pytest.mark.parametrize("trained", PARTS)
def test_only_what_is_trained_depends_on_the_seed(trained: str) -> None:
    """From scratch: with the same parameters, models of two seeds are one function, so a run resumes as it began."""
    models = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        models.append(of_small_size(trained, pretrained=False).build((9,), 3))
    first, second = models
    with torch.no_grad():
        assert (first(PAIR) - second(PAIR)).abs().max() > 1e-4
        FlatParameters(second).bind(FlatParameters(first).flatten(first))
        torch.testing.assert_close(first(PAIR), second(PAIR))


@pytest.mark.parametrize("trained", PARTS)
def test_gradients_of_pairs_are_those_of_single_ones(trained: str) -> None:
    """Behind separators too, by the fused engine: against plain autograd, a pair at a time."""

    def build() -> nn.Module:
        return of_small_size(trained, pretrained=False).build((9,), 3)

    engine = FusedEngine(build, device=torch.device("cpu"), chunk=2)
    params = 5 * engine.initial(0).double()
    labels = torch.tensor([0, 2, 1])
    weights = torch.tensor([[0.5, 1.0, 2.0]], dtype=torch.float64)
    found = engine.weighted_sum(params.unsqueeze(0), PAIR.unsqueeze(0), labels.unsqueeze(0), fixed_weights(weights))
    losses, gradients = oracle(build, params, PAIR, labels)
    torch.testing.assert_close(found.losses[0], losses)
    torch.testing.assert_close(found.norms[0], gradients.norm(dim=1), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found.total[0], weights[0] @ gradients, rtol=1e-6, atol=1e-8)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("damage", ["cut", "foreign", "pooler"])
def test_damaged_weights_are_refused_in_a_sentence(tmp_path: Path, damage: str) -> None:
    state = published(8, 2)
    contents = {
        "foreign": {"distilbert.weight": torch.zeros(2)},
        "pooler": {key: value for key, value in state.items() if key != "bert.pooler.dense.bias"},
    }
    path = save(tmp_path, contents.get(damage, state))
    sentence = r"^bert-base-uncased\.safetensors does not hold .* of width 8.* fetch it again$"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:5_000])
        sentence = r"^the pretrained weights of bert-base-uncased cannot be had .*model\.pretrained=false$"
    with pytest.raises(ValueError, match=sentence):
        of_small_size().build((9,), 2, tmp_path)


@pytest.mark.usefixtures("small")
def test_a_file_is_fetched_where_it_is_not_and_a_refusal_says_what_to_put_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fetch(url: str, path: str, **_options: object) -> None:
        asked.append(url)
        save_file(published(8, 2), path)

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(torch.hub, "download_url_to_file", fetch)
    for _ in range(2):
        of_small_size().build((9,), 2, tmp_path)
    assert len(asked) == 1 and asked[0].endswith("/bert-base-uncased/resolve/main/model.safetensors")

    def refuse(*_args: object, **_options: object) -> None:
        raise URLError("Name or service not known")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "other"))
    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    with pytest.raises(ValueError, match=rf"Name or service.*put https://\S+ as {FILE} under data\.root, or set"):
        of_small_size().build((9,), 2, tmp_path)


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^the weights of bert_base are for model\.layers=12, .*pretrained=false"):
        BertBase(layers=2)
    with pytest.raises(ValueError, match="^bert_base takes rows of at most 512 tokens"):
        of_small_size(pretrained=False).build((3, 28, 28), 2)

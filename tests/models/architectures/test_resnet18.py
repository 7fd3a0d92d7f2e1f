"""ResNet-18: torchvision's network with either normalisation, and BatchNorm for open methods alone."""

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
from torch import Tensor, nn

from rawls.models.architectures.parts.torchvision_schemas import declare_missing
from rawls.models.architectures.resnet18 import ResNet18
from rawls.models.engines.check_layers import check_layers
from rawls.models.engines.plain import PlainEngine
from tests.models.conftest import fixed_weights

IMAGES = (3, 32, 32)
FILE = "resnet18/resnet18-f37072fd.pth"


@functools.cache
def built(norm: str | None) -> nn.Module:
    torch.manual_seed(0)
    return ResNet18(norm=norm, standardised="cifar10").build(IMAGES, 10)  # type: ignore[arg-type]


def torchvisions(norm: Callable[..., nn.Module]) -> nn.Module:
    declare_missing()
    import torchvision

    return torchvision.models.resnet18(num_classes=10, norm_layer=norm)


@pytest.mark.parametrize(("norm", "theirs"), [(None, functools.partial(nn.GroupNorm, 32)), ("batch", nn.BatchNorm2d)])
def test_is_torchvisions_network_on_standardised_colours(norm: str | None, theirs: Callable[..., nn.Module]) -> None:
    ours, reference = copy.deepcopy(built(norm)), torchvisions(theirs)
    reference.load_state_dict({name.removeprefix("1."): value for name, value in ours.state_dict().items()})
    x = torch.rand(3, *IMAGES)
    colours = torch.tensor([[0.4914, 0.4822, 0.4465], [0.2023, 0.1994, 0.2010]]).view(2, 3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), reference((x - colours[0]) / colours[1]))


def test_batch_norm_is_refused_to_private_methods_and_taken_by_open_ones() -> None:
    with pytest.raises(ValueError, match=r"^layer '1\.bn1' is BatchNorm2d, which mixes the samples .*use GroupNorm$"):
        check_layers(built("batch"))
    assert check_layers(built("batch"), "plain") == "plain"
    assert check_layers(built(None)) == "fused"


def test_an_open_step_moves_the_running_statistics_as_torch_does() -> None:
    engine = PlainEngine(lambda: copy.deepcopy(built("batch")), device=torch.device("cpu"))
    row, images, labels = engine.initial(0).unsqueeze(0), torch.rand(1, 4, *IMAGES), torch.tensor([[1, 0, 9, 3]])
    found = engine.weighted_sum(row, images, labels, fixed_weights(torch.full((1, 4), 0.25)))
    module = copy.deepcopy(built("batch")).train()
    loss = nn.functional.cross_entropy(module(images[0]), labels[0])
    expected = torch.autograd.grad(loss, list(module.parameters()))
    torch.testing.assert_close(found.total[0], torch.cat([piece.flatten() for piece in expected]), rtol=1e-4, atol=1e-5)
    stored = engine.named(row[0])
    for name, buffer in module.named_buffers():
        torch.testing.assert_close(stored[name], buffer.to(torch.float32))


@pytest.fixture
def weights(tmp_path: Path) -> dict[str, Tensor]:
    """Torchvision's network with other numbers, under tmp_path where its file is looked for."""
    torch.manual_seed(5)
    state = torchvisions(nn.BatchNorm2d).state_dict()
    made = {name: value if value.dim() == 4 else 0.5 + torch.rand_like(value.float()) for name, value in state.items()}
    (tmp_path / FILE).parent.mkdir()
    torch.save(made, tmp_path / FILE)
    return made


def test_pretrained_with_batch_norm_is_torchvisions_network_but_for_the_last_layer(
    tmp_path: Path, weights: dict[str, Tensor]
) -> None:
    model = ResNet18(norm="batch", weights="torchvision").build(IMAGES, 13, tmp_path).eval()
    reference = torchvisions(nn.BatchNorm2d).eval()
    reference.load_state_dict(weights)
    reference.fc = model[1].fc  # type: ignore[index]
    x = torch.rand(3, *IMAGES)
    colours = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).view(2, 3, 1, 1)
    with torch.no_grad():
        found = model(x)
        assert found.shape == (3, 13)
        torch.testing.assert_close(found, reference((x - colours[0]) / colours[1]))


def test_pretrained_with_group_norm_takes_the_convolutions_alone(tmp_path: Path, weights: dict[str, Tensor]) -> None:
    network = ResNet18(weights="torchvision").build(IMAGES, 13, tmp_path)[1]  # type: ignore[index]
    kept = {name for name, value in network.state_dict().items() if torch.equal(value, weights[name])}
    assert kept == {name for name, value in weights.items() if value.dim() == 4}
    norms = [layer for layer in network.modules() if isinstance(layer, nn.GroupNorm)]
    assert len(norms) == 20 and all(layer.num_groups == 32 and bool((layer.weight == 1).all()) for layer in norms)


def test_weights_that_cannot_be_had_or_are_not_its_own_are_one_sentence(
    tmp_path: Path, weights: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise URLError("Name or service not known")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    spec = ResNet18(weights="torchvision")
    with pytest.raises(
        ValueError, match=r"as resnet18/resnet18-f37072fd\.pth under data\.root, or set model\.weights=null"
    ):
        spec.build(IMAGES, 13, tmp_path / "elsewhere")
    torch.save(
        {**weights, "layer1.0.conv3.weight": torch.zeros(1, 1, 1, 1)}, tmp_path / "resnet18" / "resnet18-f37072fd.pth"
    )
    with pytest.raises(
        ValueError, match=r"does not hold a ResNet-18 \(layer1\.0\.conv3\.weight is missing, superfluous"
    ):
        spec.build(IMAGES, 13, tmp_path)


def test_weights_bring_their_own_statistics() -> None:
    with pytest.raises(ValueError, match=r"^model\.standardised=cifar10 is not what model\.weights=torchvision were"):
        ResNet18(weights="torchvision", standardised="cifar10")


def test_other_shapes_are_refused() -> None:
    for shape in [(1, 28, 28), (60,), (32, 32, 3)]:
        with pytest.raises(ValueError, match=r"^resnet18 takes images \[3, rows, columns\]"):
            ResNet18().build(shape, 2)

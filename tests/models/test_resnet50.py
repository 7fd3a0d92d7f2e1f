"""ResNet-50: group norms everywhere, and pretrained convolutions from either source or a clear refusal."""

import functools
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
from torch import Tensor, nn

from models.resnet50 import ROOT_VARIABLE, ResNet50

INPUT = (3, 32, 32)


@functools.cache
def scratch() -> nn.Module:
    torch.manual_seed(0)
    return ResNet50(pretrained=False).build(INPUT, 2)


def hugging_face_names() -> dict[str, str]:
    """Our convolution -> the key of transformers' ResNet, written out from its stages and layers."""
    names = {"conv1": "resnet.embedder.embedder.convolution.weight"}
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            theirs = f"resnet.encoder.stages.{stage}.layers.{block}"
            for part in range(3):
                ours = f"layer{stage + 1}.{block}.conv{part + 1}"
                names[ours] = f"{theirs}.layer.{part}.convolution.weight"
        names[f"layer{stage + 1}.0.downsample.0"] = (
            f"resnet.encoder.stages.{stage}.layers.0.shortcut.convolution.weight"
        )
    return names


def save_weights(folder: Path, source: str) -> dict[str, Tensor]:
    """A weights file of that source whose convolutions each hold a constant of their own, by our names."""
    shapes = {
        name.removeprefix("network."): layer.weight.shape
        for name, layer in scratch().named_modules()
        if isinstance(layer, nn.Conv2d)
    }
    names = hugging_face_names()
    assert set(shapes) == set(names)
    weights = {name: torch.tensor(float(number)).expand(shape) for number, (name, shape) in enumerate(shapes.items())}
    file = folder / "resnet50" / "microsoft-resnet-50.bin"
    state = {names[name]: value.clone() for name, value in weights.items()}
    if source == "torchvision":
        file = folder / "resnet50" / "resnet50-0676ba61.pth"
        state = {f"{name}.weight": value.clone() for name, value in weights.items()}
        state |= {"bn1.weight": torch.full((64,), 5.0), "fc.weight": torch.full((1000, 2048), 5.0)}
    file.parent.mkdir()
    torch.save(state, file)
    return weights


def test_norms_are_group_norms_of_32_groups_at_one_and_zero() -> None:
    norms = [layer for layer in scratch().modules() if isinstance(layer, nn.GroupNorm)]
    assert len(norms) == 53
    assert {layer.num_groups for layer in norms} == {32}
    assert all(bool((layer.weight == 1).all()) and not layer.bias.any() for layer in norms)


def test_is_torchvisions_network_on_standardised_colours() -> None:
    import torchvision  # after models.resnet50 has declared what a mismatched build lacks

    reference = torchvision.models.resnet50(num_classes=2, norm_layer=functools.partial(nn.GroupNorm, 32))
    reference.load_state_dict({name.removeprefix("network."): p for name, p in scratch().state_dict().items()})
    x = torch.rand(2, *INPUT)
    colours = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).view(2, 3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(scratch()(x), reference((x - colours[0]) / colours[1]))


@pytest.mark.parametrize("source", ["microsoft/resnet-50", "torchvision"])
def test_pretrained_takes_the_convolutions_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    weights = save_weights(tmp_path, source)
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    torch.manual_seed(0)
    model = ResNet50(weights=source).build(INPUT, 2)
    for name, parameter in model.named_parameters():
        name = name.removeprefix("network.")
        if name.removesuffix(".weight") in weights:
            assert torch.equal(parameter, weights[name.removesuffix(".weight")]), name
        else:  # norms at 1 and 0, and the last layer as drawn
            assert torch.equal(parameter, scratch().get_parameter(f"network.{name}")), name


def test_without_network_the_refusal_says_what_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_args: object, **_options: object) -> None:
        raise URLError("Name or service not known")

    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    with pytest.raises(ValueError, match=r"Name or service.*microsoft-resnet-50\.bin.*model\.pretrained=false"):
        ResNet50().build(INPUT, 2)


def test_broken_and_foreign_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    save_weights(tmp_path, "microsoft/resnet-50")
    file = tmp_path / "resnet50" / "microsoft-resnet-50.bin"
    state = torch.load(file)
    state["resnet.encoder.stages.1.layers.0.layer.2.convolution.weight"] = torch.zeros(1)
    torch.save(state, file)
    with pytest.raises(ValueError, match=r"no fitting resnet\.encoder\.stages\.1\.layers\.0\.layer\.2\."):
        ResNet50().build(INPUT, 2)
    file.write_bytes(file.read_bytes()[:100_000])
    with pytest.raises(ValueError, match=r"cannot be had.*model\.pretrained=false"):
        ResNet50().build(INPUT, 2)


def test_unknown_weights_and_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="model.weights=timm.*torchvision"):
        ResNet50(weights="timm")
    for shape in [(1, 28, 28), (60,), (32, 32, 3)]:
        with pytest.raises(ValueError, match="takes images"):
            ResNet50(pretrained=False).build(shape, 2)

"""ResNet-50: group norms everywhere, and pretrained convolutions from either source or a clear refusal."""

import functools
import re
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
from torch import Tensor, nn

from rawls.datasets.celeba import CelebA
from rawls.models.architectures.resnet50 import ResNet50
from rawls.models.engines.check_layers import check_layers

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
    import torchvision  # after rawls.models.architectures.resnet50 has declared what a mismatched build lacks

    reference = torchvision.models.resnet50(num_classes=2, norm_layer=functools.partial(nn.GroupNorm, 32))
    reference.load_state_dict({name.removeprefix("network."): p for name, p in scratch().state_dict().items()})
    x = torch.rand(2, *INPUT)
    colours = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).view(2, 3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(scratch()(x), reference((x - colours[0]) / colours[1]))


def test_the_first_convolution_receives_faces_standardised_once(tmp_path: Path) -> None:
    """163 images of the twin: means 0.06 to 0.43, deviations 0.99 to 1.04; standardised twice, -1.8 to 0.1 and 4.3."""
    faces = CelebA(provenance="simulated", image_size=32).load(tmp_path).inputs.gather(torch.arange(0, 162_770, 1000))
    received: list[Tensor] = []
    hook = scratch().get_submodule("network.conv1").register_forward_pre_hook(lambda _, args: received.append(args[0]))
    with torch.no_grad():
        scratch()(faces)
    hook.remove()
    assert (received[0].mean((0, 2, 3)).abs() < 0.5).all()
    assert ((received[0].std((0, 2, 3)) - 1).abs() < 0.2).all()


@pytest.mark.parametrize("source", ["microsoft/resnet-50", "torchvision"])
def test_pretrained_takes_the_convolutions_and_nothing_else(tmp_path: Path, source: str) -> None:
    weights = save_weights(tmp_path, source)
    torch.manual_seed(0)
    model = ResNet50(weights=source).build(INPUT, 2, tmp_path)
    for name, parameter in model.named_parameters():
        name = name.removeprefix("network.")
        if name.removesuffix(".weight") in weights:
            assert torch.equal(parameter, weights[name.removesuffix(".weight")]), name
        else:  # norms at 1 and 0, and the last layer as drawn
            assert torch.equal(parameter, scratch().get_parameter(f"network.{name}")), name


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No network; the folder where torch hub keeps what it downloaded."""

    def refuse(*_args: object, **_options: object) -> None:
        raise URLError("Name or service not known")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    return tmp_path / "home" / "hub" / "checkpoints"


def with_norms(folder: Path, source: str) -> dict[str, Tensor]:
    """The same file with the tensors of BatchNorms, all different; by our names."""
    weights = save_weights(folder, source)
    file = next((folder / "resnet50").iterdir())
    names = hugging_face_names() if source != "torchvision" else {name: f"{name}.weight" for name in weights}
    norms: dict[str, Tensor] = {}
    state = torch.load(file)
    for number, (name, key) in enumerate(names.items()):
        ours = f"{name[:-1]}1" if "downsample" in name else name.replace("conv", "bn")
        theirs = key.replace("convolution", "normalization") if source != "torchvision" else f"{ours}.weight"
        for place, part in enumerate(("weight", "bias", "running_mean", "running_var")):
            value = torch.full((len(weights[name]),), 1 + number + place / 8)
            norms[f"{ours}.{part}"] = state[theirs.removesuffix("weight") + part] = value
    torch.save(state, file)
    return {f"{name}.weight": value for name, value in weights.items()} | norms


@pytest.mark.parametrize("source", ["microsoft/resnet-50", "torchvision"])
def test_batch_norms_keep_all_that_they_learnt(tmp_path: Path, source: str) -> None:
    """Only the last layer is fresh, and the count of batches."""
    expected = with_norms(tmp_path, source)
    model = ResNet50(weights=source, norm="batch").build(INPUT, 2, tmp_path)
    found = {name.removeprefix("network."): value for name, value in model.state_dict().items()}
    rest = {name for name in found if name not in expected and not name.endswith("num_batches_tracked")}
    assert rest == {"fc.weight", "fc.bias"} and len(expected) == 53 * 5
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    # And group norms none of it.
    model = ResNet50(weights=source).build(INPUT, 2, tmp_path)
    norms = [layer for layer in model.modules() if isinstance(layer, nn.GroupNorm)]
    assert len(norms) == 53 and all(bool((layer.weight == 1).all()) for layer in norms)


def test_weights_without_what_batch_norms_learnt_are_refused(tmp_path: Path) -> None:
    save_weights(tmp_path, "microsoft/resnet-50")
    key = re.escape("resnet.embedder.embedder.normalization.weight")
    with pytest.raises(ValueError, match=rf"^microsoft-resnet-50\.bin, .* a ResNet-50 \({key} is missing, .*again$"):
        ResNet50(norm="batch").build(INPUT, 2, tmp_path)


def test_batch_norm_is_refused_to_private_methods() -> None:
    model = ResNet50(pretrained=False, norm="batch").build(INPUT, 2)
    with pytest.raises(ValueError, match=r"BatchNorm2d, which mixes the samples .*use GroupNorm$"):
        check_layers(model)
    assert check_layers(model, "plain") == "plain"


def test_a_file_under_the_data_root_comes_before_a_downloaded_one(tmp_path: Path, offline: Path) -> None:
    weights = save_weights(tmp_path, "microsoft/resnet-50")
    file = tmp_path / "resnet50" / "microsoft-resnet-50.bin"
    offline.mkdir(parents=True)
    torch.save({name: value + 100 for name, value in torch.load(file).items()}, offline / file.name)
    for root, shift in ((tmp_path, 0), (tmp_path / "empty", 100), (None, 100)):
        model = ResNet50().build(INPUT, 2, root)
        assert torch.equal(model.get_parameter("network.conv1.weight"), weights["conv1"] + shift)


@pytest.mark.parametrize("rooted", [True, False])
def test_without_network_the_refusal_says_what_to_put_where(tmp_path: Path, offline: Path, rooted: bool) -> None:
    with pytest.raises(ValueError, match=r"Name or service.*microsoft-resnet-50\.bin.*model\.pretrained=false"):
        ResNet50().build(INPUT, 2, tmp_path if rooted else None)


def test_foreign_weights_are_refused_by_the_first_convolution_that_differs(tmp_path: Path) -> None:
    save_weights(tmp_path, "microsoft/resnet-50")
    file = tmp_path / "resnet50" / "microsoft-resnet-50.bin"
    state = torch.load(file)
    known = "resnet.encoder.stages.1.layers.0.layer.2.convolution.weight"
    deeper = "resnet.encoder.stages.2.layers.6.layer.2.convolution.weight"
    others = [
        ({**state, known: torch.zeros(1)}, known),
        ({**state, known: torch.zeros(2, 2, 1, 1)}, known),
        ({**state, deeper: torch.zeros(1024, 256, 1, 1)}, deeper),  # as a ResNet-101 has it
        ([1, 2], "resnet.embedder.embedder.convolution.weight"),
    ]
    for content, key in others:
        torch.save(content, file)
        with pytest.raises(ValueError, match=rf"^microsoft-resnet-50\.bin, .* \({re.escape(key)} is .*again$"):
            ResNet50().build(INPUT, 2, tmp_path)


def test_a_broken_weights_file_is_refused(tmp_path: Path) -> None:
    save_weights(tmp_path, "microsoft/resnet-50")
    file = tmp_path / "resnet50" / "microsoft-resnet-50.bin"
    file.write_bytes(file.read_bytes()[:100_000])
    with pytest.raises(ValueError, match=r"cannot be had.*model\.pretrained=false"):
        ResNet50().build(INPUT, 2, tmp_path)


def test_unknown_weights_and_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="model.weights=timm.*torchvision"):
        ResNet50(weights="timm")
    for shape in [(1, 28, 28), (60,), (32, 32, 3)]:
        with pytest.raises(ValueError, match="takes images"):
            ResNet50(pretrained=False).build(shape, 2)

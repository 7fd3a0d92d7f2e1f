"""Convolutions by Winograd's filtering: outputs and gradients against torch in double precision, sample by sample."""

import copy
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rawls.models.engines.fused import FusedEngine
from rawls.models.engines.kernels import compiled, winograd
from tests.models.conftest import fixed_weights, oracle
from tests.models.engines.kernels.checks import (
    assert_check_asks_nothing_of_torch,
    assert_distrusted,
    assert_same_shape,
)
from tests.models.engines.kernels.test_conv2d import by_sample

LAYOUTS = {"contiguous": torch.contiguous_format, "channels last": torch.channels_last}
needs_kernel = pytest.mark.skipif(winograd.kernel() is None, reason="no compiler and processor for the kernel")
CHANNELS = st.sampled_from([16, 32, 48, 80])
EXACT = 5e-6  # of the largest value; sums in order come to 1e-6


def images(layer: nn.Conv2d, samples: int, rows: int, columns: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """What goes in, and a gradient of what comes out."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(samples, layer.in_channels, rows, columns, generator=generator)
    return a, torch.randn(layer(a).shape, generator=generator)


def convolution(entering: int, leaving: int, *, padding: tuple[int, int] = (0, 0), bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(entering, leaving, 3, padding=padding, bias=bias).requires_grad_(False)


def assert_close(found: Tensor | None, exact: Tensor) -> None:
    assert found is not None and found.shape == exact.shape
    size = float(exact.abs().max()) if exact.numel() else 0.0
    torch.testing.assert_close(found.double(), exact, rtol=0.0, atol=EXACT * size)


def exact_input_gradient(layer: nn.Conv2d, a: Tensor, g: Tensor) -> Tensor:
    entered = a.double().requires_grad_()
    out = nn.functional.conv2d(entered, layer.weight.double(), padding=layer.padding)
    return torch.autograd.grad(out, entered, g.double())[0]


@needs_kernel
@settings(deadline=None, max_examples=40)
@example(channels=(32, 16), samples=2, sides=(26, 26), padding=(0, 0), bias=True, layouts=["contiguous"] * 2)
@example(channels=(16, 32), samples=9, sides=(8, 8), padding=(1, 1), bias=True, layouts=["channels last"] * 2)
@example(channels=(16, 16), samples=1, sides=(3, 120), padding=(1, 2), bias=False, layouts=["channels last"] * 2)
@given(
    channels=st.tuples(CHANNELS, CHANNELS),
    samples=st.integers(1, 4),
    sides=st.tuples(st.integers(3, 20), st.integers(3, 20)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    bias=st.booleans(),
    layouts=st.lists(st.sampled_from(sorted(LAYOUTS)), min_size=2, max_size=2),
)
def test_outputs_and_gradients_are_right_for_every_shape_and_layout(
    channels: tuple[int, int],
    samples: int,
    sides: tuple[int, int],
    padding: tuple[int, int],
    bias: bool,
    layouts: list[str],
) -> None:
    layer = convolution(*channels, padding=padding, bias=bias)
    a, g = images(layer, samples, *sides)
    forward = copy.deepcopy(layer).double()(a.double())
    entering, of_parameters = exact_input_gradient(layer, a, g), by_sample(layer, a, g)
    a, g = (values.contiguous(memory_format=LAYOUTS[name]) for values, name in zip((a, g), layouts, strict=True))
    if (out := winograd.outputs(layer, a)) is not None:
        assert_close(out, forward)
        assert out.is_contiguous(memory_format=LAYOUTS[layouts[0]])
    if (back := winograd.input_gradient(layer, g, a.shape[2:])) is not None:
        assert_close(back, entering)
    if (found := winograd.gradients(layer, a, g)) is not None:
        weight, of_bias, squares = found
        assert (of_bias is None) == (not bias)
        assert_close(winograd.in_order(layer, weight), torch.stack([one[0] for one in of_parameters]))
        if of_bias is not None:
            assert_close(of_bias, torch.stack([one[1] for one in of_parameters]))
        exact = torch.stack([torch.stack([part.square().sum() for part in one]).sum() for one in of_parameters])
        torch.testing.assert_close(squares.double(), exact, rtol=1e-5, atol=0.0)


@needs_kernel
def test_a_squared_norm_is_that_of_the_gradient_which_is_summed() -> None:
    """So that no rounding on the way there lets a sample contribute more than its bound."""
    layer = convolution(48, 32, padding=(1, 1))
    a, g = images(layer, 5, 30, 30)  # in two parts
    found = winograd.gradients(layer, 50 + a, g)  # sums of values that are all but equal: rounding shows
    assert found is not None
    weight, bias, squares = found
    assert bias is not None
    summed = weight.double().square().sum(1) + bias.double().square().sum(1)
    torch.testing.assert_close(squares.double(), summed, rtol=3e-7, atol=0.0)


@needs_kernel
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("channels", "side"), [((16, 32), 6), ((32, 16), 27), ((48, 16), 9)])
def test_a_sample_has_the_same_numbers_in_every_chunk(channels: tuple[int, int], side: int, layout: str) -> None:
    """Bit for bit, although tiles of several samples are multiplied at once; and zeros where it is zero."""
    layer = convolution(*channels, padding=(1, 1), bias=False)
    a, g = (x.contiguous(memory_format=LAYOUTS[layout]) for x in images(layer, 9, side, side))
    g[4] = 0

    def numbers(of: slice) -> list[Tensor]:
        out, back = winograd.outputs(layer, a[of]), winograd.input_gradient(layer, g[of], a.shape[2:])
        found = winograd.gradients(layer, a[of], g[of])
        assert out is not None and back is not None and found is not None
        return [out, back, found[0], found[2]]

    together = numbers(slice(None))
    assert not together[1][4].any() and not together[2][4].any() and together[3][4] == 0
    for sample in range(len(a)):
        for all_of_them, alone in zip(together, numbers(slice(sample, sample + 1)), strict=True):
            assert torch.equal(all_of_them[sample], alone[0])
    for part in (slice(0, 5), slice(5, 9)):
        for all_of_them, some in zip(together, numbers(part), strict=True):
            assert torch.equal(all_of_them[part], some)


@needs_kernel
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e38])
def test_what_is_not_finite_stays_with_its_sample(bad: float) -> None:
    layer = convolution(32, 32, padding=(1, 1))
    a, g = images(layer, 3, 9, 9)
    expected = (
        winograd.gradients(layer, a, g),
        winograd.outputs(layer, a),
        winograd.input_gradient(layer, g, a.shape[2:]),
    )
    a[1, 0, 4, 4] = g[1, 0, 4, 4] = bad
    found = winograd.gradients(layer, a, g), winograd.outputs(layer, a), winograd.input_gradient(layer, g, a.shape[2:])
    assert found[0] is not None and expected[0] is not None
    assert found[0][2].isfinite().tolist() == [True, False, True]
    for ours, theirs in zip((found[0][0], *found[1:]), (expected[0][0], *expected[1:]), strict=True):
        assert ours is not None and theirs is not None
        assert torch.equal(ours[::2], theirs[::2])


@needs_kernel
def test_a_run_that_used_the_kernel_says_so() -> None:
    assert "winograd_kernel" in compiled.loaded()


@needs_kernel
def test_no_samples_are_no_error() -> None:
    layer = convolution(16, 32)
    a, g = images(layer, 0, 6, 6)
    out, back, found = (
        winograd.outputs(layer, a),
        winograd.input_gradient(layer, g, (6, 6)),
        winograd.gradients(layer, a, g),
    )
    assert out is not None and back is not None and found is not None
    assert out.shape == g.shape and back.shape == a.shape and len(found[0]) == len(found[2]) == 0


OTHERS = {
    "one channel": nn.Conv2d(1, 16, 3),
    "channels that fill no vector": nn.Conv2d(16, 24, 3),
    "a step of two": nn.Conv2d(16, 16, 3, stride=2),
    "gaps": nn.Conv2d(16, 16, 3, dilation=2),
    "groups": nn.Conv2d(32, 32, 3, groups=2),
    "five columns": nn.Conv2d(16, 16, (3, 5)),
    "wide padding": nn.Conv2d(16, 16, 3, padding=3),
    "padding by name": nn.Conv2d(16, 16, 3, padding="same"),
    "other padding": nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect"),
    "double precision": nn.Conv2d(16, 16, 3).double(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_convolutions_are_left_to_others(name: str) -> None:
    layer = OTHERS[name]
    x = torch.randn(2, layer.in_channels, 12, 12, dtype=layer.weight.dtype)
    out = layer(x)
    assert winograd.outputs(layer, x) is None
    assert winograd.input_gradient(layer, out, x.shape[2:]) is None
    assert winograd.gradients(layer, x, out) is None


@pytest.mark.parametrize("shape", [(2, 16, 2, 9), (2, 16, 1, 1), (2, 48, 9, 9), (16, 9, 9)])
def test_what_torch_refuses_or_takes_without_a_batch_is_left_to_torch(shape: tuple[int, ...]) -> None:
    assert winograd.outputs(convolution(16, 32), torch.randn(shape)) is None


@needs_kernel
@pytest.mark.parametrize(("size", "taken"), [(2, False), (3, True), (4, True), (5, False), (6, True), (8, True)])
def test_the_size_of_an_image_decides_whatever_the_chunk(size: int, taken: bool) -> None:
    layer = convolution(16, 16, padding=(1, 1))
    for samples in (1, 64):
        assert (winograd.outputs(layer, torch.randn(samples, 16, size, size)) is not None) == taken


def test_the_kernel_and_torch_name_the_same_shape() -> None:
    assert_same_shape(winograd, arrays=0)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("to[0] = (d[0] + d[4]) - 2.5f * d[2];", "to[0] = (d[0] + d[4]) - 2.4f * d[2];"),
        ("to[2] = even_a - odd_a;", "to[2] = even_a + odd_a;"),
        ("store(load(out + (y * STEP + x) * LANES) + bias,", "store(load(out + (y * STEP + x) * LANES),"),
        ("turned ? PLACES - 1 - w : w", "w"),
        ("if (!first) turned[x] += load(to);", ""),
        ("squares[n] = (float)square;", "squares[n] = 0.99f * (float)square;"),
        ("is_there ? load", "1 ? load"),
        ("columns - LANES; /* it may overlap the last */", "x - LANES;"),
    ],
)
def test_a_kernel_that_computes_wrongly_is_not_used(
    right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert_distrusted(winograd, right, wrong, tmp_path, monkeypatch, caplog)


def test_the_check_leaves_torch_as_it_was_and_asks_nothing_of_it() -> None:
    assert_check_asks_nothing_of_torch(winograd)


@pytest.mark.parametrize("shape", [(3, 32, 5, 7), (2, 5, 3, 3), (0, 16, 4, 4), (2, 20, 9, 9)])
def test_images_are_turned_from_one_layout_to_the_other(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    for source in LAYOUTS.values():
        for layout in LAYOUTS.values():
            turned = winograd.laid_out(x.contiguous(memory_format=source), layout)
            assert torch.equal(turned, x) and turned.is_contiguous(memory_format=layout)


def module() -> nn.Module:
    layers = [nn.Conv2d(1, 16, 3), nn.Tanh(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 16, 3)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 8 * 7, 3))


@pytest.mark.parametrize("way", ["kernel", "torch"])
def test_the_engine_equals_a_micro_batch_of_one_and_spares_what_is_not_finite(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In single precision; a sample that is not finite contributes exactly zero."""
    if way == "torch":
        monkeypatch.setattr(winograd, "kernel", lambda: None)
    torch.manual_seed(0)
    engine = FusedEngine(module, device=torch.device("cpu"), chunk=4)
    params, labels = engine.initial(0), torch.randint(3, (1, 6))
    inputs, weights = torch.randn(1, 6, 1, 12, 11), torch.rand(1, 6)
    inputs[0, 2] = torch.inf
    found = engine.weighted_sum(params.unsqueeze(0), inputs, labels, fixed_weights(weights))
    assert found.norms[0].isfinite().tolist() == [True, True, False, True, True, True]
    finite = [0, 1, 3, 4, 5]
    losses, exact = oracle(module, params.double(), inputs[0, finite].double(), labels[0, finite])
    norms = exact.norm(dim=1)
    torch.testing.assert_close(found.losses[0, finite].double(), losses, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(found.norms[0, finite].double(), norms, rtol=1e-5, atol=0.0)
    total = weights[0, finite].double() @ exact
    assert float((found.total[0].double() - total).norm() / total.norm()) < 1e-5
    predicted = engine.predict(params, inputs[0, finite])
    torch.testing.assert_close(predicted, module_with(params)(inputs[0, finite]), rtol=1e-4, atol=1e-5)


def module_with(params: Tensor) -> nn.Module:
    built = module().requires_grad_(False)
    torch.nn.utils.vector_to_parameters(params, built.parameters())
    return built

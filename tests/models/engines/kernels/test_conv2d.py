"""Per-sample gradients of a convolution: every way against autograd of one sample in double precision."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rawls.models.engines.kernels import compiled, conv2d, winograd
from tests.models.engines.kernels.checks import (
    assert_check_asks_nothing_of_torch,
    assert_distrusted,
    assert_same_shape,
)

Layout = Callable[[Tensor], Tensor]
LAYOUTS: dict[str, Layout] = {
    "channels first": lambda x: x.contiguous(),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "every second": lambda x: x.repeat_interleave(2, dim=3)[..., ::2],
}


@pytest.fixture(scope="module", autouse=True)
def _winograds_way_is_closed() -> Iterator[None]:
    """It has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "kernel", lambda: None)
        yield


@pytest.fixture(params=["kernel", "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With our kernel, and as where there is no compiler."""
    if request.param == "torch":
        monkeypatch.setattr(conv2d, "kernel", lambda: None)
    elif conv2d.kernel() is None:
        pytest.skip("no compiler and processor for the kernel")
    return str(request.param)


def by_sample(layer: nn.Conv2d, a: Tensor, g: Tensor) -> list[list[Tensor]]:
    """[sample][parameter] in double precision, each sample alone."""
    options = (layer.stride, layer.padding, layer.dilation)
    parameters = [parameter.detach().double().requires_grad_() for parameter in layer.parameters()]
    weight, bias = (*parameters, None)[:2]
    assert weight is not None
    found = []
    for one, gradient in zip(a.double(), g.double(), strict=True):
        out = nn.functional.conv2d(one.unsqueeze(0), weight, bias, *options)  # type: ignore[arg-type]
        found.append(list(torch.autograd.grad(out, parameters, gradient.unsqueeze(0))))
    return found


def assert_right(layer: nn.Conv2d, a: Tensor, g: Tensor) -> None:
    found, expected = conv2d.gradients(layer, a, g), by_sample(layer, a, g)
    size = sum(float(p.abs().max()) for parameters in expected for p in parameters)
    for sample, (weight, *bias) in enumerate(expected):
        ours = found.in_order(found.weight[sample])
        torch.testing.assert_close(ours.double(), weight, rtol=1e-4, atol=1e-5 * size)
        assert (found.bias is None) == (bias == [])
        if found.bias is not None:
            torch.testing.assert_close(found.bias[sample].double(), bias[0], rtol=1e-4, atol=1e-5 * size)
        square = torch.stack([p.square().sum() for p in (weight, *bias)]).sum()
        torch.testing.assert_close(found.squares[sample].double(), square, rtol=1e-4, atol=1e-10)
    weights = torch.linspace(-1, 1, len(a))
    total = found.in_order(weights @ found.weight)
    assert total.shape == layer.weight.shape
    together = conv2d.weight_gradient(layer, a, g * weights.view(-1, 1, 1, 1))
    torch.testing.assert_close(total, together, rtol=1e-3, atol=1e-5 * size * len(a))


PLAIN = {"columns": 3, "step": (1, 1), "gap": (1, 1)}
FIRST, LAST = ("channels first",) * 2, ("channels last",) * 2


@settings(deadline=None, max_examples=60)
@example(samples=2, channels=(1, 32), image=(28, 28), rows=3, padding=(0, 0), bias=True, layouts=FIRST, **PLAIN)
@example(samples=2, channels=(32, 16), image=(26, 26), rows=3, padding=(0, 0), bias=True, layouts=FIRST, **PLAIN)
@example(
    samples=2,
    channels=(3, 32),
    image=(32, 32),
    rows=3,
    padding=(1, 1),
    bias=True,
    layouts=("channels last",) * 2,
    **PLAIN,
)
@example(samples=1, channels=(5, 1), image=(1, 1), rows=1, padding=(0, 1), bias=False, layouts=FIRST, **PLAIN)
@example(
    samples=2,
    channels=(3, 64),
    image=(64, 64),
    rows=7,
    columns=7,
    step=(2, 2),
    gap=(1, 1),
    padding=(3, 3),
    bias=False,
    layouts=FIRST,
)
@given(
    samples=st.integers(1, 4),
    channels=st.tuples(st.integers(1, 12), st.integers(1, 40)),
    image=st.tuples(st.integers(1, 20), st.integers(1, 40)),
    rows=st.integers(1, 5),
    columns=st.sampled_from(conv2d._KERNEL_COLUMNS),
    step=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    gap=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    bias=st.booleans(),
    layouts=st.tuples(st.sampled_from(sorted(LAYOUTS)), st.sampled_from(sorted(LAYOUTS))),
)
def test_the_kernel_is_right_for_every_shape_and_layout(
    samples: int,
    channels: tuple[int, int],
    image: tuple[int, int],
    rows: int,
    columns: int,
    step: tuple[int, int],
    gap: tuple[int, int],
    padding: tuple[int, int],
    bias: bool,
    layouts: tuple[str, str],
) -> None:
    filled = (
        max(side, space * (size - 1) + 1 - 2 * around)
        for side, space, size, around in zip(image, gap, (rows, columns), padding, strict=True)
    )
    layer = nn.Conv2d(*channels, (rows, columns), stride=step, padding=padding, dilation=gap, bias=bias)
    generator = torch.Generator().manual_seed(samples + 10 * channels[1])
    a = torch.randn(samples, channels[0], *filled, generator=generator)
    g = torch.randn(layer(a).shape, generator=generator)
    assert conv2d._kernel_takes(layer, a)
    assert_right(layer, LAYOUTS[layouts[0]](a), LAYOUTS[layouts[1]](g))


OTHERS = {
    "five columns": nn.Conv2d(3, 4, 5, padding=2),
    "two columns": nn.Conv2d(40, 4, 2, stride=2),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_the_kernel_does_not_take_goes_another_way(name: str) -> None:
    layer = OTHERS[name]
    a = torch.randn(3, layer.in_channels, 9, 8)
    assert not conv2d._kernel_takes(layer, a)
    assert_right(layer, a, torch.randn_like(layer(a)))


def test_both_ways_are_right_without_a_compiler_too(way: str) -> None:
    """The first layer of few inputs, the second of many: torch has a way for each."""
    for layer, size in ((nn.Conv2d(1, 32, 3), 28), (nn.Conv2d(32, 16, 3), 26)):
        a = torch.randn(3, layer.in_channels, size, size)
        assert_right(layer, a, torch.randn_like(layer(a)))


def test_a_sample_has_the_same_gradient_in_every_chunk() -> None:
    """Bit for bit: nothing a sample's neighbours hold reaches its sums."""
    layer = nn.Conv2d(4, 20, 3, padding=1)
    a = torch.randn(7, 4, 9, 17)
    g = torch.randn_like(layer(a))
    together = conv2d.gradients(layer, a, g)
    for sample in range(len(a)):
        alone = conv2d.gradients(layer, a[sample : sample + 1], g[sample : sample + 1])
        assert torch.equal(alone.weight[0], together.weight[sample])
        assert torch.equal(alone.squares[0], together.squares[sample])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_with_its_sample(way: str, bad: float) -> None:
    layer = nn.Conv2d(2, 20, 3, padding=1)
    a = torch.randn(3, 2, 6, 6)
    g = torch.randn_like(layer(a))
    expected = conv2d.gradients(layer, a, g)
    g[1, 0, 0, 0] = bad
    found = conv2d.gradients(layer, a, g)
    assert found.squares.isfinite().tolist() == [True, False, True]
    for sample in (0, 2):
        assert torch.equal(found.weight[sample], expected.weight[sample])


def test_a_chunk_of_no_samples_is_no_error(way: str) -> None:
    layer = nn.Conv2d(2, 3, 3)
    found = conv2d.gradients(layer, torch.empty(0, 2, 5, 5), torch.empty(0, 3, 3, 3))
    assert len(found.weight) == len(found.squares) == 0


def test_the_kernel_and_torch_name_the_same_shape() -> None:
    assert_same_shape(conv2d, arrays=2)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("total[p][2] += value * right;", "total[p][2] += value * middle;"),
        ("squares[n] = (float)square;", "squares[n] = 0.99f * (float)square;"),
        ("if (channels < LANES) memset", "if (0) memset"),
        ("x * s->step_columns;", "x;"),
        ("padded_rows(s) + kernel_row * s->gap_rows", "padded_rows(s)"),
    ],
)
def test_a_kernel_that_computes_wrongly_is_not_used(
    right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert_distrusted(conv2d, right, wrong, tmp_path, monkeypatch, caplog)


def test_the_check_leaves_torch_as_it_was_and_asks_nothing_of_it() -> None:
    assert_check_asks_nothing_of_torch(conv2d)


def test_a_run_that_used_the_kernel_says_so() -> None:
    if conv2d.kernel() is None:
        pytest.skip("no compiler and processor for the kernel")
    assert "conv2d_kernel" in compiled.loaded()


def test_norms_by_positions_that_cancel_are_right_in_single_precision() -> None:
    """Gradients that sum to nothing, as before a normalisation, of positions that are all but equal."""
    torch.manual_seed(0)
    layer = nn.Conv2d(16, 8, 3, bias=False)
    a = 10 + torch.rand(4, 16, 5, 5) / 10
    g = torch.randn(4, 8, 3, 3)
    g -= g.mean((2, 3), keepdim=True)
    exact = conv2d.gradients(layer, a.double(), g.double()).squares

    torch.testing.assert_close(conv2d.squares_by_positions(layer, [(a, g)]).double(), exact, rtol=1e-6, atol=0.0)

    columns, gradients = nn.functional.unfold(a, 3), g.flatten(2)
    single = ((columns.mT @ columns) * (gradients.mT @ gradients)).sum((1, 2))
    assert float((single / exact - 1).abs().max()) > 1e-5

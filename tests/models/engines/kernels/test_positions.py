"""Squared norms of gradients over the positions of a sequence: the kernel against gradients in double precision."""

from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rawls.models.engines.kernels import compiled, positions
from tests.models.engines.kernels.checks import assert_check_asks_nothing_of_torch, assert_distrusted

needs_kernel = pytest.mark.skipif(positions.kernel() is None, reason="no compiler and processor for the kernel")


def exact(a: Tensor, g: Tensor) -> Tensor:
    """By the gradient of each sample."""
    return (g.double().mT @ a.double()).square().sum((1, 2))


def passed(samples: int, length: int, features: tuple[int, int]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(length)
    a, g = (torch.randn(samples, length, wide, generator=generator) for wide in features)
    return a, g


@needs_kernel
@settings(deadline=None, max_examples=40)
@example(samples=2, length=128, features=(768, 64))
@given(
    samples=st.integers(0, 4),
    length=st.integers(1, 90),
    features=st.tuples(st.integers(1, 150), st.integers(1, 150)),
)
def test_squares_are_those_of_the_gradients(samples: int, length: int, features: tuple[int, int]) -> None:
    a, g = passed(samples, length, features)
    torch.testing.assert_close(positions.squares(a, g).double(), exact(a, g), rtol=1e-6, atol=0.0)
    turned = a.mT.contiguous().mT, g.repeat_interleave(2, dim=2)[..., ::2]
    assert torch.equal(positions.squares(*turned), positions.squares(a, g))


@pytest.mark.parametrize("way", ["kernel", "torch"])
def test_what_almost_cancels_is_right_in_single_precision(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients that sum to nothing, of positions that are all but equal: products in single precision are wrong."""
    if way == "torch":
        monkeypatch.setattr(positions, "kernel", lambda: None)
    a, g = passed(3, 20, (200, 30))
    a = 100 + a / 100
    g -= g.mean(1, keepdim=True)
    torch.testing.assert_close(positions.squares(a, g).double(), exact(a, g), rtol=1e-6, atol=0.0)
    single = ((a @ a.mT) * (g @ g.mT)).sum((1, 2))
    assert float((single / exact(a, g) - 1).abs().max()) > 1e-3


@needs_kernel
def test_a_sample_has_the_same_square_in_every_chunk() -> None:
    a, g = passed(5, 33, (70, 20))
    together = positions.squares(a, g)
    for sample in range(5):
        assert torch.equal(positions.squares(a[sample : sample + 1], g[sample : sample + 1])[0], together[sample])


@needs_kernel
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_with_its_sample(bad: float) -> None:
    a, g = passed(3, 33, (70, 20))
    expected = positions.squares(a, g)
    g[1, 7, 3] = bad
    found = positions.squares(a, g)
    assert found.isfinite().tolist() == [True, False, True]
    assert torch.equal(found[::2], expected[::2])


@needs_kernel
def test_zeros_give_zero_and_a_run_says_that_it_used_the_kernel() -> None:
    a, _ = passed(2, 33, (70, 20))
    assert not positions.squares(a, torch.zeros(2, 33, 20)).any()
    assert "positions_kernel" in compiled.loaded()


def test_double_precision_and_few_positions_go_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "kernel", lambda: pytest.fail("the kernel was asked for"))
    for length, kind in ((3, torch.float32), (20, torch.float64)):
        a, g = (values.to(kind) for values in passed(2, length, (30, 9)))
        torch.testing.assert_close(positions.squares(a, g).double(), exact(a, g), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("squares[n] = once + 2 * twice;", "squares[n] = once + twice;"),
        ("f < features; f += FEATURES)", "f < FEATURES; f += FEATURES)"),
        ("const int64_t there = min(positions - p, LANES)", "const int64_t there = min(positions - p, LANES - 1)"),
        ("case 2: add_products(2,", "case 2: add_products(1,"),
    ],
)
def test_a_kernel_that_computes_wrongly_is_not_used(
    right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert_distrusted(positions, right, wrong, tmp_path, monkeypatch, caplog)


def test_the_check_leaves_torch_as_it_was_and_asks_nothing_of_it() -> None:
    assert_check_asks_nothing_of_torch(positions)

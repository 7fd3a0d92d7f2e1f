"""Products by oneDNN against torch's own, and without oneDNN."""

import pytest
import torch

from rawls.models.engines.kernels import matmul

SHAPES = [(1, 8, 8), (5, 9, 17), (33, 60, 256), (256, 256, 10), (7, 9216, 10), (5, 104, 2), (5, 3, 40)]


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "wide", "out"), SHAPES)
def test_products_equal_those_in_double_precision(
    rows: int, wide: int, out: int, dtype: torch.dtype, onednn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not onednn:
        monkeypatch.setattr(matmul, "_onednn", None)
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(*shape, dtype=dtype) for shape in ((rows, wide), (out, wide), (out,)))
    g, total = torch.randn(rows, out, dtype=dtype), torch.randn(out, wide, dtype=dtype)
    expected = [
        x.double() @ weight.double().T + bias.double(),
        g.double() @ weight.double(),
        total.double() + g.double().T @ x.double(),
    ]
    matmul.add_product(total, g, x)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    for found, wanted in zip(
        (matmul.linear(x, weight, bias), matmul.linear(g, weight.T), total), expected, strict=True
    ):
        torch.testing.assert_close(found, wanted.to(dtype), rtol=tolerance, atol=tolerance)


def test_inputs_may_have_more_dimensions() -> None:
    x, weight, bias = torch.randn(3, 4, 20), torch.randn(16, 20), torch.randn(16)
    torch.testing.assert_close(matmul.linear(x, weight, bias), torch.nn.functional.linear(x, weight, bias))


def test_rows_may_lie_apart() -> None:
    """As those of the first positions of sequences do."""
    states, g, total = torch.randn(8, 9, 400), torch.randn(8, 9, 400), torch.randn(400, 400)
    expected = total + g[:, 0].T @ states[:, 0]
    matmul.add_product(total, g[:, 0], states[:, 0])
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-4)

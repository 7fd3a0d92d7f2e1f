"""A network as a program of torch's own operations, which whoever has torch can run without the code that made it."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import torch
from torch import nn

TRACED_ROWS = 3
OTHER_ROWS = (1, 5)


def program(module: nn.Module, shape: Sequence[int], dtype: str) -> tuple[bytes | None, str]:
    """The file of the program, for any number of rows; or None, and why there is none.

    Args:
        shape, dtype: of a row of inputs.
    """
    example = torch.zeros(TRACED_ROWS, *shape, dtype=getattr(torch, dtype))
    try:
        with torch.no_grad(), _silent():
            traced = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("rows")},))
            runs = traced.module()
            for rows in OTHER_ROWS:
                inputs = torch.zeros(rows, *shape, dtype=example.dtype)
                if not torch.allclose(runs(inputs), module(inputs), rtol=1e-3, atol=1e-5):
                    return None, "the program that torch made of it answers otherwise"
        file = io.BytesIO()
        torch.export.save(traced, file)
    except Exception as error:  # many types: torch raises what it likes for code that it cannot follow
        return None, str(error).strip().partition("\n")[0].rstrip(".")
    return file.getvalue(), ""


@contextmanager
def _silent() -> Iterator[None]:
    """Without what torch prints and logs of code that it cannot follow: it is said in a line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)

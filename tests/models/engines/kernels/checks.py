"""What holds of every kernel: a fault in it is found at load, and Python and C mean the same."""

import ctypes
from pathlib import Path
from types import ModuleType

import pytest
import torch

from rawls.models.engines.kernels import compiled


def assert_distrusted(
    module: ModuleType,
    right: str,
    wrong: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The module's kernel is not used with `wrong` in place of `right`, in its source or one of the headers beside."""
    if module.kernel() is None:
        pytest.skip("no compiler and processor for the kernel")
    files = {path: path.read_text("utf-8") for path in (module._SOURCE, *module._SOURCE.parent.glob("*.h"))}
    assert sum(text.count(right) for text in files.values()) == 1
    for path, text in files.items():
        (folder / path.name).write_text(text.replace(right, wrong), "utf-8")
    monkeypatch.setattr(module, "_SOURCE", folder / module._SOURCE.name)
    monkeypatch.setattr(compiled, "_loaded", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    assert module.kernel.__wrapped__() is None
    assert "computes wrongly" in caplog.text
    assert compiled.loaded() == {}


def assert_same_shape(module: ModuleType, arrays: int) -> None:
    """C and Python name the same fields of Shape: one too many in Python would shift what the kernel reads.

    Args:
        arrays: how many fields at its end are of four numbers.
    """
    source = module._SOURCE.read_text(encoding="utf-8")
    struct = source[source.index("typedef struct {") : source.index("} Shape;")]
    names = struct.replace("typedef struct {", "").replace("int64_t", "").replace(";", ",").split(",")
    fields = [field[0] for field in module._Shape._fields_]
    assert [name.strip().removesuffix("[4]") for name in names if name.strip()] == fields
    assert ctypes.sizeof(module._Shape) == 8 * (len(fields) + 3 * arrays)


def assert_check_asks_nothing_of_torch(module: ModuleType) -> None:
    """Neither its default type nor its generator, which stays as it was."""
    library = module.kernel()
    if library is None:
        pytest.skip("no compiler and processor for the kernel")
    before = torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        assert module._agrees_with_torch(library)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(torch.get_rng_state(), before)
